"""Modules found by name, names that are computed, and attributes put on the classes of others."""

from __future__ import annotations

import fractions
import functools
import importlib
import math
import operator
import pkgutil
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from soundness_helpers import check_function as check

import trident
from trident import _C
from trident.capture import trace
from trident.optimize import optimizer_of

NAME = "found_by_name"


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Box:
    factor = 2.0


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType(NAME)
    vars(made).update(SCALE=2.0, TABLE={"scale": 2.0}, Box=type("Box", (), {"scale": 2.0}))
    monkeypatch.setitem(sys.modules, NAME, made)
    return made


FINDERS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x * sys.modules["found_by_name"].SCALE,
    lambda x: x * sys.modules[NAME].SCALE,
    lambda x: x * sys.modules.get("found_by_name").SCALE,  # type: ignore[union-attr]
    lambda x: x * __import__("found_by_name").SCALE,
    lambda x: x * importlib.import_module("found_by_name").SCALE,
    lambda x: x * importlib.import_module("_".join(["found", "by", "name"])).SCALE,
    lambda x: x * pkgutil.resolve_name("found_by_name:SCALE"),
    lambda x: x * getattr(sys.modules[NAME], "".join(["SC", "ALE"])),
    lambda x: x * vars(sys.modules[NAME])["".join(["SC", "ALE"])],
    lambda x: x * operator.attrgetter("SCALE")(sys.modules[NAME]),
]


@pytest.mark.parametrize("function", FINDERS)
def test_what_a_module_found_by_name_holds(
    function: Callable[[torch.Tensor], Any], module: types.ModuleType
) -> None:
    check(function, lambda: setattr(module, "SCALE", 3.0))


