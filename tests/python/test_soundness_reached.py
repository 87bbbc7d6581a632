"""Modules, classes and enumerations that a call reaches as values: their contents count."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trident import optimize


def one() -> torch.Tensor:
    return torch.ones(2)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def settings() -> types.ModuleType:
    """A module of the user's, as an import gives it."""
    module = types.ModuleType("settings")
    vars(module).update(__file__=__file__, scale=1.0, count=0, values=[1])
    return module


def counter() -> type:
    class Counter:
        scale = 1.0
        count = 0
        values = [1]  # noqa: RUF012

        @classmethod
        def counted(cls, x: torch.Tensor) -> torch.Tensor:
            cls.count += 1
            cls.values.append(1)
            return x * (cls.count + len(cls.values))

    return Counter


@pytest.fixture
def member() -> Any:
    Colour.RED.scale, Colour.RED.count, Colour.RED.values = 1.0, 0, [1]  # type: ignore[attr-defined]
    yield Colour.RED
    for name in ("scale", "count", "values"):
        delattr(Colour.RED, name)


def scaled(x: torch.Tensor, owner: Any) -> torch.Tensor:
    return x * owner.scale * len(owner.values)


def counting(x: torch.Tensor, owner: Any) -> torch.Tensor:
    owner.count += 1
    owner.values.append(1)
    return x * (owner.count + len(owner.values))


class Holder(torch.nn.Module):
    """Reaches an object as an attribute of its own, of a list of its own, or of its class."""

    def __init__(self, owner: Any, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.owners = [owner]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(x, self.owners[0])
        return result


def by_argument(owner: Any, function: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    return optimize(function), (owner,)


def by_dictionary(owner: Any, function: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    return optimize(lambda x, given: function(x, given["owner"])), ({"owner": owner},)


def by_attribute(owner: Any, function: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    return optimize(Holder(owner, function)), ()


def by_class(owner: Any, function: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    class Holding(Holder):
        held = owner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = function(x, self.held)
            return result

    return optimize(Holding(None, function)), ()


WAYS = (by_argument, by_dictionary, by_attribute, by_class)


@pytest.fixture(params=["module", "class", "member"])
def owner(request: pytest.FixtureRequest) -> Any:
    if request.param == "member":
        return request.getfixturevalue("member")
    return settings() if request.param == "module" else counter()


@pytest.mark.usefixtures("no_fallback")
@pytest.mark.parametrize("way", WAYS)
def test_what_changes_between_calls_is_noticed(owner: Any, way: Callable[..., Any]) -> None:
    optimized, rest = way(owner, scaled)
    for change in (None, None, "scale", None, "values", None):
        if change == "scale":
            owner.scale = 5.0
        elif change == "values":
            owner.values.append(2)
        assert torch.equal(optimized(one(), *rest), scaled(one(), owner))
    assert optimized.stats()["hits"] == 3


@pytest.mark.filterwarnings("ignore:trident")
@pytest.mark.parametrize("way", WAYS)
def test_what_the_call_changes_is_changed_once(owner: Any, way: Callable[..., Any]) -> None:
    optimized, rest = way(owner, counting)
    for count in range(1, 5):
        assert torch.equal(optimized(one(), *rest), one() * (2 * count + 1))
        assert owner.count == count and len(owner.values) == count + 1


@pytest.mark.filterwarnings("ignore:trident")
def test_a_method_of_a_class_changes_it_once() -> None:
    for make in (lambda cls: cls.counted, lambda cls: lambda x: cls.counted(x)):
        cls: Any = counter()
        optimized = optimize(make(cls))
        for count in range(1, 5):
            assert torch.equal(optimized(one()), one() * (2 * count + 1))
            assert cls.count == count


@pytest.mark.usefixtures("no_fallback")
def test_members_of_a_global_enumeration(member: Any) -> None:
    optimized = optimize(lambda x: x * Colour.RED.scale)  # type: ignore[attr-defined]
    for scale in (1.0, 1.0, 3.0, 3.0):
        member.scale = scale
        assert torch.equal(optimized(one()), one() * scale)
    assert optimized.stats()["hits"] == 2


@pytest.mark.usefixtures("no_fallback")
@pytest.mark.parametrize("name", ["_value_", "_name_"])
def test_name_and_value_of_a_member(name: str) -> None:
    class Size(enum.Enum):
        SMALL = 2
        LARGE = 3

    small = Size.SMALL
    optimized = optimize(lambda x: x * small.value * len(small.name))
    for new in (vars(small)[name], vars(small)[name], small.value * "ab", 2 * "ab"):
        setattr(small, name, len(new) if name == "_value_" and isinstance(new, str) else new)
        assert torch.equal(optimized(one()), one() * small.value * len(small.name))
    assert optimized.stats()["hits"] == 2
