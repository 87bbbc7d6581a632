"""Host time of small modules that call a Triton kernel, beside the driver's floor.

    python benchmarks/host_overhead.py [--modes eager,...] [--cases chain1,...] [--output FILE]
    python benchmarks/host_overhead.py --instructions [--write]

chainK: K dependent Triton additions of 1,024 floats. mixed20: 20 blocks of Linear(256), Triton
addition, relu. specsS: one addition, cycling over S input sizes, so S specializations. paramsP: one
addition in a module that has P parameters, which have to be guarded but do nothing. entryT: a
module that takes T tensors and returns the last: guards alone. Medians in microseconds of one call,
each from an idle device. The floor is what cuLaunchKernelEx costs for as many launches as the case
runs kernels, and for entryT what timing a Python function that does nothing gives. Each system runs
in a process of its own, and its result is compared with eager's first. With --instructions, see
instructions.py: no GPU, no clock.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sys
from typing import Any

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # absent under PYTHONSAFEPATH

import common  # noqa: E402
import instructions  # noqa: E402
import launch_floor  # noqa: E402

CHAINS = {"chain1": 1, "chain10": 10, "chain50": 50}
SPECIALIZATIONS = {"specs1": 1, "specs4": 4, "specs16": 16, "specs64": 64}
PARAMETERS = {"params100": 100, "params1000": 1000, "params5000": 5000}
ENTRIES = {"entry2": 2, "entry12": 12, "entry52": 52}
CASES = (*CHAINS, "mixed20", *SPECIALIZATIONS, *PARAMETERS, *ENTRIES)
MODES = ("floor", "eager", "default", "skip-guards", "reduce-overhead", "trident", "trident-stream")
# A run that is stopped early should have the others to compare with, and all but the longest cases.
ORDER = (
    *("floor", "trident", "eager", "default", "reduce-overhead", "skip-guards"),
    "trident-stream",
)
LONGEST = ("params5000", "specs64")
LABELS = {
    "floor": "driver floor",
    "default": "torch.compile",
    "skip-guards": "guards skipped",
    "trident": "Trident",
    "trident-stream": "Trident, no graphs",
}
# Guards are what tells specializations apart, and a CUDA graph per size is nobody's use.
NOT_FOR_SPECIALIZATIONS = ("skip-guards", "reduce-overhead")
BLOCK = 1024


@triton.jit
def sum_kernel(left_ptr, right_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    left = tl.load(left_ptr + offsets, mask=inside)
    right = tl.load(right_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, left + right, mask=inside)


def triton_sum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left + right, for contiguous tensors of one shape and dtype."""
    out = torch.empty_like(left)
    count = left.numel()
    sum_kernel[(triton.cdiv(count, BLOCK),)](left, right, out, count, BLOCK=BLOCK)
    return out


