"""Numbers that vary meet others that are no plain ints and floats: results are those of values."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from dynamic_helpers import flat, specializations

import trident

pytestmark = pytest.mark.usefixtures("no_fallback")


class Mode(enum.IntEnum):
    THREE = 3
    FIVE = 5


class Bits(enum.IntFlag):
    FOUR = 4


class Scale(float, enum.Enum):
    FIVE = 5.0


class Whole(int):
    pass


class Real(float):
    pass


class Next(int):
    """Equal to the number before it."""

    def __eq__(self, other: object) -> bool:
        return int(self) - 1 == other

    def __rmul__(self, other: int) -> str:
        return "product"

    __hash__ = int.__hash__


class Pair(NamedTuple):
    number: Any


@dataclasses.dataclass
class Box:
    number: Any


def matched(number: int) -> str:
    match number:
        case Mode.THREE | Mode.FIVE:
            return "mode"
    return "other"


SIZES = (4, 2, 3, 5, 6, 5)
INTS = (4, 2, 1, 5, -7, 0, 5)
FLOATS = (4.5, 2.5, 1.0, 5.0, -7.0, 0.0, 5.0)


def described(result: Any) -> list[Any]:
    return [
        (each.dtype, each.tolist()) if isinstance(each, torch.Tensor) else (type(each), repr(each))
        for each in flat(result)
    ]


def serve(function: Callable[[Any], Any], numbers: tuple[Any, ...]) -> int:
    """Compares each call with eager; how many specializations there are in the end."""
    optimized = trident.optimize(lambda x, n: (x + 1, function(n)))
    for n in numbers:
        x = torch.ones(2)
        assert described(optimized(x, n)[1]) == described(function(n)), n
    return specializations(optimized)


def of_sizes(function: Callable[[Any], Any]) -> int:
    """The same for sizes."""
    optimized = trident.optimize(lambda x: (x + 1, function(x.shape[0])))
    for n in SIZES:
        assert described(optimized(torch.ones(n))[1]) == described(function(n)), n
    return specializations(optimized)


@pytest.mark.parametrize(
    "other",
    [Mode.FIVE, Whole(5), Real(5.0), Scale.FIVE, True],
    ids=["IntEnum", "int", "float", "float Enum", "bool"],
)
def test_an_instance_of_a_subclass_is_compared_by_value(other: Any) -> None:
    def function(n: Any) -> Any:
        return n == other, other == n, n != other, other != n, n < other, other <= n

    assert of_sizes(function) <= 3
    assert serve(function, INTS) <= 4
    assert serve(function, FLOATS) <= 4


@pytest.mark.parametrize(
    "other",
    [5 + 0j, Fraction(5), np.int64(5), np.float32(5), np.float64(5), np.True_, Next(6)],
    ids=repr,
)
def test_what_only_compares_values_fixes_numbers(other: Any) -> None:
    def function(n: Any) -> str:
        ordered = () if isinstance(other, complex) else (n < other, other <= n)
        return repr((n == other, other == n, n != other, other != n, *ordered))

    of_sizes(function)
    serve(function, INTS)
    serve(function, FLOATS)


def test_a_decimal_is_compared_by_value() -> None:
    def function(n: Any) -> Any:
        five = Decimal(5)
        return n == five, five == n, n < five, five <= n

    of_sizes(function)
    serve(function, FLOATS)


@pytest.mark.parametrize(
    "question",
    [
        matched,
        lambda n: n in (Mode.THREE, Mode.FIVE),
        lambda n: [Mode.THREE, Mode.FIVE].count(n),
        lambda n: next((mode.name for mode in Mode if mode == n), None),
        lambda n: (n, 1) == (Mode.FIVE, 1),
        lambda n: (n, 1) < (Whole(5), 1),
        lambda n: Pair(n) == Pair(Whole(5)),
        lambda n: Box(n) == Box(Mode.FIVE),
        lambda n: {"a": n} == {"a": Real(5.0)},
        lambda n: collections.OrderedDict(a=n) == {"a": Mode.FIVE},
        lambda n: max(n, Mode.THREE) == Mode.FIVE,
        lambda n: torch.Size([n if isinstance(n, int) else 1]) == (Mode.FIVE,),
    ],
)
def test_comparisons_inside_of_others(question: Callable[[Any], Any]) -> None:
    assert of_sizes(question) <= 4
    assert serve(question, INTS) <= 5
    serve(question, FLOATS)


def test_a_float_is_not_equal_to_an_int_that_it_cannot_hold() -> None:
    large = 2**53
    assert serve(lambda n: n == large + 1, (1.0, 2.0, float(large), float(large + 2))) == 4


@pytest.mark.parametrize("other", [Mode.FIVE, Whole(5)], ids=["IntEnum", "int"])
def test_arithmetic_with_a_subclass_is_as_with_an_int(other: Any) -> None:
    def function(n: Any) -> Any:
        return n * other, other - n, n // other, n % other, n**other, divmod(n, other), n & other

    assert of_sizes(function) == 1
    assert of_sizes(lambda n: (other // n, other / n, n / other, other % n)) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda n: (n & Bits.FOUR, Bits.FOUR & n),
        lambda n: (n * Next(4), n == Next(4)),
        lambda n: (n * 2j, n * Fraction(1, 3)),
    ],
    ids=["flag", "own operator", "other classes"],
)
def test_operators_of_other_classes_keep_numbers_fixed(function: Callable[[Any], Any]) -> None:
    serve(lambda n: repr(function(n)), (5, 6, 7))
    optimized = trident.optimize(lambda x, n: x * (1 if isinstance(function(n), int) else 2))
    for n in (5, 6, 7):
        expected = 1 if isinstance(function(n), int) else 2
        assert optimized(torch.ones(2), n).tolist() == [expected] * 2


@pytest.mark.parametrize(
    "function",
    [
        lambda n: torch.arange(3) * np.ceil(n / 4),
        lambda n: (n * np.float32(0.1), np.float32(0.1) * n, n ** np.float64(2)),
        lambda n: (np.prod([n, 2]), np.sum([n / 2, 1]), np.max((n, 3))),
        lambda n: (np.int64(2) * n, n // np.int32(2), np.int64(7) % n, divmod(n, np.int64(2))),
        lambda n: (n > np.int64(5), np.int64(5) == n, n != np.float32(5), n == np.bool_(True)),
        lambda n: (np.sqrt(n), np.maximum(n, 3), np.float32(n), np.log2(n / 2)),
        lambda n: torch.from_numpy(np.array([n, 2]) * n + np.full(2, n)),
    ],
    ids=["ceil", "float", "reductions", "int", "comparisons", "functions", "arrays"],
)
def test_results_of_numpy_keep_their_types(function: Callable[[Any], Any]) -> None:
    def described_inside(n: Any) -> Any:
        result = function(n)
        return [
            each if isinstance(each, torch.Tensor) else (type(each).__name__, each.item())
            for each in flat(result)
        ]

    assert serve(described_inside, (5, 6, 7)) == 3
    assert of_sizes(described_inside) == len(set(SIZES))


@pytest.mark.parametrize("digits", [-1, -2, True - 3, np.int64(-1)], ids=str)
def test_an_int_is_rounded_to_tens(digits: Any) -> None:
    numbers = (4, 7, 15, 25, 27, -35, 150, 2**40 + 5)
    assert serve(lambda n: round(n, digits), numbers) == len(numbers)


def test_an_int_that_is_rounded_to_itself_varies() -> None:
    assert serve(lambda n: (round(n), round(n, None), round(n, 0), round(n, 2)), INTS) == 1


def test_a_refusal_that_the_code_catches_fixes_numbers() -> None:
    def function(n: Any) -> Any:
        try:
            return (n * np.float32(0.5)).item()
        except Exception:
            return -1.0

    assert serve(function, (5, 6, 7)) == 3


def test_classes_are_as_before_after_a_capture() -> None:
    before = {cls: dict(vars(cls)) for cls in (torch.SymInt, torch.SymFloat)}
    serve(lambda n: round(n, -1) * np.int64(2) == Mode.FIVE, (5, 6, 7))
    assert all(dict(vars(cls)) == names for cls, names in before.items())
