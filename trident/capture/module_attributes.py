"""Attributes of modules that code looks up by a name that it computes, as `getattr` does."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from trident import _C
from trident.capture.disguise import called_by_machinery


@contextlib.contextmanager
def computed_names_noted(note: Callable[[types.ModuleType, str | None], None]) -> Iterator[None]:
    """While active, tells which names the user's code looks up in modules in this thread.

    Args:
        note: is called before each look-up by `getattr`, `hasattr` and `vars` with the module and
            the name, or None where the code gets all of them.
    """
    thread = threading.get_ident()
    classes: tuple[type, ...] = (types.ModuleType, *_derived_from(types.ModuleType))
    diversion = _C.Diversion()

    def divert(builtin: Callable[..., Any]) -> None:
        def answer(*args: Any) -> Any:
            if threading.get_ident() == thread and not called_by_machinery():
                name = args[1] if len(args) > 1 else None
                if isinstance(args[0], types.ModuleType) and isinstance(name, str | None):
                    note(args[0], name)
            return original(*args)

        original = diversion.divert(builtin, classes, answer)

    try:
        for builtin in (getattr, hasattr, vars):
            divert(builtin)
        yield
    finally:
        diversion.end()


def _derived_from(cls: type) -> Iterator[type]:
    derived: type
    for derived in cls.__subclasses__():
        yield derived
        yield from _derived_from(derived)
