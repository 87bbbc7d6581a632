"""What earlier calls looked like, which decides what the next specialization leaves open."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from trident import _C
from trident.capture.symbols import SoftWord, SymbolicWords, signed

# How often leaving the same words open is tried in vain.
_MAX_FAILURES = 2
# How many kinds of calls, and calls of one kind, are remembered.
_MAX_KINDS = 256
_MAX_CALLS = 8

_Kind = tuple[Any, ...]


@dataclasses.dataclass
class _Calls:
    """The calls of one kind: those that differ in sizes, strides and int arguments alone.

    Attributes:
        seen: signed words of the last calls that were compiled.
        varying: positions of the words that were seen to differ, or that are symbols somewhere.
        failures: how often leaving these positions open failed.
    """

    seen: collections.deque[list[int]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_MAX_CALLS)
    )
    varying: set[int] = dataclasses.field(default_factory=set)
    failures: collections.Counter[tuple[int, ...]] = dataclasses.field(
        default_factory=collections.Counter
    )


class CallHistory:
    """The compiled calls of one optimized callable, by kind."""

    def __init__(self) -> None:
        self._kinds: collections.OrderedDict[_Kind, _Calls] = collections.OrderedDict()

    def candidates(self, facts: _C.Facts, every: bool) -> list[SymbolicWords]:
        """The words of a call to leave open, best first; nothing of a first call of its kind.

        Words that are 0 or 1 are never among them: code and operators treat such sizes differently.

        Args:
            facts: of the call.
            every: whether to try all words first, from the first call on.
        """
        values = signed(facts.words)
        soft = sorted(word for word in facts.soft_words if values[word[0]] not in (0, 1))
        calls = self._calls(facts)
        nearest: set[int] = set()
        for other in calls.seen:
            differing = _differing(values, other)
            calls.varying |= differing
            if differing and (not nearest or len(differing) < len(nearest)):
                nearest = differing
        wanted = [[word for word in soft if word[0] in calls.varying]]
        wanted.append([word for word in soft if word[0] in nearest])
        if every:
            wanted.insert(0, soft)
        others = tuple(calls.seen) or (values,)
        found: dict[tuple[SoftWord, ...], SymbolicWords] = {}
        for words in map(tuple, wanted):
            tried = calls.failures[tuple(word[0] for word in words)]
            if words and tried < _MAX_FAILURES:
                found.setdefault(words, SymbolicWords(words, values, others))
        return list(found.values())

    def remember(self, facts: _C.Facts, symbolic: SymbolicWords | None) -> None:
        """Notes that a call was compiled, with these words left open."""
        calls = self._calls(facts)
        calls.seen.append(signed(facts.words))
        if symbolic is not None:
            calls.varying.update(symbolic.positions)

    def note_failure(self, facts: _C.Facts, symbolic: SymbolicWords) -> None:
        """Notes that these words cannot be left open."""
        self._calls(facts).failures[symbolic.positions] += 1

    def _calls(self, facts: _C.Facts) -> _Calls:
        positions = frozenset(word[0] for word in facts.soft_words)
        kind = tuple(
            None if position in positions else word for position, word in enumerate(facts.words)
        )
        calls = self._kinds.setdefault(kind, _Calls())
        self._kinds.move_to_end(kind)
        while len(self._kinds) > _MAX_KINDS:
            self._kinds.popitem(last=False)
        return calls


def _differing(values: list[int], other: list[int]) -> set[int]:
    return {
        position
        for position, (mine, its) in enumerate(zip(values, other, strict=True))
        if mine != its
    }
