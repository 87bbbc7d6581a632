"""A trace leaves nothing behind: no references, nothing in caches of PyTorch's."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair
from torch import nn
from torch.nn.utils import parametrize

import trident
from trident.capture.library import is_library_globals


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


@torch.no_grad()
def test_weights_can_be_swapped_after_a_miss() -> None:
    module = Scaled()
    fast = trident.optimize(module)
    for size in (1, 2, 3):
        x = torch.ones(size, 4)
        torch.testing.assert_close(fast(x), module(x), rtol=0, atol=0)
        torch.utils.swap_tensors(module.weight, nn.Parameter(torch.full((4,), float(size))))
        torch.testing.assert_close(fast(x), module(x), rtol=0, atol=0)


@torch.no_grad()
def test_arguments_can_be_swapped_in_a_call_that_runs_eagerly() -> None:
    def swaps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch.utils.swap_tensors(x, y)
        return x - 2 * y

    pair = Pair(lambda: swaps, lambda: (torch.ones(4), torch.arange(4.0)))
    assert pair.call(3) == "fff"


def compiled(x: torch.Tensor, held: Any) -> torch.Tensor:
    return x + 1


def refused(x: torch.Tensor, held: Any) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x


def raising(x: torch.Tensor, held: Any) -> torch.Tensor:
    raise ValueError(f"{x.shape} is wrong")


class Held(list[int]):
    pass


@pytest.mark.parametrize("function", [compiled, refused, raising])
def test_arguments_die_with_their_last_reference(function: Callable[..., Any]) -> None:
    fast = trident.optimize(function)
    for size in range(1, 5):
        x, held = torch.ones(size, 4), Held()
        references = [weakref.ref(x), weakref.ref(held)]
        gc.disable()
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fast(x, held)
        except ValueError:
            pass
        finally:
            gc.enable()
        del x, held
        assert [reference() for reference in references] == [None, None]


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + weight.t()


def make_parametrized() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


@torch.no_grad()
def test_weights_that_pytorch_keeps() -> None:
    pair = Pair(make_parametrized, lambda: torch.ones(2, 4))

    def change(module: Any) -> None:
        module.parametrizations.weight.original.mul_(2.0)

    assert pair.call() == "mh"
    for _ in range(2):
        with parametrize.cached():
            assert pair.call() == "ff"
            pair.change(change)
            assert pair.call() == "ff"
    assert pair.call() == "hh"


def test_parts_of_compiled_modules_are_libraries() -> None:
    assert is_library_globals(vars(torch._C._nn))
    assert is_library_globals(vars(torch._C.cpp.nn))  # type: ignore[attr-defined]
    assert not is_library_globals(globals())
