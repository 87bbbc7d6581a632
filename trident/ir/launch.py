"""What the middle of the pipeline needs to know of a compiled launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trident.ir.expressions import Size


class LaunchParameter(Protocol):
    """One parameter of a compiled kernel, constexprs left out.

    Attributes:
        name: of the Python parameter.
        type: Triton's type, ``*fp32`` or ``i32``.
        tensor: for a pointer, the position in the launch operator's list of tensors, else None.
        bits: of any other parameter, the value, little-endian in an unsigned 64-bit integer.
        value: of an integer that varies between calls, an expression; else None.
    """

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def tensor(self) -> int | None: ...
    @property
    def bits(self) -> int: ...
    @property
    def value(self) -> Size | None: ...


class LaunchVariant(Protocol):
    """A launch with its kernel variant chosen.

    Attributes:
        kernel: index into the kernels that the program is loaded with.
        params: in the order of the compiled kernel's parameters.
        grid: three extents, numbers or expressions; a product of 0 launches nothing.
    """

    @property
    def kernel(self) -> int: ...
    @property
    def params(self) -> Sequence[LaunchParameter]: ...
    @property
    def grid(self) -> tuple[Size, ...]: ...
