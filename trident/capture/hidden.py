"""What code can ask of a tensor, or do to it, that leaves no trace in the graph.

A storage's offset or a version counter would be frozen into the program, an assignment to ``.data``
lost. While a call is captured, fake tensors refuse these to all but PyTorch's own code, and so do
real ones that the user's code holds outside of the call's objects, a global, say. What is
refused, and what only a trace cannot do, such as branching on a value, is remembered: the user's
code may catch the exception and go on, on a way that eager would not take.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode

from trident.capture.closed_lists import ClosedList
from trident.capture.disguise import shown_class
from trident.capture.graph import LIFTS
from trident.capture.places import runs_machinery
from trident.errors import UnsupportedError

_METHODS = (
    *("data_ptr", "storage_offset", "untyped_storage", "storage", "_typed_storage", "_is_view"),
    *("is_pinned", "is_shared", "share_memory_", "__repr__", "__format__", "__reduce_ex__"),
    *("numpy", "__array__", "__dlpack__", "is_inference", "apply_", "map_", "map2_"),
    *(
        "requires_grad_",
        "retain_grad",
        "register_hook",
        "set_",
        "register_post_accumulate_grad_hook",
    ),
)
# What fake tensors refuse by themselves.
_VALUES = ("tolist",)
_READS = ("_version", "_base", "grad", "grad_fn", "is_leaf", "output_nr", "_backward_hooks")
_WRITES = ("data", "requires_grad", "grad")

StandIn = Callable[[torch.Tensor], torch.Tensor]


class _Active(threading.local):
    problems: list[Exception] | None = None  # of the capture that runs in this thread


_active = _Active()


def _check(name: str, verb: str) -> None:
    """Refuses where the caller's caller is not part of PyTorch, Triton or Trident."""
    if _active.problems is None:
        return
    frame = sys._getframe(2)
    if runs_machinery(frame):
        return
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    error = UnsupportedError(f"the call {verb} Tensor.{name}", where)
    _active.problems.append(error)
    raise error


class _Watch(TorchDispatchMode):
    """Remembers the operators that fail under a trace and would not in eager."""

    def __init__(self, problems: list[Exception], stand_in: StandIn) -> None:
        super().__init__()
        self._problems = problems
        self._stand_in = stand_in

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        try:
            if func not in LIFTS:
                args, kwargs = self._without_real(args), self._without_real(kwargs)
            return func(*args, **(kwargs or {}))
        except Exception as error:
            tags = getattr(func, "tags", ())
            if (
                isinstance(error, _ONLY_TRACING)
                or torch.Tag.data_dependent_output in tags
                or torch.Tag.dynamic_output_shape in tags
            ):
                self._problems.append(error)
            raise

    def _without_real(self, value: Any) -> Any:
        """Arguments of an operator with what stands for each real tensor in its place.

        PyTorch would let an operator on nothing but real tensors run, writes included.
        """
        if isinstance(value, torch.Tensor):
            return value if isinstance(value, FakeTensor) else self._stand_in(value)
        if type(value) in (tuple, list):
            return type(value)([self._without_real(item) for item in value])
        if type(value) is dict:
            return {name: self._without_real(item) for name, item in value.items()}
        return value


def _method(cls: type[torch.Tensor], name: str) -> Any:
    original = getattr(cls, name)

    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _check(name, "uses")
        return original(self, *args, **kwargs)

    return method


def _property(cls: type[torch.Tensor], name: str) -> property:
    original = getattr(cls, name)
    read, write = name in _READS, name in _WRITES

    def get(self: torch.Tensor) -> Any:
        if read:
            _check(name, "reads")
        return original.__get__(self)

    def set_(self: torch.Tensor, value: Any) -> None:
        if write:
            _check(name, "assigns")
        original.__set__(self, value)

    def delete(self: torch.Tensor) -> None:
        if write:
            _check(name, "deletes")
        original.__delete__(self)

    return property(get, set_, delete)


def _class_of(fake: FakeTensor) -> type:
    """The class of the tensor that a fake stands for."""
    return torch.nn.Parameter if getattr(fake, "_is_param", False) else torch.Tensor


class _Questions(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], FakeTensor):
            return _class_of(args[0])
        shown = shown_class(args[0]) if len(args) == 1 and not kwargs else type(*args, **kwargs)
        return list if shown is ClosedList else shown

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type)


class ClassQuestion(type, metaclass=_Questions):
    """What the user's code finds as `type` during a trace: no class of fakes or of symbols."""


def show_classes() -> None:
    """Makes ``x.__class__`` of fakes what it is in eager, until the capture in this thread ends.

    Every attribute of a fake becomes slower, so this waits until user code names ``__class__``.
    """
    if _active.problems is not None and "__getattribute__" not in vars(FakeTensor):
        FakeTensor.__getattribute__ = _getattribute  # type: ignore[method-assign,assignment]


def _getattribute(self: FakeTensor, name: str) -> Any:
    if name == "__class__" and _active.problems is not None:
        if not runs_machinery(sys._getframe(1)):
            return _class_of(self)
    return object.__getattribute__(self, name)


_ONLY_TRACING = (
    UnsupportedError,
    NotImplementedError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    DataDependentOutputException,
    DynamicOutputShapeException,
)


def _guarded(cls: type[torch.Tensor]) -> dict[str, Any]:
    methods = _METHODS if cls is FakeTensor else (*_METHODS, *_VALUES)
    guarded = {name: _method(cls, name) for name in methods}
    return guarded | {name: _property(cls, name) for name in {*_READS, *_WRITES}}


@contextlib.contextmanager
def refuse_hidden_access(stand_in: StandIn) -> Iterator[list[Exception]]:
    """Makes the tensors of this thread refuse what a trace cannot see. One capture at a time.

    Args:
        stand_in: gives what stands in the trace for a real tensor, or raises `UnsupportedError`.

    Yields:
        A list that receives what was refused.

    Raises, at the access:
        UnsupportedError: with the attribute and the user's line.
    """
    replaced = {cls: _guarded(cls) for cls in (FakeTensor, torch.Tensor)}
    before = {
        cls: {name: vars(cls).get(name) for name in guarded} for cls, guarded in replaced.items()
    }
    _replace(replaced)
    problems: list[Exception] = []
    _active.problems = problems
    try:
        with _Watch(problems, stand_in):
            yield problems
    finally:
        _active.problems = None
        if vars(FakeTensor).get("__getattribute__") is _getattribute:
            del FakeTensor.__getattribute__
        _replace(before)


def _replace(members: dict[type[torch.Tensor], dict[str, Any]]) -> None:
    for cls, values in members.items():
        for name, value in values.items():
            if value is None:
                delattr(cls, name)
            else:
                setattr(cls, name, value)
