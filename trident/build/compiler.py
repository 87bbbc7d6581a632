"""The C++ compiler of the machine."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shlex
import shutil
import subprocess

from trident.errors import BuildError

# Straight-line calls gain nothing from more than -O1, and compile twice as long.
FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off")


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A compiler and what identifies it in the cache's keys."""

    command: tuple[str, ...]
    version: str

    def compile(self, source: pathlib.Path, include: pathlib.Path, output: pathlib.Path) -> None:
        """Compiles one file to a shared object.

        Raises:
            BuildError: with the compiler's message and the path of the source, which is kept.
        """
        command = [*self.command, *FLAGS, "-I", str(include), "-o", str(output), str(source)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            raise BuildError(
                f"{self.command[0]} could not compile a host program (exit status "
                f"{finished.returncode}). The source is kept at {source}; its command was\n"
                f"  {shlex.join(command)}\n{finished.stderr.strip()}"
            )


def find_compiler() -> Compiler:
    """``$CXX``, which may hold arguments, or ``g++``.

    Raises:
        BuildError: if there is none, with the command that mends it.
    """
    return _find(os.environ.get("CXX", "").strip() or "g++", os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(text: str, path: str) -> Compiler:
    command = tuple(shlex.split(text))
    if shutil.which(command[0], path=path) is None:
        raise BuildError(
            f"Trident compiles its host programs with a C++ compiler, but there is no "
            f"'{command[0]}' on PATH. Install one with `apt-get install g++`, or set CXX to the "
            "one you want."
        )
    try:
        finished = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            f"the C++ compiler '{text}' does not run ({error}). Set CXX to one that does, or "
            "install one with `apt-get install g++`."
        ) from error
    return Compiler(command, finished.stdout)
