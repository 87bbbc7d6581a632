"""Autotuned kernels and heuristics through an optimized callable, compared with eager Triton."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import trident

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1",
    reason="eager Triton needs a CUDA GPU or TRITON_INTERPRET=1",
)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Tuning is no reason to warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.no_grad():
            yield


# BLOCK, which is what tuning chooses, is part of what these kernels compute.


@triton.jit
def add_block(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + BLOCK, mask=i < n)


@triton.jit
def accumulate(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n) * BLOCK, mask=i < n)


@triton.jit
def even_or_odd(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + BLOCK
    if EVEN:
        value = value * 2
    tl.store(out + i, value, mask=i < n)


class Bench:
    """Runs the kernel twice, as a benchmark does, and returns the times it was given, in turn."""

    def __init__(self, *times: float) -> None:
        self.times = list(times)
        self.runs = 0

    def __call__(self, kernel_call: Callable[[], None], quantiles: Any) -> list[float]:
        kernel_call()
        kernel_call()
        self.runs += 1
        return [self.times[(self.runs - 1) % len(self.times)]] * 3


def configs(*blocks: int, **options: Any) -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}, num_warps=1, **options) for block in blocks]


def tuned(kernel: Any, bench: Bench, *blocks: int, key: Any = ("n",), **options: Any) -> Any:
    return triton.autotune(configs(*blocks), key=list(key), do_bench=bench, **options)(kernel)


def launcher(kernel: Any) -> Callable[..., torch.Tensor]:
    def launch(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        n = x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        return out

    return launch


def outcomes(fast: Any) -> tuple[int, int]:
    stats = fast.stats()
    assert stats["fallbacks"] == stats["errors"] == 0
    return stats["misses"], stats["hits"]


def test_the_first_call_tunes_and_the_next_one_hits(device: torch.device) -> None:
    bench = Bench(3, 1, 2)
    fast = trident.optimize(launcher(tuned(add_block, bench, 16, 32, 64)))
    x = torch.randn(100, device=device)
    for _ in range(3):
        torch.testing.assert_close(fast(x, torch.empty_like(x)), x + 32)
    assert bench.runs == 3 and outcomes(fast) == (1, 2)


def test_the_winner_is_per_key_and_dtype(device: torch.device) -> None:
    bench = Bench(1, 2, 2, 1)  # the first key is won by 16, the second by 32, and so on
    fast = trident.optimize(launcher(tuned(add_block, bench, 16, 32)))
    x = torch.randn(70, device=device)
    inputs = [x, x[:40], x.half(), x.half()[:40]]
    for _ in range(2):
        for each, block in zip(inputs, (16, 32, 16, 32), strict=True):
            torch.testing.assert_close(fast(each, torch.empty_like(each)), each + block)
    assert bench.runs == 8 and outcomes(fast) == (4, 4)


@pytest.mark.parametrize("in_place", [True, False])
def test_tuning_leaves_eagers_contents(in_place: bool, device: torch.device) -> None:
    options = {"restore_value": ["x"]} if in_place else {"reset_to_zero": ["out"]}
    kernel = add_block if in_place else accumulate

    def run(make: Callable[[Any], Any]) -> list[torch.Tensor]:
        call = make(launcher(tuned(kernel, Bench(2, 1), 16, 32, **options)))
        x = torch.arange(50.0, device=device)
        out = x if in_place else torch.full_like(x, 7.0)
        return [call(x, out).clone() for _ in range(3)]

    for ours, eagers in zip(run(trident.optimize), run(lambda f: f), strict=True):
        torch.testing.assert_close(ours, eagers, rtol=0, atol=0)


def test_a_configurations_hook_is_part_of_the_program(device: torch.device) -> None:
    def clear(arguments: dict[str, Any]) -> None:
        arguments["out"].zero_()

    bench = Bench(2, 1)
    kernel = triton.autotune(configs(16, 32, pre_hook=clear), key=["n"], do_bench=bench)(accumulate)
    fast = trident.optimize(launcher(kernel))
    x = torch.arange(50.0, device=device)
    for _ in range(3):
        torch.testing.assert_close(fast(x, torch.full_like(x, 9.0)), x * 32)
    assert outcomes(fast) == (1, 2)


def test_hooks_of_the_tuner_run_while_it_tunes_only(device: torch.device) -> None:
    seen: list[str] = []
    kernel = tuned(
        add_block,
        Bench(2, 1),
        *(16, 32),
        pre_hook=lambda args, reset_only=False: seen.append("reset" if reset_only else "pre"),
        post_hook=lambda args, exception: seen.append("post"),
    )
    fast = trident.optimize(launcher(kernel))
    x = torch.randn(50, device=device)
    for _ in range(3):
        torch.testing.assert_close(fast(x, torch.empty_like(x)), x + 32)
    assert seen == ["pre", "post"] * 4 + ["reset"] and outcomes(fast) == (1, 2)


def test_pruned_configurations_are_not_tried(device: torch.device) -> None:
    bench = Bench(2, 1)
    kernel = tuned(
        add_block,
        bench,
        *(16, 32, 64, 128),
        prune_configs_by={
            "early_config_prune": lambda given, args, **_: [
                each for each in given if each.kwargs["BLOCK"] < args["n"]
            ],
            "perf_model": lambda BLOCK, **_: -BLOCK,
            "top_k": 2,
        },
    )
    fast = trident.optimize(launcher(kernel))
    x = torch.randn(100, device=device)
    for _ in range(2):  # of 16, 32, 64 the model prefers 64 and 32
        torch.testing.assert_close(fast(x, torch.empty_like(x)), x + 32)
    assert bench.runs == 2 and outcomes(fast) == (1, 1)


@pytest.mark.parametrize("change", ["cache", "cleared", "configs"])
def test_a_changed_winner_is_seen(change: str, device: torch.device) -> None:
    kernel = tuned(add_block, Bench(1, 2, 2, 1), 16, 32)
    fast = trident.optimize(launcher(kernel))
    x = torch.randn(50, device=device)
    for _ in range(2):
        torch.testing.assert_close(fast(x, torch.empty_like(x)), x + 16)
    if change == "cache":
        (key,) = kernel.cache
        kernel.cache[key] = kernel.configs[1]
    elif change == "cleared":
        kernel.cache.clear()
    else:
        kernel.configs = configs(32)
    for _ in range(2):
        torch.testing.assert_close(fast(x, torch.empty_like(x)), x + 32)


@pytest.mark.parametrize("tuner_outside", [True, False])
def test_heuristics_in_both_orders(tuner_outside: bool, device: torch.device) -> None:
    even = triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})

    def stack() -> Any:
        kernel = even_or_odd
        bench = Bench(2, 1)
        return (
            tuned(even(kernel), bench, 16, 32)
            if tuner_outside
            else even(tuned(kernel, bench, 16, 32))
        )

    fast, eager = trident.optimize(launcher(stack())), launcher(stack())
    for n in (40, 41, 40, 41):
        x = torch.randn(n, device=device)
        expected = eager(x, torch.empty_like(x))
        torch.testing.assert_close(fast(x, torch.empty_like(x)), expected)
        torch.testing.assert_close(expected, (x + 32) * (2 if n % 2 == 0 else 1))
    assert outcomes(fast) == (2, 2)


def test_heuristics_of_values_that_vary(device: torch.device) -> None:
    kernel = triton.heuristics({"EVEN": lambda args: args["n"] > 50})(even_or_odd)

    def launch(x: torch.Tensor, out: torch.Tensor, n: int) -> torch.Tensor:
        kernel[(triton.cdiv(n, 32),)](x, out, n, BLOCK=32)
        return out

    fast = trident.optimize(launch, dynamic=True)
    x = torch.randn(100, device=device)
    for n in (40, 41, 60, 61, 50, 51, 99):
        expected = launch(x, torch.zeros_like(x), n)
        torch.testing.assert_close(fast(x, torch.zeros_like(x), n), expected)


def test_sizes_that_make_a_key_are_fixed(device: torch.device) -> None:
    bench = Bench(1, 2, 2, 1)
    fast = trident.optimize(launcher(tuned(add_block, bench, 16, 32)), dynamic=True)
    for _ in range(2):
        for n, block in ((40, 16), (41, 32)):
            x = torch.randn(n, device=device)
            torch.testing.assert_close(fast(x, torch.empty_like(x)), x + block)


@pytest.mark.parametrize("dynamic", ["auto", True])
def test_explain_names_the_key_that_fixes_sizes(dynamic: Any, device: torch.device) -> None:
    fast = trident.optimize(launcher(tuned(add_block, Bench(2, 1), 16, 32)), dynamic=dynamic)
    for n in (40, 50):
        fast(torch.ones(n, device=device), torch.empty(n, device=device))
    (line,) = [each for each in trident.explain(fast).splitlines() if "stay fixed" in each]
    assert f"the autotuner's key of kernel add_block takes n (at {__file__}:" in line


def test_explain_names_the_constant_that_fixes_a_number(device: torch.device) -> None:
    def launch(x: torch.Tensor, block: int) -> torch.Tensor:
        out = torch.empty_like(x)
        add_block[(1,)](x, out, x.numel(), block)
        return out

    fast = trident.optimize(launch)
    for block in (16, 32):
        fast(torch.ones(8, device=device), block)
    (line,) = [each for each in trident.explain(fast).splitlines() if "stay fixed" in each]
    assert f"kernel add_block is compiled for the value of BLOCK (at {__file__}:" in line


def test_prepare_tunes_on_memory_of_its_own(device: torch.device) -> None:
    bench = Bench(2, 1)
    fast = trident.optimize(launcher(tuned(add_block, bench, 16, 32)))
    x = torch.randn(50, device=device)
    before, out = x.clone(), torch.full_like(x, 5.0)
    fast.prepare(x, out)
    assert bench.runs == 2 and torch.equal(x, before) and bool((out == 5.0).all())
    torch.testing.assert_close(fast(x, out), x + 32)
    assert outcomes(fast) == (0, 1)


@pytest.mark.parametrize("how", ["early_config_prune", "perf_model"])
def test_pruning_runs_once_for_a_key_and_its_effects_last(how: str, device: torch.device) -> None:
    def make() -> Callable[[torch.Tensor], Any]:
        chosen: dict[int, int] = {}
        seen = torch.zeros(1, device=device)

        def early(given: list[Any], args: dict[str, Any], **_: Any) -> list[Any]:
            chosen[args["n"]] = given[1].kwargs["BLOCK"]
            seen.add_(1)
            return given[1:]

        def model(BLOCK: int, n: int, **_: Any) -> float:
            chosen[n] = max(BLOCK, chosen.get(n, 0))
            seen.add_(1)
            return -BLOCK

        pruning = (
            {"early_config_prune": early}
            if how == "early_config_prune"
            else {"perf_model": model, "top_k": 1}
        )
        kernel = tuned(add_block, Bench(2, 1), 16, 32, prune_configs_by=pruning)
        launch = launcher(kernel)

        def call(x: torch.Tensor) -> Any:
            return launch(x, torch.empty_like(x)) * chosen[x.numel()], seen.clone()

        return call

    eager, fast = make(), trident.optimize(make())
    for n in (50, 50, 50, 40, 40, 50):
        x = torch.arange(float(n), device=device)
        for ours, eagers in zip(fast(x), eager(x), strict=True):
            torch.testing.assert_close(ours, eagers, rtol=0, atol=0)
    assert fast.stats()["hits"] == 1  # a new key changes what the code reads
