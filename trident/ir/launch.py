"""What the middle of the pipeline needs to know of a compiled launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trident.ir.expressions import Real, Size


class LaunchParameter(Protocol):
    """One parameter of a compiled kernel, constexprs left out.

    Attributes:
        name: of the Python parameter.
        type: Triton's type, ``*fp32`` or ``i32``.
        tensor: for a pointer, the position in the launch operator's list of tensors, else None.
        bits: of any other parameter, the value, little-endian in an unsigned 64-bit integer.
        value: of a number that varies between calls, an expression; else None.
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
    def value(self) -> Size | Real | None: ...


class LaunchCondition(Protocol):
    """Something that Triton compiles a kernel for and that varies between calls.

    Attributes:
        condition: over the program's symbols, as C++.
        note: the same in words.
    """

    @property
    def condition(self) -> str: ...
    @property
    def note(self) -> str: ...


class LaunchVariant(Protocol):
    """A launch with its kernel variant chosen, or with the facts that choose it at each call.

    Attributes:
        kernel: index into the kernels that the program is loaded with; 0 where there are facts.
        params: in the order of the compiled kernel's parameters; of all variants where there are
            facts.
        grid: three extents, numbers or expressions; a product of 0 launches nothing.
        facts: the conditions that choose the variant, at most 64.
        only_read: positions in the launch operator's list of the tensors that the variant at hand
            does not write; where there are facts, another one may.
    """

    @property
    def kernel(self) -> int: ...
    @property
    def params(self) -> Sequence[LaunchParameter]: ...
    @property
    def grid(self) -> tuple[Size, ...]: ...
    @property
    def facts(self) -> Sequence[LaunchCondition]: ...
    @property
    def only_read(self) -> frozenset[int]: ...
