"""Hooks and debugging aids that come and go between the calls of an optimized function."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

import trident

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1",
    reason="eager Triton needs a CUDA GPU or TRITON_INTERPRET=1",
)


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)
    return out


def hook(*_: Any, **__: Any) -> None:
    return None


@contextlib.contextmanager
def in_chain(name: str) -> Iterator[None]:
    chain = getattr(knobs.runtime, name)
    if not hasattr(chain, "add"):
        pytest.skip(f"this Triton has no chain of hooks at {name}")
    chain.add(hook)
    try:
        yield
    finally:
        chain.remove(hook)


@contextlib.contextmanager
def in_place_of(owner: Any, name: str, value: Any) -> Iterator[None]:
    with owner.scope():
        setattr(owner, name, value)
        yield


@contextlib.contextmanager
def before_runs() -> Iterator[None]:
    if not hasattr(double_kernel, "add_pre_run_hook"):
        pytest.skip("interpreted kernels take no such hooks")
    double_kernel.add_pre_run_hook(hook)
    try:
        yield
    finally:
        double_kernel.pre_run_hooks.remove(hook)


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("launch_enter_hook", lambda: in_chain("launch_enter_hook")),
        ("launch_exit_hook", lambda: in_chain("launch_exit_hook")),
        ("kernel_load_start_hook", lambda: in_chain("kernel_load_start_hook")),
        ("launch_enter_hook", lambda: in_place_of(knobs.runtime, "launch_enter_hook", hook)),
        ("jit_cache_hook", lambda: in_place_of(knobs.runtime, "jit_cache_hook", hook)),
        ("debug", lambda: in_place_of(knobs.runtime, "debug", True)),
        (
            "instrumentation_mode",
            lambda: in_place_of(knobs.compilation, "instrumentation_mode", "consan"),
        ),
        ("pre_run_hooks", before_runs),
    ],
)
def test_hooks_are_left_to_triton_while_they_are_there(
    name: str, present: Any, device: torch.device
) -> None:
    fast = trident.optimize(double)
    x = torch.randn(50, device=device)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), x * 2)
        assert fast.stats()["hits"] == 1
        with present():
            # Whether Triton itself can serve them here is not the question.
            said: list[Any] = []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    fast(x)
                except Exception as error:
                    said = error.__notes__
            assert name in str([*said, *(each.message for each in caught)])
            with contextlib.suppress(Exception):
                fast(x)
            stats = fast.stats()
            assert (stats["hits"], stats["misses"]) == (1, 1)
            assert stats["fallbacks"] + stats["errors"] == 2
            if stats["fallbacks"]:
                assert f"left to Triton: {name} set" in trident.explain(fast)
        torch.testing.assert_close(fast(x), x * 2)
        assert fast.stats()["hits"] == 2


def test_a_call_that_was_left_to_triton_is_captured_later(device: torch.device) -> None:
    fast = trident.optimize(double)
    x = torch.randn(50, device=device)
    with torch.no_grad():
        with in_chain("launch_enter_hook"):
            for _ in range(2):
                torch.testing.assert_close(fast(x), x * 2)
        for _ in range(2):
            torch.testing.assert_close(fast(x), x * 2)
    stats = fast.stats()
    assert (stats["fallbacks"], stats["misses"], stats["hits"]) == (2, 1, 1)


@triton.jit
def wide_kernel(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 32)
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 5, mask=i < n)


def or_else(x: torch.Tensor, block: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    try:
        wide_kernel[(1,)](x, out, x.numel(), BLOCK=block)
    except Exception:
        out = x * 2
    return out


def or_nothing(x: torch.Tensor, block: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    with contextlib.suppress(Exception):
        wide_kernel[(1,)](x, out, x.numel(), BLOCK=block)
    return out


def and_then(x: torch.Tensor, block: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    try:
        wide_kernel[(1,)](x, out, x.numel(), BLOCK=block)
    finally:
        x.add_(100)
    return out


@pytest.mark.parametrize("function", [or_else, or_nothing, and_then])
def test_a_launch_that_fails_runs_the_code_for_that(function: Any, device: torch.device) -> None:
    fast = trident.optimize(function)
    for block in (32, 16, 16, 32):
        seen = []
        for arm in (fast, function):
            x = torch.ones(4, device=device)
            try:
                seen.append((arm(x, block).tolist(), x.tolist()))
            except Exception as error:
                seen.append((type(error).__name__, x.tolist()))
        assert seen[0] == seen[1]
