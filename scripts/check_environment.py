"""Says what the current environment lacks for Trident, and how to get it.

    python scripts/check_environment.py [demo] [test]

Prints one sentence per missing piece, each with the command that mends it, and exits 1; prints
nothing and exits 0 if all is there. Nothing heavy is imported, so it costs a fraction of a
second.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

Version = tuple[int, ...]

# Module, distribution, lowest version, first version that is too new, command.
BUILD = [
    ("torch", "torch", (2, 11), (2, 15), "pip install 'torch>=2.11,<2.15'"),
    ("triton", "triton", (3, 6), (3, 9), "pip install 'triton>=3.6,<3.9'"),
    ("torch_mlir", "torch-mlir", (20261001,), (20261002,), "pip install torch-mlir==20261001"),
    (
        "scikit_build_core",
        "scikit-build-core",
        (0, 10),
        None,
        "pip install 'scikit-build-core>=0.10'",
    ),
    ("pybind11", "pybind11", (2, 13), None, "pip install 'pybind11>=2.13'"),
    ("yaml", "PyYAML", None, None, "pip install pyyaml"),
    ("numpy", "numpy", None, None, "pip install numpy"),
]
DEMO = [
    ("transformers", "transformers", (5, 17), (6,), "pip install 'transformers>=5.17,<6'"),
    ("liger_kernel", "liger-kernel", (0, 8, 5), (0, 8, 6), "pip install liger-kernel==0.8.5"),
]
TEST = [
    ("pytest", "pytest", (8,), None, "pip install 'pytest>=8'"),
    ("hypothesis", "hypothesis", (6, 100), None, "pip install 'hypothesis>=6.100'"),
]


def parse(text: str) -> Version:
    """The leading numbers of a version: ``2.11.0+cu130`` is (2, 11, 0)."""
    leading = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def package_problem(
    module: str, distribution: str, low: Version | None, high: Version | None, command: str
) -> str | None:
    """One sentence if the package is absent or its version lies outside [low, high)."""
    if importlib.util.find_spec(module) is None:
        return f"{distribution} is not installed in {sys.executable}. Run: {command}"
    try:
        text = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None  # unpacked by hand, without metadata: importing it will tell
    version = parse(text)
    if (low and version < low) or (high and version >= high):
        wanted = (f">= {shown(low)}" if low else "") + (f", < {shown(high)}" if high else "")
        return f"{distribution} {text} is not supported (needs {wanted}). Run: {command}"
    return None


def python_problems() -> list[str]:
    problems = []
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        problems.append(
            f"Python {sys.version.split()[0]} is not supported (needs 3.11 or 3.12). "
            "Run: make PYTHON=python3.11 VENV=.venv"
        )
    if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        problems.append("Python's C headers are missing. Run: apt-get install python3-dev")
    return problems


def tool_problems() -> list[str]:
    problems = []
    compiler = os.environ.get("CXX", "g++").split()[0]
    if shutil.which(compiler) is None:
        problems.append(f"The C++ compiler {compiler} is missing. Run: apt-get install g++")
    cmake = shutil.which("cmake")
    if cmake is None:
        problems.append("CMake is missing. Run: pip install 'cmake>=3.25'")
    else:
        text = subprocess.run([cmake, "--version"], capture_output=True, text=True).stdout
        found = re.search(r"version ([\d.]+)", text)
        if found and parse(found[1]) < (3, 25):
            problems.append(
                f"CMake {found[1]} is too old (needs >= 3.25). Run: pip install 'cmake>=3.25'"
            )
    if importlib.util.find_spec("ninja") is None and shutil.which("ninja") is None:
        problems.append("Ninja is missing. Run: pip install ninja")
    return problems


def main(purposes: list[str]) -> int:
    packages = BUILD + (DEMO if {"demo", "test"} & set(purposes) else [])
    packages += TEST if "test" in purposes else []
    problems = python_problems() + tool_problems()
    problems += [problem for package in packages if (problem := package_problem(*package))]
    for problem in problems:
        print(f"trident: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
