"""What differs between the arguments of two calls, and what a call returns."""

from __future__ import annotations

import collections
import dataclasses
import enum
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Keywords, Pair, check
from torch import nn
from transformers.modeling_outputs import BaseModelOutput


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Point(typing.NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = None


class Custom:
    def __init__(self, x: Any) -> None:
        self.x = x


def kind(x: torch.Tensor, value: Any = "default") -> torch.Tensor:
    """A result that tells every kind and value of `value` apart."""
    text = f"{type(value).__name__} {value!r}" if not isinstance(value, Custom) else repr(value.x)
    return x + sum(text.encode()) + len(text) * 1000.0


VALUES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: 1,
    lambda: 1.0,
    lambda: 0,
    lambda: 0.0,
    lambda: -0.0,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -1,
    lambda: 2**62,
    lambda: 2**63,
    lambda: 2**64 + 1,
    lambda: -(2**63),
    lambda: 1j,
    lambda: "a",
    lambda: "ä",
    lambda: "",
    lambda: b"a",
    lambda: Color.RED,
    lambda: Color.BLUE,
    lambda: torch.float32,
    lambda: torch.float64,
    lambda: torch.device("cpu"),
    lambda: torch.channels_last,
    lambda: (),
    lambda: (1,),
    lambda: (1, 2),
    lambda: ((1,), 2),
    lambda: [1],
    lambda: [1, [2]],
    lambda: [],
    lambda: {},
    lambda: {"a": 1},
    lambda: {"b": 1},
    lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1},
    lambda: {1: 1},
    lambda: {True: 1},
    lambda: collections.OrderedDict(a=1),
    lambda: {1},
    lambda: frozenset({1}),
    lambda: Point(1, 2),
    lambda: Record(1, 2),
    lambda: Custom(1),
    lambda: Custom(2),
    lambda: range(3),
    lambda: range(4),
    lambda: slice(1, 3),
    lambda: slice(1, 3, 2),
    lambda: torch.Size([1]),
    lambda: Ellipsis,
]


def test_values_of_every_kind() -> None:
    with torch.no_grad():
        pair = Pair(lambda: kind, max_specializations=128)
        for make in VALUES:
            assert pair.call(1, lambda make=make: (torch.ones(2), make())) == "m", repr(make())
        for make in VALUES:
            assert pair.call(1, lambda make=make: (torch.ones(2), make())) == "h", repr(make())


def test_ways_to_pass_an_argument() -> None:
    def f(x: Any, y: Any = 2.0, *rest: Any, z: Any = 3.0, **more: Any) -> Any:
        return x * y + z + sum(rest) + sum(more[k] * i for i, k in enumerate(sorted(more)))

    x = lambda: torch.ones(2)  # noqa: E731
    calls: list[Callable[[], Any]] = [
        lambda: (x(),),
        lambda: (x(), 2.0),
        lambda: (x(), Keywords(y=2.0)),
        lambda: (Keywords(x=x(), y=2.0),),
        lambda: (Keywords(y=2.0, x=x()),),
        lambda: (x(), 2.0, 4.0),
        lambda: (x(), 2.0, 4.0, 5.0),
        lambda: (x(), Keywords(z=4.0)),
        lambda: (x(), Keywords(a=1.0, b=2.0)),
        lambda: (x(), Keywords(b=1.0, a=2.0)),
        lambda: (x(), Keywords(a=2.0, b=1.0)),
    ]
    with torch.no_grad():
        pair = Pair(lambda: f)
        for call in calls:
            assert pair.call(1, call) == "m"
        for call in calls:
            assert pair.call(1, call) == "h"


def test_wrong_arguments_are_eagers_error() -> None:
    with torch.no_grad():
        pair = Pair(lambda: lambda x, y: x + y)
        good = lambda: (torch.ones(2), torch.ones(2))  # noqa: E731
        assert pair.call(2, good) == "mh"
        assert pair.call(1, lambda: (torch.ones(2),)) == "e"
        assert pair.call(1, lambda: (torch.ones(2), Keywords(z=1))) == "e"
        assert pair.call(1, lambda: (torch.ones(2), torch.ones(3))) == "e"
        assert pair.call(1, lambda: (torch.ones(2), "text")) == "e"
        assert pair.call(1, good) == "h"


