"""A thread for what happens aside of a trace: modes and recording are those of the trace's own."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_pool: concurrent.futures.ThreadPoolExecutor | None = None


def prepare() -> None:
    """Starts the thread, which a trace must not do itself."""
    global _pool
    if _pool is None:
        _pool = concurrent.futures.ThreadPoolExecutor(1, "trident-aside")
        _pool.submit(int).result()


def run(function: Callable[[], Result]) -> Result:
    """Runs what is no part of the call that is traced."""
    if _pool is not None:
        return _pool.submit(function).result()
    with concurrent.futures.ThreadPoolExecutor(1, "trident-aside") as pool:
        return pool.submit(function).result()


def _forget_thread() -> None:
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget_thread)
