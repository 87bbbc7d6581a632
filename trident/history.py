"""What earlier calls looked like, which decides what the next specialization leaves open."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from trident import _C
from trident.capture.soft_words import SoftKind, SoftWord, SymbolicWords, signed, soft_words

# How often leaving the same words open is tried in vain.
_MAX_FAILURES = 2
# How many calls of a kind have to be unsupported before all that differ likewise are taken to be.
_MAX_UNSUPPORTED = 3
# How many kinds of calls, and calls of one kind, are remembered.
_MAX_KINDS = 256
_MAX_CALLS = 8

_SIZES = (SoftKind.SIZE, SoftKind.STRIDE)
# What `dynamic=True` leaves open from the first call on, where it belongs to an argument.
_OPEN_FROM_THE_FIRST = (*_SIZES, SoftKind.ALIGNMENT, SoftKind.INT_ARGUMENT)

_Kind = tuple[Any, ...]


@dataclasses.dataclass
class _Calls:
    """The calls of one kind: those that differ in soft words alone.

    Attributes:
        seen: the soft words of the last calls that were compiled, by position.
        varying: positions of the words that were seen to differ, or that are symbols somewhere.
        failures: how often leaving these positions open failed.
        valued: how often the code was found to depend on the value at a position.
        fixed: how many calls were compiled for their values alone, though words vary.
        unsupported: calls that could not be compiled.
        obstacle: why words that were to be left open could not, the last time.
    """

    seen: collections.deque[dict[int, int]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_MAX_CALLS)
    )
    varying: set[int] = dataclasses.field(default_factory=set)
    failures: collections.Counter[tuple[int, ...]] = dataclasses.field(
        default_factory=collections.Counter
    )
    valued: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    fixed: int = 0
    unsupported: list[dict[int, int]] = dataclasses.field(default_factory=list)
    obstacle: str | None = None


class _Call:
    """One call's words, sorted by what may vary."""

    def __init__(self, facts: _C.Facts) -> None:
        arguments = facts.words
        every = [*arguments, *facts.state_words]
        self.soft = soft_words(facts.soft_words)
        self.values = {word.position: signed(every[word.position]) for word in self.soft}
        self.num_arguments = len(arguments)
        self.unused_strides = self._unused_strides({*facts.argument_words})
        every[facts.state_word] = 0  # names the state, whose own words follow
        for position in self.values:
            every[position] = 0
        # Of a large state a hash has to do: a mistake would cost a useless attempt, no more.
        self.kind: _Kind = (*every[: len(arguments)], hash(tuple(every[len(arguments) :])))

    def can_vary(self, word: SoftWord) -> bool:
        """Whether a word can be a symbol now: sizes 0 and 1 are treated differently."""
        return word.kind not in _SIZES or self.values[word.position] not in (0, 1)

    def _unused_strides(self, starts: set[int]) -> set[int]:
        """The strides of axes of size 1 of tensors that are arguments: nothing lies behind them."""
        sizes = {(word.index, word.place): word for word in self.soft if word.kind is SoftKind.SIZE}
        headers = {index: word.position - 1 for (index, axis), word in sizes.items() if axis == 0}
        return {
            word.position
            for word in self.soft
            if word.kind is SoftKind.STRIDE
            and headers[word.index] in starts
            and self.values[sizes[word.index, word.place].position] == 1
        }

    def differing(self, other: dict[int, int]) -> set[int]:
        return {position for position, value in self.values.items() if other[position] != value}


