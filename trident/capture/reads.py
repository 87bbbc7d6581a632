"""What the code that ran during a trace read from outside of its arguments."""

from __future__ import annotations

import dis
import functools
import gc
import types
from collections.abc import Iterable, Mapping
from typing import Any

from trident.capture.library import is_library_file, is_library_globals
from trident.capture.shadow import shadow_functions
from trident.errors import UnsupportedError

Read = tuple[Any, Any, bool]
"""``(globals dictionary, name, deep)``, ``(cell, None, deep)`` or ``(class, None, False)``."""

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
    "sympy",
    "trident",
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


def is_machinery(namespace: dict[str, Any]) -> bool:
    """Whether code with these globals belongs to the trace rather than to the call."""
    name = namespace.get("__name__") or ""
    return name.startswith(_MACHINERY)


@functools.cache
def _writes_globals(code: types.CodeType) -> str | None:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            return str(instruction.argval)
    return None


def collect_reads(
    executed: Iterable[tuple[types.CodeType, dict[str, Any]]],
    shadow_namespaces: Mapping[int, tuple[dict[str, Any], dict[str, Any], frozenset[str]]],
) -> list[Read]:
    """The globals, closure cells and classes that executed code depends on.

    Args:
        executed: code objects with the globals they ran with.
        shadow_namespaces: `Shadow.namespaces`; what a cloned function read stands for a read of the
            original's globals, and the names replaced in the clone are part of the walked state.

    Raises:
        UnsupportedError: where user code assigns a global.
    """
    reads: dict[tuple[int, Any], Read] = {}
    with_closure: list[types.CodeType] = []
    for code, namespace in executed:
        if is_machinery(namespace):
            continue
        names = code.co_names
        if id(namespace) in shadow_namespaces:
            _, namespace, replaced = shadow_namespaces[id(namespace)]
            names = tuple(name for name in names if name not in replaced)
        user = not is_library_globals(namespace)
        if user:
            name = _writes_globals(code)
            if name is not None:
                raise UnsupportedError(
                    f"{code.co_qualname} assigns the global variable {name}",
                    f"{code.co_filename}:{code.co_firstlineno}",
                )
            if code.co_freevars:
                with_closure.append(code)
        _read_names(names, namespace, user, reads, set())
    _read_closures(with_closure, reads)
    return list(reads.values())


def _read_names(
    names: tuple[str, ...],
    namespace: dict[str, Any],
    user: bool,
    reads: dict[tuple[int, Any], Read],
    visited: set[int],
) -> None:
    """Reads of `names` in `namespace`, and of the same names in modules found there: `F.linear`."""
    visited.add(id(namespace))
    for name in names:
        if name not in namespace or (id(namespace), name) in reads:
            continue
        value = namespace[name]
        reads[id(namespace), name] = (namespace, name, user)
        if isinstance(value, types.ModuleType):
            inner = vars(value)
            if id(inner) not in visited and not is_machinery(inner):
                _read_names(names, inner, not is_library_globals(inner), reads, visited)
        elif isinstance(value, type) and user:
            _read_class(value, reads)


def _read_class(cls: type, reads: dict[tuple[int, Any], Read]) -> None:
    module = getattr(cls, "__module__", None)
    if module in ("builtins", "typing") or (module or "").startswith(("torch", "triton")):
        return
    reads[id(cls), None] = (cls, None, False)


def _read_closures(codes: list[types.CodeType], reads: dict[tuple[int, Any], Read]) -> None:
    if not codes:
        return
    wanted = {id(code) for code in codes}
    for owner in gc.get_referrers(*codes):
        if not isinstance(owner, types.FunctionType) or id(owner.__code__) not in wanted:
            continue
        if owner in shadow_functions:
            continue  # what its cells hold stands for what the original's hold
        for cell in owner.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                value = None
            reads[id(cell), None] = (cell, None, True)
            if isinstance(value, type) and not is_library_file(owner.__code__.co_filename):
                _read_class(value, reads)
