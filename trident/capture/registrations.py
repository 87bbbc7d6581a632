"""What Python registers with PyTorch's dispatcher, as a number that is a fact of every call.

A captured call holds what its operators' Python kernels did, so a kernel that is registered,
replaced or removed between two calls must not meet the old specialization. Libraries are watched
from the import of this module on. A set of registrations that comes back gets its number back:
code that registers kernels for the length of a block hits again in the next one.

The number also changes when the user registers a virtual subclass (`abc.ABCMeta.register`), which
changes what `isinstance` says and shows in no class.
"""

from __future__ import annotations

import abc
import itertools
import threading
from typing import Any

import torch
from torch.library import Library

from trident import _C
from trident.capture.library import is_library_module
from trident.kernels.functions import IdentityCache

# Kernels that a call on real tensors never reaches.
_IRRELEVANT_KEYS = ("Meta", "Functionalize")


class _Registrations:
    def __init__(self) -> None:
        # A library that is collected while the lock is held removes its kernels then and there.
        self._lock = threading.RLock()
        # What counts, in order of registration: (module of the library, kernel).
        self._present: list[tuple[int, tuple[Any, ...]]] = []
        # All kernels of a library, by operator and key: whether they count.
        self._kernels: dict[int, dict[tuple[str, str], bool]] = {}
        # PyTorch's own list, which forgets a kernel that is registered anew before the library that
        # had it first goes: kept as it was when this module was imported.
        self._earlier = {_operator_and_key(each) for each in torch.library._impls}
        self._used: set[str] = set()
        self._numbers: dict[tuple[Any, ...], int] = {(): 0}
        self._serial = itertools.count(1)
        self.changes = 0
        self._functions = IdentityCache(lambda _: next(self._serial))

    def use(self, operator: str) -> None:
        with self._lock:
            self._used.add(operator)

    def known(self) -> set[tuple[str, str]]:
        with self._lock:
            present = {each for kernels in [*self._kernels.values()] for each in kernels}
            impls = [*torch.library._impls]
            return present | self._earlier | {_operator_and_key(each) for each in impls}

    def add(self, library: Any, operator: str, key: str, function: Any) -> None:
        counts = key not in _IRRELEVANT_KEYS and self._matters(operator)
        with self._lock:
            self._kernels.setdefault(id(library), {})[operator, key] = counts
            if counts:
                kernel = (operator, key, self._number_of(function))
                self._present.append((id(library), kernel))
                self._publish()

    def remove(self, library: Any) -> None:
        with self._lock:
            kernels = self._kernels.get(id(library))
            self._kernels[id(library)] = {}  # PyTorch resets what was reset once more
            before = len(self._present)
            self._present = [entry for entry in self._present if entry[0] != id(library)]
            changed = len(self._present) != before
            # Kernels from before they mattered, or before this module was there: no way back.
            if kernels is None or any(
                not counted and key not in _IRRELEVANT_KEYS and self._matters(operator)
                for (operator, key), counted in kernels.items()
            ):
                self._present.append((0, (next(self._serial),)))
                changed = True
            if changed:
                self._publish()

    def add_for_good(self) -> None:
        with self._lock:
            self._present.append((0, (next(self._serial),)))
            self._publish()

    def _matters(self, operator: str) -> bool:
        return operator.startswith(("aten::", "_::")) or operator in self._used

    def _number_of(self, function: Any) -> int:
        try:
            return self._functions.get(function)
        except TypeError:  # no weak reference to it can be made
            return next(self._serial)

    def _publish(self) -> None:
        self.changes += 1
        changes = self.changes
        state = tuple(kernel for _, kernel in self._present)
        number = self._numbers.setdefault(state, len(self._numbers))
        if changes == self.changes:  # else a library went meanwhile, and has published
            _C.set_registrations(number)


def _operator_and_key(entry: str) -> tuple[str, str]:
    """Of an entry of PyTorch's list, ``namespace/name.overload/key``."""
    operator, _, key = entry.rpartition("/")
    return operator.replace("/", "::", 1), key


_registrations = _Registrations()


def note_use(operator: str) -> None:
    """From now on a kernel registered for this operator, ``namespace::name``, is a new fact.

    ATen's operators always count.
    """
    _registrations.use(operator)


def changes() -> int:
    """How often what counts has changed in this process."""
    return _registrations.changes


def python_kernels() -> set[tuple[str, str]]:
    """``(namespace::name.overload, dispatch key)`` of the kernels that Python has registered.

    One that was removed may still be among them.
    """
    return _registrations.known()


def _watch() -> None:
    module_class: Any = torch._C._DispatchModule
    register, fallback, reset = Library.impl, Library.fallback, module_class.reset

    def impl(self: Library, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        register(self, op_name, fn, dispatch_key, **options)
        name = op_name if isinstance(op_name, str) else op_name.name()
        key = dispatch_key or self.dispatch_key
        _registrations.add(self.m, f"{self.ns}::{name.split('::')[-1]}", key, fn)

    def register_fallback(self: Library, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        fallback(self, fn, dispatch_key, **options)
        _registrations.add(self.m, "_::", dispatch_key or self.dispatch_key, fn)

    def reset_module(self: Any) -> None:
        reset(self)
        _registrations.remove(self)

    register_subclass: Any = abc.ABCMeta.register

    def register_class(cls: abc.ABCMeta, subclass: type) -> Any:
        registered = register_subclass(cls, subclass)
        if not (is_library_module(cls.__module__) and is_library_module(subclass.__module__)):
            _registrations.add_for_good()
        return registered

    abc.ABCMeta.register = register_class  # type: ignore[method-assign]
    Library.impl = impl  # type: ignore[method-assign]
    Library.fallback = register_fallback  # type: ignore[method-assign]
    module_class.reset = reset_module


_watch()
