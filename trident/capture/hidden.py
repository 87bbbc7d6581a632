"""What code can ask of a tensor, or do to it, that leaves no trace in the graph.

A storage's offset or a version counter would be frozen into the program, an assignment to ``.data`` lost.
While a call is captured, fake tensors refuse these to all but PyTorch's own code.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensor

from trident.errors import UnsupportedError

_METHODS = (
    *("data_ptr", "storage_offset", "untyped_storage", "storage", "_typed_storage", "_is_view"),
    *("is_pinned", "is_shared", "share_memory_", "__repr__", "__reduce_ex__"),
    *(
        "requires_grad_",
        "retain_grad",
        "register_hook",
        "set_",
        "register_post_accumulate_grad_hook",
    ),
)
_READS = ("_version", "_base", "grad", "grad_fn", "is_leaf", "output_nr", "_backward_hooks")
_WRITES = ("data", "requires_grad", "grad")

_MACHINERY = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (torch.__file__, triton.__file__, os.path.dirname(__file__))
)


class _Active(threading.local):
    capturing = False


_active = _Active()


def _check(name: str, verb: str) -> None:
    """Refuses where the caller's caller is not part of PyTorch, Triton or Trident."""
    if not _active.capturing:
        return
    frame = sys._getframe(2)
    path = frame.f_code.co_filename
    if path.startswith((*_MACHINERY, "<")):
        return
    raise UnsupportedError(f"the call {verb} Tensor.{name}", f"{path}:{frame.f_lineno}")


def _method(name: str) -> Any:
    original = getattr(FakeTensor, name)

    def method(self: FakeTensor, *args: Any, **kwargs: Any) -> Any:
        _check(name, "uses")
        return original(self, *args, **kwargs)

    return method


def _property(name: str, read: bool, write: bool) -> property:
    original = getattr(FakeTensor, name)

    def get(self: FakeTensor) -> Any:
        if read:
            _check(name, "reads")
        return original.__get__(self)

    def set_(self: FakeTensor, value: Any) -> None:
        if write:
            _check(name, "assigns")
        original.__set__(self, value)

    return property(get, set_)


@contextlib.contextmanager
def refuse_hidden_access() -> Iterator[None]:
    """Makes the fake tensors of this thread refuse what a trace cannot see. One capture at a time.

    Raises, at the access:
        UnsupportedError: with the attribute and the user's line.
    """
    replaced = {name: _method(name) for name in _METHODS}
    for name in {*_READS, *_WRITES}:
        replaced[name] = _property(name, name in _READS, name in _WRITES)
    before = {name: vars(FakeTensor).get(name) for name in replaced}
    for name, value in replaced.items():
        setattr(FakeTensor, name, value)
    _active.capturing = True
    try:
        yield
    finally:
        _active.capturing = False
        for name, value in before.items():
            if value is None:
                delattr(FakeTensor, name)
            else:
                setattr(FakeTensor, name, value)
