"""The conditions of a specialization on what it leaves open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trident.capture.soft_words import float_of, signed
from trident.ir import expressions, real_arithmetic
from trident.pipeline import SpecializationRecord
from trident.report.spelling import as_python, spell

_SYMBOL_OR_DEFINED = re.compile(rf"\b{expressions.SYMBOL.pattern}\b")


class Conditions:
    """The conditions of a specialization.

    Args:
        record: of the specialization.
        names: what its symbols are, in the user's words.
    """

    def __init__(self, record: SpecializationRecord, names: Sequence[str]) -> None:
        self._guards = record.guards
        self._places = record.guard_places
        self._definitions = record.definitions
        self._texts = {each.name: each.text for each in record.definitions}
        self._names = {f"{kind}{i}": name for i, name in enumerate(names) for kind in "snf"}

    def texts(self) -> list[str]:
        """Each condition in words, with the user's line that asked for it."""
        return [self.text(guard) for guard in self._guards]

    def text(self, guard: str) -> str:
        """One of the conditions in words, with the user's line that asked for it."""
        text = spell(guard, self._names, self._definitions)
        place = self._places.get(guard)
        return f"{text} (at {place})" if place else text

    def first_failing(self, words: Sequence[int]) -> tuple[str, str] | None:
        """The first condition that a call does not meet: its text, and what the call has instead.

        Args:
            words: the values of the symbols.
        """
        values: dict[str, Any] = {}
        for index, value in enumerate(map(signed, words)):
            values[f"s{index}"] = values[f"n{index}"] = value
            values[f"f{index}"] = float_of(value)
        scope = _Values(values, self._texts)
        for guard in self._guards:  # later ones may rely on those before
            if not eval(as_python(guard), {"__builtins__": {}}, scope):
                shown = [f"{self._names[each]} is {values[each]}" for each in self._roots(guard)]
                return self.text(guard), ", ".join(dict.fromkeys(shown))
        return None

    def _roots(self, text: str) -> list[str]:
        """The symbols that an expression depends on."""
        found: list[str] = []
        for name in _SYMBOL_OR_DEFINED.findall(text):
            found += self._roots(self._texts[name]) if name in self._texts else [name]
        return list(dict.fromkeys(found))


class _Values(dict[str, Any]):
    """What the names in conditions stand for; what is computed of others, when it is asked for."""

    def __init__(self, symbols: dict[str, Any], definitions: dict[str, str]) -> None:
        super().__init__(expressions.PYTHON | real_arithmetic.PYTHON | symbols)
        self._definitions = definitions

    def __missing__(self, name: str) -> Any:
        self[name] = eval(self._definitions[name], {"__builtins__": {}}, self)
        return self[name]
