"""The words of a call that a specialization may leave open, and what they stand for."""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trident.errors import UnsupportedError

if TYPE_CHECKING:
    from trident.dim import Dim


class SoftKind(enum.IntEnum):
    """What a soft word is; the values are those of csrc/python/call_facts.cpp."""

    SIZE = 0
    STRIDE = 1
    ALIGNMENT = 2  # of a tensor's address, modulo 16
    INT_ARGUMENT = 3
    FLOAT_ARGUMENT = 4
    INT_ITEM = 5  # of a list, tuple or dictionary
    FLOAT_ITEM = 6
    INT_ATTRIBUTE = 7
    FLOAT_ATTRIBUTE = 8


OF_TENSORS = (SoftKind.SIZE, SoftKind.STRIDE, SoftKind.ALIGNMENT)
OF_ARGUMENTS = (SoftKind.INT_ARGUMENT, SoftKind.FLOAT_ARGUMENT)
FLOATS = (SoftKind.FLOAT_ARGUMENT, SoftKind.FLOAT_ITEM, SoftKind.FLOAT_ATTRIBUTE)
_ATTRIBUTES = (SoftKind.INT_ATTRIBUTE, SoftKind.FLOAT_ATTRIBUTE)


@dataclasses.dataclass(frozen=True)
class SoftWord:
    """One word.

    Attributes:
        position: among the words of the call and, after them, of its state.
        kind: what it is.
        index: of the tensor, the argument or the container in the call's facts.
        place: the axis of a tensor; the index, key or attribute name in a container.
    """

    position: int
    kind: SoftKind
    index: int
    place: Any

    @property
    def is_item(self) -> bool:
        """Whether it is a number that a container holds, as an item or attribute."""
        return self.kind not in (*OF_TENSORS, *OF_ARGUMENTS)

    @property
    def is_attribute(self) -> bool:
        """Whether ``place`` is the name of an attribute."""
        return self.kind in _ATTRIBUTES

    @property
    def is_float(self) -> bool:
        """Whether the word is the bits of a Python float."""
        return self.kind in FLOATS

    def __str__(self) -> str:
        match self.kind:
            case SoftKind.SIZE | SoftKind.STRIDE:
                return f"{self.kind.name.lower()} {self.place} of tensor {self.index}"
            case SoftKind.ALIGNMENT:
                return f"address of tensor {self.index} modulo 16"
            case SoftKind.INT_ARGUMENT | SoftKind.FLOAT_ARGUMENT:
                return f"argument {self.index}"
            case _ if self.is_attribute:
                return f"attribute {self.place} of object {self.index}"
        return f"item {self.place!r} of container {self.index}"


@dataclasses.dataclass(frozen=True)
class SymbolicWords:
    """The words of a call that are to be symbols.

    Attributes:
        words: each of them, by position.
        values: the values of the call's soft words by position, signed.
        others: the same of earlier calls of its kind; they show which words are equal by chance
            only.
        free: positions of strides of axes of size 1, of which nothing may depend.
        dims: what is known of words by position: those of one name are equal, and in its range.
    """

    words: tuple[SoftWord, ...]
    values: dict[int, int]
    others: tuple[dict[int, int], ...] = ()
    free: frozenset[int] = frozenset()
    dims: Mapping[int, Dim] = dataclasses.field(default_factory=dict)

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(word.position for word in self.words)


class NeedsValueError(UnsupportedError):
    """The call depends on the values of words that were symbols.

    Attributes:
        positions: of these words.
    """

    def __init__(
        self, positions: Iterable[int], reason: str | None = None, where: str | None = None
    ) -> None:
        self.positions = frozenset(positions)
        super().__init__(
            reason or "the call's Python code depends on the value of a number that varies", where
        )


def float_of(word: int) -> float:
    """The float whose bits a signed word holds."""
    number: float = struct.unpack("<d", struct.pack("<q", word))[0]
    return number


def signed(word: int) -> int:
    """A 64-bit word as the signed number that it holds."""
    return word - 2**64 if word >= 2**63 else word


def soft_words(found: Sequence[tuple[int, int, int, Any]]) -> list[SoftWord]:
    """What ``Facts.soft_words`` lists, by position."""
    return sorted(
        (
            SoftWord(position, SoftKind(kind), index, place)
            for position, kind, index, place in found
        ),
        key=lambda word: word.position,
    )
