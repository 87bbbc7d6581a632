"""Expressions over sizes: their spelling, their value, their divisors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trident.errors import UnsupportedError
from trident.ir import expressions


@st.composite
def sizes(draw: st.DrawFn, depth: int = 3) -> Any:
    if depth == 0 or draw(st.booleans()):
        return draw(
            st.one_of(
                st.integers(1, 50).map(lambda n: expressions.parse(str(n))),
                st.integers(0, 3).map(expressions.size_symbol),
            )
        )
    a, b = draw(sizes(depth - 1)), draw(sizes(depth - 1))
    name = draw(st.sampled_from(["+", "-", "*", "floor_div", "floor_mod", "largest", "smallest"]))
    if name in ("floor_div", "floor_mod"):
        b = draw(st.integers(1, 20))
    a, b = expressions.text(a), expressions.text(b)
    spelled = f"({a}) {name} ({b})" if name in ("+", "-", "*") else f"{name}({a}, {b})"
    return expressions.parse(spelled)


@settings(max_examples=100, deadline=None)
@given(sizes(), st.lists(st.integers(2, 1000), min_size=4, max_size=4))
def test_expressions_are_read_back_and_have_their_value(size: Any, values: list[int]) -> None:
    symbols = dict(zip(map(expressions.size_symbol, range(4)), values, strict=True))
    scope = {
        **{f"s{i}": value for i, value in enumerate(values)},
        "floor_div": lambda a, b: a // b,
        "floor_mod": lambda a, b: a % b,
        "largest": max,
        "smallest": min,
    }

    def value_of(size: Any) -> int:
        return size if isinstance(size, int) else int(size.xreplace(symbols))

    spelled = expressions.text(size)
    assert eval(spelled, scope) == value_of(size)
    # Reading simplifies (`Max(1, s0)` is `s0`), so the value is what has to be the same.
    read_back = expressions.parse(spelled)
    assert value_of(read_back) == value_of(size)
    assert expressions.parse(expressions.text(read_back)) == read_back


def test_divisors_that_may_be_zero_are_found_and_guarded() -> None:
    spelled = expressions.parse("floor_div(s0, s1) + floor_mod(s0 * 3, s1 - 2) * floor_div(s1, 5)")
    assert expressions.divisors(spelled) == {expressions.parse("s1 - 2")}


def test_what_integers_cannot_express_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        expressions.text(expressions.size_symbol(0) ** -1)
