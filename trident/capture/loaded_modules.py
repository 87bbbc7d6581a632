"""Modules that the user's code gets by their names rather than through a variable."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from trident.capture.code import CodeFacts
from trident.capture.library import is_library_globals
from trident.capture.reads import ReadSet

# What gives modules: the table of all, and functions that look there.
_FINDERS = {
    id(finder): finder
    for finder in (
        sys.modules,
        builtins.__import__,
        importlib.import_module,
        importlib.__import__,
        pkgutil.resolve_name,
        inspect.getmodule,
    )
}


class LoadedModules:
    """Tells which modules code may have reached without naming them.

    Once code can reach what finds modules, these are all modules of the user's, whatever a name is
    computed of, and those of libraries whose names stand in the code.

    Args:
        reads: receives which module each of these names means.
    """

    def __init__(self, reads: ReadSet) -> None:
        self._reads = reads
        self._searched = False

    def note(self, value: Any) -> None:
        """Takes note of a value that the code reads."""
        self._searched = self._searched or id(value) in _FINDERS

    def found_by(self, codes: Iterable[CodeFacts]) -> Iterator[types.ModuleType]:
        """The modules that these codes may have found by name."""
        if not self._searched:
            return
        named = {text for code in codes for text in code.texts}
        for name, module in [*sys.modules.items()]:
            if not isinstance(module, types.ModuleType):
                continue
            if name in named or not is_library_globals(vars(module)):
                self._reads.add(sys.modules, name)
                yield module
        for name in named - sys.modules.keys():
            self._reads.add(sys.modules, name)