class CallHistory:
    """The compiled calls of one optimized callable, by kind."""

    def __init__(self) -> None:
        self._kinds: collections.OrderedDict[_Kind, _Calls] = collections.OrderedDict()
        self._stride_failures = 0  # attempts to leave nothing but unused strides open

    def candidates(
        self, facts: _C.Facts, every: bool, needed: Mapping[int, int]
    ) -> list[SymbolicWords]:
        """The words of a call to leave open, best first.

        Of a first call of its kind that is no more than the strides of axes of size 1.

        Args:
            facts: of the call.
            every: whether to try all words of arguments first, from the first call on.
            needed: how often attempts at this call were found to depend on words, by position.
        """
        call = _Call(facts)
        calls = self._calls(call)
        nearest: set[int] = set()
        for other in calls.seen:
            differing = call.differing(other)
            calls.varying |= differing
            if differing and (not nearest or len(differing) < len(nearest)):
                nearest = differing
        wanted = [calls.varying, nearest]
        if self._stride_failures < _MAX_FAILURES:
            wanted.append(set())  # no more than strides behind no element
        if every:
            first = (
                word.position
                for word in call.soft
                if word.position < call.num_arguments and word.kind in _OPEN_FROM_THE_FIRST
            )
            wanted.insert(0, {*first, *calls.varying})
        known = {position for position, times in calls.valued.items() if times >= _MAX_FAILURES}
        free = call.unused_strides - known - needed.keys()
        # A stride behind no element that is needed may still be a size, as a batch of one's is.
        fixed = {each for each in known | needed.keys() if each not in call.unused_strides}
        fixed |= {position for position, times in needed.items() if times >= _MAX_FAILURES}
        found: dict[tuple[int, ...], SymbolicWords] = {}
        for positions in wanted:
            words = tuple(
                word
                for word in call.soft
                if word.position in free
                or (word.position in positions - fixed and call.can_vary(word))
            )
            symbolic = SymbolicWords(words, call.values, tuple(calls.seen), frozenset(free))
            if words and calls.failures[symbolic.positions] < _MAX_FAILURES:
                found.setdefault(symbolic.positions, symbolic)
        return list(found.values())

    def remember(self, facts: _C.Facts, symbolic: SymbolicWords | None) -> None:
        """Notes that a call was compiled, with these words left open."""
        call = _Call(facts)
        calls = self._calls(call)
        calls.seen.append(call.values)
        calls.fixed += symbolic is None and bool(calls.varying)
        if symbolic is not None:
            calls.varying.update(symbolic.positions)

    def num_fixed(self, facts: _C.Facts) -> int:
        """How many calls of a kind were compiled for their values alone, though these vary."""
        return self._calls(_Call(facts)).fixed

    def note_unsupported(self, facts: _C.Facts) -> list[int]:
        """Notes that a call cannot be compiled; the words in which such calls of its kind differ,
        once there are some."""
        call = _Call(facts)
        calls = self._calls(call)
        calls.unsupported = [*calls.unsupported, call.values][-_MAX_UNSUPPORTED:]
        if len(calls.unsupported) < _MAX_UNSUPPORTED:
            return []
        return sorted(set().union(*map(call.differing, calls.unsupported)))

    def note_failure(self, facts: _C.Facts, symbolic: SymbolicWords, reason: str) -> None:
        """Notes that these words cannot be left open, and why."""
        call = _Call(facts)
        calls = self._calls(call)
        calls.failures[symbolic.positions] += 1
        calls.obstacle = reason
        self._stride_failures += call.unused_strides.issuperset(symbolic.positions)

    def obstacle(self, facts: _C.Facts, positions: tuple[int, ...]) -> str | None:
        """Why numbers in which calls of a kind differ could not be left open, the last time.

        Args:
            facts: of a call.
            positions: the words that are open; where there are some, it is said of those that are
                not and whose values calls were found to depend on.
        """
        calls = self._calls(_Call(facts))
        fixed = (calls.varying & calls.valued.keys()).difference(positions)
        return calls.obstacle if len(calls.seen) > 1 and (fixed or not positions) else None

    def note_values(
        self, facts: _C.Facts, positions: Iterable[int], reason: str | None = None
    ) -> None:
        """Notes that a call depends on the values of these words, and where that is known, why."""
        calls = self._calls(_Call(facts))
        calls.valued.update(positions)
        calls.obstacle = reason or calls.obstacle

    def _calls(self, call: _Call) -> _Calls:
        calls = self._kinds.setdefault(call.kind, _Calls())
        self._kinds.move_to_end(call.kind)
        while len(self._kinds) > _MAX_KINDS:
            self._kinds.popitem(last=False)
        return calls