class Chain(torch.nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(self.length):
            x = triton_sum(x, y)
        return x


class Guarded(Chain):
    """One addition beside parameters in submodules of 10."""

    def __init__(self, parameters: int) -> None:
        super().__init__(1)
        self.blocks = torch.nn.ModuleList(
            torch.nn.ParameterList(torch.zeros(16) for _ in range(10))
            for _ in range(parameters // 10)
        )


class Entry(torch.nn.Module):
    """Runs nothing."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return tensors[-1]


class Mixed(torch.nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(blocks))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(triton_sum(layer(x), y))
        return x


def module_and_inputs(case: str) -> tuple[torch.nn.Module, list[tuple[torch.Tensor, ...]]]:
    """A case's module and the inputs it cycles over, on the GPU."""
    torch.manual_seed(0)
    if case in ENTRIES:
        tensors = tuple(torch.randn(16, device="cuda") for _ in range(ENTRIES[case]))
        return Entry().cuda().eval(), [tensors]
    if case == "mixed20":
        shapes, module = [(1, 256)], Mixed(20)
    else:
        parameters = PARAMETERS.get(case)
        module = Guarded(parameters) if parameters else Chain(CHAINS.get(case, 1))
        shapes = [(1024 + 16 * i,) for i in range(SPECIALIZATIONS.get(case, 1))]
    inputs: list[tuple[torch.Tensor, ...]] = [
        (torch.randn(s, device="cuda"), torch.randn(s, device="cuda")) for s in shapes
    ]
    return module.cuda().eval(), inputs


def measure_floor(case: str) -> None:
    if case in ENTRIES:
        times = common.measure(lambda: None, repeat=300, warmup=30)
        common.emit(case=case, mode="floor", host_us=times.host_us, kernels=0)
        return
    module, inputs = module_and_inputs(case)
    x, y = inputs[0]
    kernels = common.count_work(lambda: module(x, y))
    out = torch.empty_like(x)
    grid = triton.cdiv(x.numel(), BLOCK)
    kernel = sum_kernel[(grid,)](x, y, out, x.numel(), BLOCK=BLOCK)
    host = launch_floor.floor_us(kernel, grid, [x, y, out, x.numel()], kernels)
    common.emit(case=case, mode="floor", host_us=host, kernels=kernels)


def measure_mode(case: str, mode: str) -> None:
    module, inputs = module_and_inputs(case)
    fast: Any = module
    ours = mode.startswith("trident")
    if ours:
        import trident

        fast = trident.optimize(module, graphs="auto" if mode == "trident" else False)
    elif mode != "eager":
        torch._dynamo.reset()
        options = {"mode": "reduce-overhead"} if mode == "reduce-overhead" else {}
        fast = torch.compile(module, dynamic=False, **options)
    first = common.first_call(lambda: fast(*inputs[0]))
    for given in inputs * 3:
        difference = (fast(*given) - module(*given)).abs().max().item()
        if difference > 1e-4:
            common.emit(case=case, mode=mode, error=f"wrong result, off by {difference:.3g}")
            return
    turn = itertools.cycle(inputs)
    stance: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if mode == "skip-guards":
        stance = torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
    with stance:
        warmup = max(30, 12 * len(inputs))  # each specialization is warm, as the only one is
        times = common.measure(lambda: fast(*next(turn)), repeat=300, warmup=warmup)
    result: dict[str, Any] = dict(
        case=case, mode=mode, host_us=times.host_us, wall_us=times.wall_us, first_s=first
    )
    if ours:
        result["stats"] = fast.stats()
    common.emit(**result)


@torch.no_grad()
def worker(mode: str, cases: list[str]) -> None:
    torch._dynamo.config.recompile_limit = 1000
    torch._dynamo.config.accumulated_recompile_limit = 100000
    for case in sorted(cases, key=LONGEST.__contains__):
        if mode == "floor":
            measure_floor(case)
        elif not (case in SPECIALIZATIONS and mode in NOT_FOR_SPECIALIZATIONS):
            try:
                measure_mode(case, mode)
            except Exception as error:  # a system that cannot run a case is a result, too
                common.emit(case=case, mode=mode, error=f"{type(error).__name__}: {error}"[:300])


def progress(result: dict[str, Any]) -> str:
    """One line on a result that has just come in."""
    told = result.get("error") or f"{result['host_us']:.1f} us"
    return f"{result.get('case', 'all cases')}: {told}"


def print_results(results: list[dict[str, Any]], modes: list[str], cases: list[str]) -> None:
    by_place = {(r.get("case"), r["mode"]): r for r in results if "error" not in r}
    titles = {"host_us": "Host time of a call, us", "wall_us": "Wall time of a call, us"}
    for key, title in titles.items():
        shown = [mode for mode in modes if key == "host_us" or mode != "floor"]
        if not shown:
            continue
        print(f"\n{title}\n")
        rows = [
            [case, *(by_place.get((case, mode), {}).get(key) for mode in shown)] for case in cases
        ]
        print(common.table(["case", *(LABELS.get(mode, mode) for mode in shown)], rows))
    for result in results:
        if "error" in result:
            print(f"{result.get('case', 'all cases')}, {result['mode']}: {result['error']}")


def main() -> int:
    if "--instructions" in sys.argv[1:]:
        return instructions.main([each for each in sys.argv[1:] if each != "--instructions"])
    parser = common.parser(__doc__, MODES)
    parser.add_argument("--cases", default=",".join(CASES), help="comma list (default: all)")
    options = parser.parse_args()
    modes = common.chosen(options.modes, MODES, "mode")
    cases = common.chosen(options.cases, CASES, "case")
    common.require_gpu()
    if options.worker:
        worker(options.worker, cases)
        return 0

    facts = common.machine()
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    limit = common.TimeLimit(options.limit)
    results: list[dict[str, Any]] = []
    for mode in (each for each in ORDER if each in modes):
        print(f"Running {LABELS.get(mode, mode)} ...", flush=True)
        timeout = limit.left(options.timeout)
        found = common.run_worker(__file__, [mode, "--cases", options.cases], timeout)
        results += [{"mode": mode, **result} for result in found]
        for result in found:
            print(f"  {progress(result)}", flush=True)
        # A run that is stopped early keeps what it has measured.
        common.write_json(options.output, facts, results)
    if options.output:
        print(f"Written: {options.output}")
    print_results(results, modes, cases)
    return 1 if common.ours_failed(results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
