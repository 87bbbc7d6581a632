"""One Triton launch recorded as data: kernel, bound arguments without tensors, options, grid."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import triton
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from triton.runtime.jit import TensorWrapper

from trident.errors import UnsupportedError
from trident.kernels.binding import as_known, bind, constants_known, select_options
from trident.kernels.descriptors import DescriptorArg, describe, is_descriptor
from trident.kernels.flag_gems import plain_argument
from trident.kernels.functions import as_jit_function, check_expressible
from trident.kernels.reasons import because
from trident.kernels.tuples import with_members

AddressMod16: TypeAlias = "Callable[[torch.Tensor], int | torch.SymInt]"

RealOf: TypeAlias = "Callable[[torch.SymFloat], Any]"

# The launcher passes extents to the driver as C ints.
_MAX_EXTENT = 2**31 - 1

_OWN_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (triton.__file__, torch.__file__, os.path.dirname(__file__))
)


@dataclasses.dataclass(frozen=True)
class TensorArg:
    """A tensor argument of a launch, seen as Triton's specialization sees it.

    Attributes:
        index: position in the launch's flat list of tensors.
        dtype: what the kernel sees; differs from the tensor's own under `triton.reinterpret`.
        address_mod_16: address of the first element modulo 16, in bytes.
        address: where the address varies between calls, a SymInt equal to it modulo 16; else None.
    """

    index: int
    dtype: Any
    address_mod_16: int
    address: int | torch.SymInt | None = None

    def data_ptr(self) -> int:
        """An address of the recorded alignment: all that Triton asks of a tensor's address."""
        return self.address_mod_16


@dataclasses.dataclass(frozen=True)
class SymbolicInt:
    """An integer argument of a launch that varies between calls.

    Attributes:
        hint: its value in the call being captured.
        value: a SymInt of the trace.
    """

    hint: int
    value: int | torch.SymInt


@dataclasses.dataclass(frozen=True)
class SymbolicFloat:
    """A float argument of a launch that varies between calls.

    Attributes:
        hint: its value in the call being captured.
        value: what stands for it at run time, as `record_launch` was told.
    """

    hint: float
    value: Any


@dataclasses.dataclass(frozen=True)
class LaunchRequest:
    """One launch, recorded during a trace.

    Attributes:
        kernel: the `JITFunction` or `InterpretedFunction`.
        arguments: bound values in parameter order, defaults applied; each tensor is a `TensorArg`,
            each host descriptor a `DescriptorArg`, each SymInt a `SymbolicInt` and each SymFloat a
            `SymbolicFloat`, in nested tuples too. The value of a `*args` parameter is a tuple.
        options: the keywords that are launch options: num_warps, num_stages, num_ctas, maxnreg, ...
        grid: three extents, each >= 0 and an int or a SymInt; a product of 0 means that nothing
            runs.
        where: the user's place of the launch, ``file.py:line``.
        label: the kernel's name, for messages.
        num_tensors: length of the flat list of tensors.
    """

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, Any]
    grid: tuple[int | torch.SymInt, int | torch.SymInt, int | torch.SymInt]
    where: str
    label: str
    num_tensors: int

    @property
    def constexprs(self) -> dict[str, Any]:
        """The arguments of parameters annotated `tl.constexpr`, by name."""
        return {
            parameter.name: self.arguments[parameter.name]
            for parameter in as_jit_function(self.kernel).params
            if parameter.is_constexpr
        }


def user_place() -> str:
    """``file.py:line`` of the innermost frame outside of Triton, PyTorch and this folder."""
    frame = sys._getframe(1)
    innermost = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN_PACKAGES) and not name.startswith("<"):
            return f"{name}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return f"{innermost.f_code.co_filename}:{innermost.f_lineno}"


class _Place(threading.local):
    current: str | None = None


_place = _Place()


@contextlib.contextmanager
def launched_from(place: str) -> Iterator[None]:
    """Names the place for launches that are recorded in this block, in this thread."""
    previous = _place.current
    _place.current = place
    try:
        yield
    finally:
        _place.current = previous


