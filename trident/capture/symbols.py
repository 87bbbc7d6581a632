"""The symbolic words of a call: which sizes, strides and ints a specialization leaves open.

A word that is a symbol gets a ShapeEnv symbol of its own, or shares one with the words that had the
same value in every call seen; a stride may instead be a product of other words. The trace then says
what it assumed, and all of that becomes the residual guard: nothing about a symbolic word is used
that is not checked at each call.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._guards import SLoc
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from trident import _C
from trident.capture.places import current_line
from trident.capture.reals import Reals
from trident.capture.soft_words import (
    OF_TENSORS,
    NeedsValueError,
    SoftKind,
    SoftWord,
    SymbolicWords,
    float_of,
    soft_words,
)
from trident.capture.unused_strides import UnusedStrides
from trident.errors import UnsupportedError
from trident.ir import expressions, magnitudes
from trident.ir.expressions import Size, known, number_symbol, size_symbol

_Place = tuple[SoftKind, int, Any]


class _Environment(ShapeEnv):
    """A ShapeEnv whose guards know the user's line that asked for them."""

    def _get_sloc(self, framework_loc: str | None = None) -> SLoc:
        return SLoc(framework_loc, current_line())


class Symbols:
    """The symbols of one capture.

    Args:
        facts: of the call.
        symbolic: which of its words are symbols.
    """

    def __init__(self, facts: _C.Facts, symbolic: SymbolicWords) -> None:
        self.positions = symbolic.positions
        self.environment = _Environment(
            allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
        )
        self._facts = facts
        self._symbolic = symbolic
        self._tensors: list[torch.Tensor] = facts.tensors
        self._by_place: dict[_Place, int] = {
            (word.kind, word.index, word.place): number
            for number, word in enumerate(symbolic.words)
        }
        self._hints: dict[sympy.Symbol, int] = {}  # what the ShapeEnv's are in this call
        self.unused = UnusedStrides(self.environment, self._hints)
        self._shared: dict[Any, Any] = {}  # by the values in all calls, or by a hint's name
        self._names: dict[sympy.Symbol, sympy.Symbol] = {}  # ShapeEnv's -> the program's
        self._divisors: set[sympy.Expr] = set()  # of expressions; have to be positive
        self._reals: dict[sympy.Symbol, int] = {}  # ShapeEnv's floats -> number of the word
        self.reals = Reals(self._reals, self._exact)
        self._limited: dict[sympy.Basic, float] = {}  # how large expressions may get
        self._meaning: dict[int, Any] = {}  # number of a symbolic word -> what it stands for
        self._positions: dict[_Place, int] = {
            (word.kind, word.index, word.place): word.position
            for word in soft_words(facts.soft_words)
            if word.kind in OF_TENSORS
        }

    def is_symbolic(self, tensor: int) -> bool:
        """Whether a size or stride of tensor ``tensor`` is a symbol."""
        return any(
            word.kind in (SoftKind.SIZE, SoftKind.STRIDE) and word.index == tensor
            for word in self._symbolic.words
        )

    def numbers(self) -> list[tuple[SoftWord, Any]]:
        """What stands for each number in the call's arguments and state that is a symbol."""
        return [
            (word, self._number(number))
            for number, word in enumerate(self._symbolic.words)
            if word.kind not in OF_TENSORS
        ]

    def alignment(self, tensor: int, value: int) -> Any:
        """What stands for a tensor's address modulo 16: a SymInt, or the value itself."""
        number = self._by_place.get((SoftKind.ALIGNMENT, tensor, 0))
        return value if number is None else self._number(number)

    def _number(self, number: int) -> Any:
        """A SymInt or SymFloat for a symbolic word of which nothing is known but its kind."""
        dim = self._symbolic.dims.get(self.positions[number])
        if dim is not None and dim.name in self._shared:
            self._meaning[number] = self._shared[dim.name]
            return self._meaning[number]
        value = self._symbolic.values[self.positions[number]]
        source = ConstantSource(f"number_{number}")
        if self._symbolic.words[number].is_float:
            real = float_of(value)
            symbol = self.environment.create_unspecified_symbol(real, source, DimDynamic.DYNAMIC)
            self._reals[symbol] = number
            return self.environment.create_symfloatnode(symbol, hint=real, source=source)
        symbol = self.environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        self._names[symbol] = self._own_symbol(number)
        self._hints[symbol] = value
        self._meaning[number] = self.environment.create_symintnode(
            symbol, hint=value, source=source
        )
        if dim is not None:
            self._shared[dim.name] = self._meaning[number]
        return self._meaning[number]

    def fake(self, index: int) -> torch.Tensor:
        """What stands for tensor ``index``, under the current FakeTensorMode.

        Raises:
            UnsupportedError: where the tensor is more than its geometry: a parameter, or memory
                that another tensor of the call shares.
        """
        tensor = self._tensors[index]
        self._check(index, tensor)
        sizes = [
            self._word(SoftKind.SIZE, index, axis, size) for axis, size in enumerate(tensor.shape)
        ]
        strides = self._strides(index, tensor, sizes)
        offset = int(tensor.storage_offset())
        fake = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
        if offset:
            extent = 1 + sum(
                (size - 1) * stride for size, stride in zip(sizes, strides, strict=True)
            )
            memory = torch.empty((extent + offset,), dtype=tensor.dtype, device=tensor.device)
            fake = torch.as_strided(memory, sizes, strides, offset)
        return fake.requires_grad_() if tensor.requires_grad else fake

    def _check(self, index: int, tensor: torch.Tensor) -> None:
        if type(tensor) is not torch.Tensor:
            raise UnsupportedError(f"a tensor of type {type(tensor).__name__} varies in size")
        if tensor.numel() == 0:
            raise UnsupportedError("a tensor without elements varies in size")
        memory = tensor.untyped_storage().data_ptr()
        for other, candidate in enumerate(self._tensors):
            if other != index and candidate.untyped_storage().data_ptr() == memory:
                raise UnsupportedError("a tensor that varies in size shares memory with another")

    def _values(self, kind: SoftKind, index: int, axis: int) -> tuple[int, ...]:
        """What a word is in this call and in the earlier ones."""
        position = self._positions[kind, index, axis]
        return tuple(each[position] for each in (self._symbolic.values, *self._symbolic.others))

    def _word(self, kind: SoftKind, index: int, axis: int, value: int) -> Any:
        """A size or stride: a number, or a SymInt where it is symbolic."""
        number = self._by_place.get((kind, index, axis))
        if number is None:
            return value
        values: Any = self._values(kind, index, axis)
        if self._symbolic.dims:
            # A hint says what is equal, and no coincidence.
            position = self.positions[number]
            dim = self._symbolic.dims.get(position)
            values = position if dim is None else dim.name
        if values not in self._shared:
            source = ConstantSource(f"word_{number}")
            symbol = self.environment.create_symbol(value, source, DimDynamic.DYNAMIC)
            self._names[symbol] = self._own_symbol(number)
            self._hints[symbol] = value
            self._shared[values] = self.environment.create_symintnode(
                symbol, hint=value, source=source
            )
        self._meaning[number] = self._shared[values]
        return self._meaning[number]

    def _strides(self, index: int, tensor: torch.Tensor, sizes: list[Any]) -> list[Any]:
        """The strides; a symbolic one that has always been the extent of an inner axis is that."""
        strides: dict[int, Any] = {}
        unused: dict[int, Any] = {}
        for axis in sorted(range(tensor.dim()), key=lambda each: (tensor.stride(each), -each)):
            number = self._by_place.get((SoftKind.STRIDE, index, axis))
            if number is None:
                strides[axis] = tensor.stride(axis)
                continue
            if self.positions[number] in self._symbolic.free:
                unused[axis] = self._number(number)
                self.unused.note(unused[axis].node.expr)
                continue
            mine = self._values(SoftKind.STRIDE, index, axis)
            for inner in strides:
                inner_sizes = self._values(SoftKind.SIZE, index, inner)
                inner_strides = self._values(SoftKind.STRIDE, index, inner)
                if mine == tuple(map(operator.mul, inner_sizes, inner_strides)):
                    strides[axis] = self._meaning[number] = sizes[inner] * strides[inner]
                    break
            else:
                strides[axis] = self._word(SoftKind.STRIDE, index, axis, mine[0])
        strides |= unused
        return [strides[axis] for axis in range(tensor.dim())]

    def expression(self, value: Any) -> Size:
        """An int or SymInt of the trace over the program's symbols.

        Raises:
            UnsupportedError: for a number that does not follow from the call's words.
        """
        if isinstance(value, torch.SymInt):
            expression = self._rename(self.environment.replace(value.node.expr))
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

    def _exact(self, value: Any) -> Size:
        """A number that becomes a float: it has to be one exactly."""
        expression = self.expression(value)
        if not isinstance(expression, int):
            self._limit(expression, magnitudes.EXACT)
        return expression

    def _limit(self, expression: sympy.Basic, limit: float = magnitudes.LIMIT) -> None:
        self._limited[expression] = min(limit, self._limited.get(expression, limit))

    def _own_symbol(self, number: int) -> sympy.Symbol:
        """The program's symbol for a word: a size or stride, which is at least 2, or any number."""
        word = self._symbolic.words[number]
        sized = word.kind in (SoftKind.SIZE, SoftKind.STRIDE) and not self._is_unused(word)
        return size_symbol(number) if sized else number_symbol(number)

    def _is_unused(self, word: SoftWord) -> bool:
        """Whether a word is the stride of an axis of size 1, and a symbol of its own."""
        return word.position in self._symbolic.free

    @property
    def sizes_are_fixed(self) -> bool:
        """Whether all that is open are addresses and strides of axes of size 1."""
        return all(
            word.kind is SoftKind.ALIGNMENT or self._is_unused(word)
            for word in self._symbolic.words
        )

    def addresses(self) -> set[sympy.Symbol]:
        """The program's symbols for addresses modulo 16."""
        return {
            self._own_symbol(number)
            for number, word in enumerate(self._symbolic.words)
            if word.kind is SoftKind.ALIGNMENT
        }

    @property
    def assumes_unused(self) -> bool:
        """Whether the trace compared strides of axes of size 1."""
        return any(
            self.unused.covers(symbol)
            for guard in self.environment.guards
            for symbol in guard.expr.free_symbols
        )

    def fix_unused(self) -> bool:
        """Takes strides of axes of size 1 for what they are in the call, as the trace did.

        Returns:
            Whether no symbol is left; False if there are others, and nothing has changed.
        """
        if not all(map(self._is_unused, self._symbolic.words)):
            return False
        self.unused.fix()
        self.positions = ()
        return True

    def need(self, used: Iterable[sympy.Symbol]) -> None:
        """Gives up the symbols that are used, where there are any.

        Raises:
            NeedsValueError: for these.
            UnsupportedError: for a stride that only a kernel knows.
        """
        numbers = {expressions.symbol_index(symbol) for symbol in used}
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
        self.need(symbol for symbol in used if expressions.symbol_index(symbol) > last)

    def _rename(self, expression: sympy.Basic) -> Any:
        unknown = expression.free_symbols - self._names.keys()
        for symbol in list(unknown):
            made = self.unused.number_of(symbol)
            if made is not None:
                self._names[symbol] = number_symbol(len(self.positions) + made)
                unknown.remove(symbol)
        floats = unknown & self._reals.keys()
        if floats:
            raise NeedsValueError(self.positions[self._reals[each]] for each in floats)
        if unknown:
            raise UnsupportedError(f"the size {expression} is not known before the call")
        return expression.xreplace(self._names)

    def describe(self) -> list[str]:
        """What each symbol is, in words."""
        return [str(word) for word in self._symbolic.words]

    def check_floats(self) -> None:
        """Refuses floats whose values the trace used.

        Raises:
            NeedsValueError: for the floats concerned, or for all where that is not known.
        """
        used = {
            self._reals[symbol]
            for guard in self.environment.guards
            for symbol in guard.expr.free_symbols & self._reals.keys()
        }
        if not used and self.reals.simplified():
            used = {*self._reals.values()}
        if used:
            raise NeedsValueError(self.positions[number] for number in used)

    def limits(self) -> dict[sympy.Basic, float]:
        """Expressions and how large they may get; call it after `guards`."""
        return dict(self._limited)

    def places(self) -> dict[str, str]:
        """The user's lines that assumed conditions, as ``file.py:line`` by the condition's text."""
        found: dict[str, str] = {}
        for guard in self.environment.guards:
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
        assumed = [self._rename(guard.expr) for guard in self.environment.guards]
        pinned = []
        for number, word in enumerate(self._symbolic.words):
            if word.is_float:
                continue
            mine = self._own_symbol(number)
            if number not in self._meaning:
                raise UnsupportedError("a symbolic word has no place in the trace")
            original = self._rename(self._meaning[number].node._expr)
            if original != mine:
                found.append(sympy.Eq(mine, original, evaluate=False))
            elif mine.is_positive:
                found.append(sympy.Ge(mine, 2, evaluate=False))
            dim = self._symbolic.dims.get(word.position)
            if dim is not None:
                found.append(sympy.Ge(mine, dim.min, evaluate=False))
                if dim.max is not None:
                    found.append(sympy.Le(mine, dim.max, evaluate=False))
            if isinstance(self.expression(self._meaning[number]), int):
                pinned.append(word.position)
        if pinned:
            raise NeedsValueError(pinned)
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
        if self.environment.deferred_runtime_asserts:
            raise UnsupportedError("the call asserts what is not known before it")
        return found
