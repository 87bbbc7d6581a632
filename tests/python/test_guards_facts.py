"""The words that describe a call: equal for what a program may share, different otherwise."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import itertools
import types
import weakref
from collections.abc import Callable
from typing import Any, ForwardRef, NamedTuple, Optional, ParamSpec, TypeVar, get_type_hints

import pytest
import torch
from torch import nn

import trident
from trident import _C
from trident.optimize import optimizer_of


def target(*args: Any, **kwargs: Any) -> None:
    """What is optimized: facts are collected without running it."""


@pytest.fixture
def words() -> Callable[..., tuple[int, ...]]:
    """The words of a call with these arguments."""
    scm = optimizer_of(trident.optimize(target)).scm

    def collect(*args: Any, **kwargs: Any) -> tuple[int, ...]:
        facts = _C.collect(scm, args, kwargs)
        assert facts.unsupported is None, facts.unsupported
        return tuple(facts.words)

    return collect


@pytest.fixture
def reason() -> Callable[..., str | None]:
    """Why a call with these arguments cannot be described."""
    scm = optimizer_of(trident.optimize(target)).scm
    return lambda *args, **kwargs: _C.collect(scm, args, kwargs).unsupported


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: Any
    y: Any


class Sub(int):
    pass


class Text(str):
    pass


class Items(list[Any]):
    pass


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = None


@dataclasses.dataclass(slots=True)
class SlotRecord:
    x: Any


class Empty:
    pass


def function() -> None: ...


DIFFERENT: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: False,
    lambda: 0,
    lambda: 1,
    lambda: -1,
    lambda: 2**63 - 1,
    lambda: 2**63,
    lambda: -(2**63),
    lambda: -(2**63) - 1,
    lambda: 2**64,
    lambda: 0.0,
    lambda: -0.0,
    lambda: 1.0,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: 1 + 0j,
    lambda: complex(1, -0.0),
    lambda: "",
    lambda: "1",
    lambda: "a",
    lambda: "\u00e9",
    lambda: "\u20ac",
    lambda: "a\0",
    lambda: "12345678",
    lambda: "123456789",
    lambda: b"",
    lambda: b"a",
    lambda: b"a\0",
    lambda: Color.RED,
    lambda: Color.BLUE,
    lambda: Number.ONE,
    lambda: Sub(1),
    lambda: Text("a"),
    lambda: torch.float32,
    lambda: torch.float16,
    lambda: torch.strided,
    lambda: torch.channels_last,
    lambda: torch.device("cpu"),
    lambda: torch.device("cuda", 0),
    lambda: torch.device("cuda", 1),
    lambda: (),
    lambda: (None,),
    lambda: ((),),
    lambda: (1, 2),
    lambda: (1, (2,)),
    lambda: ((1,), 2),
    lambda: [],
    lambda: [1, 2],
    lambda: [[1], 2],
    lambda: Items([1, 2]),
    lambda: Point(1, 2),
    lambda: torch.Size([1, 2]),
    lambda: {},
    lambda: {"a": 1},
    lambda: {"a": 2},
    lambda: {"b": 1},
    lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1},
    lambda: {1: 1},
    lambda: {1.0: 1},
    lambda: {(1,): 1},
    lambda: collections.OrderedDict(a=1),
    lambda: collections.OrderedDict(a=1, b=2),
    lambda: _moved(),
    lambda: collections.defaultdict(None, a=1),
    lambda: collections.defaultdict(list, a=1),
    lambda: collections.Counter("a"),
    lambda: set(),
    lambda: {1},
    lambda: {1, 2},
    lambda: frozenset({1}),
    lambda: {0, 8},
    lambda: {8, 0},
    lambda: Record(1),
    lambda: Record(1, 2),
    lambda: SlotRecord(1),
    lambda: SlotRecord(2),
    lambda: object.__new__(SlotRecord),
    lambda: Empty(),
    lambda: _with(Empty(), a=1),
    lambda: _with(Empty(), a=2),
    lambda: _with(Empty(), b=1),
    lambda: range(3),
    lambda: range(0, 4),
    lambda: slice(3),
    lambda: slice(0, 3, None),
    lambda: Ellipsis,
    lambda: function,
    lambda: len,
    lambda: torch.relu,
    lambda: Empty,
    lambda: functools.partial(function),
    lambda: functools.partial(function, 1),
    lambda: functools.partial(function, a=1),
    lambda: _self_referring(),
    lambda: [[]] * 2,
    lambda: [[], []],
]


def _moved() -> Any:
    moved = collections.OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    return moved


def _with(obj: Any, **attributes: Any) -> Any:
    vars(obj).update(attributes)
    return obj


def _self_referring() -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def test_values_are_told_apart(words: Any) -> None:
    seen: dict[tuple[int, ...], Any] = {}
    for make in DIFFERENT:
        value = make()
        key = words(value)
        assert key not in seen, f"{value!r} and {seen[key]!r}"
        seen[key] = value


def test_equal_values_have_equal_words(words: Any) -> None:
    for make in DIFFERENT:
        assert words(make()) == words(make()), repr(make())


def test_structure_is_unambiguous(words: Any) -> None:
    flat = [(1, (2,), 3), (1, (2, 3)), ((1, 2), 3), ((1,), 2, 3), (1, 2, 3, ())]
    assert len({words(value) for value in flat}) == len(flat)
    calls = {
        words(1, 2),
        words((1, 2)),
        words(1, y=2),
        words(x=1, y=2),
        words(y=2, x=1),
        words(y=1, x=2),
        words(1, 2, None),
    }
    assert len(calls) == 7


TENSORS: list[Callable[[], Any]] = [
    lambda: torch.ones(4),
    lambda: torch.ones(4).double(),
    lambda: torch.ones(4).bool(),
    lambda: torch.ones(5),
    lambda: torch.ones(1, 4),
    lambda: torch.ones(4, 1),
    lambda: torch.ones(2, 2),
    lambda: torch.ones(2, 2).t(),
    lambda: torch.ones(()),
    lambda: torch.ones(1),
    lambda: torch.ones(0),
    lambda: torch.ones(0, 3),
    lambda: torch.ones(1).expand(4),
    lambda: torch.ones(8)[::2],
    lambda: torch.ones(5)[1:],
    lambda: torch.ones(6)[2:],
    lambda: torch.ones(4, requires_grad=True),
    lambda: nn.Parameter(torch.ones(4)),
    lambda: nn.Parameter(torch.ones(4), requires_grad=False),
    lambda: _inference(),
    lambda: _with_attribute(torch.ones(4), 1),
    lambda: _with_attribute(torch.ones(4), 2),
]


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(4)


def _with_attribute(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    tensor.note = value  # type: ignore[attr-defined]
    return tensor


def test_tensors_are_told_apart_by_geometry_not_by_value(words: Any) -> None:
    keys = [words(make()) for make in TENSORS]
    for (i, a), (j, b) in itertools.combinations(enumerate(keys), 2):
        assert a != b, (i, j)
    assert keys == [words(make()) for make in TENSORS]
    assert words(torch.zeros(4)) == words(torch.ones(4))
    assert words(torch.ones(8)[4:]) == words(torch.ones(4))


def test_an_attribute_that_was_removed_is_none(words: Any) -> None:
    tensor = _with_attribute(torch.ones(4), 1)
    del tensor.note  # type: ignore[attr-defined]
    assert words(tensor) == words(torch.ones(4))


def test_identity_of_tensors_and_containers(words: Any) -> None:
    x, y, box = torch.ones(2), torch.ones(2), [1]
    assert words(x, x) != words(x, y)
    assert words(x, y) == words(y, x)
    assert words(x, x, y) != words(x, y, y) != words(x, y, x)
    assert words(box, box) != words(box, [1])
    assert words([x], [x]) != words([x], [y])
    many = [torch.ones(2) for _ in range(40)]
    assert words(many) != words([*many[:39], many[0]])
    assert words([*many[:39], many[1]]) != words([*many[:39], many[0]])


def test_objects_listed_in_the_order_they_were_met() -> None:
    scm = optimizer_of(trident.optimize(target)).scm
    x, y, table = torch.ones(1), torch.ones(2), {"k": 1}
    facts = _C.collect(scm, (x, [y, table]), {"z": x})
    assert [t is u for t, u in zip(facts.tensors, [x, y], strict=True)] == [True, True]
    assert facts.num_argument_tensors == 2
    assert facts.containers[1] is table


def test_class_patches(words: Any) -> None:
    class Patched:
        limit = 1
        table = [1]

        def method(self) -> None: ...

    first = words(Patched())
    assert words(Patched()) == first
    Patched.limit = 2
    second = words(Patched())
    assert second != first
    Patched.limit = 1
    assert words(Patched()) == first
    Patched.limit = 2
    assert words(Patched()) == second
    Patched.method = function  # type: ignore[assignment]
    third = words(Patched())
    assert third != second
    Patched.table[0] = 2
    assert words(Patched()) != third
    Patched.table[0] = 1
    assert words(Patched()) == third


def test_patched_base_class(words: Any) -> None:
    class Base:
        limit = 1

    class Derived(Base):
        pass

    first = words(Derived())
    Base.limit = 2
    assert words(Derived()) != first


def test_functions_by_what_they_hold(words: Any) -> None:
    def make(value: Any) -> Any:
        def inner(x: Any = [0], *, y: Any = 1) -> Any:  # noqa: B006
            return value, x, y

        return inner

    box = [1]
    one = make(box)
    first = words(one)
    box[0] = 2
    second = words(one)
    assert second != first
    one.__defaults__[0][0] = 5
    third = words(one)
    assert third != second
    one.__kwdefaults__["y"] = 2
    fourth = words(one)
    assert fourth != third
    one.note = 1
    fifth = words(one)
    assert fifth != fourth
    one.__code__ = (lambda value: lambda x=None, *, y=None: value)(1).__code__
    assert words(one) != fifth


P = ParamSpec("P")

ANNOTATIONS: dict[str, Callable[[], Any]] = {
    "union": lambda: int | None,
    "union of tensors": lambda: torch.Tensor | list[torch.Tensor] | None,
    "optional": lambda: Optional[list[int | None]],  # noqa: UP045
    "alias": lambda: dict[str, int | None],
    "callable": lambda: Callable[[int], int | None],
    "type variable": lambda: TypeVar("T", bound=int),
    "parameters": lambda: P.args,
    "forward reference": lambda: ForwardRef("Later"),
    "signature": lambda: inspect.signature(function),
    "not implemented": lambda: NotImplemented,
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_annotations_stay_what_they_are(words: Any, name: str) -> None:
    value = ANNOTATIONS[name]()
    first = words([value], note=value)
    assert words([value], note=value) == first
    assert words([int], note=int) != first


def test_an_evaluated_forward_reference_is_the_same(words: Any) -> None:
    reference = ForwardRef("Point")
    holder: Any = types.SimpleNamespace(__annotations__={"point": reference})
    first = words(reference)
    assert get_type_hints(holder, globals()) == {"point": Point} and reference.__forward_evaluated__
    assert words(reference) == first


def test_read_only_views_by_what_they_show(words: Any) -> None:
    table: dict[str, Any] = {"a": 1, "b": [2]}
    view = types.MappingProxyType(table)
    first = words(view)
    assert words(view) == first
    table["b"].append(3)
    assert words(view) != first
    table["b"].pop()
    assert words(view) == first
    table["a"] = 2
    assert words(view) != first


class Wrapped(torch.Tensor):
    pass


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "generator": (lambda: (i for i in [1]), "generator"),
    "iterator": (lambda: iter([1]), "list_iterator"),
    "array": (lambda: __import__("numpy").ones(2), "ndarray"),
    "bytearray": (lambda: bytearray(b"a"), "bytearray"),
    "file": (lambda: __import__("io").StringIO(), "StringIO"),
    "generator of random numbers": (lambda: __import__("random").Random(1), "Random"),
    "bound builtin": (lambda: [].append, "bound to an object"),
    "tensor subclass": (lambda: torch.ones(2).as_subclass(Wrapped), "subclass"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "not dense"),
    "conjugate": (lambda: torch.ones(2, dtype=torch.complex64).conj(), "lazy"),
    "meta": (lambda: torch.ones(2, device="meta"), "device other"),
    "weak reference": (lambda: weakref.ref(function), "weak reference"),
    "set of objects": (lambda: {Empty()}, "set of objects"),
    "set of tensors": (lambda: {torch.ones(1)}, "set of tensors"),
    "deep": (lambda: _deep(), "nested more than"),
}


def _deep() -> Any:
    value: Any = []
    for _ in range(1000):
        value = [value]
    return value


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_described(reason: Any, name: str) -> None:
    make, expected = REFUSED[name]
    value = make()
    assert expected in reason(value)
    assert expected in reason({"a": [value]})
    assert reason(torch.ones(1)) is None


def test_nothing_is_kept_alive(words: Any) -> None:
    class Local:
        pass

    obj, tensor = Local(), torch.ones(2)
    obj.tensor = tensor  # type: ignore[attr-defined]
    words(obj, [tensor])
    watched = [weakref.ref(obj), weakref.ref(tensor)]
    del obj, tensor
    assert [reference() for reference in watched] == [None, None]
