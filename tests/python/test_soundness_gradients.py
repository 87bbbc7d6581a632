"""Calls in grad mode: captured where no gradient leaves the call, eager where one does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair
from torch import nn


class Layer(nn.Module):
    """A layer with a weight that requires grad, and a buffer that does not."""

    def __init__(self, call: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(16.0).reshape(4, 4) / 8)
        self.register_buffer("seen", torch.zeros(4))
        self.last: Any = None
        self.call = call

    def forward(self, x: torch.Tensor) -> Any:
        return self.call(self, x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def chooses(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return (x @ layer.weight).argmax(-1)


def detaches(layer: Any, x: torch.Tensor) -> Any:
    hidden = Doubled.apply(x @ layer.weight)
    return hidden.detach(), hidden.requires_grad, layer.weight.detach()[0]


@torch.no_grad()
def without_gradients(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ layer.weight


def updates(layer: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        layer.weight.add_(1)
    layer.seen.copy_((x @ layer.weight).detach())
    return x + 1


def differentiates(layer: Any, x: torch.Tensor) -> Any:
    return torch.autograd.grad((x @ layer.weight).sum(), layer.weight)


@pytest.mark.parametrize(
    "call",
    [chooses, detaches, without_gradients, updates, differentiates],
    ids=lambda f: f.__name__,
)
def test_no_gradient_leaves_the_call(call: Callable[..., Any]) -> None:
    pair = Pair(lambda: Layer(call))
    assert pair.call(3) == "mhh"
    assert torch.equal(pair.target.weight, pair.eager.weight)
    assert torch.equal(pair.target.seen, pair.eager.seen)
    assert pair.target.weight.grad is None


def returns(layer: Any, x: torch.Tensor) -> Any:
    return x @ layer.weight


def assigns(layer: Any, x: torch.Tensor) -> Any:
    layer.last = x @ layer.weight
    return x + 1


def writes_buffer(layer: Any, x: torch.Tensor) -> Any:
    layer.seen.copy_(x @ layer.weight)
    return x + 1


def runs_backward(layer: Any, x: torch.Tensor) -> Any:
    (x @ layer.weight).sum().backward()
    return x + 1


def returns_view(layer: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return layer.weight[:2]


@pytest.mark.parametrize(
    "call", [returns, assigns, writes_buffer, runs_backward, returns_view], ids=lambda f: f.__name__
)
def test_a_gradient_leaves_the_call(call: Callable[..., Any]) -> None:
    pair = Pair(lambda: Layer(call))
    for _ in range(3):
        assert pair.call(1) == "f"
        mine, theirs = pair.target, pair.eager
        assert mine.seen.requires_grad == theirs.seen.requires_grad
        assert (mine.weight.grad is None) == (theirs.weight.grad is None)
        if theirs.weight.grad is not None:
            assert torch.equal(mine.weight.grad, theirs.weight.grad)
        pair.change(lambda layer: setattr(layer, "seen", torch.zeros(4)))
    with torch.no_grad():
        pair.change(lambda layer: layer.weight.grad is None or setattr(layer.weight, "grad", None))


def test_an_input_with_a_history_is_written() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.detach() + 1

    def argument() -> torch.Tensor:
        return torch.arange(4.0).requires_grad_() * 1

    assert Pair(lambda: f, argument).call(2) == "ff"
    with torch.no_grad():
        assert Pair(lambda: f, argument).call(2) == "mh"


def test_a_view_of_a_weight_is_returned_without_grad_mode() -> None:
    pair = Pair(lambda: Layer(lambda layer, x: layer.weight[:2]))
    with torch.no_grad():
        assert pair.call(2) == "mh"
        views = [pair.fast(torch.ones(4)), pair.eager(torch.ones(4))]
    for view, layer in zip(views, (pair.target, pair.eager), strict=True):
        assert view._base is layer.weight and view.requires_grad
        with pytest.raises(RuntimeError, match="view.*no_grad mode"):
            view.add_(1)


def test_hooks_for_saved_tensors_see_each_call() -> None:
    pair = Pair(lambda: Layer(chooses))
    assert pair.call(2) == "mh"
    saved: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pair.fast(torch.ones(4))
        assert len(saved) > 0
        with torch.no_grad():  # nothing is saved, so nobody looks
            assert pair.call(2) == "mh"
    assert pair.call(1) == "h"


def test_calls_that_train_are_not_captured_over_and_over() -> None:
    pair = Pair(lambda: Layer(returns))
    captured = []
    for rows in range(1, 6):
        assert pair.call(1, lambda rows=rows: torch.ones(rows, 4)) == "f"
        captured.append(pair.fast.stats()["fallbacks"])
    from trident.optimize import optimizer_of

    assert optimizer_of(pair.fast)._recorded_gradients == 2
