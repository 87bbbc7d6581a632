"""Why calls missed: the facts in which each differed from the nearest specialization."""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from trident import _C
from trident.report.facts import Difference, differences

logger = logging.getLogger("trident")
_log = logging.getLogger("trident.misses")

MAX_MISSES = 16
_MAX_SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Miss:
    """A call that no specialization matched.

    Attributes:
        call: its number among the calls of the optimized object, from 1 on.
        arguments: the call's arguments, in words.
        nearest: index of the specialization whose facts differ least; None where there is none.
        differences: from that one.
        note: what is to be said where facts cannot be compared.
    """

    call: int
    arguments: str
    nearest: int | None = None
    differences: tuple[Difference, ...] = ()
    note: str | None = None

    def __str__(self) -> str:
        if self.nearest is None:
            return f"call {self.call} ({self.arguments}): {self.note}"
        shown = [str(each) for each in self.differences[:_MAX_SHOWN]]
        if len(self.differences) > _MAX_SHOWN:
            shown.append(f"and {len(self.differences) - _MAX_SHOWN} more")
        reason = "; ".join(shown) or self.note
        return f"call {self.call} ({self.arguments}), nearest to [{self.nearest}]: {reason}"


class MissHistory:
    """The last misses of one optimized callable.

    Args:
        scm: its native side.
        name: for messages.
        function: the original module or function.
    """

    def __init__(self, scm: _C.Scm, name: str, function: Callable[..., Any]) -> None:
        self._misses: collections.deque[Miss] = collections.deque(maxlen=MAX_MISSES)
        self._scm = scm
        self._name = name
        self._function = function

    @property
    def misses(self) -> list[Miss]:
        """The oldest first; a list of its own, since other threads may add to them meanwhile."""
        return [*self._misses]

    def add(self, miss: Miss) -> None:
        """Keeps a miss in place of the oldest one."""
        self._misses.append(miss)
        _log.info("%s: %s", self._name, miss)

    def note(self, facts: _C.Facts, arguments: str) -> None:
        """Takes note of a miss, before anything is done about it; of each call once."""
        call = _C.stats(self._scm)["calls"]
        if self._misses and self._misses[-1].call == call:
            return  # compiling it is tried again in another way
        self.add(self._describe(facts, call, arguments))

    def _describe(self, facts: _C.Facts, call: int, arguments: str) -> Miss:
        if facts.unsupported is not None:
            return Miss(call, arguments, note=f"it involves {facts.unsupported}")
        record = _C.nearest(self._scm, facts)
        if record is None:
            return Miss(call, arguments, note="there is no specialization yet")
        try:
            found = differences(self._scm, self._function, record, facts)
        except Exception as problem:  # a report must not be what makes a call fail
            logger.warning("%s: a miss cannot be explained", self._name, exc_info=True)
            return Miss(call, arguments, record.index, note=f"cannot be compared: {problem}")
        note = None if found else "another thread was changing what the call depends on"
        return Miss(call, arguments, record.index, tuple(found), note)

    def keeps_changing(self) -> str | None:
        """The fact in which most of the last misses differ, with its last values."""
        differences = [each for miss in self.misses for each in miss.differences]
        if not differences:
            return None
        counts = collections.Counter(each.place for each in differences)
        place, _ = counts.most_common(1)[0]
        values = [each.now for each in differences if each.place == place]
        return f"{place} (lately {', '.join(dict.fromkeys(values[-4:]))})"
