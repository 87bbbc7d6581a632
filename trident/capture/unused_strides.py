"""Strides behind no element, in a trace over symbols.

Of the stride of an axis of size 1 some operators make a stride of their result, some compare it
with other strides, and not all do on symbols what they do on numbers. So an operator is asked about
several numbers in place of such symbols; a stride of its result that is not what the trace says is
a symbol of its own, which nothing that the program computes or compares may depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.numbers import int_oo

# How many of an operator's own numbers are tried.
_MAX_NUMBERS = 6


class Assignment:
    """What symbols stand for.

    Args:
        values: of every symbol; without any, symbols stand for what they are in the call.
        scaled: whether sizes are multiples of what they are in the call.
    """

    def __init__(self, values: Mapping[sympy.Symbol, int], scaled: bool = False) -> None:
        self._values = {symbol: sympy.Integer(value) for symbol, value in values.items()}
        self.scaled = scaled

    def number(self, value: Any) -> Any:
        """A symbolic number as a plain one; asking for it is no guard."""
        if isinstance(value, torch.SymInt) and self._values:
            found = value.node.expr.xreplace(self._values)
            return int(found) if found.is_number else value.node.hint
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.hint
        return value


class UnusedStrides:
    """The symbols of strides that no element shows.

    Args:
        environment: of the trace.
        hints: what each of its symbols is in the call; grows as there are more.
    """

    def __init__(self, environment: ShapeEnv, hints: dict[sympy.Symbol, int]) -> None:
        self._environment = environment
        self._hints = hints
        self._symbols: set[sympy.Symbol] = set()
        self._made: list[sympy.Symbol] = []

    def note(self, symbol: sympy.Symbol) -> None:
        """Takes a symbol in that stands for such a stride of an argument."""
        self._environment.constrain_symbol_range(symbol, 0, int_oo)
        self._symbols.add(symbol)

    def unknown(self, number: int) -> int | torch.SymInt:
        """Stands for a stride that only the kernel knows; it is ``number`` in the call."""
        source = ConstantSource(f"unused_{len(self._made)}")
        symbol = self._environment.create_unspecified_symbol(number, source, DimDynamic.DYNAMIC)
        self._hints[symbol] = number
        self._made.append(symbol)
        self.note(symbol)
        return self._environment.create_symintnode(symbol, hint=number, source=source)

    def covers(self, symbol: sympy.Symbol) -> bool:
        """Whether a symbol of the trace is such a stride."""
        return symbol in self._symbols

    def fix(self) -> None:
        """Lets each symbol be what it is in the call, from here on."""
        for symbol in sorted(self._symbols, key=str):
            self._environment.evaluate_expr(sympy.Eq(symbol, self._hints[symbol]))

    def number_of(self, symbol: sympy.Symbol) -> int | None:
        """Which of those that `unknown` made a symbol is, if any."""
        return self._made.index(symbol) if symbol in self._made else None

    def assignments(self, given: Sequence[Any]) -> Iterator[Assignment]:
        """What the symbols in the geometry of an operator's inputs are to be tried as."""
        geometry = [each for value in given for each in (*value.shape, *value.stride())]
        found = set().union(
            *(each.node.expr.free_symbols for each in geometry if isinstance(each, torch.SymInt))
        )
        unused = sorted(found & self._symbols, key=str)
        sizes = sorted(found & (self._hints.keys() - self._symbols), key=str)
        if unused:
            usual: dict[sympy.Symbol, int] = dict.fromkeys(unused, 1)
            for value in given:
                usual |= self._usual_strides(value)
            numbers = sorted({each for each in geometry if type(each) is int} | {*usual.values()})
            largest = numbers[-1]
            yield Assignment({**self._hints, **usual})
            for number in {0, 1, *numbers[-_MAX_NUMBERS:], 97 * largest + 13}:
                yield Assignment({**self._hints, **dict.fromkeys(unused, number)})
            different = {each: 101 * largest + 7 * i for i, each in enumerate(unused)}
            yield Assignment({**self._hints, **different})
        if sizes:
            multiples = {each: self._hints[each] * (2 + i % 2) for i, each in enumerate(sizes)}
            yield Assignment({**self._hints, **multiples}, scaled=True)

    def _usual_strides(self, value: Any) -> dict[sympy.Symbol, int]:
        """What the symbols among a tensor's strides are in a contiguous one."""
        found: dict[sympy.Symbol, int] = {}
        usual = 1
        for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
            if isinstance(stride, torch.SymInt) and stride.node.expr in self._symbols:
                found[stride.node.expr] = usual
            usual *= Assignment({}).number(size)
        return found
