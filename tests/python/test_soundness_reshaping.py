"""Tensors whose sizes and strides change in place: temporaries, inputs and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, check
from torch import nn


def matrix() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def of_temporary(x: torch.Tensor) -> Any:
    y = x + 1
    flat = y.view(-1)
    y.unsqueeze_(0).transpose_(0, 2)
    y.add_(1)
    same = y
    y.squeeze_(2).t_()
    return y, same, flat, y.shape, y.stride()


def of_view(x: torch.Tensor) -> Any:
    row = x[1]
    row.unsqueeze_(0)
    row.mul_(3)
    return row.t(), row, x


def of_input(x: torch.Tensor) -> Any:
    early = x.view(6) * 2
    row = x[1]
    x.t_()
    x[0].add_(7)
    return early, row, row + 1, x.shape, x * 2, x


def of_input_twice(x: torch.Tensor) -> Any:
    x.unsqueeze_(1)
    x.swapaxes_(0, 1)
    y = x.sum(0)
    x.squeeze_(0)
    return y, x


def to_size_of_input(x: torch.Tensor) -> Any:
    whole = x.view(2, 3)
    x.resize_(2, 2)
    return x + 1, x, whole, whole[1] + x[1].sum()


def to_its_own_size(x: torch.Tensor) -> Any:
    x.resize_(x.shape)
    x.squeeze_()
    return x * 2


def to_size_of_temporary(x: torch.Tensor) -> Any:
    y = torch.empty(0)
    y.resize_(2, 3).copy_(x)
    y.resize_as_(x[0])
    return y, y * 2


def out_of_other_size(x: torch.Tensor) -> Any:
    y, values, indices = torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.matmul(x, x.t(), out=y)
    torch.add(y, 1, out=y)
    torch.max(x, 1, out=(values, indices))
    return y, values, indices, y[0] + 1


FUNCTIONS: list[Callable[[torch.Tensor], Any]] = [
    *(of_temporary, of_view, of_input, of_input_twice, to_size_of_input, to_its_own_size),
    *(to_size_of_temporary, out_of_other_size),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_shapes_change_in_place(function: Callable[[torch.Tensor], Any]) -> None:
    pair = Pair(lambda: function, matrix)
    assert pair.call(3) == "mhh"
    fast, eager = pair.fast(matrix()), function(matrix())
    if isinstance(eager, tuple):
        for mine, theirs in zip(fast, eager, strict=True):
            if isinstance(theirs, torch.Tensor):
                mine.add_(1)
                theirs.add_(1)
        for mine, theirs in zip(fast, eager, strict=True):
            assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs


def test_a_start_that_moves_runs_eagerly() -> None:
    def f(x: torch.Tensor) -> Any:
        row = x[1]
        x.as_strided_((2, 2), (1, 1), 1)
        return row, x

    assert Pair(lambda: f, matrix).call(2) == "ff"


def test_a_buffer_that_is_transposed_at_each_call() -> None:
    class Turning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", matrix())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.table.t_()
            return self.table.sum(0) + x

    pair = Pair(Turning, lambda: torch.ones(()))
    assert pair.call(4) == "mmhh"
    assert pair.target.table.shape == pair.eager.table.shape == (2, 3)


def test_linear_layer_without_bias_on_a_vector() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(4, 3, bias=False)

    check(make, lambda layer: layer.weight.data.mul_(2), after="hh")
