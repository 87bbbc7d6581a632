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


# Pairs of tensors that a program must tell apart, or must not.
TENSORS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "values": (lambda: torch.ones(4), lambda: torch.zeros(4), "h"),
    "dtype": (lambda: torch.ones(4), lambda: torch.ones(4).double(), "m"),
    "integers": (lambda: torch.ones(4), lambda: torch.ones(4).long(), "m"),
    "size": (lambda: torch.ones(4), lambda: torch.ones(5), "m"),
    "rank": (lambda: torch.ones(4), lambda: torch.ones(1, 4), "m"),
    "scalar": (lambda: torch.ones(1), lambda: torch.tensor(1.0), "m"),
    "empty": (lambda: torch.ones(4), lambda: torch.ones(0), "m"),
    "strides": (lambda: torch.ones(4, 4), lambda: torch.ones(4, 4).t(), "m"),
    "expanded": (lambda: torch.ones(4, 4), lambda: torch.ones(4, 1).expand(4, 4), "m"),
    "channels last": (
        lambda: torch.ones(2, 3, 4, 4),
        lambda: torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "m",
    ),
    "misaligned": (lambda: torch.ones(4), lambda: torch.ones(5)[1:], "m"),
    "offset, aligned": (lambda: torch.ones(4), lambda: torch.arange(8.0)[4:], "h"),
    "Parameter": (
        lambda: torch.ones(4),
        lambda: nn.Parameter(torch.ones(4), requires_grad=False),
        "m",
    ),
    "requires_grad": (lambda: torch.ones(4), lambda: torch.ones(4, requires_grad=True), "m"),
    "attribute": (lambda: torch.ones(4), lambda: _tagged(torch.ones(4), 2.0), "m"),
}


def _tagged(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    tensor.scale = scale  # type: ignore[attr-defined]
    return tensor


def every_view(x: Any) -> Any:
    scale = getattr(x, "scale", 1.0)
    isparam = isinstance(x, nn.Parameter)
    return x * scale + isparam, x.reshape(-1)[:1], x.stride(), x.dim(), x.is_contiguous()


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_facts(name: str) -> None:
    first, second, outcome = TENSORS[name]
    with torch.no_grad():
        pair = Pair(lambda: every_view)
        assert pair.call(1, first) == "m"
        assert pair.call(1, second) == outcome
        assert pair.call(1, first) == "h"
        assert pair.call(1, second) == "h"


def test_attributes_of_tensor_arguments_by_value() -> None:
    with torch.no_grad():
        pair = Pair(lambda: every_view)
        assert pair.call(2, lambda: _tagged(torch.ones(4), 2.0)) == "mh"
        assert pair.call(2, lambda: _tagged(torch.ones(4), 3.0)) == "mh"


def test_same_tensor_twice() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return y * 2, x is y

    def same() -> Any:
        x = torch.ones(4)
        return x, x

    def apart() -> Any:
        return torch.ones(4), torch.ones(4)

    def overlapping() -> Any:
        x = torch.ones(8)
        return x[:4], x[:4]

    with torch.no_grad():
        pair = Pair(lambda: f)
        assert pair.call(2, same) == "mh"
        assert pair.call(2, apart) == "mh"
        assert pair.call(1, overlapping) == "h"
        assert pair.call(1, same) == "h"


def test_captured_with_overlapping_tensors() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        view = y.view(2, 2)
        x.mul_(2)
        return view + 1, view, x.view(2, 2).t()

    def overlapping() -> Any:
        base = torch.arange(8.0)
        return base[0:4], base[4:8]

    def nested() -> Any:
        base = torch.arange(4.0)
        return base, base[:]

    def apart() -> Any:
        return torch.arange(4.0), torch.arange(4.0) + 10

    with torch.no_grad():
        for first in (overlapping, nested, apart):
            pair = Pair(lambda: f)
            assert pair.call(1, first) == "m"
            for other in (overlapping, nested, apart):
                assert pair.call(1, other) == "h"


def test_input_that_is_a_weight() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, x: torch.Tensor) -> Any:
            x.add_(1)
            return self.weight * 2, x is self.weight

    with torch.no_grad():
        pair = Pair(M)
        assert pair.call(2, lambda: nn.Parameter(torch.ones(4), requires_grad=False)) == "mh"
        mine, theirs = pair.fast(pair.target.weight), pair.eager(pair.eager.weight)
        assert mine[1] is theirs[1] is True
        torch.testing.assert_close(mine[0], theirs[0])
        mine, theirs = pair.fast(pair.target.weight), pair.eager(pair.eager.weight)
        torch.testing.assert_close(mine[0], theirs[0])
        assert pair.fast.stats()["hits"] == 2
        assert pair.call(1, lambda: nn.Parameter(torch.ones(4), requires_grad=False)) == "h"


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


