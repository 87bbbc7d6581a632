"""Which words of a call to leave open: what is tried, in which order, and what is learnt of it."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from trident import _C
from trident.capture.closed_lists import ClosedListError
from trident.capture.gradients import RecordsGradients
from trident.capture.outside import OutsideTensorError
from trident.capture.soft_words import NeedsValueError, SymbolicWords
from trident.dim import Hints
from trident.errors import NotReadyError, UnsupportedError
from trident.history import CallHistory
from trident.options import Dynamic

logger = logging.getLogger("trident")


class Compiled(Protocol):
    """What a call was compiled to."""

    @property
    def positions(self) -> tuple[int, ...]:
        """The words that are open."""


Result = TypeVar("Result", bound=Compiled)


class Attempts:
    """The attempts at the calls of one optimized callable.

    Args:
        name: of the callable, for messages.
        function: the module or function.
        dynamic: the option.
        limit: how many calls that differ in numbers alone are compiled one by one, where these
            numbers have to be fixed.

    Raises:
        HintError: hints that do not fit the function.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], dynamic: Dynamic, limit: int
    ) -> None:
        self._name = name
        self._dynamic = dynamic
        self._limit = limit
        self._history = CallHistory()
        self._hints = Hints(dynamic, function) if isinstance(dynamic, Mapping) else None

    def compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        facts: _C.Facts,
        compile_with: Callable[[SymbolicWords | None], Result],
    ) -> Result:
        """Compiles a call with words left open, or where none can be, with all of them fixed.

        Args:
            args: positional arguments of the call.
            kwargs: keyword arguments of the call.
            facts: of the call.
            compile_with: compiles with these words open; None for none.

        Raises:
            HintError: hints that do not fit the call.
            UnsupportedError: there have been too many calls that differ in numbers alone.
            Exception: what compiling with fixed words raises.
        """
        needed: collections.Counter[int] = collections.Counter()
        tried: set[tuple[Any, ...]] = set()
        while True:
            symbolic = next(
                (
                    each
                    for each in self._candidates(args, kwargs, facts, needed)
                    if (each.positions, each.free) not in tried
                ),
                None,
            )
            if symbolic is None:
                if self._dynamic is not False and self._history.num_fixed(facts) >= self._limit:
                    why = self._history.obstacle(facts, ())
                    raise UnsupportedError(
                        f"more than {self._limit} calls differed in sizes and numbers alone, which "
                        "the call depends on; new values of them are not compiled"
                        + (f": {why}" if why else "")
                    )
                result = compile_with(None)
                self._history.remember(facts, None)
                return result
            tried.add((symbolic.positions, symbolic.free))
            try:
                result = compile_with(symbolic)
            except (NotReadyError, RecordsGradients, ClosedListError, OutsideTensorError):
                raise
            except NeedsValueError as problem:
                logger.info("%s: numbers stay fixed: %s", self._name, problem)
                self._history.note_values(facts, problem.positions, str(problem))
                needed.update(problem.positions)
            except Exception as problem:
                # What is in the way may be no more than the size's not being a number.
                self._history.note_failure(facts, symbolic, str(problem))
                logger.info("%s: sizes stay fixed: %s", self._name, problem, exc_info=True)
            else:
                fixed = {*symbolic.positions}.difference(result.positions)
                self._history.note_values(facts, fixed)
                self._history.remember(facts, symbolic if result.positions else None)
                return result

    def obstacle(self, facts: _C.Facts, positions: tuple[int, ...]) -> str | None:
        """Why a call was compiled with no more than these words open, though such calls differ."""
        return self._history.obstacle(facts, positions)

    def is_limited(self, facts: _C.Facts, positions: tuple[int, ...]) -> bool:
        """Whether a call that was compiled, with these words open, is one of those of which as many
        as the limit are: with all words fixed, though such calls differ in them."""
        return not positions and self._history.num_fixed(facts) > 0

    def note_unsupported(self, facts: _C.Facts) -> list[int]:
        """Notes that a call runs eagerly.

        Returns:
            The words that such calls may differ in and still do, ascending.
        """
        return self._history.note_unsupported(facts)

    def _candidates(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        facts: _C.Facts,
        needed: Mapping[int, int],
    ) -> list[SymbolicWords]:
        """The words of a call to leave open, best first."""
        if self._dynamic is False:
            return []
        if self._hints is None:
            return self._history.candidates(facts, self._dynamic is True, needed)
        hinted = self._hints.words(args, kwargs, facts)
        return [] if hinted is None or needed else [hinted]
