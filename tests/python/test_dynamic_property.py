"""Random modules over random sequences of shapes and numbers agree with eager, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dynamic_helpers import agree, flat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")


def mixed(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        torch.cat([x, y.flip(1)], 0).softmax(-1)[1:, : x.shape[1] - 1].sum(1),
        (x @ y.t()).reshape(-1),
        x.shape[0] + 0 if x.shape[1] % 3 == 0 else y.shape[0],
    )


_mixed = optimize(mixed)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 40))
def test_any_shapes_agree_with_eager(n: int, m: int, k: int) -> None:
    agree(_mixed, mixed, lambda: (torch.randn(n, k), torch.randn(m, k)))


# What a forward may do with a matrix, a number and its module; each returns a matrix.
STEPS: dict[str, Callable[[Any, torch.Tensor, Any], torch.Tensor]] = {
    "scale": lambda self, x, number: x * number,
    "rows": lambda self, x, number: x + x.shape[0],
    "tail": lambda self, x, number: x[x.shape[0] // 2 :],
    "products": lambda self, x, number: x @ x.t(),
    "folded": lambda self, x, number: x.reshape(-1, 2) if x.numel() % 2 == 0 else x,
    "doubled": lambda self, x, number: torch.cat([x, x * 2], 1),
    "short": lambda self, x, number: x * 3 if x.shape[0] < 5 else x - 1,
    "sums": lambda self, x, number: x - x.mean(0, keepdim=True),
    "counted": lambda self, x, number: count(self, x),
    "decayed": lambda self, x, number: decay(self, x),
    "kept": lambda self, x, number: keep(self, x),
    "noted": lambda self, x, number: self.notes.append(x.shape[0]) or x,
    "in place": lambda self, x, number: x.clone().add_(1),
}


def count(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.step += x.shape[1]
    return x * self.step


def decay(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.rate = self.rate * 0.75 + 0.125
    return x * self.rate


def keep(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.cache = torch.cat([self.cache, x.sum().reshape(1)])
    return x + self.cache.sum()


class Steps(torch.nn.Module):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.step, self.rate, self.notes = 0, 1.0, []
        self.cache = torch.zeros(2)

    def forward(self, x: torch.Tensor, number: Any) -> Any:
        for name in self.names:
            x = STEPS[name](self, x, number)
        return x, self.step, self.rate, number


def state(module: Steps) -> Any:
    return module.step, module.rate, list(module.notes), module.cache.clone()


def inner_strides(tensor: torch.Tensor) -> list[int]:
    """The strides of axes longer than 1."""
    return [tensor.stride(axis) for axis, size in enumerate(tensor.shape) if size > 1]


NUMBERS = st.one_of(st.integers(-3, 20), st.sampled_from([0.5, 1.5, -0.0, 2.0**-40, 3.0]))
CALLS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), NUMBERS), min_size=4, max_size=7)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), CALLS)
def test_random_modules_agree_with_eager(names: list[str], calls: list[Any]) -> None:
    module = Steps(names)
    eager = copy.deepcopy(module)
    optimized = optimize(module)
    for rows, columns, number in calls:
        x = torch.arange(1.0, 1 + rows * columns).view(rows, columns) / 8
        got, expected = flat(optimized(x.clone(), number)), flat(eager(x.clone(), number))
        for a, b in zip([*got, *state(module)], [*expected, *state(eager)], strict=True):
            assert type(a) is type(b)
            if isinstance(a, torch.Tensor):
                assert a.shape == b.shape and torch.equal(a, b)
                assert inner_strides(a) == inner_strides(b)
            else:
                assert repr(a) == repr(b)
    assert optimized.stats()["fallbacks"] == 0
