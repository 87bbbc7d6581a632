"""The lines that the tests of corpora close with, also where several processes ran them."""

from __future__ import annotations

from typing import Any

import pytest

TALLIES = pytest.StashKey[list[dict[str, Any]]]()
"""Of each corpus in each process: its name, what was captured, fallbacks with reasons, wrong."""


def lines(tallies: list[dict[str, Any]]) -> list[str]:
    """A count for each corpus, and the reason of each fallback."""
    merged: dict[str, dict[str, Any]] = {}
    for tally in tallies:
        one = merged.setdefault(tally["corpus"], {"captured": [], "fallback": {}, "wrong": []})
        one["captured"] += tally["captured"]
        one["fallback"] |= tally["fallback"]
        one["wrong"] += tally["wrong"]
    found = []
    for corpus, one in sorted(merged.items()):
        counts = f"captured {len(one['captured'])} / fallback {len(one['fallback'])}"
        found.append(f"{corpus}: {counts} / wrong {len(one['wrong'])}")
        found += [f"  {name} runs eagerly: {why}" for name, why in sorted(one["fallback"].items())]
    return found
