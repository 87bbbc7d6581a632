"""When Python's garbage collector must not, or need not, run."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keeps the collector off. What it is due then, it does at the next allocation afterwards.

    A collection runs callbacks and finalizers, which are no part of a call that is traced. While a
    program is generated, there is nothing to find in a million live objects.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def release_trace() -> None:
    """Frees what a trace leaves in cycles, which would keep the call's arguments alive."""
    gc.collect(1)  # the collector was off during the trace: nearly all of it is young
