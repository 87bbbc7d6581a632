"""Takes the guards' words one by one: tags, payloads, and the values that follow them."""

from __future__ import annotations

import collections
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch

from trident import _C

PAYLOAD = (1 << 56) - 1

_TAG = {number: name for name, number in _C.word_tags.items()}
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
# Types that the walker names by address alone, since they outlive every walk.
_IMMORTAL: dict[int, Any] = {
    id(cls): cls
    for cls in (
        torch.nn.Parameter,
        torch.Size,
        frozenset,
        collections.OrderedDict,
        *numpy.sctypeDict.values(),
    )
}


def is_number_tag(word: int) -> bool:
    """Whether an int or a float follows."""
    return _TAG.get(word >> 56) in ("INT", "FLOAT")


class Unreadable(Exception):
    """Words that do not follow the walker's order, or that name an object that is gone."""


class WordStream:
    """Words and a position in them.

    Args:
        words: of one walk.
        objects: what stands at the addresses that the words name.
    """

    def __init__(self, words: Sequence[int], objects: Mapping[int, Any]) -> None:
        self.position = 0
        self._words = words
        self._objects = objects

    def _signed(self) -> int:
        word = self._take()
        return word - 2**64 if word >= 2**63 else word

    def _at_end(self) -> bool:
        return self.position >= len(self._words)

    def _next(self) -> str:
        return "" if self._at_end() else _TAG.get(self._words[self.position] >> 56, "")

    def _take(self) -> int:
        if self._at_end():
            raise Unreadable("the words end early")
        self.position += 1
        return self._words[self.position - 1]

    def _expect(self, tag: str) -> int:
        if self._next() != tag:
            raise Unreadable(f"{self._next()} instead of {tag} at word {self.position}")
        return self._take() & PAYLOAD

    def _double(self) -> float:
        return float(struct.unpack("d", struct.pack("Q", self._take()))[0])

    def _raw(self, size: int) -> bytes:
        count = (size + 7) // 8
        return b"".join(struct.pack("Q", self._take()) for _ in range(count))[:size]

    def _string(self) -> str:
        payload = self._expect("STRING")
        kind = payload & 7
        return self._raw((payload >> 3) * kind).decode(_ENCODINGS[kind or 1], "surrogatepass")

    def _object(self, address: int) -> Any:
        found = self._objects.get(address, _IMMORTAL.get(address))
        if found is None:
            raise Unreadable("an object is gone")
        return found
