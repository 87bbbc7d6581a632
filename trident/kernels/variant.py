"""Specialization: which compiled kernel a launch needs, and what that kernel takes at run time."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITCallable, create_function_from_signature

from trident.errors import UnsupportedError
from trident.kernels.descriptors import DescriptorArg, descriptors_in, parameters
from trident.kernels.functions import (
    IdentityCache,
    as_jit_function,
    captured_globals,
    check_captured_globals,
    check_expressible,
    is_interpreted,
)
from trident.kernels.launch import LaunchRequest, SymbolicFloat, SymbolicInt, TensorArg
from trident.kernels.packing import bit_width, is_integer, pack_scalar
from trident.kernels.target import backend_for
from trident.kernels.tuples import with_members


@dataclasses.dataclass(frozen=True)
class Param:
    """One run-time parameter of a compiled kernel.

    Attributes:
        name: of the Python parameter; members of tuples are ``pair.0`` or ``pair.field``.
        type: Triton's name: ``*fp32``, ``i32``, ``u1``, ``fp32``, ...
        tensor: index into the launch's tensors, whose address is passed; None for a constant.
        bits: the constant as a little-endian uint64; 0 for a tensor.
        value: of a number that varies between calls, what stands for it; `bits`
            holds its present value.
    """

    name: str
    type: str
    tensor: int | None
    bits: int
    value: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
    """A kernel specialized for one launch.

    Attributes:
        key: equal for launches that one compiled kernel serves, in this process.
        params: run-time parameters in the compiled kernel's order, with this launch's constants.
        signature: type by parameter name, as Triton derives it; tuples are nested.
        constexprs: value by path, ``(parameter index, member, ...)``.
        attrs: divisibility by path.
        options: the backend's option object.
        descriptors: host tensor descriptors among the arguments, in order.
    """

    kernel: Any
    label: str
    where: str
    key: str
    params: tuple[Param, ...]
    signature: dict[str, Any]
    constexprs: dict[tuple[int, ...], Any]
    attrs: dict[tuple[int, ...], Any]
    options: Any
    target: GPUTarget
    descriptors: tuple[DescriptorArg, ...] = ()


# What the binder returns: bound arguments, specialization, options.
_Binder = Callable[..., tuple[dict[str, Any], list[Any], dict[str, Any]]]


def _no_binders(_: Any) -> dict[GPUTarget, _Binder]:
    return {}


_binders: IdentityCache[dict[GPUTarget, _Binder]] = IdentityCache(_no_binders)


def _binder_for(kernel: Any, target: GPUTarget) -> _Binder:
    binders = _binders.get(kernel)
    binder = binders.get(target)
    if binder is None:
        function = as_jit_function(kernel)
        binder = create_function_from_signature(
            function.signature, function.params, backend_for(target)
        )
        binders[target] = binder
    return binder


def specialize(request: LaunchRequest, target: GPUTarget) -> Variant:
    """Derives signature, constants, divisibility and options as `JITFunction.run` does.

    Raises:
        RuntimeError: a global that the kernel captured has changed since it was compiled.
        ValueError, AssertionError, TypeError: as Triton raises them for options and arguments.
        UnsupportedError: a parameter type that Trident cannot pass.
    """
    check_expressible(request.kernel)
    function = as_jit_function(request.kernel)
    backend = backend_for(target)
    options = dict(request.options)
    options["debug"] = options.get("debug", function.debug) or knobs.runtime.debug
    options["instrumentation_mode"] = knobs.compilation.instrumentation_mode

    positional, keyword = _calling_form(request)
    extra = {name: value for name, value in options.items() if name not in function.arg_names}
    bound, specialization, _ = _binder_for(request.kernel, target)(*positional, **keyword, **extra)
    packed, signature, constexprs, attrs = function._pack_args(
        backend, options, bound, specialization, options
    )
    check_captured_globals(request.kernel)
    params = tuple(
        param
        for name, type_name in signature.items()
        for param in _flatten(request, name, type_name, request.arguments[name], target)
    )
    descriptors = tuple(descriptors_in(tuple(request.arguments.values())))
    key = _make_key(request.kernel, signature, constexprs, attrs, packed, target, descriptors)
    return Variant(
        request.kernel,
        request.label,
        request.where,
        key,
        params,
        signature,
        constexprs,
        attrs,
        packed,
        target,
        descriptors,
    )


def _calling_form(request: LaunchRequest) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as the binder takes them back: by position, those after `*args` by keyword."""
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for parameter in as_jit_function(request.kernel).signature.parameters.values():
        value = _present(request.arguments[parameter.name])
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keyword[parameter.name] = value
        else:
            positional.append(value)
    return positional, keyword


