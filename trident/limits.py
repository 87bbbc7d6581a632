"""Which calls are not captured though no specialization serves them: recompilation has an end."""

from __future__ import annotations

import collections
from typing import Generic, TypeVar

from trident import _C
from trident.capture.reads import Read
from trident.errors import KeepsChangingError, NotReadyError, RaisedBeforeError
from trident.pipeline import SpecializationRecord

# So many compilations are made in vain at least, however few specializations are kept: it takes
# some until the numbers in which calls differ are symbols.
_MIN_VAIN = 4
# How many of the calls that were not compiled are remembered, and of those that raised.
_MAX_SKIPPED = 8
_MAX_RAISED = 16
# How many eager calls a call may need before it can be captured: one per autotuned kernel, say.
_MAX_WAITS = 16
_MAX_WAITING = 1024

Value = TypeVar("Value")


class _Calls(Generic[Value]):
    """Something about each of the last few calls, by their facts.

    The objects whose addresses stand in these are kept alive, so that no other one has them.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: collections.OrderedDict[tuple[int, ...], tuple[list[object], Value]] = (
            collections.OrderedDict()
        )

    def add(self, facts: _C.Facts, value: Value) -> None:
        self._calls[tuple(facts.words)] = facts.identities, value
        if len(self._calls) > self._size:
            self._calls.popitem(last=False)

    def pop(self, facts: _C.Facts) -> Value | None:
        _, value = self._calls.pop(tuple(facts.words), (None, None))
        return value

    def clear(self) -> None:
        self._calls.clear()


class RecompilationLimit:
    """Ends compiling where it serves no later call.

    Calls that differ in numbers alone have a limit of their own; see `trident.attempts`.

    In effect once as many compilations as the limit, one after the other, were made for calls none
    of which came again. While it is, a call is compiled that looks like one of the last that were
    not, and one after a number of others that doubles each time. A hit of any of these
    compilations ends it, and all of them are forgotten.

    Args:
        scm: the native side of the optimized callable.
        limit: its `max_specializations`.
    """

    def __init__(self, scm: _C.Scm, limit: int) -> None:
        self._scm = scm
        self._limit = max(limit, _MIN_VAIN)
        self._vain: list[SpecializationRecord] = []
        # How often each call was met, and what the code that was compiled last reads.
        self._skipped: _Calls[tuple[int, _C.Reads]] = _Calls(_MAX_SKIPPED)
        self._start()

    def _start(self) -> None:
        self._vain.clear()
        self._skipped.clear()
        self._repeats = 1  # after which a call is compiled
        self._patience = self._limit  # the calls that are not compiled between two that are
        self._waited = 0

    def note(self, record: SpecializationRecord) -> None:
        """Notes that a call was captured, whatever came of it."""
        self._vain.append(record)

    def check(self, facts: _C.Facts) -> KeepsChangingError | None:
        """Why a call that no specialization serves is to run eagerly, without being captured."""
        vain = {id(record) for record in self._vain}
        if any(hits for record, hits, _ in _C.entries(self._scm) if id(record) in vain):
            self._start()
        if len(self._vain) < self._limit:
            return None
        times, reads = self._skipped.pop(facts) or (0, None)
        if reads is None or not reads.unchanged():
            times, reads = 0, self._present_reads()
        if times >= self._repeats:
            self._repeats *= 2
            return None
        self._waited += 1
        if self._waited > self._patience:
            self._waited = 0
            self._patience *= 2
            return None
        if reads is not None:
            self._skipped.add(facts, (times + 1, reads))
        return KeepsChangingError(
            f"calls keep changing: none of the last {self._limit} compilations served another call"
        )

    def _present_reads(self) -> _C.Reads | None:
        """What the code of these compilations read, as it is now, which shows in no call's facts;
        None where it cannot be described."""
        reads: dict[tuple[int, object], Read] = {}
        for record in self._vain[-self._limit :]:
            reads.update({(id(read[0]), read[1]): read for read in record.reads})
        try:
            return _C.Reads([*reads.values()])
        except ValueError:
            return None


class RaisedCalls:
    """Calls that could not be captured and raised when they ran eagerly."""

    def __init__(self) -> None:
        self._notes: _Calls[str] = _Calls(_MAX_RAISED)

    def add(self, facts: _C.Facts, note: str) -> None:
        """Remembers such a call, and what its error was told of why it ran eagerly."""
        self._notes.add(facts, note)

    def pop(self, facts: _C.Facts) -> RaisedBeforeError | None:
        """Forgets a call with these facts; returns why it is not captured before it has run."""
        note = self._notes.pop(facts)
        return None if note is None else RaisedBeforeError(note)


class Waits:
    """How often calls had to run eagerly first, by reason and hash of the words."""

    def __init__(self) -> None:
        self._times: collections.Counter[tuple[str, int]] = collections.Counter()

    def allows(self, problem: NotReadyError, facts: _C.Facts) -> bool:
        """Whether such a call is worth another capture; not one that never gets ready."""
        if len(self._times) >= _MAX_WAITING:
            self._times.clear()
        kind = (problem.reason, hash(tuple(facts.words)))
        self._times[kind] += 1
        return self._times[kind] <= _MAX_WAITS
