"""What PyTorch decomposes, describes or computes in C++ over sizes as plain numbers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

# PyTorch describes these over symbols in Python; the dispatcher would take the C++ kernels, which
# need numbers.
DESCRIBED_IN_PYTHON = frozenset({torch.ops.aten.constant_pad_nd.default})

# Their last two arguments are an axis of the first and an index there.
_SELECTING = frozenset({torch.ops.aten.select.int, torch.ops.aten.select_scatter.default})


def decomposed_with_symbols() -> contextlib.AbstractContextManager[Any]:
    """Keeps the symbols of sizes through composite operators, in a trace with symbols.

    PyTorch 2.11 decomposes `matmul` in C++ over sizes as numbers, which fixes them. Its own
    decomposition in Python, the same steps over symbols, then takes the place.
    """
    if _matmul_keeps_symbols():
        return contextlib.nullcontext()
    return enable_python_dispatcher()


@contextlib.contextmanager
def bytes_vary() -> Iterator[None]:
    """While active, ``x.nbytes`` is a SymInt for a tensor whose sizes are."""
    FakeTensor.nbytes = property(_num_bytes)  # type: ignore[assignment]
    try:
        yield
    finally:
        del FakeTensor.nbytes


def _num_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def check_index(func: Any, args: Sequence[Any]) -> None:
    """Refuses an index out of range, which PyTorch 2.11 does not for fakes; symbols are guarded.

    Raises:
        IndexError: as in eager.
    """
    if func in _SELECTING:
        size, index = args[0].shape[args[-2]], args[-1]
        if index < -size or index >= size:
            raise IndexError("index out of range")


@functools.cache
def _matmul_keeps_symbols() -> bool:
    environment = ShapeEnv()
    source = ConstantSource("size")
    symbol = environment.create_symbol(5, source, DimDynamic.DYNAMIC)
    size = environment.create_symintnode(symbol, hint=5, source=source)
    with FakeTensorMode(shape_env=environment), torch.no_grad():
        tensor = torch.empty(2, size, 8)
        torch.matmul(tensor, tensor.transpose(1, 2))
    return not environment.replace(symbol).is_number
