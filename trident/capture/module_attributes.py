"""Attributes of modules that code looks up, whatever it does so with."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

from trident import _C
from trident.capture.disguise import knows_symbolic_ints
from trident.capture.library import is_library_globals

# Standard modules whose functions look things up for whoever calls them.
_ON_BEHALF = ("inspect", "functools", "contextlib", "typing", "copy", "dataclasses")


@contextlib.contextmanager
def look_ups_noted(note: Callable[[types.ModuleType, str | None], None]) -> Iterator[None]:
    """While active, tells which attributes of modules code looks up in this thread.

    Seen are `getattr` and its like, `operator.attrgetter`, `vars`, `dir`, ``module.__dict__``, and
    names in the code the first few times that it runs. Libraries look things up for the user's code
    that calls them; PyTorch and Triton for themselves.

    Args:
        note: is called before each look-up with the module and the name, or None where the code
            gets all names.
    """

    def tell(module: types.ModuleType, name: str) -> None:
        note(module, None if name == "__dict__" else name)

    classes: tuple[type, ...] = (types.ModuleType, *_derived_from(types.ModuleType))
    look_ups = _C.ModuleLookups(classes, tell, _decide)
    try:
        yield
    finally:
        look_ups.end()


def _decide(namespace: dict[str, Any]) -> bool | None:
    """Whether look-ups of code with these globals count; None: as those of its caller do."""
    name = namespace.get("__name__")
    if isinstance(name, str) and name.partition(".")[0] in _ON_BEHALF:
        return None
    if knows_symbolic_ints(namespace):
        return False
    return None if is_library_globals(namespace) else True


def _derived_from(cls: type) -> Iterator[type]:
    derived: type
    for derived in cls.__subclasses__():
        yield derived
        yield from _derived_from(derived)
