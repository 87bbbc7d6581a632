"""Modules that objects hold, whatever code looks up there, and what users put on libraries."""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import inspect
import logging
import math
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from soundness_helpers import check_function

import trident
from trident.capture.module_attributes import look_ups_noted

NAME = "SCALE"

Function = Callable[[torch.Tensor], Any]


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Holder:
    table: dict[str, Any]


class Slotted:
    __slots__ = ("module",)
    module: types.ModuleType


class Member(enum.Enum):
    ONE = 1


HELD = types.ModuleType("held")  # in no table: reached through objects alone
HOLDER, SLOTTED, TABLE = Holder(), Slotted(), {"inner": [HELD]}
HOLDER.module = SLOTTED.module = HELD  # type: ignore[attr-defined]
Holder.table = TABLE
Member.ONE.table = TABLE  # type: ignore[attr-defined]


class Property:
    @property
    def module(self) -> Any:
        return TABLE["inner"][0]


def of_function(x: torch.Tensor) -> Any:
    return x * of_function.table["inner"][0].SCALE  # type: ignore[attr-defined]


of_function.table = TABLE  # type: ignore[attr-defined]


def with_default(x: torch.Tensor, modules: Any = (HELD,)) -> Any:
    return x * modules[0].SCALE


class InModule(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = TABLE

    def forward(self, x: torch.Tensor) -> Any:
        return x * self.table["inner"][0].SCALE


WAYS: dict[str, Any] = {
    "attribute": lambda x: x * HOLDER.module.SCALE,  # type: ignore[attr-defined]
    "slot": lambda x: x * SLOTTED.module.SCALE,
    "class attribute": lambda x: x * Holder.table["inner"][0].SCALE,
    "of a member": lambda x: x * Member.ONE.table["inner"][0].SCALE,  # type: ignore[attr-defined]
    "property": lambda x: x * Property().module.SCALE,
    "of a function": of_function,
    "default": with_default,
    "of the callable": InModule(),
    "dictionary": lambda x: x * HELD.__dict__["SCALE"],
    "computed key": lambda x: x * HELD.__dict__[NAME],
    "computed key, held": lambda x: x * HOLDER.module.__dict__[NAME],  # type: ignore[attr-defined]
    "items": lambda x: x * sum(v for k, v in HELD.__dict__.items() if k == NAME),
    "attrgetter": lambda x: x * operator.attrgetter(NAME)(HELD),
    "getmembers": lambda x: x * dict(inspect.getmembers(HELD))[NAME],
    "partial": lambda x: x * functools.partial(getattr, HELD)(NAME),
    "getattr": lambda x: x * getattr(HOLDER.module, NAME.upper()),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("way", WAYS)
def test_attributes_of_modules_that_objects_hold(way: str) -> None:
    HELD.SCALE = 2.0  # type: ignore[attr-defined]
    check_function(WAYS[way], lambda: setattr(HELD, NAME, 3.0))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * len([name for name in dir(HELD) if name.startswith("EXTRA")]),
        lambda x: x * len([name for name in vars(HELD) if name.startswith("EXTRA")]),
        lambda x: x * HELD.__dict__.get("".join(["EXTRA", "_1"]), 5.0),
    ],
)
def test_names_that_a_module_gets_later(function: Function) -> None:
    for name in ("EXTRA_0", "EXTRA_1"):
        vars(HELD).pop(name, None)
    HELD.EXTRA_0 = 1.0  # type: ignore[attr-defined]
    check_function(function, lambda: setattr(HELD, "EXTRA_1", 2.0))


def test_ways_past_what_is_guarded_are_refused() -> None:
    HELD.SCALE = 2.0  # type: ignore[attr-defined]
    for function in (
        lambda x: x * HELD.__getattribute__(NAME),
        lambda x: x * object.__getattribute__(HELD, NAME),
        lambda x: x * operator.methodcaller("__getattribute__", NAME)(HELD),
        lambda x: x * of_function.__globals__["HELD"].SCALE,
        lambda x: x * len(Holder.__subclasses__()),
    ):
        with pytest.raises(trident.UnsupportedError, match="uses __"):
            trident.optimize(function, on_unsupported="raise")(torch.ones(3))


def test_methods_of_pythons_own_names_may_use_them() -> None:
    class Lazy:
        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name)

    lazy = Lazy()
    lazy.scale = 2.0  # type: ignore[attr-defined]
    check_function(lambda x: x * lazy.scale, lambda: setattr(lazy, "scale", 3.0))  # type: ignore[attr-defined]


# What users put into namespaces of libraries: contents, by whatever name leads there.
class Shared:
    value = 2.0


SHARED = Shared()
PLACES: list[Any] = [torch, torch.nn, torch.nn.functional, sys, math, builtins]
CONTENTS: list[tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (dict(a=2.0), lambda held: held["a"], lambda held: held.update(a=held["a"] + 1)),
    ([2.0], len, lambda held: held.append(3.0)),
    ({2.0}, len, lambda held: held.add(len(held) + 9.0)),
    (collections.deque([2.0]), len, lambda held: held.append(3.0)),
    (SHARED, lambda held: held.value, lambda held: setattr(held, "value", held.value + 1)),
    (TABLE, lambda held: held["inner"][0].SCALE, lambda held: setattr(HELD, NAME, HELD.SCALE + 1)),
]


