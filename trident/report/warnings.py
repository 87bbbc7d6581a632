"""Warnings of an optimized callable: each reason once."""

from __future__ import annotations

import os
import re
import sys
import warnings

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from trident.capture.places import place_of
from trident.errors import KeepsChangingError, UnsupportedError
from trident.report.misses import MissHistory

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# What a trace raises where code or sizes depend on the values of tensors.
VALUES_MATTER = (DataDependentOutputException, DynamicOutputShapeException)


class Warnings:
    """What the user has been warned of.

    Args:
        name: of the optimized callable.
        limit: its `max_specializations`.
        misses: its last misses.
    """

    def __init__(self, name: str, limit: int, misses: MissHistory) -> None:
        self._name = name
        self._limit = limit
        self._misses = misses
        # By reason and place, what was said. An address in a reason does not make it another one.
        self._reasons: dict[tuple[str, str | None], str] = {}
        self._evicted = False

    def ran_eagerly(self, problem: Exception) -> None:
        """Warns that a call runs eagerly, and why."""
        reason, where = explain_problem(problem)
        kind = _ADDRESS.sub("0x", reason), where
        if kind in self._reasons:
            return
        place = f" (at {where})" if where else ""
        self._reasons[kind] = reason + place
        if isinstance(problem, KeepsChangingError):
            self._evicted = True  # for the same cause
            place = f". {self._what_changes()}. Calls that come again are compiled"
        warnings.warn(
            f"trident: {self._name} runs eagerly: {reason}{place}", stacklevel=_level_of_user()
        )

    def evicted(self) -> None:
        """Warns that a specialization was dropped, and what keeps changing."""
        if self._evicted:
            return
        self._evicted = True
        warnings.warn(
            f"trident: {self._name} has more than max_specializations={self._limit} "
            "specializations; the one used longest ago was dropped. "
            f"{self._what_changes()}. trident.explain() lists the last misses.",
            stacklevel=_level_of_user(),
        )

    def _what_changes(self) -> str:
        changing = self._misses.keeps_changing()
        return f"What keeps changing is {changing}" if changing else "Calls keep changing"

    def eager_reasons(self) -> list[str]:
        """Why calls ran eagerly, each reason once, with the user's line where it is known."""
        return [*self._reasons.values()]


def _level_of_user() -> int:
    """The `stacklevel` by which the caller's warning names the first line outside of Trident."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def explain_problem(problem: Exception) -> tuple[str, str | None]:
    """Reason and place of a failed capture."""
    if isinstance(problem, UnsupportedError):
        return problem.reason, problem.where
    place = place_of(problem)
    if isinstance(problem, DataDependentOutputException):
        return f"the call's Python code depends on the value of a tensor ({problem.func})", place
    if isinstance(problem, DynamicOutputShapeException):
        return f"a tensor's size depends on the values of another ({problem.func})", place
    return f"capture failed with {type(problem).__name__}: {problem}", place
