"""Instructions per hit on the CPU, under valgrind: `host_overhead.py --instructions`.

A hit has three parts. Entry: reading the arguments' facts, guards of state and environment,
look-up, taking the inputs, counting. Program: the host program with the ATen kernels it calls.
Result: the objects that the caller gets, and effects. `trident` is what the code of Trident and of
its programs takes of the whole, apart from torch, Python and the C library. The counts of one build
are the same on every run, so `instructions.json` holds those of the versions it names, and growth
by more than TOLERANCE against them is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # absent under PYTHONSAFEPATH

import callgrind  # noqa: E402
import common  # noqa: E402

COMMITTED = pathlib.Path(__file__).parent / "instructions.json"
PARTS = ("entry", "program", "result", "trident")
TOLERANCE = 0.03
HITS = 64  # counted per case, a multiple of the sizes that a case cycles over
WARM_UP = 3

# What decides how many instructions torch, Python and the C library take for the same work.
FIXED_ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}

Case = tuple[Callable[..., Any], list[tuple[Any, ...]]]


class Parameters(torch.nn.Module):
    """1,000 parameters in 100 submodules; the call uses none."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.ParameterList(torch.zeros(4) for _ in range(10)) for _ in range(100)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Mixed(torch.nn.Module):
    """20 blocks of Linear(16), addition, relu."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(20))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x) + y)
        return x


class Cache:
    """Keys and values of 16 layers, as an argument."""

    def __init__(self) -> None:
        self.keys = [torch.zeros(1, 2, 8, 4) for _ in range(16)]
        self.values = [torch.zeros(1, 2, 8, 4) for _ in range(16)]
        self.length = 3


def first_of(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(50):
        x = torch.add(x, y)
    return x


def one_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def read_cache(x: torch.Tensor, cache: Cache, *, scale: float) -> dict[str, Any]:
    return {"out": x + cache.keys[0][0, 0, 0], "parts": (x, [cache.values[3]])}


def sums(count: int) -> Case:
    sizes = [4 + i for i in range(count)]
    return one_sum, [(torch.zeros(size), torch.zeros(size)) for size in sizes]


CASES: dict[str, Callable[[], Case]] = {
    "2 tensors": lambda: (first_of, [(torch.zeros(4), torch.zeros(4))]),
    "10 tensors": lambda: (first_of, [tuple(torch.zeros(4) for _ in range(10))]),
    "1000 parameters": lambda: (Parameters(), [(torch.zeros(4),)]),
    "cache of 32 tensors": lambda: (
        lambda x, cache: read_cache(x, cache, scale=0.5),
        [(torch.zeros(4), Cache())],
    ),
    "1 sum": lambda: sums(1),
    "64 specializations": lambda: sums(64),
    "64 sizes that vary": lambda: sums(64),
    "chain of 50 sums": lambda: (chain, [(torch.zeros(4), torch.zeros(4))]),
    "mixed, 20 blocks": lambda: (Mixed(), [(torch.zeros(1, 16), torch.zeros(1, 16))]),
}


@torch.no_grad()
def worker(folder: pathlib.Path) -> None:
    """Runs under valgrind and writes one profile per case into `folder`."""
    import trident

    counter = callgrind.Counter(folder)
    for name, make in CASES.items():
        torch.manual_seed(0)
        function, calls = make()
        target = function.eval() if isinstance(function, torch.nn.Module) else function
        # Every size has a specialization of its own, but where the case says otherwise.
        fast = trident.optimize(target, dynamic=name == "64 sizes that vary")
        turns = calls * (HITS // len(calls))

        def hits(fast: Any = fast, turns: Sequence[tuple[Any, ...]] = turns) -> None:
            for arguments in turns:
                fast(*arguments)

        for arguments in calls * WARM_UP:
            fast(*arguments)
        hits()
        before = fast.stats()["hits"]
        counter.count(name, hits)
        if fast.stats()["hits"] != before + HITS:
            raise SystemExit(f"{name}: not every counted call was a hit: {fast.stats()}")


def versions(valgrind: str) -> dict[str, str]:
    """What the counts depend on."""
    from trident import _C

    return {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": _C.compiler,
        "libc": "-".join(platform.libc_ver()),
        "valgrind": valgrind,
    }


def per_hit(profile: callgrind.Profile) -> dict[str, int]:
    """The parts of one hit, in instructions."""
    call = profile.cost("trident::python::Module::call")
    program = profile.cost("trident::host::Program::run")
    result = profile.cost("trident::python::Template::build")
    result += profile.cost("trident::python::Effects::apply")
    own = sum(
        count
        for library, count in profile.libraries.items()
        if pathlib.Path(library).name.startswith("_C.") or "/programs/" in library
    )
    if not call or not own:
        raise SystemExit("the profile names no function of Trident's: are its symbols exported?")
    counts = (call - program - result, program, result, own)
    return {part: round(count / HITS) for part, count in zip(PARTS, counts, strict=True)}


def measure() -> dict[str, dict[str, int]]:
    """Counts every case in one process under valgrind."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = {**os.environ, **FIXED_ENVIRONMENT, "TRIDENT_CACHE_DIR": str(folder)}
        script = [sys.executable, str(pathlib.Path(__file__).resolve())]
        done = subprocess.run(
            [*callgrind.command(folder), *script, "--worker", name],
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"the counted process failed:\n{done.stderr[-4000:]}")
        return {case: per_hit(profile) for case, profile in callgrind.read_profiles(folder).items()}


