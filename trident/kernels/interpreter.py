"""Running a launch on the CPU: the kernel's source in Triton's interpreter, on raw host memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton import knobs
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import (
    TensorHandle,
    _get_np_dtype,
    interpreter_builder,
    interpreter_semantic,
)

from trident.kernels.descriptors import DescriptorArg, parameters
from trident.kernels.functions import as_jit_function
from trident.kernels.language import interpreted_language
from trident.kernels.launch import LaunchRequest
from trident.kernels.packing import pack_scalar, unpack_scalar
from trident.kernels.rewrite import interpretable
from trident.kernels.target import current_target
from trident.kernels.variant import Variant, specialize

Runner = Callable[[tuple[int, int, int], Sequence[Any]], None]


def interpreted_runner(launch: Variant | LaunchRequest) -> Runner:
    """Makes a function that runs a kernel on host memory, in place.

    The function is called as ``run(grid, values)``: `values` follow `Variant.params`, pointers as
    addresses, integers and bools as int or bool, floats as float. Arguments reach the kernel as the
    compiler types them; constants of the variant (None, ``== 1``, `tl.constexpr`) as Python values.
    Calls from several threads run one after another. TRITON_INTERPRET does not matter.

    Raises, when it is called:
        InterpreterError: whatever the kernel raised, as its cause.
    """
    variant = launch if isinstance(launch, Variant) else specialize(launch, current_target())
    kernel = variant.kernel
    names = list(variant.signature)
    starred = _starred_parameter(kernel)

    def run(grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        if len(values) != len(variant.params):
            raise ValueError(
                f"{variant.label} takes {len(variant.params)} values, not {len(values)}"
            )
        function = interpretable(kernel)
        remaining, described = iter(values), iter(variant.descriptors)
        arguments = {
            name: _argument(variant, (index,), variant.signature[name], remaining, described)
            for index, name in enumerate(names)
        }
        positional, keyword = _split_arguments(arguments, starred)
        with interpreted_language(), np.errstate(all="ignore"):
            _run_grid(function, grid, positional, keyword)

    return run


def _run_grid(
    function: Callable[..., Any],
    grid: tuple[int, int, int],
    positional: list[Any],
    keyword: dict[str, Any],
) -> None:
    interpreter_builder.set_grid_dim(*grid)
    try:
        for x in range(grid[0]):
            for y in range(grid[1]):
                for z in range(grid[2]):
                    interpreter_builder.set_grid_idx(x, y, z)
                    function(*positional, **keyword)
    except Exception as error:
        if knobs.compilation.front_end_debugging:
            raise
        raise InterpreterError(repr(error)) from error


def _starred_parameter(kernel: Any) -> str | None:
    for parameter in as_jit_function(kernel).signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return str(parameter.name)
    return None


def _split_arguments(
    arguments: dict[str, Any], starred: str | None
) -> tuple[list[Any], dict[str, Any]]:
    if starred is None:
        return [], arguments
    names = list(arguments)
    position = names.index(starred)
    positional = [arguments[name] for name in names[:position]] + list(arguments[starred])
    return positional, {name: arguments[name] for name in names[position + 1 :]}


def _argument(
    variant: Variant,
    path: tuple[int, ...],
    type_name: Any,
    values: Iterator[Any],
    described: Iterator[DescriptorArg],
) -> Any:
    if isinstance(type_name, tuple):
        members = [
            _argument(variant, (*path, index), member, values, described)
            for index, member in enumerate(type_name)
        ]
        # The signature of a NamedTuple is a NamedTuple of the same class.
        kind = type(type_name)
        return kind(*members) if hasattr(type_name, "_fields") else tuple(members)
    if type_name == "constexpr":
        value = variant.constexprs[path]
        return value.value if isinstance(value, tl.constexpr) else value
    if type_name.startswith("tensordesc"):
        return _descriptor(type_name, next(described), values, variant.target.arch >= 90)
    return _tensor(type_name, next(values))


def _descriptor(
    type_name: str, argument: DescriptorArg, values: Iterator[Any], uses_tensor_maps: bool
) -> Any:
    """The descriptor that a compiled kernel would be passed; takes its values."""
    given = [next(values) for _ in parameters(argument, type_name, uses_tensor_maps)]
    element = type_name.partition("<")[2].partition("[")[0]
    strides = [_tensor("i64", stride) for stride in argument.strides[:-1]]
    return interpreter_semantic.make_tensor_descriptor(
        _tensor(f"*{element}", given[0]),
        [_tensor("i32", size) for size in argument.shape],
        [*strides, tl.constexpr(1)],
        [tl.constexpr(size) for size in argument.block_shape],
        padding_option=argument.padding,
    )


def _tensor(type_name: str, value: Any) -> tl.tensor:
    """A scalar or pointer of the given type, as the compiled kernel receives it."""
    kind = tl.str_to_ty(type_name, None)
    bits = pack_scalar(type_name, value)
    if type_name == "bf16":  # held as its bits
        number: Any = bits
    elif type_name in ("fp16", "fp32", "fp64"):
        number = np.frombuffer(struct.pack("<Q", bits), dtype=_get_np_dtype(kind))[0]
    else:
        number = unpack_scalar(type_name, bits)
    data = np.array([number], dtype=_get_np_dtype(kind))
    return tl.tensor(TensorHandle(data, kind), kind)
