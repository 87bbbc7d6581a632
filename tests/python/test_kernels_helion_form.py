"""The form of what Helion writes, without Helion: its launcher, constants and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import trident

# What Helion writes: the extent as a captured constant, sizes and strides as arguments, and a
# launcher that a keyword could replace.
_BLOCK_SIZE_0 = tl.constexpr(32)


@triton.jit
def _helion_add(x, y, out, x_size_0, out_stride_0, x_stride_0, y_stride_0):
    pid_0 = tl.program_id(0)
    indices_0 = (pid_0 * _BLOCK_SIZE_0 + tl.arange(0, _BLOCK_SIZE_0)).to(tl.int32)
    mask_0 = indices_0 < x_size_0
    load = tl.load(x + indices_0 * x_stride_0, mask_0, other=0)
    load_1 = tl.load(y + indices_0 * y_stride_0, mask_0, other=0)
    tl.store(out + indices_0 * out_stride_0, load + load_1 * tl.full([], 2.0, tl.float32), mask_0)


def _launcher_of_helion(
    triton_kernel: Any, grid: tuple[int, ...], *args: Any, num_warps: int, num_stages: int
) -> Any:
    run = triton_kernel.run
    return run(*args, grid=grid, warmup=False, num_warps=num_warps, num_stages=num_stages)


def _written_by_helion(
    x: torch.Tensor, y: torch.Tensor, *, _launcher: Callable[..., Any] = _launcher_of_helion
) -> torch.Tensor:
    out = torch.empty_like(x)
    size = 32
    grid = ((x.size(0) + size - 1) // size,)
    strides = (out.stride(0), x.stride(0), y.stride(0))
    _launcher(_helion_add, grid, x, y, out, x.size(0), *strides, num_warps=4, num_stages=1)
    return out


@torch.no_grad()
def test_what_helion_writes_serves_all_sizes(device: torch.device) -> None:
    fast = trident.optimize(_written_by_helion, on_unsupported="raise")
    for size in (100, 100, 64, 65, 32, 200):
        x, y = torch.randn(size, device=device), torch.randn(2 * size, device=device)[::2]
        torch.testing.assert_close(fast(x, y), x + y * 2)
    stats = fast.stats()
    # A size that is no multiple of 16 takes another variant, which the interpreter does not need.
    variants = 1 if device.type == "cuda" else 0
    assert (stats["misses"], stats["specializations"]) == (2 + variants, 2)
