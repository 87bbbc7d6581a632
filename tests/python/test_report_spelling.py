"""How reports spell the conditions on what varies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import triton
from torch.utils._sympy import functions as torch_functions

import trident
from trident.ir import expressions
from trident.ir.real_arithmetic import Definition
from trident.optimize import optimizer_of
from trident.report.spelling import as_python, spell

NAMES = {"s0": "a", "s1": "b", "n0": "a", "n1": "b", "f0": "a"}


class Shifted:
    """What `triton.next_power_of_2` computes with, as a trace spells it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __sub__(self, other: int) -> Shifted:
        return Shifted(f"{self.text} - {other}")

    def __add__(self, other: int) -> Shifted:
        return Shifted(f"{self.text} + {other}")

    def __rshift__(self, by: int) -> Shifted:
        return Shifted(f"floor_div({self.text}, {2**by})")

    def __or__(self, other: Shifted) -> Shifted:
        return Shifted(f"bits_or({self.text}, {other.text})")


def power(text: str) -> str:
    made: Any = triton.next_power_of_2(Shifted(text))  # type: ignore[arg-type]
    return str(made.text)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s0 >= 2", "a >= 2"),
        ("floor_mod(s0, 4) == 0", "a % 4 == 0"),
        ("floor_div(s0 + 127, 128) <= 9", "cdiv(a, 128) <= 9"),
        ("floor_div(s0 + 126, 128) <= 9", "(a + 126) // 128 <= 9"),
        ("floor_div(127, 128) <= s0", "127 // 128 <= a"),
        ("floor_div(n0 + s1 - 1, s1) == 3", "cdiv(a, b) == 3"),
        ("floor_div(n0 + s1 + 1, s1) == 3", "(a + b + 1) // b == 3"),
        ("floor_div(s1 - 1, s1) == 0", "(b - 1) // b == 0"),
        ("(s0 >= 0) && (s0 != s1)", "a >= 0 and a != b"),
        ("!((s0 == 0) || (s1 == 0))", "not (a == 0 or b == 0)"),
        ("((f0 < 0.5)) == 0", "not a < 0.5"),
        ("largest(s0, smallest(s1, 3)) < 7", "max(a, min(b, 3)) < 7"),
        ("shift_left(bits_and(s0, 12), 2) == 8", "(a & 12) << 2 == 8"),
        ("libm_sqrt(real(n0)) < 9.0", "sqrt(float(a)) < 9.0"),
        (f"{power('s0')} == 64", "next_power_of_2(a) == 64"),
        (f"{power('s0 + 1')} - 1 >= 2048", "next_power_of_2(a + 1) >= 2049"),
        (f"floor_div({power('s0')}, 2) != 1", "next_power_of_2(a) // 2 != 1"),
        (f"{power('s0')} == {power('s1')}", "next_power_of_2(a) == next_power_of_2(b)"),
    ],
)
def test_a_condition_in_the_users_words(condition: str, expected: str) -> None:
    assert spell(condition, NAMES, []) == expected


def test_a_power_of_two_with_a_step_left_out_is_none() -> None:
    text = power("s0").replace("4294967296", "8589934592")
    assert "next_power_of_2" not in spell(f"{text} == 64", NAMES, [])


@pytest.mark.parametrize(
    "size",
    [
        lambda a, b: a,
        lambda a, b: 64 * a,
        lambda a, b: a * b,
        lambda a, b: a + 3,
        lambda a, b: torch_functions.FloorDiv(a, 2),
    ],
)
def test_a_power_of_two_of_any_size_is_found_and_right(size: Callable[..., Any]) -> None:
    """What is printed has the value of what is guarded."""

    def rounded(number: Any) -> Any:
        number = number - 1
        for by in (1, 2, 4, 8, 16, 32):
            shifted = torch_functions.FloorDiv(number, sympy.Integer(2**by))
            number = torch_functions.BitwiseFn_bitwise_or(number, shifted)
        return number + 1

    a, b = expressions.size_symbol(0), expressions.size_symbol(1)
    guard = expressions.condition(sympy.Lt(rounded(size(a, b)), 300, evaluate=False))
    spelled = spell(guard, NAMES, [])
    assert spelled.startswith("next_power_of_2(") and len(spelled) < 60
    functions = {"next_power_of_2": triton.next_power_of_2}
    for x, y in itertools.product(range(2, 40), (2, 3, 17)):
        expected = eval(as_python(guard), dict(expressions.PYTHON), {"s0": x, "s1": y})
        assert eval(spelled, functions, {"a": x, "b": y}) == expected


def test_numbers_computed_of_others_are_spelled_out_while_they_are_short() -> None:
    definitions = [Definition("d0", "bit_length(n0 - 1)"), Definition("d1", "shift_left(1, d0)")]
    assert spell("d1 > 3", NAMES, definitions) == "1 << bit_length(a - 1) > 3"
    chain = [Definition("r0", "(f0 + 0.125)")]
    chain += [Definition(f"r{i}", f"(r{i - 1} * r{i - 1})") for i in range(1, 60)]
    assert spell("r59 > 0", NAMES, chain) == "... > 0"


def test_a_long_condition_is_shortened_in_its_middle() -> None:
    long = " + ".join(f"s{i} * s{i + 1}" for i in range(60))
    text = spell(f"{long} == 12345", {}, [])
    assert len(text) <= 200
    assert text.startswith("s0 * s1 + ") and text.endswith(" == 12345") and " ... " in text


@torch.no_grad()
def test_a_rounded_size_is_one_short_line() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if triton.next_power_of_2(x.shape[1]) == 64 else x

    fast = trident.optimize(function)
    for size in (40, 41, 70):
        fast(torch.ones(3, size))
    lines = [each.strip() for each in trident.explain(fast).splitlines()]
    assert any(
        each.startswith("where next_power_of_2(size 1 of x) == 64 (at ") and __file__ in each
        for each in lines
    )
    (miss,) = optimizer_of(fast).misses.misses[-1].differences
    assert miss.place.startswith("condition next_power_of_2(size 1 of x) == 64 (at ")
    assert miss.now == "does not hold (size 1 of x is 70)"


class Cache:
    def __init__(self, size: int) -> None:
        self.keys = [torch.ones(2, size)]
        self.count = 3 * size
        self.scale = size / 2


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 1
        self.buffers_by_name = {"k": torch.ones(1, 2)}

    def forward(self, x: torch.Tensor, cache: Cache, n: int, *more: int) -> torch.Tensor:
        scale = cache.scale * self.step + n + more[0]
        key, buffer = cache.keys[0], self.buffers_by_name["k"]
        return x * scale * cache.count + key.sum() + buffer.sum()


@torch.no_grad()
def test_what_varies_has_the_users_names() -> None:
    model = Model().eval()
    fast = trident.optimize(model)
    for size in (4, 5, 6):
        model.step = size
        model.buffers_by_name["k"] = torch.ones(size, 2)
        fast(torch.ones(size), Cache(size), size, size + 1)
    assert fast.stats()["misses"] == 2
    (line,) = [each for each in trident.explain(fast).splitlines() if "    varying: " in each]
    assert {*line.strip().removeprefix("varying: ").split(", ")} == {
        "size 0 of x",
        "size 1 of cache.keys[0]",
        "stride 0 of cache.keys[0]",
        "argument cache.count",
        "argument cache.scale",
        "argument n",
        "argument #3",
        "module.step",
        "size 0 of module.buffers_by_name['k']",
    }