def test_outputs_alias_as_in_eager() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 2
        return x, x[1:], y.view(2, 2), z, z[:2], z.detach(), x.t() if x.dim() == 2 else x.view(-1)

    def aliases(tensors: Any, inputs: Any) -> Any:
        every = [*inputs, *tensors]
        pointers = [t.untyped_storage().data_ptr() for t in every]
        return [[a == b for b in pointers] for a in pointers], [
            (t.storage_offset(), t._is_view()) for t in every
        ]

    with torch.no_grad():
        pair = Pair(lambda: f, lambda: (torch.arange(4.0), torch.arange(4.0)))
        assert pair.call() == "mh"
        mine, theirs = pair.arguments(), pair.arguments()
        got, expected = pair.fast(*mine), pair.eager(*theirs)
        assert aliases(got, mine) == aliases(expected, theirs)
        got[1].add_(1)
        expected[1].add_(1)
        torch.testing.assert_close(mine, theirs)
        got[4].zero_()
        expected[4].zero_()
        torch.testing.assert_close(list(got), list(expected))


def test_in_place_on_inputs_and_views() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        x[0] = 7
        x[1:].mul_(2)
        y.t().add_(x[0])
        return y.sum(0)

    pair = Pair(lambda: f, lambda: (torch.arange(4.0), torch.ones(2, 2)))
    with torch.no_grad():
        assert pair.call(3) == "mhh"


def test_objects_that_cannot_be_described_fall_back() -> None:
    def first(x: torch.Tensor, values: Any) -> Any:
        return x * float(next(iter(values)))

    import numpy

    for make in (
        lambda: (value for value in (2.0, 3.0)),
        lambda: iter([2.0]),
        lambda: numpy.array([2.0]),
        lambda: collections.deque([2.0]),
        lambda: bytearray(b"a"),
        lambda: map(float, [2.0]),
    ):
        with torch.no_grad():
            pair = Pair(lambda: first)
            assert pair.call(2, lambda make=make: (torch.ones(2), make())) == "ff"


class Wrapped(torch.Tensor):
    pass


def test_tensors_of_other_kinds_fall_back() -> None:
    def f(x: Any) -> Any:
        return (x * 2,) if x.layout is torch.strided else (x.to_dense() * 2,)

    for make in (
        lambda: torch.ones(2).as_subclass(Wrapped),
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: torch.imag(torch.ones(2, dtype=torch.complex64).conj()),
    ):
        with torch.no_grad():
            pair = Pair(lambda: f)
            fast = pair.fast
            for _ in range(2):
                got, expected = fast(make())[0], f(make())[0]
                assert type(got) is type(expected)
                torch.testing.assert_close(got, expected)
            assert fast.stats()["fallbacks"] == 2


def test_class_of_a_tensor() -> None:
    """A trace's own kind of tensor does not show."""
    handlers = {torch.Tensor: 2.0, nn.Parameter: 3.0}

    def f(x: Any) -> Any:
        y = x * handlers.get(type(x), 7.0)
        plain = type(y) is torch.Tensor and y.__class__ is torch.Tensor
        made = type("Made", (list,), {"k": 1})
        return y + plain, type(x).__name__, x.__class__.__name__, isinstance(made, type), made.k

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return f(x), type(self).__name__, type(self.weight) is nn.Parameter, f(self.weight)

    with torch.no_grad():
        for make in (lambda: f, M):
            pair = Pair(make)
            assert pair.call() == "mh"
            assert pair.call(2, lambda: nn.Parameter(torch.ones(4), requires_grad=False)) == "mh"
    assert "type" not in globals()


def test_meta_tensors_fall_back() -> None:
    with torch.no_grad():
        fast = Pair(lambda: lambda x: x * 2).fast
        assert fast(torch.ones(2, device="meta")).device.type == "meta"
        assert fast.stats()["fallbacks"] == 1


def test_check_reports_a_wrong_result() -> None:
    # The harness itself: an object whose behaviour nothing can guard must not pass unnoticed.
    counter = iter(range(100))
    with torch.no_grad(), pytest.raises(AssertionError):
        check(lambda: lambda x: x + next(counter), lambda f: None)
