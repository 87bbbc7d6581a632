"""Objects that code reaches otherwise than through arguments and attributes; what it hands out."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import describe
from torch import nn

import trident

pytestmark = pytest.mark.filterwarnings("ignore:trident")
X = torch.ones(2)


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


class Returning:
    """A descriptor with a value of its own."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __get__(self, owner: Any, kind: Any = None) -> float:
        return self.value


class Text(str):
    options: list[float]


def in_dictionary(value: float) -> Any:
    class Made(nn.Module):
        table = {"scale": value}  # noqa: RUF012

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.table["scale"]

    return Made(), lambda new: Made.table.update(scale=new)


def in_object(value: float) -> Any:
    class Made(nn.Module):
        box = Box(value)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.box.value

    return Made(), functools.partial(setattr, Made.box, "value")


def in_descriptor(value: float) -> Any:
    class Made(nn.Module):
        scale = Returning(value)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    return Made(), functools.partial(setattr, vars(Made)["scale"], "value")


def in_text(value: float) -> Any:
    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text = Text("a")
            self.text.options = [value]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.text.options[0]

    made = Made()
    return made, functools.partial(made.text.options.__setitem__, 0)


@pytest.mark.parametrize("make", [in_dictionary, in_object, in_descriptor, in_text])
@pytest.mark.parametrize("kind", [int, float])
def test_a_number_that_a_class_holds_may_change_often(
    make: Callable[[float], Any], kind: Callable[[int], float]
) -> None:
    module, put = make(kind(1))
    fast = trident.optimize(module)
    for value in (1, 2, 3, 3, 4, 1):
        put(kind(value))
        assert torch.equal(fast(X), module(X)) and float(fast(X)[0]) == value


class Registry:
    current: Any = None
    log: list[Any] = []  # noqa: RUF012


class UsesRegistry(nn.Module):
    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box

    def forward(self, x: torch.Tensor) -> Any:
        self.box.value = self.box.value + 1
        return x * Registry.current.value, Registry.current is self.box


class Logs(nn.Module):
    def __init__(self, _: Any) -> None:
        super().__init__()
        self.mine = Registry.log

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mine.append(1.0)
        return x * len(Registry.log)


class Reads(nn.Module):
    """Changes nothing: the object is read in both ways."""

    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.box.value + Registry.current.value


@pytest.mark.parametrize("cls", [UsesRegistry, Logs, Reads])
def test_an_object_of_the_state_that_a_class_holds_too(cls: Callable[[Box], nn.Module]) -> None:
    def outcomes(wrap: Callable[[Any], Any]) -> list[Any]:
        Registry.current, Registry.log = Box(1.0), []
        fast = wrap(cls(Registry.current))
        found = []
        for step in range(5):
            found.append((describe(fast(X)), Registry.current.value, len(Registry.log)))
            Registry.current.value += step
        return found

    assert outcomes(trident.optimize) == outcomes(lambda module: module)


class Held:
    box = Box(1.0)
    table = {"a": 1}  # noqa: RUF012
    names = ["q"]  # noqa: RUF012


class Member(enum.Enum):
    A = Box(1.0)


OUTSIDE = Box(1.0)


class Properties:
    outside = property(lambda self: OUTSIDE)


@pytest.mark.parametrize(
    "get",
    [
        *(lambda: Held.box, lambda: Held.table, lambda: Held.names, lambda: Member.A.value),
        *(lambda: OUTSIDE, lambda: Properties().outside),
    ],
)
def test_what_a_call_hands_out_is_the_object_itself(get: Callable[[], Any]) -> None:
    class Keeps(nn.Module):
        kept: Any = None

        def forward(self, x: torch.Tensor) -> Any:
            self.kept = get()
            return x + 1, [get()]

    module = Keeps()
    fast = trident.optimize(module)
    for _ in range(3):
        _, (given,) = fast(X)
        assert given is get() and module.kept is get()
    Held.box = Box(1.0)
    assert fast(X)[1][0] is get()


def closes_over_a_tensor(self: Any, x: torch.Tensor) -> Any:
    shifted = x + 1
    return lambda y: y + shifted


def closes_over_the_module(self: Any, x: torch.Tensor) -> Any:
    return lambda y: y * self.weight


def closes_over_a_list(self: Any, x: torch.Tensor) -> Any:
    log = self.log
    return lambda y: (log.append(1), y)[1]


def has_defaults(self: Any, x: torch.Tensor) -> Any:
    def made(y: torch.Tensor, shifted: torch.Tensor = x + 2) -> torch.Tensor:
        return y * shifted

    return made


def closes_over_a_size(self: Any, x: torch.Tensor) -> Any:
    n = x.shape[0]
    return lambda y: y * n


def counts(self: Any, x: torch.Tensor) -> Any:
    class Counter:
        count = 0

    def made(y: torch.Tensor) -> torch.Tensor:
        Counter.count += 1
        return y * Counter.count

    return made


FUNCTIONS = (
    *(closes_over_a_tensor, closes_over_the_module, closes_over_a_list, has_defaults),
    *(closes_over_a_size, counts),
)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("make", FUNCTIONS)
def test_functions_that_a_call_makes(make: Callable[..., Any], kept: bool) -> None:
    class Makes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.log = nn.Parameter(torch.full((1,), 3.0)), []
            self.function: Any = None

        def forward(self, x: torch.Tensor) -> Any:
            made = make(self, x)
            if kept:
                self.function = made
            return x * 2 if kept else (x * 2, made)

    def outcomes(wrap: Callable[[Any], Any]) -> list[Any]:
        module = Makes()
        fast, found = wrap(module), []
        with torch.no_grad():
            for size in (2, 2, 3, 4):
                result = fast(torch.arange(float(size)))
                function = module.function if kept else result[1]
                found += [describe(function(torch.ones(size))), len(module.log)]
        return found

    assert outcomes(trident.optimize) == outcomes(lambda module: module)


def test_a_function_that_was_there_before_is_handed_out() -> None:
    def forward(x: torch.Tensor) -> Any:
        return x + 1, describe, torch.relu, closes_over_a_list

    fast = trident.optimize(forward)
    fast(X)
    assert fast(X)[1:] == (describe, torch.relu, closes_over_a_list)
    assert fast.stats()["hits"] == 1


def test_a_class_that_the_call_makes() -> None:
    def forward(x: torch.Tensor) -> Any:
        class Made:
            log: list[int] = []  # noqa: RUF012

        return x + 1, Made

    fast = trident.optimize(forward)
    made = [fast(X)[1] for _ in range(3)]
    assert len(set(made)) == 3
