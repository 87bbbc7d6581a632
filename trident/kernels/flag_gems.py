"""FlagGems' layers between its wrappers and its kernels, while a trace routes launches.

`LibEntry` keeps compiled kernels by argument values and launches those past Triton; in a trace it
hands the launch on, as it does for arguments that it meets for the first time. `LibTuner` keeps
its winners in a data base, and `PointwiseDynamicFunction` writes a module for each new rank: both
happen aside of the trace. `StridedBuffer` passes a tensor's memory under other sizes, strides and
dtype; it asks for the address when it is made, which a trace does not know.

Nothing here imports FlagGems: its modules are looked up when a trace begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from triton.runtime.jit import TensorWrapper

from trident import aside
from trident.errors import UnsupportedError
from trident.kernels.patches import Patch, loaded


def patches(is_routing: Callable[[], bool]) -> Iterator[Patch]:
    """Class, method and what makes the replacement, of FlagGems' classes that are loaded."""
    entry = loaded("flag_gems.utils.libentry", "LibEntry")
    if entry is not None:
        yield entry, "run", lambda original: _routed_entry(original, is_routing)
    pointwise = loaded("flag_gems.utils.pointwise_dynamic", "PointwiseDynamicFunction")
    if pointwise is not None:
        yield pointwise, "instantiate", lambda original: _aside(original, is_routing)
    buffer = _strided_buffer()
    if buffer is not None:
        yield buffer, "__init__", lambda original: _routed_buffer(original, is_routing)


def stored_winner(cache: Any, key: tuple[object, ...]) -> dict[tuple[object, ...], Any]:
    """What an autotuner's cache that is not a dictionary holds for a key: one entry or none."""
    return aside.run(lambda: {key: cache[key]} if key in cache else {})


def _aside(original: Callable[..., Any], is_routing: Callable[[], bool]) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        if not is_routing():
            return original(self, *args)
        return aside.run(lambda: original(self, *args))

    return method


def _strided_buffer() -> Any:
    return loaded("flag_gems.utils.tensor_wrapper", "StridedBuffer")


def _routed_entry(
    original: Callable[..., Any], is_routing: Callable[[], bool]
) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_routing():
            return original(self, *args, **kwargs)
        return self.fn.run(*args, **kwargs), {}

    return run


class _NoAddress:
    """A tensor in a trace whose address nobody may use: it shows as 0."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

    def data_ptr(self) -> int:
        return 0


def _routed_buffer(
    original: Callable[..., Any], is_routing: Callable[[], bool]
) -> Callable[..., None]:
    def __init__(self: Any, base: Any, *args: Any, **kwargs: Any) -> None:
        if not is_routing() or not isinstance(base, FakeTensor):
            original(self, base, *args, **kwargs)
            return
        original(self, _NoAddress(base), *args, **kwargs)
        self._base = base
        self._data_ptr = None  # nobody's arithmetic may go on from the 0

    return __init__


def plain_argument(value: Any) -> Any:
    """A `StridedBuffer` as the tensor whose memory it passes, under the dtype that it shows.

    Raises:
        UnsupportedError: the buffer starts in the middle of an element of its tensor.
    """
    kind = _strided_buffer()
    if kind is None or not isinstance(value, kind):
        return value
    base, dtype = value._base, value.dtype
    if value.offset:
        distance, rest = divmod(value.offset * dtype.itemsize, base.element_size())
        if rest:
            raise UnsupportedError("a StridedBuffer starts within an element of its tensor")
        base = torch.as_strided(base, (1,), (1,), base.storage_offset() + distance)
    return base if base.dtype == dtype else TensorWrapper(base, dtype)
