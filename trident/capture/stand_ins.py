"""What stands for the symbolic words of a call in its trace.

A word that is a symbol gets a ShapeEnv symbol of its own, or shares one with the words that had the
same value in every call seen; a stride may instead be a product of other words.
"""

from __future__ import annotations

import dataclasses
import operator
import weakref
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
    SoftKind,
    SoftWord,
    SymbolicWords,
    float_of,
    soft_words,
)
from trident.capture.unused_strides import UnusedStrides
from trident.errors import UnsupportedError
from trident.ir.expressions import number_symbol, size_symbol
from trident.kernels.reasons import present_reason

_Place = tuple[SoftKind, int, Any]


@dataclasses.dataclass(frozen=True)
class _Cause(SLoc):
    """What asked for a guard: the user's line and, where it is known, why."""

    reason: str | None = None


class _Environment(ShapeEnv):
    """A ShapeEnv whose guards know what asked for them.

    Attributes:
        reals: the floats of the trace. Not kept alive: PyTorch's cache of fake results keeps
            environments for good, and these lead to the call's tensors.
    """

    reals: weakref.ref[Reals]

    def _get_sloc(self, framework_loc: str | None = None) -> SLoc:
        return _Cause(framework_loc, current_line(), present_reason())

    def cause(self, symbol: sympy.Symbol) -> tuple[str | None, str | None]:
        """Why a symbol has become a number, and the user's line, as far as they are known."""
        found = self.replacements_slocs.get(symbol)
        return (found.reason, found.maybe_user_loc) if isinstance(found, _Cause) else (None, None)


class StandIns:
    """The stand-ins of one capture.

    Args:
        facts: of the call.
        symbolic: which of its words are symbols.

    Attributes:
        environment: what the trace asks about the symbols.
        unused: the strides among them that no element shows.
        names: the ShapeEnv's symbols, and those of the program for the same words.
        reals: the ShapeEnv's symbols of floats, and the numbers of the words.
        meaning: what each word stands for, by its number among the symbolic ones.
    """

    def __init__(self, facts: _C.Facts, symbolic: SymbolicWords) -> None:
        self.environment = _Environment(
            allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
        )
        self._positions = symbolic.positions
        self._symbolic = symbolic
        self._tensors: list[torch.Tensor] = facts.tensors
        self._by_place: dict[_Place, int] = {
            (word.kind, word.index, word.place): number
            for number, word in enumerate(symbolic.words)
        }
        self._hints: dict[sympy.Symbol, int] = {}  # what the ShapeEnv's are in this call
        self.unused = UnusedStrides(self.environment, self._hints)
        self._shared: dict[Any, Any] = {}  # by the values in all calls, or by a hint's name
        self.names: dict[sympy.Symbol, sympy.Symbol] = {}
        self.reals: dict[sympy.Symbol, int] = {}
        self.meaning: dict[int, Any] = {}
        self._places: dict[_Place, int] = {
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
        dim = self._symbolic.dims.get(self._positions[number])
        if dim is not None and dim.name in self._shared:
            self.meaning[number] = self._shared[dim.name]
            return self.meaning[number]
        value = self._symbolic.values[self._positions[number]]
        source = ConstantSource(f"number_{number}")
        if self._symbolic.words[number].is_float:
            real = float_of(value)
            symbol = self.environment.create_unspecified_symbol(real, source, DimDynamic.DYNAMIC)
            self.reals[symbol] = number
            return self.environment.create_symfloatnode(symbol, hint=real, source=source)
        symbol = self.environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        self.names[symbol] = self.own_symbol(number)
        self._hints[symbol] = value
        self.meaning[number] = self.environment.create_symintnode(symbol, hint=value, source=source)
        if dim is not None:
            self._shared[dim.name] = self.meaning[number]
        return self.meaning[number]

    def fake(self, index: int) -> torch.Tensor:
        """What stands for tensor ``index``, under the current FakeTensorMode.

        Its memory is its own, also where another tensor of the call shares it: programs do not
        depend on what shares memory, which is no fact of a call.

        Raises:
            UnsupportedError: where the tensor is more than its geometry: a parameter, or empty.
        """
        tensor = self._tensors[index]
        if type(tensor) is not torch.Tensor:
            raise UnsupportedError(f"a tensor of type {type(tensor).__name__} varies in size")
        if tensor.numel() == 0:
            raise UnsupportedError("a tensor without elements varies in size")
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

    def _values(self, kind: SoftKind, index: int, axis: int) -> tuple[int, ...]:
        """What a word is in this call and in the earlier ones."""
        position = self._places[kind, index, axis]
        return tuple(each[position] for each in (self._symbolic.values, *self._symbolic.others))

    def _word(self, kind: SoftKind, index: int, axis: int, value: int) -> Any:
        """A size or stride: a number, or a SymInt where it is symbolic."""
        number = self._by_place.get((kind, index, axis))
        if number is None:
            return value
        values: Any = self._values(kind, index, axis)
        if self._symbolic.dims:
            # A hint says what is equal, and no coincidence.
            position = self._positions[number]
            dim = self._symbolic.dims.get(position)
            values = position if dim is None else dim.name
        if values not in self._shared:
            source = ConstantSource(f"word_{number}")
            symbol = self.environment.create_symbol(value, source, DimDynamic.DYNAMIC)
            self.names[symbol] = self.own_symbol(number)
            self._hints[symbol] = value
            self._shared[values] = self.environment.create_symintnode(
                symbol, hint=value, source=source
            )
        self.meaning[number] = self._shared[values]
        return self.meaning[number]

    def _strides(self, index: int, tensor: torch.Tensor, sizes: list[Any]) -> list[Any]:
        """The strides; a symbolic one that has always been the extent of an inner axis is that."""
        strides: dict[int, Any] = {}
        unused: dict[int, Any] = {}
        for axis in sorted(range(tensor.dim()), key=lambda each: (tensor.stride(each), -each)):
            number = self._by_place.get((SoftKind.STRIDE, index, axis))
            if number is None:
                strides[axis] = tensor.stride(axis)
                continue
            if self._positions[number] in self._symbolic.free:
                unused[axis] = self._number(number)
                self.unused.note(unused[axis].node.expr)
                continue
            mine = self._values(SoftKind.STRIDE, index, axis)
            for inner in strides:
                inner_sizes = self._values(SoftKind.SIZE, index, inner)
                inner_strides = self._values(SoftKind.STRIDE, index, inner)
                if mine == tuple(map(operator.mul, inner_sizes, inner_strides)):
                    strides[axis] = self.meaning[number] = sizes[inner] * strides[inner]
                    break
            else:
                strides[axis] = self._word(SoftKind.STRIDE, index, axis, mine[0])
        strides |= unused
        return [strides[axis] for axis in range(tensor.dim())]

    def own_symbol(self, number: int) -> sympy.Symbol:
        """The program's symbol for a word: a size or stride, which is at least 2, or any number."""
        word = self._symbolic.words[number]
        sized = word.kind in (SoftKind.SIZE, SoftKind.STRIDE) and not self.is_unused(word)
        return size_symbol(number) if sized else number_symbol(number)

    def is_unused(self, word: SoftWord) -> bool:
        """Whether a word is the stride of an axis of size 1, and a symbol of its own."""
        return word.position in self._symbolic.free
