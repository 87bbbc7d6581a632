"""What a hit costs with 1, 64 and 1,000 specializations of one callable, beside torch.compile.

    python benchmarks/lookup.py [--counts 1,64,1000] [--instructions] [--output FILE]

The callable adds one to four floats, and an int argument makes each specialization. `one` calls the
same specialization again and again, `all` each in turn. torch.compile runs with the backend
"eager", so that what grows is its guards. Times are medians in microseconds of one process; what
matters is the ratio to one specialization. With --instructions, Trident's hits are counted under
valgrind instead, which is the same on every run.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # absent under PYTHONSAFEPATH

import callgrind  # noqa: E402
import common  # noqa: E402

HITS = 1000  # counted or timed in one go


def add_one(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + 1 if n >= 0 else x


def make_trident(count: int) -> Callable[..., Any]:
    import trident

    return trident.optimize(add_one, dynamic=False, max_specializations=max(count, 64))


def make_compiled(count: int) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = count + 8
    torch._dynamo.config.accumulated_recompile_limit = 2 * count + 8
    torch._dynamo.reset()
    return torch.compile(add_one, backend="eager", dynamic=False)


MAKERS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "Trident": make_trident,
    "torch.compile": make_compiled,
}


def fill(function: Callable[..., Any], count: int) -> torch.Tensor:
    """Makes the specializations; returns the tensor to call with."""
    x = torch.zeros(4)
    for n in range(count):
        function(x, n)
    return x


def time_hits(function: Callable[..., Any], x: torch.Tensor, numbers: list[int]) -> float:
    """Median over rounds of the mean time of one call, in microseconds."""
    rounds = []
    for _ in range(15):
        start = time.perf_counter()
        for n in numbers:
            function(x, n)
        rounds.append((time.perf_counter() - start) * 1e6 / len(numbers))
    return statistics.median(rounds)


def orders(count: int) -> dict[str, list[int]]:
    """The int arguments of the calls: one specialization's, or those of all in turn."""
    return {
        "one": [count // 2] * HITS,
        "all": [n % count for n in range(HITS)],
    }


@torch.no_grad()
def measure(counts: list[int]) -> list[dict[str, Any]]:
    results = []
    for system, make in MAKERS.items():
        base: dict[str, float] = {}
        for count in counts:
            function = make(count)
            x = fill(function, count)
            for order, numbers in orders(count).items():
                microseconds = time_hits(function, x, numbers)
                ratio = microseconds / base.setdefault(order, microseconds)
                results.append(
                    {
                        "system": system,
                        "specializations": count,
                        "calls": order,
                        "us": microseconds,
                        "ratio": ratio,
                    }
                )
    return results


@torch.no_grad()
def count_hits(folder: pathlib.Path, counts: list[int]) -> None:
    """Runs under valgrind: one profile per number of specializations and order of calls."""
    counter = callgrind.Counter(folder)
    for count in counts:
        function = make_trident(count)
        x = fill(function, count)
        for order, numbers in orders(count).items():

            def hits(function: Any = function, x: Any = x, numbers: Any = numbers) -> None:
                for n in numbers:
                    function(x, n)

            hits()
            counter.count(f"{count} {order}", hits)


def count_instructions(counts: list[int]) -> list[dict[str, Any]]:
    """Instructions per hit inside of the native entry, program left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script = [sys.executable, str(pathlib.Path(__file__).resolve())]
        arguments = ["--worker", name, "--counts", ",".join(map(str, counts))]
        done = subprocess.run(
            [*callgrind.command(folder), *script, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"the counted process failed:\n{done.stderr[-4000:]}")
        results = []
        base: dict[str, float] = {}
        for case, profile in callgrind.read_profiles(folder).items():
            count, order = case.split()
            cost = profile.cost("trident::python::Module::call")
            cost -= profile.cost("trident::host::Program::run")
            per_hit = cost / HITS
            ratio = per_hit / base.setdefault(order, per_hit)
            results.append(
                {
                    "system": "Trident",
                    "specializations": int(count),
                    "calls": order,
                    "instructions": per_hit,
                    "ratio": ratio,
                }
            )
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", default="1,64,1000", help="numbers of specializations")
    parser.add_argument("--instructions", action="store_true", help="count under valgrind")
    parser.add_argument("--output", help="JSON file for the results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = [int(part) for part in options.counts.split(",")]
    if options.worker:
        count_hits(pathlib.Path(options.worker), counts)
        return
    results = count_instructions(counts) if options.instructions else measure(counts)
    columns = list(results[0])
    print(common.table(columns, [[row[name] for name in columns] for row in results]))
    if options.output:
        target = pathlib.Path(options.output)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
