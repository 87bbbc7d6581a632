"""Operators whose kernel is Python code, traced into instead of called.

Python code becomes an operator's kernel through `torch.library.custom_op` and `triton_op`, and
through `Library.impl`, over ATen's operators too. While a call is captured, `InlineOperators` runs
that kernel on the trace's tensors as the dispatcher would on real ones; what it calls and launches
lands in the graph. An operator whose kernel cannot be traced is named in `failed`; a capture with
that name in `opaque` keeps it as one call.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, autograd_would_have_decomposed

from trident.capture.float_arguments import (
    call_kernel,
    call_recorded,
    floats_are_passed_on,
    restored,
)
from trident.capture.registrations import note_use, python_kernels
from trident.errors import UnsupportedError

_BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}
_AUTOCAST = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
# Kernels that serve every backend which has none of its own.
_ANY_BACKEND = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")

_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key


class InlineOperators(TorchDispatchMode):
    """Runs Python kernels during a trace.

    Args:
        opaque: operators that stay calls, as ``namespace::name.overload``.

    Attributes:
        failed: what a kernel that was traced raised, by operator.
        called: operators of the trace that run Python kernels when the program runs.
        custom_ops: what `torch.library.custom_op` made of the operators that were met.
    """

    def __init__(self, opaque: frozenset[str]) -> None:
        super().__init__()
        self._opaque = opaque
        self._depth = 0
        self._direct: OpOverload | None = None
        self._autocast: dict[str, bool] = {}
        self._kernels = python_kernels()
        self._operators = {operator for operator, _ in self._kernels}
        self.failed: dict[str, Exception] = {}
        self.called: dict[str, None] = {}
        self.custom_ops: dict[str, Any] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload) or func.namespace == "prim":  # size, device
            return func(*args, **kwargs)
        args, kwargs = restored(func, args, kwargs)
        if func is self._direct:
            self._direct = None
            return self._call(func, args, kwargs)
        device = _device(args, kwargs) if func.name() in self._operators else None
        if device is None or not self._runs_python(func.name(), device):
            if self._depth and autograd_would_have_decomposed(
                func, pytree.tree_leaves((args, kwargs))
            ):
                # Above autograd the dispatcher does this; kernels run below.
                with self:
                    result = func.decompose(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            return self._call(func, args, kwargs)
        return self._run_kernel(func, device, args, kwargs)

    def _runs_python(self, name: str, device: str) -> bool:
        backend = _BACKENDS.get(device)
        if backend is None:
            return False
        if (name, backend) in self._kernels:
            return True
        return any((name, key) in self._kernels for key in _ANY_BACKEND) and not _has_kernel(
            name, backend
        )

    def _run_kernel(
        self, func: OpOverload, device: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        name = func.name()
        note_use(name)
        if name in OPDEFS:
            self.custom_ops[name] = OPDEFS[name]
        if name in self._opaque:
            return self._call(func, args, kwargs)
        keys = torch._C.DispatchKeySet(_key(_BACKENDS[device]))
        self._depth += 1
        try:
            with self, self._autocast_inside(name, device):
                redispatch = functools.partial(func._handle.redispatch_boxed, keys)
                return call_kernel(func, args, kwargs, redispatch)
        except Exception as error:
            self.failed.setdefault(name, error)
            raise
        finally:
            self._depth -= 1

    def _call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func.name()
        if not name.startswith("aten::"):
            note_use(name)
        if name in self._opaque:
            self.called[name] = None
        return call_recorded(func, args, kwargs)

    def call_directly(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """Calls an operator past its Python kernel, which asked for the kernel underneath."""
        self._direct = func
        return func(*args, **kwargs)

    @contextlib.contextmanager
    def _autocast_inside(self, name: str, device: str) -> Iterator[None]:
        """Inside of an operator that autocast does not know it is still on, as in eager.

        Below a mode the dispatcher hides it.
        """
        key = _AUTOCAST[device]
        if not self._autocast.get(device) or _has_kernel(name, key):
            yield
            return
        include = torch._C._dispatch_tls_local_include_set()
        exclude = torch._C._dispatch_tls_local_exclude_set().remove(_key(key))
        with torch._C._ForceDispatchKeyGuard(include, exclude):
            yield

    @contextlib.contextmanager
    def _autocast_is_followed(self) -> Iterator[None]:
        self._autocast = {device: torch.is_autocast_enabled(device) for device in _AUTOCAST}
        enable, thread = torch.set_autocast_enabled, threading.get_ident()

        def set_autocast_enabled(*args: Any) -> None:
            enable(*args)
            if len(args) == 2 and threading.get_ident() == thread:
                self._autocast[args[0]] = bool(args[1])

        torch.set_autocast_enabled = set_autocast_enabled  # type: ignore[assignment]
        try:
            yield
        finally:
            torch.set_autocast_enabled = enable

    @contextlib.contextmanager
    def active(self) -> Iterator[InlineOperators]:
        """Traces into Python kernels in this block."""
        with (
            self,
            _base_kernels_are_traced(self),
            floats_are_passed_on(),
            self._autocast_is_followed(),
        ):
            yield self


def _key(name: str) -> Any:
    return getattr(torch._C.DispatchKey, name)


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The type of the device whose kernel runs."""
    found = None
    for value in pytree.tree_leaves((args, kwargs)):
        device = value.device if isinstance(value, torch.Tensor) else value
        if isinstance(device, torch.device):
            if device.type != "cpu":
                return device.type
            found = "cpu"
    return found or "cpu"


def _holds_fakes(values: Iterable[Any]) -> bool:
    return any(isinstance(value, FakeTensor) for value in pytree.tree_leaves(tuple(values)))


@contextlib.contextmanager
def _base_kernels_are_traced(mode: InlineOperators) -> Iterator[None]:
    """A Python kernel may hand the call on to the kernel that it replaced.

    It does so through `OpOverload.redispatch` or a handle of that kernel, past all modes; kernels
    written in C++ would then look for the memory of the trace's tensors.
    """
    handle: Any = getattr(torch._C, "_SafeKernelFunction", None)
    redispatch = OpOverload.redispatch

    def traced_redispatch(self: Any, /, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if keyset.has(torch._C.DispatchKey.Python) or not _holds_fakes((args, kwargs)):
            return redispatch(self, keyset, *args, **kwargs)
        return mode.call_directly(self, args, kwargs)

    def traced_call(self: Any, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if keyset.has(torch._C.DispatchKey.Python) or not _holds_fakes((args, kwargs)):
            return call_boxed(self, keyset, *args, **kwargs)
        schema = self.op_handle.schema()
        if ".py:" in repr(self):
            raise UnsupportedError(f"a kernel of {schema.name} hands the call on to another one")
        namespace, _, name = schema.name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), name)
        func = getattr(packet, schema.overload_name or "default")
        return mode.call_directly(func, args, kwargs)

    OpOverload.redispatch = traced_redispatch  # type: ignore[method-assign]
    if handle is not None:
        call_boxed = handle.call_boxed
        handle.call_boxed = traced_call
    try:
        yield
    finally:
        OpOverload.redispatch = redispatch  # type: ignore[method-assign]
        if handle is not None:
            handle.call_boxed = call_boxed
