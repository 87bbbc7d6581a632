"""Why a kernel needs the value of a number that varies, for reports."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Present(threading.local):
    reason: str | None = None


_present = _Present()


@contextlib.contextmanager
def because(reason: str) -> Iterator[None]:
    """Gives the reason for which numbers are fixed inside."""
    before = _present.reason
    _present.reason = reason
    try:
        yield
    finally:
        _present.reason = before


def present_reason() -> str | None:
    """Why a number is fixed now; None where that is not the doing of a kernel."""
    return _present.reason
