"""Counts instructions with valgrind's callgrind, from inside the measured process.

A worker runs under `command()`; it marks what is counted with a `Counter`. `read_profiles` then
gives, per mark, what functions and shared libraries cost. Counts do not depend on how busy the
machine is, so a few percent more are seen where a clock shows nothing.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

# The requests are instruction sequences that valgrind recognizes; they are macros of its header.
_CLIENT = r"""
#include <valgrind/callgrind.h>
void counter_start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void counter_stop(const char* name) {
  CALLGRIND_DUMP_STATS_AT(name);
  CALLGRIND_STOP_INSTRUMENTATION;
}
int counter_running(void) { return (int)RUNNING_ON_VALGRIND; }
"""


class NotAvailable(RuntimeError):
    """Valgrind or its header is missing; the message says what to install."""


def require() -> str:
    """Valgrind's version, such as ``3.19.0``.

    Raises:
        NotAvailable: valgrind is not installed, or without its header files.
    """
    if shutil.which("valgrind") is None or not pathlib.Path("/usr/include/valgrind").is_dir():
        raise NotAvailable(
            "instructions are counted with valgrind, which is not installed: "
            "run `apt-get install valgrind`"
        )
    done = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip().removeprefix("valgrind-")


def command(folder: pathlib.Path) -> list[str]:
    """What to put before a worker's command line; its profiles are written into `folder`."""
    return [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        "--compress-strings=no",
        "--compress-pos=no",
        f"--callgrind-out-file={folder / 'profile'}",
        "--quiet",
    ]


class Counter:
    """Starts and stops counting in this process, which runs under valgrind.

    Args:
        folder: where the small library with valgrind's client requests is built.

    Raises:
        NotAvailable: this process does not run under valgrind.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        source, library = folder / "counter.c", folder / "counter.so"
        source.write_text(_CLIENT)
        subprocess.run(
            ["g++", "-x", "c", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)],
            check=True,
        )
        self._library = ctypes.CDLL(str(library))
        if not self._library.counter_running():
            raise NotAvailable("this process does not run under valgrind")

    def count(self, name: str, body: Callable[[], Any]) -> None:
        """Runs `body`; its instructions become the profile `name`."""
        self._library.counter_start()
        body()
        self._library.counter_stop(name.encode())


@dataclasses.dataclass
class Profile:
    """Instructions of one mark.

    Attributes:
        inclusive: by function, with everything it called; recursion is counted once per level.
        calls: by function.
        libraries: by shared library, what its own code took.
    """

    inclusive: dict[str, int]
    calls: dict[str, int]
    libraries: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.libraries.values())

    def cost(self, function: str) -> int:
        """Inclusive instructions of a function, named without its parameters."""
        return sum(
            count for name, count in self.inclusive.items() if name.split("(")[0] == function
        )


def read_profiles(folder: pathlib.Path) -> dict[str, Profile]:
    """The profiles that a worker's `Counter` wrote into `folder`, by name."""
    profiles = {}
    for path in sorted(folder.glob("profile*")):
        lines = path.read_text(errors="replace").splitlines()
        trigger = re.compile(r"desc: Trigger: Client Request: (.*)")
        names = [match.group(1) for line in lines[:40] if (match := trigger.match(line))]
        if names:
            profiles[names[0]] = parse(lines)
    return profiles


def parse(lines: Iterable[str]) -> Profile:
    """Reads callgrind's format, written without compression of names and positions."""
    inclusive: collections.Counter[str] = collections.Counter()
    calls: collections.Counter[str] = collections.Counter()
    libraries: collections.Counter[str] = collections.Counter()
    library = callee = ""
    called = 0  # a line of the costs of calls follows
    for line in lines:
        key, equals, value = line.partition("=")
        if equals:
            if key == "ob":
                library = value
            elif key == "cfn":
                callee = value
            elif key == "calls":
                called = int(value.split()[0])
            continue
        words = line.split()
        if len(words) != 2 or not (words[0].isdigit() and words[1].isdigit()):
            continue
        if called:
            inclusive[callee] += int(words[1])
            calls[callee] += called
            called = 0
        else:
            libraries[library] += int(words[1])
    return Profile(dict(inclusive), dict(calls), dict(libraries))
