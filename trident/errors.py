"""Trident's exceptions: one class per kind of trouble, each saying what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TridentError(RuntimeError):
    """Something in Trident or its environment failed; the message says what and how to mend it."""


class UnsupportedError(TridentError):
    """The call uses something that Trident cannot compile.

    Attributes:
        reason: what is not supported, in one sentence.
        where: the place in the user's code, ``file.py:line``, or None where it is not known.
        places: dictionaries and keys whose present values are the reason; with others, the call may
            be supported.
    """

    def __init__(
        self,
        reason: str,
        where: str | None = None,
        places: Sequence[tuple[dict[Any, Any], Any]] = (),
    ) -> None:
        self.reason = reason
        self.where = where
        self.places = places
        super().__init__(f"{reason} (at {where})" if where else reason)


class NotReadyError(UnsupportedError):
    """The call has to run eagerly once; after that it can be captured."""


class NotPreparedError(TridentError):
    """A call would have to be compiled while the caller captures a CUDA graph."""


class ChangedError(NotReadyError):
    """Another thread changed what the call depends on while the call was compiled."""


class RaisedBeforeError(NotReadyError):
    """A call like this one could not be captured and raised when it ran eagerly.

    Attributes:
        note: what that error was told of why the call ran eagerly; may be empty.
    """

    def __init__(self, note: str) -> None:
        self.note = note
        super().__init__("a call like this one raised an exception")


class KeepsChangingError(UnsupportedError):
    """Calls keep changing, so that what is compiled for one serves no other."""


class HintError(TridentError, ValueError):
    """A hint of the ``dynamic`` option does not fit the function or a call; says which."""


class BuildError(TridentError):
    """Generated code could not be compiled or loaded."""
