"""Strides of axes of size 1: no element lies behind them, so they cause no miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dynamic_helpers import agree, specializations

import trident
from trident.optimize import optimizer_of

pytestmark = pytest.mark.usefixtures("no_fallback")

STRIDES = ((5, 1), (7, 1), (1, 1), (100, 1), (0, 1), (3, 1))


def strided(stride: tuple[int, int]) -> torch.Tensor:
    return torch.arange(400.0).as_strided((1, 5), stride)


def run(function: Callable[..., Any]) -> Any:
    optimized = trident.optimize(function)
    for stride in STRIDES:
        agree(optimized, function, lambda stride=stride: (strided(stride),))
    return optimized


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 + x.sum(),
        lambda x: torch.nn.functional.linear(x, torch.ones(2, 5)),
        lambda x: (x.sum(1) + 1, (x > 2).all()),
        lambda x: x.softmax(-1).contiguous(),
    ],
)
def test_they_cause_no_miss(function: Callable[..., Any]) -> None:
    optimized = run(function)
    assert optimized.stats()["misses"] == 1
    record = optimizer_of(optimized).records[0]
    # Nothing depends on them, so one CUDA graph serves them all.
    assert not record.symbols


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.t(),
        lambda x: x[:, 1:],
        lambda x: x.clone(),
        lambda x: x * x.stride(0),
        lambda x: (x + 1, x.stride()),
        lambda x: x.unsqueeze(1),
        lambda x: x @ x.t(),
        lambda x: x.double(),
        lambda x: x + 1 if x.stride(0) == 5 else x,
        lambda x: x.as_strided((2, 2), (x.stride(0), 1)),
        lambda x: x.expand(3, 5) if x.stride(0) > 4 else x.flatten(),
    ],
)
def test_what_shows_them_is_eagers(function: Callable[..., Any]) -> None:
    run(function)


def test_a_length_and_its_batch_of_one() -> None:
    """The stride of a batch of one is the length; it is no second thing that varies."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1) * 2

    optimized = trident.optimize(function)
    for n in (5, 6, 7, 9):
        agree(optimized, function, lambda n=n: (torch.randn(1, n),))
        agree(optimized, function, lambda n=n: (torch.randn(4, n)[2:3],))
        agree(optimized, function, lambda n=n: (torch.randn(1, n + 3)[:, :n],))
    # The batch of one keeps a specialization while its stride tells the length.
    assert specializations(optimized) <= 2
    assert optimized.stats()["hits"] >= 8


def test_a_stride_that_fixed_sizes_settle() -> None:
    """The stride of a batch follows from the length, which is fixed where it is 1."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    optimized = trident.optimize(function)
    for batch, length in ((3, 7), (2, 1), (2, 7), (2, 1), (3, 6), (3, 1)):
        agree(optimized, function, lambda b=batch, n=length: (torch.randn(b, n, 4),))
    # The first call, lengths of 1, and lengths that vary.
    assert optimized.stats()["misses"] == 3
