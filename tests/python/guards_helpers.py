"""What the tests of guards share: the state of an optimized callable, by number and in words."""

from __future__ import annotations

from typing import Any

from torch import nn

import trident
from trident import _C
from trident.optimize import optimizer_of
from trident.pipeline import SpecializationRecord


class State:
    """The state word of an object that stands for everything an optimized callable reaches."""

    def __init__(self, value: Any) -> None:
        self.root = nn.Module()
        self.root.value = value
        self._scm = optimizer_of(trident.optimize(self.root)).scm

    def id(self) -> Any:
        facts = _C.collect(self._scm, (), {})
        if facts.unsupported is not None:
            return facts.unsupported
        # Only a state that something was published for is known when it returns.
        record = SpecializationRecord(0, "")
        _C.publish(self._scm, facts, None, [], [], [], 0, [], _C.Reads([]), record)
        return facts.words[-1]

    def words(self) -> list[int]:
        return _C.collect(self._scm, (), {}).state_words
