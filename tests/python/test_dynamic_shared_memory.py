"""Symbolic sizes of tensors that share memory: nothing is assumed of what shares it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from dynamic_helpers import agree, specializations

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")

LENGTHS = (5, 8, 12, 64, 3)

Pair = tuple[torch.Tensor, torch.Tensor]


@triton.jit
def add_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask)
    tl.store(x_ptr + offsets, x + tl.load(y_ptr + offsets, mask), mask)


def written(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Reads y before and after x is written."""
    before = y * 2
    x.add_(1)
    return before, y * 2, x + y


def launched(x: torch.Tensor, y: torch.Tensor) -> Any:
    before = y * 2
    add_kernel[(triton.cdiv(x.numel(), 16),)](x, y, x.numel(), BLOCK=16)
    return before, y * 2, x + y


def launched_in_eager(x: torch.Tensor, y: torch.Tensor) -> Any:
    before = y * 2
    x.add_(y)
    return before, y * 2, x + y


def viewed(x: torch.Tensor, y: torch.Tensor) -> Any:
    x[1:].mul_(3)
    return y[1:], x[:-1]


def apart(n: int) -> Pair:
    return torch.arange(4.0 * n), torch.arange(4.0 * n) + 100


def same(n: int) -> Pair:
    memory = torch.arange(4.0 * n)
    return memory, memory[:]


def next_to_each_other(n: int) -> Pair:
    memory = torch.arange(8.0 * n)
    return memory[: 4 * n], memory[4 * n :]


def overlapping(n: int) -> Pair:
    memory = torch.arange(8.0 * n)
    return memory[: 4 * n], memory[4 : 4 * n + 4]


@pytest.mark.parametrize(
    ("function", "make"),
    [
        *itertools.product((written, viewed), (same, next_to_each_other, overlapping)),
        # Where they overlap, the kernel's programs would race.
        *itertools.product((launched,), (same, next_to_each_other)),
    ],
)
def test_one_specialization_whatever_shares_memory(
    function: Callable[..., Any], make: Callable[[int], Pair]
) -> None:
    reference = launched_in_eager if function is launched else function
    for makers in ((make,), (apart, make), (make, apart)):
        optimized = optimize(function)
        for n in LENGTHS:
            for each in makers:
                agree(optimized, reference, lambda each=each, n=n: each(n))
        assert specializations(optimized) <= 2


def test_results_share_the_memory_that_arguments_share() -> None:
    optimized = optimize(viewed)
    for n in LENGTHS:
        x, y = same(n)
        tail, head = optimized(x, y)
        assert tail.data_ptr() == x[1:].data_ptr() and head.data_ptr() == y.data_ptr()
    assert specializations(optimized) == 1


def test_projections_that_are_one_tensor() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    def make(n: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(2, n, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind()

    optimized = optimize(function)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: make(n))
    assert specializations(optimized) == 1


def test_an_overlap_that_eager_refuses_is_refused() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(y)

    optimized = optimize(function)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: apart(n))
    memory = torch.arange(40.0)
    for call in (function, optimized):
        with pytest.raises(RuntimeError, match="single memory location"):
            call(memory[:32], memory[4:36])
    assert specializations(optimized) == 1 and optimized.stats()["errors"] == 1