@pytest.mark.parametrize("function", FINDERS)
def test_another_module_of_the_name(
    function: Callable[[torch.Tensor], Any],
    module: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = types.ModuleType(NAME)
    vars(other)["SCALE"] = 5.0
    check(function, lambda: monkeypatch.setitem(sys.modules, NAME, other))


def test_what_the_attributes_of_a_module_found_by_name_hold(module: Any) -> None:
    check(lambda x: x * sys.modules[NAME].TABLE["scale"], lambda: module.TABLE.update(scale=4.0))
    check(lambda x: x * sys.modules[NAME].Box.scale, lambda: setattr(module.Box, "scale", 4.0))


def test_a_module_imported_again(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def imports(x: torch.Tensor) -> torch.Tensor:
        from found_by_name import SCALE  # type: ignore[import-not-found]

        return x * SCALE

    other = types.ModuleType(NAME)
    vars(other)["SCALE"] = 5.0
    check(imports, lambda: monkeypatch.setitem(sys.modules, NAME, other))


def test_whether_a_module_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    check(
        lambda x: x * 2 if "not_loaded_yet" in sys.modules else x,
        lambda: monkeypatch.setitem(sys.modules, "not_loaded_yet", types.ModuleType("m")),
    )


@pytest.mark.parametrize("owner", [torch, F, math, torch.backends])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, name: x * getattr(sys.modules[name], "own_factor", 1.0),
        lambda x, name: x * getattr(sys.modules[name], "_".join(["own", "factor"]), 1.0),
        lambda x, name: x * (3 if hasattr(importlib.import_module(name), "own_factor") else 2),
    ],
)
def test_names_that_a_library_gets_later(
    owner: Any, function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def direct(x: torch.Tensor) -> torch.Tensor:
        return function(x, owner.__name__)

    check(direct, lambda: monkeypatch.setattr(owner, "own_factor", 4.0, raising=False))


def test_a_function_that_is_put_on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def maybe(x: torch.Tensor) -> torch.Tensor:
        return torch.own(x) if hasattr(torch, "own") else x

    check(maybe, lambda: monkeypatch.setattr(torch, "own", lambda x: x * 2, raising=False))
    check(maybe, lambda: monkeypatch.setattr(torch, "own", lambda x: x * 3))


def test_attributes_by_computed_names(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * getattr(module, name)

    check(get, lambda: setattr(module, "SCALE", 7.0), "SCALE")
    check(lambda x, name: x * vars(module)[name], lambda: setattr(module, "SCALE", 8.0), "SCALE")
    check(
        lambda x, names: x * functools.reduce(getattr, names.split("."), module),
        lambda: setattr(module.Box, "scale", 9.0),
        "Box.scale",
    )


PATCHED: list[tuple[str, Any, Any]] = [
    ("own", lambda self: self * 2, lambda x: x.own() if hasattr(x, "own") else x),
    ("own", lambda self: self * 2, lambda x: (x + 1).own() if hasattr(torch.Tensor, "own") else x),
    ("own", 5.0, lambda x: x * getattr(x, "own", 1.0)),
    ("own", 5.0, lambda x: x * getattr(torch.Tensor, "".join(["o", "wn"]), 1.0)),
    ("own", property(lambda self: 5.0), lambda x: x * getattr(x, "own", 1.0)),
    ("relu", lambda self: self * 3, lambda x: x.relu()),
    ("__add__", lambda self, other: self * 10, lambda x: x + 1),
    ("__rmul__", lambda self, other: self * 100, lambda x: 3 * x),
]


@pytest.mark.parametrize(("name", "value", "function"), PATCHED)
def test_what_is_put_on_tensors(
    name: str, value: Any, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        check(function, lambda: patch.setattr(torch.Tensor, name, value, raising=False))


def test_what_was_on_tensors_before_hits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, x = trident.optimize(lambda x: x.relu() + 1), torch.ones(3)
    fast(x)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "relu", lambda self: self * 3)
        assert torch.equal(fast(x), x * 3 + 1)
    assert torch.equal(fast(x), x + 1)
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (2, 1)
    assert "torch.Tensor and torch.nn.Parameter is version" in trident.explain(fast)
    assert "Parameter.relu" in trident.explain(fast)


@pytest.mark.parametrize(
    "owner",
    [torch.nn.Module, torch.nn.Linear, fractions.Fraction, Box],
    ids=lambda owner: owner.__name__,
)
def test_what_is_put_on_a_class(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(owner, "own", 1.0)

    check(get, lambda: monkeypatch.setattr(owner, "own", 3.0, raising=False))


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * getattr(self.weight, "own", 1.0)


def test_what_a_trace_would_not_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.nn.Module.__call__
    with monkeypatch.context() as patch, pytest.warns(UserWarning, match="put on torch.nn.Param"):
        check(
            Scaled(),
            lambda: patch.setattr(torch.nn.Parameter, "own", 3.0, raising=False),
            outcomes="mhff",
        )
    with monkeypatch.context() as patch, pytest.warns(UserWarning, match="has been replaced"):
        check(
            Scaled(),
            lambda: patch.setattr(torch.nn.Module, "__call__", lambda self, x: own(self, x) * 2),
            outcomes="mhff",
        )


def test_what_caches_return(module: Any) -> None:
    @functools.cache
    def cached() -> Any:
        return module, Box

    cached()
    check(lambda x: x * cached()[0].SCALE, lambda: setattr(module, "SCALE", 3.0))
    check(lambda x: x * cached()[1].factor, lambda: setattr(Box, "factor", Box.factor + 1))


@pytest.mark.filterwarnings("ignore:trident")  # what looks is taken for the user's code
def test_what_a_trace_puts_on_tensors_is_no_fact_of_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, route = torch.ones(3), trace.route_launches
    fast = trident.optimize(lambda x: x * 2)
    scm = optimizer_of(fast).scm
    before, during = torch.Tensor.data_ptr, []

    class Look:
        """An object, since a variable that holds an event would end the trace."""

        def __init__(self) -> None:
            self.traced, self.looked = threading.Event(), threading.Event()

        def __call__(self, *args: Any) -> Any:
            self.traced.set()
            self.looked.wait()
            return route(*args)

        def from_another_thread(self) -> None:
            self.traced.wait()
            with torch.no_grad():
                during.append((torch.Tensor.data_ptr, _C.collect(scm, (x,), {}).words))
            self.looked.set()

    look = Look()
    monkeypatch.setattr(trace, "route_launches", look)
    thread = threading.Thread(target=look.from_another_thread)
    thread.start()
    fast(x)
    thread.join()
    ((method, words),) = during
    assert method is not before is torch.Tensor.data_ptr
    assert words[:-1] == _C.collect(scm, (x,), {}).words[:-1]  # the last one names the state