def put_on(owner: Any, contents: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """Gives a module or class the attribute `put_here`: its value, what reads and changes it."""
    HELD.SCALE = 2.0  # type: ignore[attr-defined]
    held, read, change = CONTENTS[contents]
    held = held if contents > 3 else held.copy()
    monkeypatch.setattr(owner, "put_here", held, raising=False)
    return held, read, change


@pytest.mark.parametrize("contents", range(len(CONTENTS)))
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_what_users_put_on_modules_of_libraries(
    place: Any, contents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, read, change = put_on(place, contents, monkeypatch)
    by_place: list[Function] = [lambda x: x * read(place.put_here)]
    if place is builtins:
        by_place.append(lambda x: x * read(put_here))  # type: ignore[name-defined]  # noqa: F821
    for function in by_place:
        check_function(function, lambda: change(held))


@pytest.mark.parametrize("contents", range(len(CONTENTS)))
@pytest.mark.parametrize("cls", [torch.nn.Linear, torch.nn.Module, torch.Tensor])
def test_what_users_put_on_classes_of_libraries(
    cls: type, contents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, read, change = put_on(cls, contents, monkeypatch)
    linear = torch.nn.Linear(3, 3)
    functions: list[Function] = [lambda x: x * read(cls.put_here)]  # type: ignore[attr-defined]
    if cls is torch.Tensor:
        functions.append(lambda x: x * read(x.put_here))  # type: ignore[attr-defined]
    else:
        functions.append(lambda x: linear(x) * read(linear.put_here))
    for function in functions:
        check_function(function, lambda: change(held))


def test_attributes_of_objects_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    options: Any = torch._tensor_str.PRINT_OPTS  # type: ignore[attr-defined]
    for precision in (4, 6):  # at first that of its class
        check_function(
            lambda x: x * torch._tensor_str.PRINT_OPTS.precision,  # type: ignore[attr-defined]
            lambda now=precision: monkeypatch.setattr(options, "precision", now + 1),
        )
    monkeypatch.setattr(options, "put_here", [2.0], raising=False)
    check_function(
        lambda x: x * torch._tensor_str.PRINT_OPTS.put_here[0],  # type: ignore[attr-defined]
        lambda: options.put_here.insert(0, 3.0),
    )


def test_settings_that_lie_outside_of_their_module_are_left_to_eager() -> None:
    x = torch.ones(3)
    fast = trident.optimize(lambda x: x * torch._dynamo.config.recompile_limit)
    for limit in (5, 7):
        with torch._dynamo.config.patch(recompile_limit=limit):
            assert torch.equal(fast(x), x * limit)
    assert fast.stats()["fallbacks"] == 2
    assert "reads torch._dynamo.config.recompile_limit" in str(trident.explain(fast))


def test_classes_of_classes() -> None:
    class Meta(type):
        extra = 2.0

    class Made(metaclass=Meta):
        pass

    check_function(lambda x: x * Made.extra, lambda: setattr(Meta, "extra", 3.0))


def test_what_stands_in_the_place_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "put_in_place", types.SimpleNamespace(SCALE=2.0))

    def function(x: torch.Tensor) -> Any:
        import put_in_place  # type: ignore[import-not-found]

        return x * put_in_place.SCALE

    other = types.SimpleNamespace(SCALE=3.0)
    check_function(function, lambda: monkeypatch.setitem(sys.modules, "put_in_place", other))
    check_function(function, lambda: setattr(other, NAME, 4.0))


LOGGER = logging.getLogger("trident_tests.of_a_model")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (2.0 if LOGGER.isEnabledFor(logging.DEBUG) else 3.0),
        lambda x: x * LOGGER.getEffectiveLevel(),
        lambda x: x * logging.getLogger("trident_tests.of_a_model").getEffectiveLevel(),
    ],
)
@pytest.mark.parametrize("changed", ["trident_tests.of_a_model", "trident_tests"])
def test_whether_a_logger_writes(function: Function, changed: str) -> None:
    logger = logging.getLogger(changed)
    logger.setLevel(logging.WARNING)
    try:
        check_function(function, lambda: logger.setLevel(logging.DEBUG))
    finally:
        logger.setLevel(logging.NOTSET)


def test_look_ups_are_those_of_the_users_code_in_this_thread() -> None:
    noted: list[tuple[str, str | None]] = []
    HELD.SCALE = 2.0  # type: ignore[attr-defined]

    def elsewhere() -> None:
        getattr(HELD, NAME)

    with look_ups_noted(lambda module, name: noted.append((module.__name__, name))):
        getattr(HELD, NAME)
        operator.attrgetter(NAME)(HELD)
        vars(HELD)
        dir(HELD)
        inspect.getattr_static(HELD, NAME)
        torch.ones(1).sum()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    getattr(HELD, NAME)
    of_held = [name for module, name in noted if module == "held"]
    assert of_held[:4] == [NAME, NAME, None, None]
    assert len(of_held) <= 6  # those of getattr_static, on behalf of this code
    assert not any(module.startswith("torch.") for module, _ in noted)


def test_look_ups_are_noted_one_at_a_time() -> None:
    with look_ups_noted(lambda module, name: None):
        with pytest.raises(ValueError, match="already"), look_ups_noted(lambda module, name: None):
            pass
        assert math.pi
    with look_ups_noted(lambda module, name: None):
        assert math.pi


def test_an_error_of_who_is_told_is_raised_at_the_look_up() -> None:
    def refuse(module: types.ModuleType, name: str | None) -> None:
        raise KeyError(name)

    raised = pytest.raises(KeyError, match=NAME)
    with raised, look_ups_noted(refuse):
        getattr(HELD, NAME)
    assert getattr(HELD, NAME) == HELD.SCALE
