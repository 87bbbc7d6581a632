"""Tensors indexed by numbers that vary: one specialization, and eager's views and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dynamic_helpers import agree, specializations

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")

INDEXED: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "first axis": lambda x, i: x[i],
    "scalar": lambda x, i: x[0, i, i],
    "last axis": lambda x, i: x[..., i],
    "middle": lambda x, i: x[:, i] + 1,
    "from behind": lambda x, i: x[-i],
    "computed": lambda x, i: x[i // 2 - 1, 1:],
    "with a slice": lambda x, i: x[1:, i, ::2],
    "with slices that vary": lambda x, i: x[: i + 1, i, i:],
    "new axes": lambda x, i: x[None, i, ..., None],
    "around an ellipsis": lambda x, i: x[i, ..., i - 1],
    "beside a constant": lambda x, i: x[1, i],
    "beside a list": lambda x, i: x[[0, 1], 1] * i,
    "loop": lambda x, i: [x[:, i + k] for k in range(2)],
    "in place": lambda x, i: x[i].add_(1),
    "assigned": lambda x, i: x.clone().__setitem__(i, 0.0),
    "of a size": lambda x, i: x[x.shape[0] - 2] * i,
}


@pytest.mark.parametrize("function", INDEXED.values(), ids=INDEXED)
def test_one_specialization_serves_every_index(function: Callable[..., Any]) -> None:
    optimized = optimize(function)
    for i in (2, 3, 5, 4, 6):
        agree(optimized, function, lambda i=i: (torch.randn(9, 8, 8), i))
    assert specializations(optimized) == 1


def test_what_is_selected_is_a_view() -> None:
    optimized = optimize(lambda x, i: x[i])
    x = torch.randn(9, 4)
    for i in (2, 3, 5, -2, 7):
        found = optimized(x, i)
        assert found.data_ptr() == x[i].data_ptr() and found.stride() == x[i].stride()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i] + 1,
        lambda x, i: x.select(0, i) + 1,
        lambda x, i: x.narrow(0, i, 1) + 1,
        lambda x, i: torch.select_scatter(x, x[0], 0, i),
    ],
    ids=["brackets", "select", "narrow", "scatter"],
)
def test_an_index_out_of_range_raises(function: Callable[..., Any]) -> None:
    optimized = optimize(function)
    x = torch.randn(20, 4)[:9]  # there is memory behind it
    for i in (2, 3, 5):
        assert torch.equal(optimized(x, i), function(x, i))
    for i in (9, 12, -10):
        with pytest.raises((IndexError, RuntimeError)) as raised:
            function(x, i)
        with pytest.raises(raised.type):
            optimized(x, i)
    for i in (0, -1, -9, 8):
        assert torch.equal(optimized(x, i), function(x, i))


def test_a_position_that_counts_up() -> None:
    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.randn(32, 4)
            self.position = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result = x + self.table[self.position]
            self.position += 1
            return result

    module = Positions()
    optimized = optimize(module)
    for position in range(2, 22):
        x = torch.randn(4)
        assert torch.equal(optimized(x), x + module.table[position])
    assert specializations(optimized) <= 2
