"""What the code that ran during a trace read from outside of its arguments and attributes."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import torch

from trident import _C
from trident.capture.library import is_library_globals
from trident.errors import UnsupportedError

Read = tuple[Any, Any, bool | None]
"""``(globals dictionary, name, deep)``; with None as name ``(cell, None, deep)``,
``(function, None, True)`` or ``(class, None, False)``; and ``(dictionary, limit, None)`` for a
dictionary that stays smaller than a number, ``(None, inside, None)`` for whether the thread is in a
region of autocast."""

# The machinery of a trace runs in no eager call, so nothing depends on what it reads.
_MACHINERY = (
    "torch._subclasses",
    "torch.fx",
    "torch._prims",
    "torch._decomp",
    "torch._refs",
    "torch._meta_registrations",
    "torch._ops",
    "torch._library",
    "torch.library",
    "torch._higher_order_ops",
    "torch._dynamo",
    "torch._functorch",
    "torch._logging",
    "torch.utils._",
    "torch._guards",
    "torch._python_dispatch",
    "torch._inductor",
    "torch._C",
    "torch._tensor_str",
    "torch.overrides",
    "sympy",
    "mpmath",
    "trident",
    "flag_gems.utils.libentry",  # launches, as Triton does
    "triton",
    "logging",
    "warnings",
    "contextlib",
    "importlib",
    "inspect",
    "typing",
    "functools",
    "re",
    "weakref",
    "threading",
)

# Libraries whose module-level containers are caches of their own; guarded by identity.
_SHALLOW = ("torch", "triton", "numpy", "sympy", "builtins")


_ALWAYS_DESCRIBED = (
    *(types.NoneType, bool, int, float, complex, str, bytes, torch.Tensor),
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type),
)

_LIMIT = object()
_ABSENT = object()


def is_machinery(namespace: dict[str, Any]) -> bool:
    """Whether code with these globals belongs to the trace rather than to the call."""
    name = namespace.get("__name__")
    return name.startswith(_MACHINERY) if isinstance(name, str) else is_library_globals(namespace)


class ReadSet:
    """Reads, each once, in the order in which they were added."""

    def __init__(self) -> None:
        self._reads: dict[tuple[int, Any], Read] = {}
        self._values: dict[tuple[int, Any], Any] = {}  # of the user's globals, when added

    def items(self) -> list[Read]:
        """All reads."""
        return list(self._reads.values())

    def add(self, namespace: dict[Any, Any], name: Any, deep: bool = False) -> None:
        """A name in a namespace, or a key in a dictionary, whether it is there or not.

        Args:
            deep: whether what the value holds counts in any case, as for what the user put into a
                library's namespace.
        """
        key = (id(namespace), name)
        if key not in self._reads:
            self._reads[key] = (namespace, name, deep or _is_deep(namespace, name))
            if not is_library_globals(namespace):  # a trace puts its own in libraries for a while
                self._values[key] = namespace.get(name, _ABSENT)
        elif deep:
            self._reads[key] = (namespace, name, True)

    def add_names(self, namespace: dict[str, Any]) -> None:
        """Which names there are: no further one may come. `add` each for its value."""
        self._reads[id(namespace), _LIMIT] = (namespace, len(namespace) + 1, None)

    def check(self, value: Any, source: Any, name: Any) -> None:
        """Refuses a read before code acts on a value that could not be described afterwards.

        Args:
            value: what is read.
            source: the globals of a function, or a closure's cell.
            name: of the global, or None.

        Raises:
            UnsupportedError: the value is an iterator, an array or the like.
        """
        if isinstance(value, _ALWAYS_DESCRIBED):
            return
        try:
            _C.Reads([(source, name, True)])
        except ValueError as problem:
            raise UnsupportedError(str(problem)) from problem

    def changed(self) -> str | None:
        """A global that is another object than when it was added, or None."""
        for key, before in self._values.items():
            namespace, name, _ = self._reads[key]
            if namespace.get(name, _ABSENT) is not before:
                return f"{namespace.get('__name__')}.{name}"
        return None

    def add_class(self, cls: type) -> None:
        """A class: its attributes and what they hold."""
        self._reads[id(cls), None] = (cls, None, False)

    def add_function(self, function: types.FunctionType) -> None:
        """A function that ran: its code, defaults, attributes and closure."""
        self._reads[id(function), None] = (function, None, True)
        for cell in function.__closure__ or ():
            self._reads[id(cell), None] = (cell, None, True)

    def add_cache(self, cache: dict[Any, Any], limit: int | None) -> None:
        """What a function's cache holds now: all its entries have to stay; more may come.

        Args:
            limit: at this size the cache drops old entries and reuses their memory.
        """
        for key in cache:
            self._reads[id(cache), key] = (cache, key, False)
        if limit is not None:
            self._reads[id(cache), _LIMIT] = (cache, limit, None)

    def add_library_code(self, names: tuple[str, ...], namespace: dict[str, Any]) -> None:
        """Names that a library's code mentions, where its module defines them."""
        if is_machinery(namespace):
            return
        self._add_present(names, namespace, set())
        if "environ" in names:
            self.add_environment()

    def add_environment(self) -> None:
        """The environment variables, all of them."""
        self.add(vars(os.environ), "_data")

    def _add_present(
        self, names: tuple[str, ...], namespace: dict[str, Any], visited: set[int]
    ) -> None:
        """Reads of `names` in `namespace`, and in modules found there: `F.linear`."""
        visited.add(id(namespace))
        for name in names:
            if name not in namespace or (id(namespace), name) in self._reads:
                continue
            self.add(namespace, name)
            value = namespace[name]
            if isinstance(value, types.ModuleType):
                inner = vars(value)
                if id(inner) not in visited and not is_machinery(inner):
                    self._add_present(names, inner, visited)


def _is_deep(namespace: dict[str, Any], name: str) -> bool:
    """Whether the contents of a global count: always for the user's, for libraries' data."""
    if not is_library_globals(namespace):
        return True
    module = namespace.get("__name__") or ""
    if module == "torch.nn.modules.module":
        return name.startswith("_global_")  # hooks that apply to every module
    top = module.partition(".")[0]
    if top in _SHALLOW or (top in sys.stdlib_module_names and namespace is not vars(os.environ)):
        return False
    return not isinstance(
        namespace.get(name),
        (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type),
    )
