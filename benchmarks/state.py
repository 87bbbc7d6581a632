"""What the guards of a module's state cost per hit, in instructions, as the module grows.

    python benchmarks/state.py [--output FILE]

Counted under valgrind, so the numbers are the same on every run. Each row adds many things of one
kind to a small module and says what each of them adds to a hit. A weight is read at each call.
Attributes cost nothing, however many there are: a dictionary has one version tag on CPython 3.11,
and all dictionaries together one count of changes from 3.12 on.
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
from collections.abc import Callable
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # absent under PYTHONSAFEPATH

import callgrind  # noqa: E402
import common  # noqa: E402

HITS = 64
MANY = 512


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = [0.5]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def add_attributes(module: Any) -> None:
    for i in range(MANY):
        setattr(module, f"attribute_{i}", 0.5 * i)


def add_numbers(module: Any) -> None:
    module.numbers += [0.5 * i for i in range(MANY)]


def add_weights(module: Any) -> None:
    for i in range(MANY):
        module.register_parameter(f"weight_{i}", torch.nn.Parameter(torch.zeros(4)))


def add_modules(module: Any) -> None:
    for i in range(MANY):
        module.add_module(f"module_{i}", torch.nn.Identity())


KINDS: dict[str, Callable[[Any], None]] = {
    "attribute": add_attributes,
    "number in a list": add_numbers,
    "weight": add_weights,
    "submodule": add_modules,
}


@torch.no_grad()
def count_hits(folder: pathlib.Path) -> None:
    """Runs under valgrind: a profile of the bare module, and of one per kind."""
    import trident

    counter = callgrind.Counter(folder)
    for name, add in {"bare": lambda module: None, **KINDS}.items():
        module = Holder().eval()
        add(module)
        fast = trident.optimize(module)
        x = torch.zeros(4)

        def hits(fast: Any = fast, x: Any = x) -> None:
            for _ in range(HITS):
                fast(x)

        hits()
        before = fast.stats()["hits"]
        counter.count(name, hits)
        if fast.stats()["hits"] != before + HITS:
            raise SystemExit(f"{name}: not every counted call was a hit: {fast.stats()}")


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script = [sys.executable, str(pathlib.Path(__file__).resolve())]
        done = subprocess.run(
            [*callgrind.command(folder), *script, "--worker", name],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"the counted process failed:\n{done.stderr[-4000:]}")
        costs = {
            kind: profile.cost("trident::python::Module::call") / HITS
            for kind, profile in callgrind.read_profiles(folder).items()
        }
    return [
        {"kind": kind, "instructions per hit": cost, "each adds": (cost - costs["bare"]) / MANY}
        for kind, cost in costs.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="JSON file for the results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        count_hits(pathlib.Path(options.worker))
        return
    results = measure()
    columns = list(results[0])
    print(common.table(columns, [[row[name] for name in columns] for row in results]))
    if options.output:
        target = pathlib.Path(options.output)
        target.parent.mkdir(parents=True, exist_ok=True)
        facts = {"python": platform.python_version(), "torch": torch.__version__}
        target.write_text(json.dumps({**facts, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
