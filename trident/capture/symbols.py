"""What a trace assumed of the words that a specialization leaves open.

All of that becomes the residual guard: nothing about a symbolic word is used that is not checked at
each call. `stand_ins.py` has what stands for the words in the trace.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import sympy
import torch

from trident import _C
from trident.capture.reals import Reals
from trident.capture.soft_words import NeedsValueError, SoftKind, SymbolicWords
from trident.capture.stand_ins import StandIns
from trident.errors import UnsupportedError
from trident.ir import expressions, magnitudes
from trident.ir.expressions import Size, known, number_symbol


class Symbols:
    """The symbols of one capture.

    Args:
        facts: of the call.
        symbolic: which of its words are symbols.
    """

    def __init__(self, facts: _C.Facts, symbolic: SymbolicWords) -> None:
        self.positions = symbolic.positions
        self.stand_ins = StandIns(facts, symbolic)
        self._symbolic = symbolic
        self._environment = self.stand_ins.environment
        self._names = self.stand_ins.names
        self._divisors: set[sympy.Expr] = set()  # of expressions; have to be positive
        self._limited: dict[sympy.Basic, float] = {}  # how large expressions may get
        self.reals = Reals(
            self._environment, self.stand_ins.reals, self._names, self._operand, self._need
        )
        self._environment.reals = weakref.ref(self.reals)

    def expression(self, value: Any) -> Size:
        """An int or SymInt of the trace over the program's symbols.

        Raises:
            UnsupportedError: for a number that does not follow from the call's words.
        """
        if isinstance(value, torch.SymInt):
            expression = self._rename(self._environment.replace(value.node.expr))
            self._divisors |= expressions.divisors(expression)
            if magnitudes.needs_check(expression):
                self._limit(expression)
            return known(expression)
        return int(value)

    def number(self, value: Any) -> Size:
        """A number in the call's result or effects; it may be larger than any size in memory."""
        expression = self.expression(value)
        if not isinstance(expression, int) and not expression.is_Atom:
            self._limit(expression)
        return expression

    def _operand(self, value: Any, exact: bool) -> Size:
        """A number that something is computed of; as an exact one it may become a float."""
        expression = self.expression(value)
        if not isinstance(expression, int):
            self._limit(expression, magnitudes.EXACT if exact else magnitudes.LIMIT)
        return expression

    def _limit(self, expression: sympy.Basic, limit: float = magnitudes.LIMIT) -> None:
        self._limited[expression] = min(limit, self._limited.get(expression, limit))

    @property
    def sizes_are_fixed(self) -> bool:
        """Whether all that is open are addresses and strides of axes of size 1."""
        return all(
            word.kind is SoftKind.ALIGNMENT or self.stand_ins.is_unused(word)
            for word in self._symbolic.words
        )

    def addresses(self) -> set[sympy.Symbol]:
        """The program's symbols for addresses modulo 16."""
        return {
            self.stand_ins.own_symbol(number)
            for number, word in enumerate(self._symbolic.words)
            if word.kind is SoftKind.ALIGNMENT
        }

    @property
    def assumes_unused(self) -> bool:
        """Whether the trace compared strides of axes of size 1."""
        return any(
            self.stand_ins.unused.covers(symbol)
            for guard in self._environment.guards
            for symbol in guard.expr.free_symbols
        )

    def fix_unused(self) -> bool:
        """Takes strides of axes of size 1 for what they are in the call, as the trace did.

        Returns:
            Whether no symbol is left; False if there are others, and nothing has changed.
        """
        if not all(map(self.stand_ins.is_unused, self._symbolic.words)):
            return False
        self.stand_ins.unused.fix()
        self.positions = ()
        return True

    def need(self, used: Iterable[sympy.Symbol]) -> None:
        """Gives up the symbols that are used, where there are any.

        Raises:
            NeedsValueError: for these.
            UnsupportedError: for a stride that only a kernel knows.
        """
        self._need(number for symbol in used for number in self.reals.roots_of_name(symbol))

    def _need(self, numbers: Iterable[int]) -> None:
        """The same of words by number."""
        numbers = set(numbers)
        positions = {self.positions[number] for number in numbers if number < len(self.positions)}
        if len(positions) < len(numbers):
            positions |= self._symbolic.free
            if not positions:
                raise UnsupportedError("a stride behind no element is only known once it is made")
        if positions:
            raise NeedsValueError(positions)

    def need_no_unknown(self, used: Iterable[sympy.Symbol]) -> None:
        """Gives up strides of axes of size 1 where one that only a kernel knows is used.

        Raises:
            NeedsValueError: for those of arguments.
            UnsupportedError: where there are none.
        """
        last = len(self.positions) - 1
        numbers = {number for symbol in used for number in self.reals.roots_of_name(symbol)}
        self._need(number for number in numbers if number > last)

    def _cause(self, positions: Iterable[int]) -> tuple[str | None, str | None]:
        """Why the trace made numbers of words, and the user's line; of the first that is known."""
        for position in positions:
            meaning = self.stand_ins.meaning[self.positions.index(position)]
            if not isinstance(meaning, int):
                for symbol in sorted(meaning.node._expr.free_symbols, key=str):
                    reason, where = self._environment.cause(symbol)
                    if where is not None:
                        return reason, where
        return None, None

    def _rename(self, expression: sympy.Basic) -> Any:
        unknown = expression.free_symbols - self._names.keys()
        for symbol in list(unknown):
            made = self.stand_ins.unused.number_of(symbol)
            if made is not None:
                self._names[symbol] = number_symbol(len(self.positions) + made)
                unknown.remove(symbol)
        self._need(number for each in unknown for number in self.reals.roots(each))
        if unknown:
            raise UnsupportedError(f"the size {expression} is not known before the call")
        return expression.xreplace(self._names)

    def describe(self) -> list[str]:
        """What each symbol is, in words."""
        return [str(word) for word in self._symbolic.words]

    def check_floats(self) -> None:
        """Refuses floats whose values PyTorch used past their arithmetic.

        Raises:
            NeedsValueError: for what they were computed of.
        """
        self._need(
            number
            for guard in self._environment.guards
            for symbol in guard.expr.free_symbols
            if self.reals.covers(symbol)
            for number in self.reals.roots(symbol)
        )

    def limits(self) -> dict[sympy.Basic, float]:
        """Expressions and how large they may get; call it after `guards`."""
        return dict(self._limited)

    def places(self) -> dict[str, str]:
        """The user's lines that assumed conditions, as ``file.py:line`` by the condition's text."""
        found = {text: place for text, place in self.reals.answers.items() if place is not None}
        for guard in self._environment.guards:
            if guard.sloc.maybe_user_loc is not None:
                text = expressions.condition(self._rename(guard.expr))
                found.setdefault(text, guard.sloc.maybe_user_loc)
        return found

    def guards(self) -> list[sympy.Basic]:
        """What must hold of the symbols: all that the trace assumed, and what each word stands for.

        In an order in which they can be checked; call it when all expressions have been asked for.

        Raises:
            NeedsValueError: for symbols that have to be what they are.
        """
        if not self.positions:
            return []
        found: list[sympy.Basic] = []
        assumed = [self._rename(guard.expr) for guard in self._environment.guards]
        pinned = []
        for number, word in enumerate(self._symbolic.words):
            if word.is_float:
                continue
            mine = self.stand_ins.own_symbol(number)
            if number not in self.stand_ins.meaning:
                raise UnsupportedError("a symbolic word has no place in the trace")
            if isinstance(self.stand_ins.meaning[number], int):  # of words that are fixed
                pinned.append(word.position)
                continue
            original = self._rename(self.stand_ins.meaning[number].node._expr)
            if original != mine:
                found.append(sympy.Eq(mine, original, evaluate=False))
            elif mine.is_positive:
                found.append(sympy.Ge(mine, 2, evaluate=False))
            dim = self._symbolic.dims.get(word.position)
            if dim is not None:
                found.append(sympy.Ge(mine, dim.min, evaluate=False))
                if dim.max is not None:
                    found.append(sympy.Le(mine, dim.max, evaluate=False))
            if isinstance(self.expression(self.stand_ins.meaning[number]), int):
                pinned.append(word.position)
        if pinned:
            raise NeedsValueError(pinned, *self._cause(pinned))
        for condition in assumed:
            compared = condition.atoms(sympy.core.relational.Relational)
            sides = [side for each in compared for side in each.args]
            for side in filter(magnitudes.needs_check, sides):
                self._limit(side)
        divisors = self._divisors.union(*map(expressions.divisors, assumed))
        # Divisors come first, the simplest ones before those that they are part of.
        ordered = sorted(divisors, key=lambda each: (sympy.count_ops(each), str(each)))
        found += [sympy.Gt(each, 0, evaluate=False) for each in ordered]
        found += [each for each in dict.fromkeys(assumed) if each not in found]
        if self._environment.deferred_runtime_asserts:
            raise UnsupportedError("the call asserts what is not known before it")
        return found