def _present(value: Any) -> Any:
    """The value in the call being captured."""
    if isinstance(value, SymbolicInt | SymbolicFloat):
        return value.hint
    if isinstance(value, DescriptorArg):
        return value.as_triton()
    if isinstance(value, tuple):
        return with_members(value, [_present(item) for item in value])
    return value


def _flatten(
    request: LaunchRequest, name: str, type_name: Any, value: Any, target: GPUTarget
) -> list[Param]:
    if isinstance(type_name, tuple):
        fields = getattr(value, "_fields", range(len(type_name)))
        return [
            param
            for field, member_type, member in zip(fields, type_name, value, strict=True)
            for param in _flatten(request, f"{name}.{field}", member_type, member, target)
        ]
    if type_name == "constexpr":
        return []
    if isinstance(value, DescriptorArg):
        return [
            Param(f"{name}{suffix}", kind, value.base.index, 0)
            if number is None
            else Param(f"{name}{suffix}", kind, None, pack_scalar(kind, number))
            for suffix, kind, number in parameters(value, type_name, target.arch >= 90)
        ]
    try:
        bit_width(type_name)
    except KeyError:
        raise UnsupportedError(
            f"launch of {request.label}: parameter {name} has type {type_name}", request.where
        ) from None
    if isinstance(value, TensorArg):
        if not type_name.startswith("*"):
            raise TypeError(f"parameter {name} of type {type_name} was given a tensor")
        return [Param(name, type_name, value.index, 0)]
    if isinstance(value, SymbolicInt):
        if type_name.startswith("*") or not is_integer(type_name):
            raise UnsupportedError(
                f"launch of {request.label}: parameter {name} of type {type_name} is given an "
                "integer that varies",
                request.where,
            )
        return [Param(name, type_name, None, pack_scalar(type_name, value.hint), value.value)]
    if isinstance(value, SymbolicFloat):
        return [Param(name, type_name, None, pack_scalar(type_name, value.hint), value.value)]
    return [Param(name, type_name, None, pack_scalar(type_name, value))]


def _describe(value: Any) -> str:
    """A text that tells values apart that Triton compiles differently (1, True, 1.0; -0.0, 0.0)."""
    if isinstance(value, JITCallable):
        return f"function {value.cache_key}"
    if isinstance(value, tuple | list):
        members = ", ".join(_describe(member) for member in value)
        return f"{type(value).__module__}.{type(value).__qualname__}({members})"
    if isinstance(value, dict):
        members = ", ".join(f"{_describe(k)}: {_describe(v)}" for k, v in value.items())
        return f"dict({members})"
    kind = type(value)
    # Objects without a repr of their own show their address; the variant keeps them alive with it.
    return f"{kind.__module__}.{kind.__qualname__}({value!r})"


def _kernel_identity(kernel: Any) -> str:
    if is_interpreted(kernel):
        return f"interpreted {id(kernel)}"
    captured = [
        (name, _describe(value)) for name, _, value in captured_globals(kernel) if value is not None
    ]
    return f"{kernel.cache_key} {captured}"


def _make_key(
    kernel: Any,
    signature: Any,
    constexprs: Any,
    attrs: Any,
    options: Any,
    target: GPUTarget,
    descriptors: tuple[DescriptorArg, ...],
) -> str:
    parts = (
        triton.__version__,
        str(target),
        _kernel_identity(kernel),
        as_jit_function(kernel)._fn_name,
        str(signature),
        str([(path, _describe(value)) for path, value in sorted(constexprs.items())]),
        str(sorted(attrs.items())),
        str(options),
        # One compiled kernel serves all sizes and fillings, but launches carry them.
        str(
            [
                (each.shape, each.strides, each.padding, each.round_f32_to_tf32)
                for each in descriptors
            ]
        ),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
