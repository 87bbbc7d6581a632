"""`collections.deque` in arguments, attributes and globals: guarded and changed like a list."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, check

HISTORY: collections.deque[float] = collections.deque([2.0, 3.0])
LOG: collections.deque[int] = collections.deque()


class Scaled(torch.nn.Module):
    """Reads numbers of a deque."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = collections.deque([2.0, 3.0], maxlen=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factors[0] + len(self.factors) + (self.factors.maxlen or 0)


class Stream(torch.nn.Module):
    """Keeps the last inputs, as a causal convolution does."""

    def __init__(self) -> None:
        super().__init__()
        self.window: collections.deque[torch.Tensor] = collections.deque(maxlen=3)

    def forward(self, x: torch.Tensor) -> Any:
        self.window.append(x * 2)
        return torch.stack(list(self.window)).sum(0), len(self.window)


@pytest.mark.parametrize(
    "change",
    [
        lambda module: module.factors.append(5.0),
        lambda module: module.factors.popleft(),
        lambda module: module.factors.rotate(),
        lambda module: module.factors.clear() or module.factors.append(1),
        lambda module: setattr(module, "factors", collections.deque([2.0, 3.0])),
    ],
    ids=["append", "popleft", "rotate", "clear", "limit"],
)
def test_a_changed_deque_is_a_miss(change: Any) -> None:
    check(Scaled, change)


def test_an_equal_deque_hits() -> None:
    check(
        Scaled,
        lambda module: setattr(module, "factors", collections.deque([2.0, 3.0], maxlen=4)),
        after="hh",
    )


def test_what_a_call_appends_is_appended() -> None:
    with torch.no_grad():
        pair = Pair(Stream)
        assert pair.call(times=6) == "mmmmhh"  # for none to three kept inputs
        for mine, eager in zip(pair.target.window, pair.eager.window, strict=True):
            assert torch.equal(mine, eager)
        assert pair.target.window.maxlen == 3
        pair.change(lambda module: module.window.clear())
        assert pair.call(times=4) == "hhhh"


def test_other_changes_of_a_deque_are_replayed() -> None:
    class Turns(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factors = collections.deque([1.0, 2.0, 3.0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.factors.rotate()
            last = self.factors.pop()
            self.factors.appendleft(last)
            return x * last

    with torch.no_grad():
        pair = Pair(Turns)
        pair.call(times=9)
        assert pair.target.factors == pair.eager.factors
        assert pair.fast.stats()["fallbacks"] == 0


def test_a_deque_as_argument() -> None:
    with torch.no_grad():
        pair = Pair(
            lambda: lambda x, kept: (x * kept[0], kept.append(4.0), kept),
            lambda: (torch.arange(3.0), collections.deque([2.0, 3.0])),
        )
        assert pair.call() == "mh"
        changed = (torch.arange(3.0), collections.deque([2.5, 3.0]))
        assert pair.call(arguments=lambda: (changed[0], changed[1].copy()))[0] == "m"


def test_a_global_deque() -> None:
    def make() -> Any:
        return lambda x: x * HISTORY[0]

    try:
        with torch.no_grad():
            pair = Pair(make)
            assert pair.call() == "mh"
            HISTORY.appendleft(7.0)
            assert pair.call() == "mh"
    finally:
        HISTORY.clear()
        HISTORY.extend([2.0, 3.0])


def test_a_trace_leaves_a_global_deque_alone() -> None:
    def make() -> Any:
        return lambda x: x * len(LOG) if LOG.append(1) is None else x

    with torch.no_grad():
        pair = Pair(make)
        with pytest.warns(UserWarning, match="runs eagerly"):
            pair.fast(torch.ones(2))
        assert list(LOG) == [1]
    LOG.clear()


def test_a_subclass_of_deque_runs_eagerly() -> None:
    class Own(collections.deque[float]):
        pass

    def make() -> torch.nn.Module:
        module = Scaled()
        module.factors = Own([2.0, 3.0])
        return module

    with torch.no_grad():
        assert Pair(make).call() == "ff"
