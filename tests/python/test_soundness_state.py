"""Changes to a module between two calls: attributes, weights, submodules, hooks, methods."""

from __future__ import annotations

import collections
import dataclasses
import weakref
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, check
from state_cases import Mode, Plain, Slotted, module, times_value
from torch import nn


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    names: list[str] = dataclasses.field(default_factory=lambda: ["a"])
    inner: Config | None = None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (2, 3),
        (2.0, 3.0),
        (0.0, -0.0),
        (1, 1.0),
        (True, 1),
        (False, None),
        ("ab", "abc"),
        ("ab", "äb"),
        (2.0, float("nan")),
        (2.0, float("inf")),
        (Mode.DOUBLE, Mode.TRIPLE),
        ([2.0], [3.0]),
        ([2.0], (2.0,)),
        ({"key": 2.0}, {"key": 2.0, "other": 1}),
        ({"key": 2.0}, collections.OrderedDict(key=2.0)),
        (Plain(2.0), Slotted(2.0)),
        (Plain(2.0), Plain(3.0)),
    ],
    # Not an object's address, by which processes that share the tests would differ.
    ids=lambda value: type(value).__name__ if isinstance(value, (Plain, Slotted)) else repr(value),
)
def test_attribute_is_assigned(first: Any, second: Any) -> None:
    pair = check(module(times_value, value=lambda: first), lambda m: setattr(m, "value", second))
    with torch.no_grad():
        pair.change(lambda m: setattr(m, "value", first))
        assert pair.call() == "hh"  # an earlier state is known
        pair.change(lambda m: setattr(m, "unrelated_later", 1))
        pair.change(lambda m: delattr(m, "unrelated_later"))
        assert pair.call() == "hh"


@pytest.mark.parametrize(("first", "second"), [(2**70, 2**71), (1j, 2j), (1, 2**63)], ids=repr)
def test_attribute_is_an_unusual_number(first: Any, second: Any) -> None:
    with torch.no_grad():
        pair = Pair(module(times_value, value=lambda: first))
        pair.call()
        pair.change(lambda m: setattr(m, "value", second))
        pair.call()


IN_PLACE = {
    "list item": (lambda: [2.0], lambda v: v.__setitem__(0, 3.0)),
    "list of lists": (lambda: [[2.0]], lambda v: v[0].__setitem__(0, 3.0)),
    "dict item": (lambda: {"key": 2.0}, lambda v: v.update(key=3.0)),
    "dict in dict": (lambda: {"key": {"key": 2.0}}, lambda v: v["key"].update(key=3.0)),
    "object": (lambda: Plain(2.0), lambda v: setattr(v, "value", 3.0)),
    "object in object": (lambda: Plain(Plain(2.0)), lambda v: setattr(v.value, "value", 3.0)),
    "slot": (lambda: Slotted(2.0), lambda v: setattr(v, "value", 3.0)),
    "object in tuple": (lambda: (Plain(2.0),), lambda v: setattr(v[0], "value", 3.0)),
    "instance dictionary": (lambda: Plain(2.0), lambda v: setattr(v, "__dict__", {"value": 3.0})),
    "dictionary of the instance": (lambda: Plain(2.0), lambda v: vars(v).update(value=3.0)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_attribute_is_changed_in_place(name: str) -> None:
    make, change = IN_PLACE[name]
    check(module(times_value, value=make), lambda m: change(m.value))


def test_config_objects() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.config.scale + len(self.config.names) + (self.config.inner is None)

    make = module(forward, config=Config)
    pair = check(make, lambda m: setattr(m.config, "scale", 3.0))
    with torch.no_grad():
        pair.change(lambda m: m.config.names.append("b"))
        assert pair.call() == "mh"
        pair.change(lambda m: setattr(m.config, "inner", Config()))
        assert pair.call() == "mh"
        pair.change(lambda m: setattr(m, "config", dataclasses.replace(m.config)))
        assert pair.call() == "hh"  # another object of the same contents


def test_order_of_an_ordered_dictionary() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for value in self.table.values():
            x = x * value + value
        return x

    make = module(forward, table=lambda: collections.OrderedDict(a=2.0, b=3.0))
    pair = check(make, lambda m: m.table.move_to_end("a"))
    with torch.no_grad():
        pair.change(lambda m: m.table.move_to_end("b"))
        assert pair.call() == "hh"


def test_order_of_a_dictionary() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for value in self.table.values():
            x = x * value + value
        return x

    make = module(forward, table=lambda: {"a": 2.0, "b": 3.0})
    check(make, lambda m: m.table.update(a=m.table.pop("a")))


def test_default_factory_of_a_dictionary() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.table.default_factory()

    make = module(forward, table=lambda: collections.defaultdict(lambda: 2.0))
    check(make, lambda m: setattr(m.table, "default_factory", lambda: 3.0))


def test_elements_of_a_set() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for value in self.values:
            x = x * value + value
        return x

    check(module(forward, values=lambda: {2, 3}), lambda m: m.values.add(5))
    # Equal sets whose order of iteration differs.
    pair = check(
        module(forward, values=lambda: {0, 8}), lambda m: setattr(m, "values", {8, 0}), after="mh"
    )
    assert pair.target.values == {0, 8}


def test_objects_in_a_set_fall_back() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * next(iter(self.values)).value

    make = module(forward, values=lambda: {Plain(2.0)})
    change: Any = lambda m: setattr(next(iter(m.values)), "value", 3.0)  # noqa: E731
    check(make, change, before="ff", after="ff")


def test_weak_reference() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.reference().value

    def make() -> nn.Module:
        made = module(forward, owner=lambda: Plain(2.0))()
        made.reference = weakref.ref(made.owner)
        return made

    check(make, lambda m: setattr(m.owner, "value", 3.0))


def test_weak_reference_to_something_else_falls_back() -> None:
    kept = []

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        target = self.reference()
        return x * (5.0 if target is None else target.value)

    def make() -> nn.Module:
        kept.append(Plain(2.0))
        made = module(forward)()
        made.reference = weakref.ref(kept[-1])
        return made

    check(make, lambda _: kept.clear(), before="ff")


def test_bound_method_of_a_builtin_object_falls_back() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.get("key")

    make = module(forward, get=lambda: {"key": 2.0}.get)
    change: Any = lambda m: m.get.__self__.update(key=3.0)  # noqa: E731
    check(make, change, before="ff", after="ff")
