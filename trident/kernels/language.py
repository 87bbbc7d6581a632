"""`triton.language` in interpreter mode: patched during one run, exclusively, then restored."""

from __future__ import annotations

import builtins
import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.interpreter import TensorHandle, interpreter_builder, interpreter_semantic

from trident.kernels import narrow_floats
from trident.kernels.functions import is_kernel

_MISSING = object()


class SharedLock:
    """Many sharers or one owner. An owner may take it again, either way."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._sharers = 0
        self._owner: int | None = None
        self._depth = 0

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        me = threading.get_ident()
        if self._owner == me:
            yield
            return
        with self._condition:
            self._condition.wait_for(lambda: self._owner is None)
            self._sharers += 1
        try:
            yield
        finally:
            with self._condition:
                self._sharers -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._condition:
            if self._owner != me:
                self._condition.wait_for(lambda: self._owner is None and self._sharers == 0)
                self._owner = me
            self._depth += 1
        try:
            yield
        finally:
            with self._condition:
                self._depth -= 1
                if self._depth == 0:
                    self._owner = None
                    self._condition.notify_all()


LANGUAGE_LOCK = SharedLock()
"""Held exclusively while `triton.language` is patched, shared by what needs it unpatched."""


class _Recorder:
    """Takes the place of Triton's patch scope: notes what would be patched, changes nothing."""

    def __init__(self) -> None:
        self.changes: dict[tuple[int, str], tuple[Any, str, Any]] = {}

    def set_attr(self, owner: Any, name: str, value: Any) -> None:
        self.changes[id(owner), name] = (owner, name, value)


def loop_range(first: Any, second: Any = None, step: Any = None, **_: Any) -> Iterator[tl.tensor]:
    """`range` of compiled kernels: the index is a tensor of the bounds' common type."""
    start, stop = (0, first) if second is None else (first, second)
    bounds = [interpreter_semantic.to_tensor(b) for b in (start, stop, 1 if step is None else step)]
    for bound in bounds:
        if not bound.dtype.is_int():
            raise TypeError(f"For loop bounds and step must all be ints, one is {bound.dtype}")
    promote = interpreter_semantic.integer_promote_impl
    kind = promote(promote(bounds[0].dtype, bounds[1].dtype), bounds[2].dtype)
    numpy_kind = triton_interpreter._get_np_dtype(kind)
    for index in builtins.range(*(int(bound.handle.data.item()) for bound in bounds)):
        yield tl.tensor(TensorHandle(np.array([index], dtype=numpy_kind), kind), kind)


def _combine(function: Any, value: Any) -> Any:
    """What reductions and scans call: Triton's interpreter takes `.fn` of it, undecorated."""
    if function.fn.__module__.startswith("triton.language") and not narrow_floats.is_bfloat16(
        value
    ):
        return function  # recognised by identity and done by numpy
    from trident.kernels.rewrite import interpretable

    return types.SimpleNamespace(fn=interpretable(function))


def _reduce(value: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **_: Any) -> Any:
    axis = tl.core._unwrap_if_constexpr(axis)
    keep_dims = tl.core._unwrap_if_constexpr(keep_dims)
    return triton_interpreter.ReduceOps(axis, _combine(combine_fn, value), keep_dims).apply(value)


def _scan(value: Any, axis: Any, combine_fn: Any, reverse: bool = False, **_: Any) -> Any:
    axis = tl.core._unwrap_if_constexpr(axis)
    reverse = tl.core._unwrap_if_constexpr(reverse)
    return triton_interpreter.ScanOps(axis, _combine(combine_fn, value), reverse).apply(value)


def _extremum(reduce_builtin: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`min` and `max` of compiled kernels: elementwise where a tensor is involved."""

    def apply(*values: Any) -> Any:
        if any(isinstance(value, tl.tensor) for value in values):
            return functools.reduce(getattr(tl, name), values)
        return reduce_builtin(*(tl.core._unwrap_if_constexpr(value) for value in values))

    return apply


@functools.cache
def _changes() -> tuple[tuple[Any, str, Any], ...]:
    recorder = _Recorder()
    for module in (tl, tl.core):
        triton_interpreter._patch_builtin(module, interpreter_builder, recorder)
        triton_interpreter._patch_lang_core(module, recorder)
    triton_interpreter._patch_builtin(tl.tensor, interpreter_builder, recorder)
    triton_interpreter._patch_builtin(tl.math, interpreter_builder, recorder)
    triton_interpreter._patch_lang_tensor(tl.tensor, recorder)
    triton_interpreter._patch_builtin(tl.core.tensor_descriptor_base, interpreter_builder, recorder)
    for module in (tl, tl.core):  # in place of Triton's own
        recorder.set_attr(module, "range", loop_range)
        recorder.set_attr(module, "reduce", _reduce)
        recorder.set_attr(module, "associative_scan", _scan)
    for owner, name, method in narrow_floats.changes():
        recorder.set_attr(owner, name, method)
    return tuple(recorder.changes.values())


@functools.cache
def _aliases() -> dict[int, tuple[Any, Any]]:
    """Replacement by identity of the original, for names imported out of `triton.language`."""
    aliases = {}
    for owner, name, value in _changes():
        original = vars(owner).get(name)
        if original is not None and isinstance(owner, types.ModuleType):
            aliases[id(original)] = (original, value)
    for original, value in (
        (builtins.range, loop_range),
        (builtins.min, _extremum(builtins.min, "minimum")),
        (builtins.max, _extremum(builtins.max, "maximum")),
    ):
        aliases[id(original)] = (original, value)
    return aliases


@contextlib.contextmanager
def interpreted_language() -> Iterator[None]:
    """Patches `triton.language` for this block, alone in the process, and always restores it.

    Triton code that other threads run outside of Trident meanwhile is not held off.
    """
    with LANGUAGE_LOCK.exclusive():
        _aliases()  # reads the originals, so before anything is patched
        saved = []
        try:
            for owner, name, value in _changes():
                saved.append((owner, name, vars(owner).get(name, _MISSING)))
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, original in reversed(saved):
                if original is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)


def resolve(function: Any) -> Any:
    """What a call in a kernel's source really calls in interpreter mode."""
    if is_kernel(function):
        from trident.kernels.rewrite import interpretable

        return interpretable(function)
    alias = _aliases().get(id(function))
    if alias is not None and alias[0] is function:
        return alias[1]
    module = getattr(function, "__module__", None) or ""
    if module.startswith("triton.language.extra.") and module.endswith("libdevice"):
        from trident.kernels.libdevice import implementation

        return implementation(function.__name__)
    if tl.core.is_builtin(function):
        return functools.partial(function, _semantic=interpreter_semantic)
    return function


def resolve_attribute(owner: Any, name: str) -> Any:
    """`owner.name` as a call in a kernel's source calls it; kernels become methods of tensors."""
    attribute = getattr(owner, name)
    if isinstance(owner, tl.tensor) and is_kernel(attribute):
        return functools.partial(resolve(attribute), owner)
    return resolve(attribute)
