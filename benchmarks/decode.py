"""Decode step of Hugging Face models with Liger's kernels, for Trident and what people use today.

    python benchmarks/decode.py [--models llama3.2-1b,...] [--modes eager,...] [--output FILE]
    python benchmarks/decode.py --check-tokens 64

Random weights in bf16, batch 1, one new token at position 512 of a 1,024-slot static cache. Host
time: until the call returns; device time: its kernels added up; wall time: until the device is
done; all medians of one step, in milliseconds. Peak is the most memory that PyTorch held during a
step. Each system runs each model in a process of its own; the compiled code of the first Trident
is on disk for the second.
`--check-tokens` instead generates that many greedy tokens with eager and with Trident and
compares them exactly.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # absent under PYTHONSAFEPATH

import common  # noqa: E402
from models import SHAPES, SLOTS, Step, build, run_worker  # noqa: E402

CONTEXT = 512
MODES = ("eager", "default", "reduce-overhead", "cuda-graph", "trident", "trident-stream")
# A run that is stopped early should have the others to compare with.
ORDER = ("trident", "eager", "default", "cuda-graph", "trident-stream", "reduce-overhead")
LABELS = {
    "eager": "eager",
    "default": "torch.compile",
    "reduce-overhead": "torch.compile reduce-overhead",
    "cuda-graph": "hand-captured CUDA graph",
    "trident": "Trident",
    "trident-stream": "Trident, graphs=False",
}
TIMES = ("host_ms", "device_ms", "wall_ms")


@torch.no_grad()
def worker_time(name: str, mode: str) -> None:
    step = Step(build(name))
    prompt = torch.randint(0, 1000, (1, CONTEXT), device="cuda")
    step(prompt, torch.arange(CONTEXT, device="cuda")[None])
    arguments = (
        torch.randint(0, 1000, (1, 1), device="cuda"),
        torch.tensor([[CONTEXT]], device="cuda"),
    )
    fast: Any = step
    if mode in ("default", "reduce-overhead"):
        fast = torch.compile(step, **({"mode": mode} if mode == "reduce-overhead" else {}))
    elif mode.startswith("trident"):
        import trident

        fast = trident.optimize(step, graphs=False if mode == "trident-stream" else "auto")

    def call() -> object:
        return fast(*arguments)

    timed: Callable[[], object] = call
    if mode == "cuda-graph":

        def capture_and_replay() -> None:
            nonlocal timed
            timed = common.hand_captured(call).replay
            timed()

        first = common.first_call(capture_and_replay)
    else:
        first = common.first_call(call)
    times = common.measure(timed, repeat=50, warmup=10)
    device, kernels = common.device_work(timed)
    result = dict(
        model=name,
        mode=mode,
        host_ms=times.host_us / 1e3,
        device_ms=device / 1e3,
        wall_ms=times.wall_us / 1e3,
        kernels=kernels,
        peak_mb=common.peak_bytes(timed) / 1e6,
        first_s=first,
    )
    common.emit(**result, **({"stats": fast.stats()} if mode.startswith("trident") else {}))


@torch.no_grad()
def generate(
    call: Callable[..., Any],
    config: Any,
    count: int,
    forced: list[int] | None = None,
    after: Callable[[int], None] = lambda _: None,
) -> tuple[list[int], list[torch.Tensor]]:
    """Tokens after a fixed prompt of CONTEXT tokens, and the logits that each was chosen from.

    Each next input is the greedy choice, or comes from `forced`; `after` is told the step's number.
    """
    from transformers import StaticCache

    cache = StaticCache(config=config, max_cache_len=SLOTS)
    ids = torch.randint(0, 1000, (1, CONTEXT), generator=torch.Generator().manual_seed(1)).cuda()
    positions = torch.arange(CONTEXT, device="cuda")[None]
    tokens: list[int] = []
    logits: list[torch.Tensor] = []
    while len(tokens) < count:
        output = call(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
        logits.append(output.logits[0, -1].clone())
        tokens.append(int(logits[-1].argmax()))
        step = len(tokens)
        ids = torch.tensor([[tokens[-1] if forced is None else forced[step - 1]]], device="cuda")
        positions = positions[:, -1:] + 1
        after(step)
    return tokens, logits


def first_difference(left: list[Any], right: list[Any]) -> int | None:
    """The first position at which two runs differ, or None."""
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        if not (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b):
            return index
    return None


def worker_check(name: str, count: int) -> None:
    """Greedy tokens, and logits over one forced sequence of tokens; eager twice, as the control.

    On an H200, cuDNN's attention does not reproduce its own results from one eager run to the next,
    so tokens are compared without it; what eager and Trident do with it is reported beside.
    """
    import trident

    model: Any = build(name)
    fast = trident.optimize(model)
    early: dict[str, Any] = {}

    def note(number: int) -> None:
        if number == 2:
            early.update(fast.stats())

    with torch.nn.attention.sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    ):
        expected, logits = generate(model, model.config, count)
        again, logits_again = generate(model, model.config, count, forced=expected)
        actual, _ = generate(fast, model.config, count, after=note)
        stats = fast.stats()
        _, logits_fast = generate(fast, model.config, count, forced=expected)
    cudnn = [
        generate(each, model.config, count, forced=expected)[1] for each in (model, model, fast)
    ]
    common.emit(
        model=name,
        tokens=count,
        equal=actual == expected,
        first_difference=first_difference(actual, expected),
        logits_difference=first_difference(logits_fast, logits),
        eager_again=first_difference(again, expected),
        eager_logits_again=first_difference(logits_again, logits),
        cudnn_eager_again=first_difference(cudnn[0], cudnn[1]),
        cudnn_difference=first_difference(cudnn[0], cudnn[2]),
        distinct=len(set(expected)),
        late_misses=stats["misses"] - early["misses"],
        late_fallbacks=stats["fallbacks"] - early["fallbacks"],
        late_errors=stats["errors"] - early["errors"],
        stats=stats,
    )


def progress(result: dict[str, Any]) -> str:
    """One line on a result that has just come in."""
    if "error" in result:
        return f"failed: {result['error']}"
    if "wall_ms" not in result:
        return "equal" if result["equal"] else f"DIFFERS at token {result['first_difference']}"
    return ", ".join(f"{key} {result[key]:.3f} ms" for key in TIMES)


def print_times(results: list[dict[str, Any]]) -> None:
    header = (
        "decode step",
        "host ms",
        "device ms",
        "wall ms",
        "kernels",
        "peak MB",
        "first call s",
        "wall / default",
    )
    for name in dict.fromkeys(result["model"] for result in results):
        rows = [result for result in results if result["model"] == name]
        rows.sort(key=lambda row: MODES.index(row["mode"]))
        default = next(
            (r["wall_ms"] for r in rows if r["mode"] == "default" and "error" not in r), None
        )
        print(f"\n{name} + Liger, bf16, batch 1, position {CONTEXT} of {SLOTS}\n")
        lines: list[list[object]] = []
        for row in rows:
            if "error" in row:
                print(f"{LABELS[row['mode']]}: {row['error']}")
                continue
            numbers = [row[key] for key in (*TIMES, "kernels", "peak_mb", "first_s")]
            ratio = row["wall_ms"] / default if default else None
            lines.append([LABELS[row["mode"]], *numbers, ratio])
        print(common.table(header, lines))


def print_check(results: list[dict[str, Any]]) -> bool:
    good = True
    for result in results:
        if "error" in result:
            print(f"{result['model']}: {result['error']}")
            good = False
            continue
        late = {key: result["late_" + key] for key in ("misses", "fallbacks", "errors")}
        passed = result["equal"] and not any(late.values())
        good &= passed
        difference = "" if result["equal"] else f" (first at token {result['first_difference']})"
        print(
            f"{result['model']}: {result['tokens']} greedy tokens ({result['distinct']} distinct) "
            f"{'equal' if result['equal'] else 'DIFFER'}{difference}; after the first two tokens: "
            + ", ".join(f"{count} {key}" for key, count in late.items())
        )
        for key, what in (
            ("logits_difference", "Trident's logits against eager's, same inputs"),
            ("eager_again", "eager's tokens against another eager run"),
            ("eager_logits_again", "eager's logits against another eager run"),
            ("cudnn_eager_again", "with cuDNN's attention, eager against another eager run"),
            ("cudnn_difference", "with cuDNN's attention, Trident against eager"),
        ):
            step = result[key]
            print(f"  {what}: {'equal' if step is None else f'differ first at token {step}'}")
        print(f"  {result['stats']}")
    print("All equal." if good else "NOT all equal.")
    return good


def main() -> int:
    parser = common.parser(__doc__, MODES)
    parser.add_argument("--models", default=",".join(SHAPES), help="comma list (default: all)")
    parser.add_argument("--check-tokens", type=int, metavar="N", help="compare N greedy tokens")
    options = parser.parse_args()
    models = common.chosen(options.models, tuple(SHAPES), "model")
    modes = common.chosen(options.modes, MODES, "mode")
    common.require_gpu()
    if options.worker:
        (name,) = models
        if options.worker.isdigit():
            worker_check(name, int(options.worker))
        else:
            worker_time(name, options.worker)
        return 0

    facts = common.machine()
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    limit = common.TimeLimit(options.limit)
    # The systems are timed one after the other; tokens are not timed.
    works = [each for each in ORDER if each in modes]
    if options.check_tokens:
        works = [str(options.check_tokens)]
    jobs = [(work, name) for work in works for name in models]

    def run(job: tuple[str, str]) -> dict[str, Any]:
        return run_worker(__file__, *job, "model", limit.left(options.timeout))

    results: list[dict[str, Any]] = []
    with concurrent.futures.ThreadPoolExecutor(len(models) if options.check_tokens else 1) as pool:
        for (work, name), result in zip(jobs, pool.map(run, jobs), strict=True):
            results.append({"mode": work, **result})
            label = LABELS.get(work, f"{work} tokens")
            print(f"{name}, {label}: {progress(result)}", flush=True)
            # A run that is stopped early keeps what it has measured.
            common.write_json(options.output, facts, results)
    if options.output:
        print(f"Written: {options.output}")
    if options.check_tokens:
        return 0 if print_check(results) else 1
    print_times(results)
    return 1 if common.ours_failed(results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