def test_argument_that_is_an_attribute() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.box = Custom(2.0)

        def forward(self, x: torch.Tensor, box: Custom) -> Any:
            return x * (2.0 if box is self.box else 3.0) + box.x

    with torch.no_grad():
        for own_first in (True, False):
            fast, eager = M(), M()
            optimized = Pair(lambda fast=fast: fast).fast
            for own in (own_first, not own_first, own_first):
                got = optimized(torch.ones(2), fast.box if own else Custom(2.0))
                expected = eager(torch.ones(2), eager.box if own else Custom(2.0))
                torch.testing.assert_close(got, expected)


def test_same_object_twice() -> None:
    def f(x: torch.Tensor, a: list[Any], b: list[Any]) -> Any:
        return x * (2.0 if a is b else 3.0)

    def same() -> Any:
        a = [1]
        return torch.ones(2), a, a

    with torch.no_grad():
        pair = Pair(lambda: f)
        assert pair.call(2, same) == "mh"
        assert pair.call(2, lambda: (torch.ones(2), [1], [1])) == "mh"


CONTAINERS: dict[str, Callable[[], Any]] = {
    "tuple": lambda: (torch.ones(2), 2.0),
    "list": lambda: [torch.ones(2), 2.0],
    "dict": lambda: {"x": torch.ones(2), "y": 2.0},
    "ordered": lambda: collections.OrderedDict(x=torch.ones(2), y=2.0),
    "namedtuple": lambda: Point(torch.ones(2), 2.0),
    "dataclass": lambda: Record(torch.ones(2), 2.0),
    "object": lambda: Custom(torch.ones(2)),
    "ModelOutput": lambda: BaseModelOutput(last_hidden_state=torch.ones(2)),
    "nested": lambda: {"x": [Point(torch.ones(2), Record({"y": (2.0, None)}))]},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_in_and_out(name: str) -> None:
    def f(value: Any, extra: torch.Tensor) -> Any:
        return value, type(value).__name__, [value, {"extra": extra * 2}], extra

    with torch.no_grad():
        pair = Pair(lambda: f)
        arguments = lambda: (CONTAINERS[name](), torch.ones(2))  # noqa: E731
        assert pair.call(2, arguments) == "mh"
        value, extra = arguments()
        result = pair.fast(value, extra)
        assert result[0] is value and result[2][0] is value and result[3] is extra


def test_kinds_of_containers_are_told_apart() -> None:
    def f(value: Any) -> Any:
        x = value.x if hasattr(value, "x") else value["x"] if isinstance(value, dict) else value[0]
        return x * len(type(value).__name__)

    with torch.no_grad():
        pair = Pair(lambda: f)
        names = ["tuple", "list", "dict", "ordered", "namedtuple", "dataclass", "object"]
        for outcome in "mh":
            for name in names:
                assert pair.call(1, lambda name=name: (CONTAINERS[name](),)) == outcome, name


def test_new_containers_of_every_kind_are_returned() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        return (
            [y, y],
            {"b": y, "a": None},
            collections.OrderedDict(z=y),
            Point(y, 1),
            Record(y, "s"),
            BaseModelOutput(last_hidden_state=y),
            x.shape,
            torch.topk(x, 2),
            x.max(0),
        )

    with torch.no_grad():
        pair = Pair(lambda: f)
        outcomes = pair.call(2)
        assert outcomes in ("mh", "ff")
        a, b = pair.fast(torch.ones(4)), pair.fast(torch.ones(4))
        assert a[0][0] is a[0][1] is a[1]["b"]
        assert a[0] is not b[0] and a[0][0] is not b[0][0]


def test_objects_that_cannot_be_described_fall_back() -> None:
    def first(x: torch.Tensor, values: Any) -> Any:
        return x * float(next(iter(values)))

    import numpy

    for make in (
        lambda: (value for value in (2.0, 3.0)),
        lambda: iter([2.0]),
        lambda: numpy.array([2.0]),
        lambda: bytearray(b"a"),
        lambda: map(float, [2.0]),
    ):
        with torch.no_grad():
            pair = Pair(lambda: first)
            assert pair.call(2, lambda make=make: (torch.ones(2), make())) == "ff"


def test_check_reports_a_wrong_result() -> None:
    # The harness itself: an object whose behaviour nothing can guard must not pass unnoticed.
    counter = iter(range(100))
    with torch.no_grad(), pytest.raises(AssertionError):
        check(lambda: lambda x: x + next(counter), lambda f: None)
