"""Sizes as Python numbers: int arguments, text, types, results, loops, attributes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamic_helpers import agree, specializations

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")


def test_int_arguments() -> None:
    def function(x: torch.Tensor, n: int, *, start: int = 0) -> Any:
        kind = "int" if isinstance(n, int) else "other"
        return x[start : start + n] * n, torch.arange(n), n, kind

    optimized = optimize(function)
    for n, start in [(4, 2), (5, 2), (6, 3), (9, 5), (3, 4)]:
        torch.manual_seed(0)
        x = torch.randn(20, 2)
        got, expected = optimized(x, n, start=start), function(x, n, start=start)
        assert got[2:] == expected[2:] and type(got[2]) is int
        torch.testing.assert_close(got[:2], expected[:2], rtol=0, atol=0)
    assert specializations(optimized) <= 3


def test_shapes_as_arguments() -> None:
    def function(x: torch.Tensor, shape: torch.Size) -> Any:
        assert type(shape) is torch.Size
        return x.new_zeros(shape), x.new_ones(shape[::-1]) * shape[0], len(shape)

    optimized = optimize(function)
    for sizes in [(4, 2), (5, 2), (6, 7), (2, 9)]:
        agree(optimized, function, lambda sizes=sizes: (torch.ones(3), torch.Size(sizes)))
    assert specializations(optimized) <= 3


def test_text_of_a_size_keeps_it_fixed() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, f"{x.shape[0]} rows"

    optimized = optimize(function)
    for n in [5, 6, 7]:
        agree(optimized, function, lambda n=n: (torch.randn(n),))
    assert specializations(optimized) == 3


def test_a_refusal_that_the_code_catches_keeps_sizes_fixed() -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            return x * len(f"{x.shape[0]}")
        except Exception:
            return x * 100

    optimized = optimize(function)
    for n in [5, 6, 77]:
        agree(optimized, function, lambda n=n: (torch.randn(n),))
    assert specializations(optimized) == 3


def test_shapes_in_the_result_keep_sizes_fixed() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, x.shape, {"twice": 2 * x.shape[0]}

    optimized = optimize(function)
    for n in [5, 6, 7]:
        got, expected = optimized(torch.ones(n)), function(torch.ones(n))
        assert got[1:] == expected[1:]
        assert type(got[1]) is torch.Size


def test_loops_over_a_size_keep_it_fixed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(2)
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    optimized = optimize(function)
    for n in [3, 4, 5, 6]:
        agree(optimized, function, lambda n=n: (torch.randn(n, 2),))
    assert specializations(optimized) == 4


def test_assigned_size_becomes_an_attribute() -> None:
    class Counter(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.rows = x.shape[0]
            return x + 1

    module = Counter()
    optimized = optimize(module)
    for n in [5, 6, 9]:
        optimized(torch.ones(n))
        assert module.rows == n and type(module.rows) is int
