"""Prints requirements out of pyproject.toml, one a line, for `pip install -r`.

    python scripts/requirements.py build run demo test

build: what the build backend needs; run: the package's dependencies; any other word: that extra or
dependency group. Extras that name other extras of the package (``trident[demo]``) are expanded.
"""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent


def requirements(project: dict[str, Any], group: str) -> list[str]:
    """Requirements of one group of a parsed pyproject.toml, without duplicates, in file order.

    Raises:
        KeyError: there is no such group; the message lists the groups.
    """
    extras = project["project"]["optional-dependencies"]
    groups = {
        "build": project["build-system"]["requires"],
        "run": project["project"]["dependencies"],
    }
    groups |= extras | project.get("dependency-groups", {})
    if group not in groups:
        raise KeyError(f"no group {group!r} in pyproject.toml; there are: {', '.join(groups)}")
    found: list[str] = []
    for requirement in groups[group]:
        own = re.fullmatch(rf"{project['project']['name']}\[(.+)\]", requirement)
        found += requirements(project, own[1]) if own else [requirement]
    return list(dict.fromkeys(found))


def main(groups: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = [line for group in groups for line in requirements(project, group)]
    print("\n".join(dict.fromkeys(lines)))


if __name__ == "__main__":
    main(sys.argv[1:])
