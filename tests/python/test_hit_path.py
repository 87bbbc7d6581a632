"""A hit runs no Python bytecode; test_gpu.py has the same with launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from bytecode_watch import python_events

import trident


@dataclasses.dataclass
class Output:
    """A container that the call builds."""

    hidden: torch.Tensor
    more: dict[str, list[torch.Tensor]]


class Block(torch.nn.Module):
    """Reads weights, writes a buffer, assigns an attribute, and returns nested containers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU())
        self.register_buffer("seen", torch.zeros(8))
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Output:
        self.seen += x.sum(0)
        hidden = self.mlp(self.norm(x)) * scale
        self.last = hidden
        return Output(hidden, {"parts": [hidden[:1], x]})


def combine(inputs: dict[str, Any], *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return inputs["x"] + inputs["factor"], *(each.relu() for each in rest)


def combine_arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ({"x": torch.randn(3), "factor": 2.0}, torch.randn(2), torch.randn(4)), {}


def block_arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(5, 8),), {"scale": 0.5}


@pytest.mark.parametrize(
    ("make", "arguments"),
    [(Block, block_arguments), (lambda: combine, combine_arguments)],
    ids=["module", "function"],
)
@torch.no_grad()
def test_hit_runs_no_bytecode(
    make: Callable[[], Any], arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    original = make()
    fast = trident.optimize(original)
    # The first assignment of an attribute changes the state, so the second call may compile, too.
    for _ in range(3):
        args, kwargs = arguments()
        fast(*args, **kwargs)
    before = fast.stats()["hits"]
    args, kwargs = arguments()
    result, events = python_events(fast, *args, **kwargs)
    assert events == []
    assert fast.stats()["hits"] > before
    expected = original(*args, **kwargs)
    flat, shape = torch.utils._pytree.tree_flatten(vars(result) if make is Block else result)
    other, other_shape = torch.utils._pytree.tree_flatten(
        vars(expected) if make is Block else expected
    )
    assert shape == other_shape and type(result) is type(expected)
    torch.testing.assert_close(flat, other)


@torch.no_grad()
def test_the_watch_sees_python_code() -> None:
    model = Block()
    args, kwargs = block_arguments()
    assert any("Block.forward" in event for event in python_events(model, *args, **kwargs)[1])
    fast = trident.optimize(model)
    assert python_events(fast, *args, **kwargs)[1] != []  # a miss