class _Recorder:
    """Replaces tensors by `TensorArg`s and keeps them in order."""

    def __init__(
        self, label: str, where: str, address_mod_16: AddressMod16, real: RealOf | None
    ) -> None:
        self.tensors: list[torch.Tensor] = []
        self._real = real
        self._label = label
        self._where = where
        self._address_mod_16 = address_mod_16

    def unsupported(self, reason: str) -> UnsupportedError:
        return UnsupportedError(f"launch of {self._label}: {reason}", self._where)

    def replace(self, name: str, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return SymbolicInt(_hint(value), value)
        if isinstance(value, torch.SymFloat):
            if self._real is None:
                raise self.unsupported(f"argument {name} is a symbolic number")
            return SymbolicFloat(float(value.node.hint), self._real(value))  # type: ignore[arg-type]
        if isinstance(value, torch.Tensor):
            return self._tensor(name, value, value.dtype)
        if isinstance(value, TensorWrapper):
            return self._tensor(name, value.base, value.dtype)
        if isinstance(value, tuple):
            return with_members(
                value, [self.replace(f"{name}[{i}]", item) for i, item in enumerate(value)]
            )
        if is_descriptor(value):
            return self._descriptor(name, value)
        self.check(name, value)
        return value

    def check(self, name: str, value: Any) -> None:
        """Refuses a value that stands for memory or for a number not known before the call."""
        if hasattr(value, "block_shape"):
            raise self.unsupported(f"argument {name} is a {type(value).__name__}")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise self.unsupported(f"argument {name} is a symbolic number")
        if isinstance(value, torch.Tensor) or hasattr(value, "data_ptr"):
            raise self.unsupported(f"argument {name} of type {type(value).__name__} holds memory")
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, tuple | list):
            for i, item in enumerate(value):
                self.check(f"{name}[{i}]", item)

    def _descriptor(self, name: str, value: Any) -> DescriptorArg:
        base, dtype = value.base, value.base.dtype
        if isinstance(base, TensorWrapper):
            base = base.base
        argument = self._tensor(name, base, dtype)
        # Triton looks at the address when the descriptor is made, which a trace does not.
        assert argument.address_mod_16 == 0, "base must be 16-byte aligned"
        if isinstance(argument.address, torch.SymInt):
            with disable_proxy_modes_tracing():
                bool(argument.address % 16 == 0)  # a guard
            argument = dataclasses.replace(argument, address=None)
        return describe(value, argument)

    def _tensor(self, name: str, tensor: Any, dtype: Any) -> TensorArg:
        if not isinstance(tensor, torch.Tensor):
            raise self.unsupported(f"argument {name} reinterprets a {type(tensor).__name__}")
        if tensor.layout != torch.strided:
            raise self.unsupported(f"argument {name} has layout {tensor.layout}")
        if self.tensors and tensor.device != self.tensors[0].device:
            raise self.unsupported(
                f"argument {name} is on {tensor.device}, others are on {self.tensors[0].device}"
            )
        address = self._address_mod_16(tensor)
        known = _hint(address) if isinstance(address, torch.SymInt) else address
        varying = address if isinstance(address, torch.SymInt) else None
        argument = TensorArg(len(self.tensors), dtype, known % 16, varying)
        self.tensors.append(tensor)
        return argument


def _hint(value: torch.SymInt) -> int:
    hint = value.node.hint
    assert isinstance(hint, int), "every symbol of a capture has a value"
    return hint


def record_launch(
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    grid: Any,
    address_mod_16: AddressMod16,
    real: RealOf | None = None,
) -> tuple[LaunchRequest, list[torch.Tensor]]:
    """Binds a launch as Triton does and takes its tensors out.

    Args:
        kernel: a `JITFunction` or `InterpretedFunction`.
        args: positional arguments of the launch.
        kwargs: keyword arguments: parameters and options.
        grid: one to three ints, or a callable that returns them given all bound arguments by name.
        address_mod_16: gives a number that is a tensor's address modulo 16, a SymInt if it varies;
            called once per tensor argument.
        real: gives what stands for a float argument that varies; without it such are refused.

    Returns:
        The request, and the tensors that its `TensorArg`s index.

    Raises:
        TypeError: a missing or repeated argument, or one of a type that Triton does not take.
        KeyError: an unknown keyword.
        UnsupportedError: a launch that Triton would run and Trident cannot express.
    """
    check_expressible(kernel)
    function = as_jit_function(kernel)
    label = function.__name__
    where = _place.current or user_place()
    recorder = _Recorder(label, where, address_mod_16, real)
    args = [constants_known(plain_argument(value)) for value in args]
    kwargs = {name: constants_known(plain_argument(value)) for name, value in kwargs.items()}

    bound = bind(kernel, args, kwargs)
    options = select_options(kernel, kwargs)

    arguments = {}
    for parameter in function.params:
        value = bound[parameter.name]
        if parameter.is_constexpr:
            with because(f"kernel {label} is compiled for the value of {parameter.name}"):
                value = as_known(value)
            recorder.check(parameter.name, value)
            arguments[parameter.name] = value
        else:
            arguments[parameter.name] = recorder.replace(parameter.name, value)

    extents = _canonical_grid(grid(dict(bound)) if callable(grid) else grid, recorder)
    request = LaunchRequest(
        kernel, arguments, options, extents, where, label, len(recorder.tensors)
    )
    return request, recorder.tensors


def _canonical_grid(
    grid: Any, recorder: _Recorder
) -> tuple[int | torch.SymInt, int | torch.SymInt, int | torch.SymInt]:
    if grid is None:
        raise AssertionError("grid is None")
    count = len(grid)
    extents = [1, 1, 1]
    extents[0] = grid[0]
    for axis in range(1, min(count, 3)):
        extents[axis] = grid[axis]
    result: list[int | torch.SymInt] = []
    for extent in extents:
        if isinstance(extent, torch.SymInt) and 0 <= extent <= _MAX_EXTENT:
            result.append(extent)
            continue
        if isinstance(extent, torch.Tensor | torch.SymFloat):
            raise recorder.unsupported(f"grid extent of type {type(extent).__name__}")
        if not hasattr(extent, "__index__"):
            raise TypeError(f"'{type(extent).__name__}' object cannot be interpreted as an integer")
        value = int(extent.__index__())
        if not 0 <= value <= _MAX_EXTENT:
            raise recorder.unsupported(f"grid extent {value} is out of range")
        result.append(value)
    return result[0], result[1], result[2]
