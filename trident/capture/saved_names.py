"""What namespaces held before a trace: globals, and attributes of modules and classes."""

from __future__ import annotations

from typing import Any

from trident.capture.code import CodeFacts

# What CPython puts into the globals of code that runs.
_OF_PYTHON = ("__warningregistry__", "__builtins__")
_ABSENT = object()


class SavedNames:
    """Puts back names that user code assigns in namespaces which a trace does not clone."""

    def __init__(self) -> None:
        self._stores: set[str] = set()
        self._attributes: set[str] = set()
        self._stores_any = False
        self._namespaces: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._library: dict[int, tuple[Any, dict[str, Any]]] = {}

    def note(self, code: CodeFacts) -> None:
        """Takes note of what code that is about to run may assign."""
        self._stores.update(code.stores)
        self._attributes.update(code.attributes)
        if "setattr" in code.globals or "vars" in code.globals or "__dict__" in code.attributes:
            self._stores_any = True

    def save_namespace(self, namespace: dict[str, Any]) -> None:
        """Keeps what a module of the user's holds."""
        self._namespaces.setdefault(id(namespace), (namespace, dict(namespace)))

    def save_library(self, owner: Any) -> None:
        """Keeps what a library's module, class or object, or an enumeration's member, holds."""
        self._library.setdefault(id(owner), (owner, dict(vars(owner))))

    def restore(self) -> str | None:
        """Puts back what changed; returns the first such name, or None."""
        changed = None
        for namespace, before in self._namespaces.values():
            names = before.keys() | namespace.keys() if self._stores_any else self._stores
            for name in names:
                if name in _OF_PYTHON:
                    continue
                if namespace.get(name, _ABSENT) is before.get(name, _ABSENT):
                    continue
                changed = changed or f"{namespace.get('__name__')}.{name}"
                if name in before:
                    namespace[name] = before[name]
                else:
                    del namespace[name]
        changed_library = self._restore_library()
        return changed or changed_library

    def _restore_library(self) -> str | None:
        changed = None
        names = self._stores | self._attributes if self._stores_any else self._stores
        for owner, before in self._library.values():
            for name in names:
                old = before.get(name, _ABSENT)
                if vars(owner).get(name, _ABSENT) is old:
                    continue
                changed = changed or f"{getattr(owner, '__name__', owner)}.{name}"
                if old is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, old)
        return changed
