"""Modules that the user's code gets by their names rather than through a variable."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Iterator
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
        self._texts: dict[str, None] = {}  # of code that was entered since modules were last found
        self._users_found = False

    def note(self, value: Any) -> None:
        """Takes note of a value that the code reads."""
        self._searched = self._searched or id(value) in _FINDERS

    def found_by(self, code: CodeFacts) -> Iterator[types.ModuleType]:
        """The modules that this code and what ran before may have found by name, each once."""
        self._texts.update(dict.fromkeys(code.texts))
        if not self._searched:
            return
        names, self._texts = self._texts, {}
        if not self._users_found:
            self._users_found = True
            names |= {name: None for name, module in [*sys.modules.items()] if _is_users(module)}
        for name in names:
            module = sys.modules.get(name)
            if isinstance(module, types.ModuleType):
                self._reads.add(sys.modules, name)
                yield module
            elif name not in sys.modules:
                self._reads.add(sys.modules, name)


def _is_users(module: object) -> bool:
    return isinstance(module, types.ModuleType) and not is_library_globals(vars(module))
