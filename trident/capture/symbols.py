"""The symbolic words of a call: which sizes, strides and ints a specialization leaves open.

A word that is a symbol gets a ShapeEnv symbol of its own, or shares one with the words that had the
same value in every call seen; a stride may instead be a product of other words. The trace then says
what it assumed, and all of that becomes the residual guard: nothing about a symbolic word is used
that is not checked at each call.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._guards import SLoc
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from trident import _C
from trident.capture.places import current_line
from trident.errors import UnsupportedError
from trident.ir import expressions
from trident.ir.expressions import Size, known, number_symbol, size_symbol

# Kinds of soft words, as csrc/python/call_facts.cpp numbers them.
_SIZE, _STRIDE, _ARGUMENT = range(3)

SoftWord = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class SymbolicWords:
    """The words of a call that are to be symbols.

    Attributes:
        words: ``(position, kind, index, axis)`` of each, by position; see ``Facts.soft_words``.
        values: the words of this call, signed.
        others: the words of earlier calls of the same kind, signed; they show which words are equal
            by chance only.
    """

    words: tuple[SoftWord, ...]
    values: Sequence[int]
    others: tuple[Sequence[int], ...]

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(word[0] for word in self.words)


def signed(words: Sequence[int]) -> list[int]:
    """64-bit words as the signed numbers they hold."""
    return [word - 2**64 if word >= 2**63 else word for word in words]


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
        self._by_place = {
            (kind, index, axis): number
            for number, (_, kind, index, axis) in enumerate(symbolic.words)
        }
        self._shared: dict[tuple[int, ...], Any] = {}  # by the values in all calls
        self._names: dict[sympy.Symbol, sympy.Symbol] = {}  # ShapeEnv's -> the program's
        self._divisors: set[sympy.Expr] = set()  # of expressions; have to be positive
        self._meaning: dict[int, Any] = {}  # number of a symbolic word -> what it stands for
        self._starts = {
            (kind, index, axis): position for position, kind, index, axis in facts.soft_words
        }

    def is_symbolic(self, tensor: int) -> bool:
        """Whether a size or stride of argument tensor ``tensor`` is a symbol."""
        return any(kind != _ARGUMENT and index == tensor for kind, index, _ in self._by_place)

    def argument(self, index: int, value: int) -> Any:
        """What stands for the int argument ``index``: a SymInt, or the value itself."""
        number = self._by_place.get((_ARGUMENT, index, 0))
        if number is None:
            return value
        source = ConstantSource(f"argument_{number}")
        if value >= 2:
            # Most ints are counts; of these more is known than of any number.
            symbol = self.environment.create_symbol(value, source, DimDynamic.DYNAMIC)
        else:
            symbol = self.environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        self._names[symbol] = self._own_symbol(number)
        self._meaning[number] = self.environment.create_symintnode(
            symbol, hint=value, source=source
        )
        return self._meaning[number]

    def arguments(self) -> list[int]:
        """The indices of the int arguments that are symbols."""
        return [index for kind, index, _ in self._by_place if kind == _ARGUMENT]

    def fake(self, index: int) -> torch.Tensor:
        """What stands for argument tensor ``index``, under the current FakeTensorMode.

        Raises:
            UnsupportedError: where the tensor is more than its geometry: a parameter, or memory
                that another tensor of the call shares.
        """
        tensor = self._tensors[index]
        self._check(index, tensor)
        sizes = [self._word(_SIZE, index, axis, size) for axis, size in enumerate(tensor.shape)]
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
            raise UnsupportedError(f"an argument of type {type(tensor).__name__} varies in size")
        if tensor.numel() == 0:
            raise UnsupportedError("an argument without elements varies in size")
        memory = tensor.untyped_storage().data_ptr()
        for other, candidate in enumerate(self._tensors):
            if other != index and candidate.untyped_storage().data_ptr() == memory:
                raise UnsupportedError("an argument that varies in size shares memory with another")

    def _values(self, kind: int, index: int, axis: int) -> tuple[int, ...]:
        """What a word is in this call and in the earlier ones."""
        position = self._starts[kind, index, axis]
        return tuple(each[position] for each in (self._symbolic.values, *self._symbolic.others))

    def _word(self, kind: int, index: int, axis: int, value: int) -> Any:
        """A size or stride: a number, or a SymInt where it is symbolic."""
        number = self._by_place.get((kind, index, axis))
        if number is None:
            return value
        values = self._values(kind, index, axis)
        if values not in self._shared:
            source = ConstantSource(f"word_{number}")
            symbol = self.environment.create_symbol(value, source, DimDynamic.DYNAMIC)
            self._names[symbol] = self._own_symbol(number)
            self._shared[values] = self.environment.create_symintnode(
                symbol, hint=value, source=source
            )
        self._meaning[number] = self._shared[values]
        return self._meaning[number]

    def _strides(self, index: int, tensor: torch.Tensor, sizes: list[Any]) -> list[Any]:
        """The strides; a symbolic one that has always been the extent of an inner axis is that."""
        strides: dict[int, Any] = {}
        for axis in sorted(range(tensor.dim()), key=lambda each: (tensor.stride(each), -each)):
            number = self._by_place.get((_STRIDE, index, axis))
            if number is None:
                strides[axis] = tensor.stride(axis)
                continue
            mine = self._values(_STRIDE, index, axis)
            for inner in strides:
                inner_sizes = self._values(_SIZE, index, inner)
                inner_strides = self._values(_STRIDE, index, inner)
                if mine == tuple(map(operator.mul, inner_sizes, inner_strides)):
                    strides[axis] = self._meaning[number] = sizes[inner] * strides[inner]
                    break
            else:
                strides[axis] = self._word(_STRIDE, index, axis, mine[0])
        return [strides[axis] for axis in range(tensor.dim())]

    def expression(self, value: Any) -> Size:
        """An int or SymInt of the trace over the program's symbols.

        Raises:
            UnsupportedError: for a number that does not follow from the call's words.
        """
        if isinstance(value, torch.SymInt):
            expression = self._rename(self.environment.replace(value.node.expr))
            self._divisors |= expressions.divisors(expression)
            return known(expression)
        return int(value)

    def symbol(self, value: Any) -> int | None:
        """The symbol that a SymInt is equal to, if it is one by itself."""
        expression = self.expression(value)
        for number, meaning in self._meaning.items():
            if self.expression(meaning) == expression:
                return number
        return None

    def _own_symbol(self, number: int) -> sympy.Symbol:
        """The program's symbol for a word: of at least 2, but for an int argument that is less."""
        value = self._symbolic.values[self.positions[number]]
        return size_symbol(number) if value >= 2 else number_symbol(number)

    def _rename(self, expression: sympy.Basic) -> Any:
        unknown = expression.free_symbols - self._names.keys()
        if unknown:
            raise UnsupportedError(f"the size {expression} is not known before the call")
        return expression.xreplace(self._names)

    def describe(self) -> list[str]:
        """What each symbol is, in words."""
        names = ("size", "stride", "argument")
        return [
            f"argument {index}" if kind == _ARGUMENT else f"{names[kind]} {axis} of tensor {index}"
            for _, kind, index, axis in self._symbolic.words
        ]

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
            UnsupportedError: where that leaves no choice: every symbol has to be what it is.
        """
        found: list[sympy.Basic] = []
        pinned = 0
        for number in range(len(self.positions)):
            mine = self._own_symbol(number)
            if number not in self._meaning:
                raise UnsupportedError("a symbolic word has no place in the trace")
            original = self._rename(self._meaning[number].node._expr)
            if original != mine:
                found.append(sympy.Eq(mine, original, evaluate=False))
            elif mine.is_positive:
                found.append(sympy.Ge(mine, 2, evaluate=False))
            pinned += isinstance(self.expression(self._meaning[number]), int)
        if pinned == len(self._symbolic.words):
            raise UnsupportedError("the call's Python code depends on the value of each size")
        assumed = [self._rename(guard.expr) for guard in self.environment.guards]
        divisors = self._divisors.union(*map(expressions.divisors, assumed))
        # Divisors come first, the simplest ones before those that they are part of.
        ordered = sorted(divisors, key=lambda each: (sympy.count_ops(each), str(each)))
        found += [sympy.Gt(each, 0, evaluate=False) for each in ordered]
        found += [each for each in dict.fromkeys(assumed) if each not in found]
        if self.environment.deferred_runtime_asserts:
            raise UnsupportedError("the call asserts what is not known before it")
        return found
