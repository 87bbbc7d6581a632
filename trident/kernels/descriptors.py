"""Host tensor descriptors (TMA) as arguments of launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from triton.tools.tensor_descriptor import TensorDescriptor

from trident.errors import UnsupportedError

if TYPE_CHECKING:
    from trident.kernels.launch import TensorArg

# (parameter, swizzle, element type, bytes per element, fill with NaN, packed fp4, block sizes):
# the members of driver::TensorMapSpec.
TensorMap = tuple[int, int, int, int, bool, bool, list[int]]

TENSOR_MAP = "nvTmaDesc"

_TF32 = 11  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32


@dataclasses.dataclass(frozen=True)
class DescriptorArg:
    """A `TensorDescriptor` argument of a launch.

    Attributes:
        base: the tensor; its address is a multiple of 16.
        shape, strides: of the described tensor, in elements, fixed.
        block_shape: of one load or store.
        padding: what loads outside of the tensor give, ``zero`` or ``nan``.
        round_f32_to_tf32: whether loads round.
    """

    base: TensorArg
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str
    round_f32_to_tf32: bool

    def as_triton(self) -> TensorDescriptor:
        """What Triton's specialization looks at."""
        return _descriptor(
            self.base, self.shape, self.strides, self.block_shape, self.padding, self._rounding()
        )

    def _rounding(self) -> bool | None:
        return self.round_f32_to_tf32 if _HAS_ROUNDING else None


_HAS_ROUNDING = any(
    field.name == "round_f32_to_tf32" for field in dataclasses.fields(TensorDescriptor)
)


def _descriptor(*fields: Any) -> TensorDescriptor:
    return TensorDescriptor(*(field for field in fields if field is not None))


def describe(value: TensorDescriptor, base: TensorArg) -> DescriptorArg:
    """Records a descriptor; sizes that vary between calls are fixed, which the trace guards.

    Raises:
        OverflowError: a size beyond what a launch passes.
    """
    shape, strides = (tuple(int(n) for n in sizes) for sizes in (value.shape, value.strides))
    if max(shape) >= 2**31:
        raise OverflowError(f"a tensor descriptor of shape {shape} does not fit 32 bits per axis")
    return DescriptorArg(
        base,
        shape,
        strides,
        tuple(int(n) for n in value.block_shape),
        value.padding,
        bool(getattr(value, "round_f32_to_tf32", False)),
    )


def parameters(
    argument: DescriptorArg, type_name: str, uses_tensor_maps: bool
) -> Iterator[tuple[str, str, int | None]]:
    """(suffix of the name, type, value or None for the address), as a compiled kernel takes them.

    Args:
        type_name: Triton's, ``tensordesc<fp16[32, 64]>``.
        uses_tensor_maps: whether the target has them; others take the descriptor's parts.
    """
    element = type_name.partition("<")[2].partition("[")[0]
    if uses_tensor_maps:
        yield "", TENSOR_MAP, None
    else:
        yield ".base", f"*{element}", None
        for kind, sizes in (("shape", argument.shape), ("strides", argument.strides)):
            for axis, size in enumerate(sizes):
                yield f".{kind}.{axis}", "i64", size
        yield ".padding", "i1", int(argument.padding == "nan")
        if _HAS_ROUNDING:
            yield ".round_f32_to_tf32", "i1", int(argument.round_f32_to_tf32)
    for axis, size in enumerate(argument.shape):
        yield f".shape.{axis}", "i32", size
    for axis, size in enumerate(argument.strides):
        yield f".strides.{axis}", "i64", size


def tensor_maps(
    types: Sequence[str], arguments: Sequence[DescriptorArg], metadata: Sequence[dict[str, Any]]
) -> list[TensorMap]:
    """What the driver encodes the maps of a compiled kernel from.

    Args:
        types: of the kernel's run-time parameters.
        arguments: the descriptors, in parameter order.
        metadata: what Triton's compiler says of each, in the same order.

    Raises:
        UnsupportedError: a descriptor that this version of Triton passes in another way.
    """
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    positions = [index for index, kind in enumerate(types) if kind == TENSOR_MAP]
    maps = []
    for position, argument, facts in zip(positions, arguments, metadata, strict=True):
        if facts["fp4_padded"] and not _HAS_ROUNDING:
            # Triton 3.6 passes other sizes than the descriptor's then.
            raise UnsupportedError("a tensor descriptor of packed fp4 under Triton 3.6")
        element = _TF32 if argument.round_f32_to_tf32 else None
        if element is None:
            element = TMA_DTYPE_DEVICE_TO_HOST[facts["elem_type"]]
        maps.append(
            (
                position,
                facts["swizzle"],
                element,
                facts["elem_size"],
                argument.padding == "nan",
                facts["fp4_padded"],
                list(facts["block_size"]),
            )
        )
    return maps


def descriptors_in(value: Any) -> Iterator[DescriptorArg]:
    """The descriptors in an argument, members of tuples in their order."""
    if isinstance(value, DescriptorArg):
        yield value
    elif isinstance(value, tuple):
        for member in value:
            yield from descriptors_in(member)


def is_descriptor(value: object) -> bool:
    """Whether an argument is one of Triton's own host descriptors."""
    return type(value) is TensorDescriptor