def growth(
    committed: dict[str, Any], counts: dict[str, dict[str, int]], present: dict[str, str]
) -> tuple[list[str], str | None]:
    """Parts that take more than TOLERANCE above the committed counts, and why none were compared.

    The second is None where the counts could be compared.
    """
    differing = [
        f"{key} {committed['versions'].get(key)} there, {value} here"
        for key, value in present.items()
        if committed["versions"].get(key) != value
    ]
    if differing:
        return [], "the committed counts are of other versions: " + "; ".join(differing)
    found = []
    for case, parts in counts.items():
        for part, count in parts.items():
            before = committed["counts"].get(case, {}).get(part)
            # Ten instructions are a change of alignment, not of code.
            if before is not None and count > before * (1 + TOLERANCE) + 10:
                found.append(f"{case}, {part}: {count} instructions, {before} committed")
    return found, None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help=f"replaces {COMMITTED.name}")
    parser.add_argument("--worker", metavar="FOLDER", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        worker(options.worker)
        return 0
    try:
        present = versions(callgrind.require())
    except callgrind.NotAvailable as error:
        print(f"host_overhead.py --instructions: {error}", file=sys.stderr)
        return 2
    counts = measure()
    committed = json.loads(COMMITTED.read_text()) if COMMITTED.exists() else None
    header = ["instructions per hit", *PARTS, "all"]
    rows = [
        [case, *parts.values(), sum(parts[part] for part in PARTS[:3])]
        for case, parts in counts.items()
    ]
    print(common.table(header, rows))
    if options.write:
        text = json.dumps({"versions": present, "counts": counts}, indent=1)
        COMMITTED.write_text(text + "\n")
        print(f"Written: {COMMITTED}")
        return 0
    if committed is None:
        print(f"There is no {COMMITTED.name} to compare with; make it with --write.")
        return 1
    grown, obstacle = growth(committed, counts, present)
    if obstacle:
        print(f"Not compared: {obstacle}.")
    for line in grown:
        print(f"More than {TOLERANCE:.0%} above the committed count: {line}")
    if not grown and not obstacle:
        print(f"Within {TOLERANCE:.0%} of the committed counts.")
    return 1 if grown else 0


if __name__ == "__main__":
    raise SystemExit(main())
