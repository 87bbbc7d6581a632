"""Binding a launch's arguments to a kernel's parameters, by Triton's own binder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton.language as tl
from triton.backends.compiler import BaseBackend
from triton.runtime.jit import TensorWrapper, create_function_from_signature

from trident.kernels.functions import IdentityCache, as_jit_function, is_interpreted
from trident.kernels.target import backend_for, current_target
from trident.kernels.tuples import with_members

# Returns bound arguments, specialization, options.
_Binder = Callable[..., tuple[dict[str, Any], list[Any], dict[str, Any]]]


def _make_binder(kernel: Any) -> _Binder:
    function = as_jit_function(kernel)
    binder: _Binder = create_function_from_signature(
        function.signature, function.params, BaseBackend
    )
    return binder


_binders = IdentityCache(_make_binder)


def bind(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by parameter name, defaults applied; options are left out.

    Raises:
        TypeError: a missing or repeated argument, or one of a type that Triton does not take.
    """
    bound, _, _ = _binders.get(kernel)(
        *(_hold(value) for value in args), **{name: _hold(value) for name, value in kwargs.items()}
    )
    return {name: _release(value) for name, value in bound.items()}


def select_options(kernel: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that Triton takes for options; one that names a parameter counts as both.

    Raises:
        KeyError: an unknown keyword.
    """
    known = backend_for(current_target()).parse_options({}).__dict__
    # The interpreter drops unknown keywords instead of refusing them.
    if not is_interpreted(kernel):
        for name in ("device_type", "device", "stream"):
            assert name not in kwargs, f"{name} option is deprecated; current {name} will be used"
        for name in kwargs:
            if name not in known and name not in as_jit_function(kernel).arg_names:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
    return {name: as_known(value) for name, value in kwargs.items() if name in known}


def as_known(value: Any) -> Any:
    """A value that a kernel is compiled with: a symbolic one is fixed, which adds a guard."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    if isinstance(value, tuple):
        return with_members(value, [as_known(item) for item in value])
    return value


def constants_known(value: Any) -> Any:
    """An argument of a launch whose `tl.constexpr` objects hold no symbolic numbers."""
    if isinstance(value, tl.constexpr):
        known = as_known(value.value)
        return value if known is value.value else tl.constexpr(known)
    if isinstance(value, tuple):
        return with_members(value, [constants_known(item) for item in value])
    return value


class _Held:
    """Stands for a tensor while arguments are bound: the binder must not ask for its address."""

    def __init__(self, value: Any, dtype: Any) -> None:
        self.value = value
        self.dtype = dtype

    @staticmethod
    def data_ptr() -> int:
        return 0


def _hold(value: Any) -> Any:
    if isinstance(value, torch.Tensor | TensorWrapper):
        return _Held(value, value.dtype)
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return _Held(value, torch.int64)
    if isinstance(value, tuple):
        return with_members(value, [_hold(item) for item in value])
    return value


def _release(value: Any) -> Any:
    if isinstance(value, _Held):
        return value.value
    if isinstance(value, tuple):
        return with_members(value, [_release(item) for item in value])
    return value
