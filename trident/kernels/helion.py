"""Helion's kernel objects, while a trace routes launches.

A call of a `helion.kernel` finds the kernel that Helion compiled for such arguments and runs the
Python that Helion wrote for it, which launches through Triton. In a trace the same Python runs on
the trace's tensors. What Helion has not compiled yet it compiles, or tunes, in one eager call.

Nothing here imports Helion: its classes are looked up when they may be loaded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trident import aside
from trident.errors import NotReadyError, UnsupportedError
from trident.kernels.hooks import Place
from trident.kernels.launch import user_place
from trident.kernels.patches import Patch, loaded
from trident.kernels.reasons import because
from trident.kernels.tuples import with_members

# Memory that Helion's launcher keeps from launch to launch.
_KEPT_MEMORY = (
    *("_get_remote_copy_signal", "_get_remote_barrier_signal"),
    *("_get_remote_copy_scratch", "_get_persistent_state"),
)


class _OfLoadedClasses(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _classes)


class HelionKernel(metaclass=_OfLoadedClasses):
    """What Helion's kernels, bound ones too, are instances of once `loaded_classes` saw theirs."""


class _NotBoundError(Exception):
    """Helion would have to compile."""


class _LookingUp(threading.local):
    active = False


_looking_up = _LookingUp()
_classes: tuple[type, ...] = ()


def loaded_classes() -> tuple[type, ...]:
    """Helion's classes of kernels and of kernels bound to arguments; none before it is loaded."""
    global _classes
    found = [loaded("helion.runtime.kernel", name) for name in ("Kernel", "BoundKernel")]
    if all(isinstance(cls, type) for cls in found) and tuple(found) != _classes:
        _classes = tuple(found)
    return _classes


def patches(is_routing: Callable[[], bool], note: Callable[[list[Place]], None]) -> Iterator[Patch]:
    """Owner, attribute and what makes the replacement, of Helion's parts that are loaded.

    Args:
        note: is told what another compiled kernel would show in.
    """
    classes = loaded_classes()
    if len(classes) != 2:
        return
    kernel, bound = classes
    yield kernel, "__call__", lambda original: _routed_kernel(original, is_routing, note)
    yield bound, "__call__", lambda original: _routed_bound(original, is_routing)
    yield bound, "__init__", _refusing_to_bind
    launcher = sys.modules.get("helion.runtime.triton.launcher")
    for name in _KEPT_MEMORY:
        if hasattr(launcher, name):
            yield launcher, name, lambda original: _refused(original, is_routing)


def _routed_kernel(
    original: Callable[..., Any],
    is_routing: Callable[[], bool],
    note: Callable[[list[Place]], None],
) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_routing():
            return original(self, *args, **kwargs)
        where = user_place()
        args = self.normalize_args(*args, **kwargs)
        bound = _bound_for(self, args, where)
        note([*_places_of(self, bound)])
        return bound._run(*args)

    return __call__


def _places_of(kernel: Any, bound: Any) -> Iterator[Place]:
    """What another choice would show in: another configuration, a reset, other settings."""
    yield vars(bound), "_run"
    yield vars(kernel), "settings"
    for key, value in [*kernel._bound_kernels.items()]:
        if value is bound:
            yield kernel._bound_kernels, key


def _routed_bound(
    original: Callable[..., Any], is_routing: Callable[[], bool]
) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any) -> Any:
        # Helion takes another bound kernel where these arguments need one; so does its kernel.
        return self.kernel(*args) if is_routing() else original(self, *args)

    return __call__


def _refusing_to_bind(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if _looking_up.active:
            raise _NotBoundError
        original(self, *args, **kwargs)

    return __init__


def _refused(original: Callable[..., Any], is_routing: Callable[[], bool]) -> Callable[..., Any]:
    def kept_memory(*args: Any) -> Any:
        if is_routing():
            raise UnsupportedError(
                "Helion's launcher keeps memory from launch to launch for the kernel", user_place()
            )
        return original(*args)

    return kept_memory


def _bound_for(kernel: Any, args: tuple[Any, ...], where: str) -> Any:
    """What Helion compiled for such arguments.

    Numbers that its choice depends on are fixed, which the trace guards: all sizes where shapes are
    static (Helion's default), and whatever a kernel specialized on.

    Raises:
        NotReadyError: Helion has not compiled for them yet.
        UnsupportedError: the choice depends on what a trace does not know.
    """
    if getattr(kernel, "_key_fn", None) is not None:
        raise UnsupportedError(f"Helion's kernel {kernel.name} chooses by a key of its own", where)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise UnsupportedError("Helion's kernels in a process group run eagerly", where)
    with because(f"Helion's kernel {kernel.name} is compiled for it"):
        shown = _shown(args, _fixes_all(kernel), kernel)
    try:
        bound = aside.run(lambda: _look_up(kernel, shown))
    except _NotBoundError:
        bound = None
    except Exception as error:
        raise UnsupportedError(
            f"Helion's kernel {kernel.name} cannot be looked up for the trace's tensors: {error}",
            where,
        ) from error
    if bound is None or bound._run is None:
        raise NotReadyError(f"Helion has not compiled {kernel.name} for these arguments yet", where)
    return bound


def _look_up(kernel: Any, shown: Any) -> Any:
    _looking_up.active = True
    try:
        with FakeTensorMode():
            args = tuple(make() for make in shown)
        return kernel.bind(args)
    finally:
        _looking_up.active = False


def _fixes_all(kernel: Any) -> bool:
    """Whether sizes and numbers may decide what Helion takes."""
    return bool(kernel.settings.static_shapes) or any(
        vars(kernel).get("_specialize_extra", {}).values()
    )


def _shown(args: tuple[Any, ...], fixed: bool, kernel: Any) -> list[Callable[[], Any]]:
    """What makes a stand-in for each argument, aside of the trace, from plain numbers."""
    annotations = [*getattr(kernel, "_annotations", ()), *(None for _ in args)]
    constexpr = loaded("helion.language.constexpr", "ConstExpr")
    return [
        _stand_in(value, fixed or (annotation is constexpr is not None))
        for value, annotation in zip(args, annotations, strict=False)
    ]


def _stand_in(value: Any, fixed: bool) -> Callable[[], Any]:
    if isinstance(value, torch.Tensor):
        return _stand_in_of_tensor(value, fixed)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        number = _number(value, fixed)
        return lambda: number
    if isinstance(value, (tuple, list)):
        parts = [_stand_in(item, fixed) for item in value]
        if isinstance(value, list):
            return lambda: [make() for make in parts]
        return lambda: with_members(value, [make() for make in parts])
    return lambda: value


def _stand_in_of_tensor(tensor: torch.Tensor, fixed: bool) -> Callable[[], Any]:
    if not fixed:
        # Where shapes are dynamic, Helion tells apart sizes of 0, 1 and more, and 64-bit indices.
        bool(tensor.numel() > torch.iinfo(torch.int32).max)
        for size in tensor.shape:
            bool(size == 0) or bool(size == 1)
    shape = [_number(size, fixed) for size in tensor.shape]
    strides = [_number(stride, fixed) for stride in tensor.stride()]
    dtype, device = tensor.dtype, tensor.device
    return lambda: torch.empty_strided(shape, strides, dtype=dtype, device=device)


def _number(value: Any, fixed: bool) -> Any:
    if not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value
    kind: Any = int if isinstance(value, torch.SymInt) else float
    return kind(value if fixed else value.node.hint)
