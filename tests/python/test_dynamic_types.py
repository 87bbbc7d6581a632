"""Code that asks for the class of a size or number that varies is told that of an int or float."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dynamic_helpers import agree, specializations

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")


class Visitor:
    def on_int(self, number: int) -> float:
        return 2.0

    def on_other(self, number: Any) -> float:
        return 100.0


def matched(number: Any) -> float:
    match number:
        case bool():
            return 1.0
        case int():
            return 2.0
        case float():
            return 3.0
    return 100.0


def by_name(number: Any) -> float:
    visitor = Visitor()
    return getattr(visitor, f"on_{type(number).__name__}", visitor.on_other)(number)


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "type": lambda n: type(n) is int,
    "type of another int": lambda n: type(n) is type(len("abc")),
    "type in a table": lambda n: {int: 2.0, float: 3.0}[type(n)],
    "name": lambda n: {"int": 2.0, "float": 3.0}[type(n).__name__],
    "qualified name": lambda n: type(n).__qualname__ == "int",
    "module": lambda n: type(n).__module__ == "builtins",
    "text of the type": lambda n: str(type(n)) == "<class 'int'>",
    "order of resolution": lambda n: int in type(n).__mro__,
    "subclass": lambda n: issubclass(type(n), int),
    "mapped": lambda n: list(map(type, [n])) == [int],
    "constructor": lambda n: type(n)(3.9),
    "__class__": lambda n: n.__class__ is int,
    "name of __class__": lambda n: n.__class__.__name__ == "int",
    "abstract class": lambda n: isinstance(n, numbers.Integral),
    "pattern": matched,
    "visitor": by_name,
    "float": lambda n: type(n * 0.5) is float,
    "float's __class__": lambda n: (n * 0.5).__class__ is float,
    "root": lambda n: type(math.sqrt(n)).__name__ == "float",
    "attributes": lambda n: "numerator" in dir(n),
}
TELLING: dict[str, Callable[[Any], Any]] = {
    "node": lambda n: hasattr(n, "node"),
    "dictionary": lambda n: hasattr(n, "__dict__"),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_number_that_varies_has_its_own_class(question: Callable[[Any], Any]) -> None:
    def function(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return x * float(question(n)), x * float(question(x.shape[0]))

    optimized = optimize(function)
    for n in (5, 6, 7, 8):
        agree(optimized, function, lambda n=n: (torch.randn(n + 3), n))
    assert specializations(optimized) == 1


@pytest.mark.parametrize("question", TELLING.values(), ids=TELLING)
def test_what_only_a_symbol_has_keeps_numbers_fixed(question: Callable[[Any], Any]) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * (100.0 if question(n) else 2.0) * n

    optimized = optimize(function)
    for n in (5, 6, 7):
        agree(optimized, function, lambda n=n: (torch.randn(4), n))
    assert specializations(optimized) == 3


def test_classes_are_as_before_after_a_capture() -> None:
    optimized = optimize(lambda x, n: x * n)
    for n in (5, 6, 7):
        optimized(torch.ones(n), n)
    assert not {"__class__"} & (vars(torch.SymInt).keys() | vars(torch.SymFloat).keys())
