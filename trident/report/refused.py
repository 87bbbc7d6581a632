"""Where in a call's arguments or state there is something that cannot be described."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trident import _C
from trident.report.facts import parameters, root_name
from trident.report.stream import Unreadable
from trident.report.words import WordReader, readable

# Found behind the words of what is refused, so that these end somewhere else.
_FOUND_LATER = (
    *("a set of ", "an OrderedDict with ", "objects nested ", "arguments or attributes with "),
)


class RefusedPlaces:
    """Names places as the reports of guards do: ``argument x[0]``, ``module.config.log``.

    Args:
        function: what is optimized.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        # Of the last state: calls that are refused get here each time, most often with the same.
        self._state_words: list[int] = []
        self._in_state: str | None = None

    def of(self, facts: _C.Facts) -> str | None:
        """The place of what `facts.unsupported` tells of; None where that is not known."""
        reason = facts.unsupported
        if reason is None or reason.startswith(_FOUND_LATER):
            return None
        objects = {id(value): value for value in facts.identities}
        call = WordReader(facts.words, objects)
        try:
            call.call(parameters(self._function), lambda kind, position: "")
        except Unreadable:
            if call.reading is not None:
                return readable(call.reading)
        if facts.state_words != self._state_words:
            self._state_words = facts.state_words
            self._in_state = self._read_state(facts.state_words, objects)
        return self._in_state

    def _read_state(self, words: Sequence[int], objects: Mapping[int, Any]) -> str | None:
        state = WordReader(words, objects)
        try:
            state.value(root_name(self._function))
            while state.position < len(words):
                state.further_root()
        except Unreadable:
            return state.reading and readable(state.reading)
        return None
