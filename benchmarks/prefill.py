"""Prefill of Hugging Face models with Liger's kernels: one specialization for all lengths.

    python benchmarks/prefill.py [--models llama3.2-1b,...] [--modes eager,...] [--output FILE]

Random weights in bf16, batch 1: prompts of 384 and 448 tokens first, so that the length is one
that varies, then one of 512 is timed: host, device and wall time as in decode.py, in milliseconds.
A call makes the cache and returns it with the last position's logits. Peak is the most memory that
PyTorch held during a call, weights included; held is what it holds more after a call than before,
results aside. Each system runs each model in a process of its own.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # absent under PYTHONSAFEPATH

import common  # noqa: E402
from models import SHAPES, build, run_worker  # noqa: E402

LENGTHS = (384, 448)
LENGTH = 512
MODES = ("eager", "default", "trident")
LABELS = {"eager": "eager", "default": "torch.compile", "trident": "Trident"}
COLUMNS = ("host_ms", "device_ms", "wall_ms", "peak_mb", "held_mb", "first_s", "second_s")


class Prefill(torch.nn.Module):
    """Ids (1, n) int64 to the logits (1, 1, vocab) of the last position and the filled cache."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, Any]:
        output = self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
        return output.logits, output.past_key_values


@torch.no_grad()
def worker(name: str, mode: str) -> None:
    prefill = Prefill(build(name))
    fast: Any = prefill
    if mode == "default":
        fast = torch.compile(prefill)
    elif mode == "trident":
        import trident

        fast = trident.optimize(prefill)

    def ids(length: int) -> torch.Tensor:
        return torch.randint(0, 1000, (1, length), device="cuda")

    prompts = [ids(length) for length in LENGTHS]
    timed = ids(LENGTH)
    first, second = (common.first_call(lambda prompt=prompt: fast(prompt)) for prompt in prompts)
    for length in range(LENGTH, LENGTH + 4):
        fast(ids(length))
    held = common.held_bytes(lambda: fast(timed))
    times = common.measure(lambda: fast(timed), repeat=30, warmup=10)
    device, kernels = common.device_work(lambda: fast(timed))
    result = dict(
        prefill=name,
        mode=mode,
        host_ms=times.host_us / 1e3,
        device_ms=device / 1e3,
        wall_ms=times.wall_us / 1e3,
        kernels=kernels,
        peak_mb=common.peak_bytes(lambda: fast(timed)) / 1e6,
        held_mb=held / 1e6,
        first_s=first,
        second_s=second,
    )
    common.emit(**result, **({"stats": fast.stats()} if mode == "trident" else {}))


def print_times(results: list[dict[str, Any]]) -> None:
    header = ("prefill", *(key.replace("_", " ") for key in COLUMNS), "wall / device")
    for name in dict.fromkeys(result["prefill"] for result in results):
        print(f"\n{name} + Liger, bf16, batch 1, {LENGTH} tokens\n")
        lines: list[list[object]] = []
        for row in (result for result in results if result["prefill"] == name):
            if "error" in row:
                print(f"{LABELS[row['mode']]}: {row['error']}")
                continue
            ratio = row["wall_ms"] / row["device_ms"]
            lines.append([LABELS[row["mode"]], *(row[key] for key in COLUMNS), ratio])
        print(common.table(header, lines))


def main() -> int:
    parser = common.parser(__doc__, MODES)
    parser.add_argument("--models", default=",".join(SHAPES), help="comma list (default: all)")
    options = parser.parse_args()
    models = common.chosen(options.models, tuple(SHAPES), "model")
    modes = common.chosen(options.modes, MODES, "mode")
    common.require_gpu()
    if options.worker:
        (name,) = models
        worker(name, options.worker)
        return 0

    facts = common.machine()
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    limit = common.TimeLimit(options.limit)
    results: list[dict[str, Any]] = []
    for mode, name in itertools.product(modes, models):
        result = run_worker(__file__, mode, name, "prefill", limit.left(options.timeout))
        results.append({"mode": mode, **result})
        told = result.get("error") or f"{result['wall_ms']:.3f} ms"
        print(f"{name}, {LABELS[mode]}: {told}", flush=True)
        # A run that is stopped early keeps what it has measured.
        common.write_json(options.output, facts, results)
    if options.output:
        print(f"Written: {options.output}")
    print_times(results)
    return 1 if common.ours_failed(results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
