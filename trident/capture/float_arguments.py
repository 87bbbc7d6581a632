"""Floats that vary, given to operators whose schemas say `float`.

Python hands an operator its arguments as C++ values, and asks a SymFloat for its value, which fixes
it. While a call is captured, an operator of `torch.library` is given a plain float instead. Where
its call comes back to Python, in modes, fake implementations and kernels written in Python, the
SymFloat takes that float's place again, and so it does in the graph.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx.experimental.proxy_tensor import get_proxy_mode

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


class _Given(threading.local):
    """What the call of an operator that is under way was given, in the capture of this thread."""

    active = False
    operator: OpOverload | None = None
    floats: Mapping[int, torch.SymFloat] = {}  # noqa: RUF012


_given = _Given()


@contextlib.contextmanager
def floats_are_passed_on() -> Iterator[None]:
    """Keeps floats symbolic through calls of operators, in this thread's trace."""
    call, packet_call = OpOverload.__call__, OpOverloadPacket.__call__

    def traced_call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        floats = _floats(self, args, kwargs)
        if not floats:
            return call(self, *args, **kwargs)
        hints = {index: value.node.hint for index, value in floats.items()}
        with _passing(self, floats):
            args, kwargs = _with(self, args, kwargs, hints)
            return call(self, *args, **kwargs)

    def traced_packet_call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if _given.active and self.overloads() == ["default"]:
            return traced_call(self.default, *args, **kwargs)
        return packet_call(self, *args, **kwargs)

    OpOverload.__call__ = traced_call  # type: ignore[method-assign]
    OpOverloadPacket.__call__ = traced_packet_call  # type: ignore[method-assign]
    _given.active = True
    try:
        yield
    finally:
        _given.active = False
        OpOverload.__call__ = call  # type: ignore[method-assign]
        OpOverloadPacket.__call__ = packet_call  # type: ignore[method-assign]


@contextlib.contextmanager
def _passing(operator: OpOverload | None, floats: Mapping[int, torch.SymFloat]) -> Iterator[None]:
    before = _given.operator, _given.floats
    _given.operator, _given.floats = operator, floats
    try:
        yield
    finally:
        _given.operator, _given.floats = before


def _floats(operator: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The floats that vary among an operator's arguments, by the parameter's position."""
    given = (*args, *kwargs.values())
    if not _given.active or not any(type(each) in _SYMBOLIC for each in given):
        return {}
    if not _is_of_a_library(operator):
        return {}
    found = {}
    for index, (name, takes_float) in enumerate(_parameters(operator)):
        value = args[index] if index < len(args) else kwargs.get(name)
        if takes_float and type(value) in _SYMBOLIC:
            found[index] = torch.sym_float(value)
    return found


def _is_of_a_library(operator: OpOverload) -> bool:
    """Whether what an operator gives is told by Python code, which says how floats matter."""
    name = operator.name()
    return name in OPDEFS or (
        operator.namespace not in ("aten", "prims", "trident")
        and singleton.find(name).fake_impl.kernel is not None
    )


@functools.cache
def _parameters(operator: OpOverload) -> list[tuple[str, bool]]:
    """The name of each parameter, and whether it takes a float."""
    return [
        (each.name, str(each.real_type) in ("float", "Optional[float]"))
        for each in operator._schema.arguments
    ]


def _with(
    operator: OpOverload, args: Any, kwargs: Mapping[str, Any], floats: Mapping[int, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with other floats; PyTorch leaves out those that are defaults."""
    parameters = operator._schema.arguments
    args, kwargs = [*args], {**kwargs}
    for index, value in sorted(floats.items()):
        if parameters[index].kwarg_only or parameters[index].name in kwargs:
            kwargs[parameters[index].name] = value
            continue
        args += [each.default_value for each in parameters[len(args) : index + 1]]
        args[index] = value
    return tuple(args), kwargs


def restored(func: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments that an operator was called with, as it comes back to Python."""
    if _given.operator is None or _given.operator is not func:
        return args, kwargs
    _given.operator = None  # calls inside are others
    return _with(func, args, kwargs, _given.floats)


def call_recorded(func: OpOverload, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Calls an operator in a trace, such that the graph's node takes the floats that vary."""
    floats = _floats(func, args, kwargs)
    result = func(*args, **kwargs)
    mode = get_proxy_mode()
    if floats and mode is not None:
        tracer: Any = mode.tracer
        node = next(each for each in reversed(tracer.graph.nodes) if each.target is func)
        proxies = {index: tracer.unwrap_proxy(each).node for index, each in floats.items()}
        node.args, node.kwargs = _with(func, node.args, node.kwargs, proxies)
    return result


def call_kernel(
    func: OpOverload, args: Any, kwargs: Mapping[str, Any], call: Callable[..., Any]
) -> Any:
    """Has the dispatcher call a kernel written in Python, which gets the floats that vary."""
    floats = _floats(func, args, kwargs)
    if not floats:
        return call(*args, **kwargs)
    definition = OPDEFS.get(func.name())
    if definition is None:
        values = {index: each.node.guard_float(__file__, 0) for index, each in floats.items()}
        args, kwargs = _with(func, args, kwargs, values)
        return call(*args, **kwargs)
    kernels: dict[Any, Any] = definition._backend_fns
    before = dict(kernels)

    def with_floats(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            kernels.update(before)
            args, kwargs = _with(func, args, kwargs, floats)
            return kernel(*args, **kwargs)

        return run

    kernels.update({device: with_floats(kernel) for device, kernel in before.items()})
    try:
        hints = {index: each.node.hint for index, each in floats.items()}
        args, kwargs = _with(func, args, kwargs, hints)
        return call(*args, **kwargs)
    finally:
        kernels.update(before)
