"""Triton's two kinds of kernel object (compiled, and under TRITON_INTERPRET=1) seen as one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from trident.errors import UnsupportedError

Value = TypeVar("Value")


class IdentityCache(Generic[Value]):
    """Values computed once per object, compared by identity and dropped with the object.

    A `WeakKeyDictionary` will not do: hashing a `JITFunction` parses its source.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self._entries: dict[int, tuple[weakref.ref[Any], Value]] = {}
        self._lock = threading.RLock()

    def get(self, owner: Any) -> Value:
        """The value of `owner`; a value must not refer to its owner, or neither is ever freed."""
        key = id(owner)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry[0]() is owner:
                return entry[1]
            value = self._compute(owner)
            entries = self._entries

            def forget(dead: weakref.ref[Any]) -> None:
                present = entries.get(key)
                if present is not None and present[0] is dead:
                    del entries[key]

            entries[key] = (weakref.ref(owner, forget), value)
            return value


def is_kernel(candidate: object) -> bool:
    """True for what `@triton.jit` returns, in either mode."""
    return isinstance(candidate, JITFunction | InterpretedFunction)


def is_interpreted(kernel: object) -> bool:
    """True for a kernel that was decorated under TRITON_INTERPRET=1."""
    return isinstance(kernel, InterpretedFunction)


_twins: IdentityCache[JITFunction] = IdentityCache(
    lambda kernel: JITFunction(kernel.fn, **kernel.kwargs)
)


def as_jit_function(kernel: Any) -> JITFunction:
    """The kernel itself; for an interpreted one, a `JITFunction` of the same Python function.

    The second kind knows parameters and source; it cannot be compiled, because the helpers that it
    refers to are interpreted as well.
    """
    if isinstance(kernel, JITFunction):
        return kernel
    if isinstance(kernel, InterpretedFunction):
        return _twins.get(kernel)
    raise TypeError(f"not a Triton kernel: {kernel!r}")


def check_expressible(kernel: Any) -> None:
    """Raises UnsupportedError for kernels in a language other than Triton's own (Gluon)."""
    if isinstance(kernel, JITFunction) and kernel.is_gluon():
        raise UnsupportedError(f"kernel {kernel.__name__} is written in Gluon")


def captured_globals(kernel: Any) -> list[tuple[str, dict[str, Any], Any]]:
    """The globals that a kernel and its helpers were compiled with: (name, namespace, value).

    Triton refuses to launch once `namespace[name] != value`; whoever launches without it has to
    watch these. Empty for interpreted kernels, which read their globals live.
    """
    if not isinstance(kernel, JITFunction):
        return []
    kernel.cache_key  # noqa: B018 - computing it fills used_global_vals
    return [
        (name, namespace, value)
        for (name, _), (value, namespace) in kernel.used_global_vals.items()
    ]


def check_captured_globals(kernel: Any) -> None:
    """Raises Triton's RuntimeError if a captured global has another value by now."""
    missing = object()
    for name, namespace, value in captured_globals(kernel):
        current = namespace.get(name, missing)
        if current != value:
            raise RuntimeError(
                f"Global variable {name} has changed since we compiled this kernel, "
                f"from {value} to {current}"
            )
