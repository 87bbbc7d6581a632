"""Launches that only a GPU executes, compared with eager Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import trident

pytestmark = pytest.mark.gpu


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def in_place_kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def described_kernel(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    target.store(at, source.load(at) * 2)


def needs(major: int) -> None:
    if torch.cuda.get_device_capability()[0] < major:
        pytest.skip(f"needs compute capability {major}.0")


def agrees(function: Callable[..., Any], make: Callable[[], Any], calls: int = 4) -> Any:
    """Optimized against eager on fresh inputs; all calls but the first hit."""
    fast = trident.optimize(function, on_unsupported="raise")
    with torch.no_grad():
        for _ in range(calls):
            given = make()
            expected = function(given.clone())
            torch.testing.assert_close(fast(given), expected, rtol=0, atol=0)
    stats = fast.stats()
    assert (stats["misses"], stats["hits"]) == (1, calls - 1)
    return fast


def with_options(**options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def scale(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        scale_kernel[grid](x, out, x.numel(), 1.5, BLOCK=256, **options)
        return out

    return scale


@pytest.mark.parametrize(
    "options",
    [
        {"num_warps": 1},
        {"num_warps": 16, "num_stages": 1},
        {"maxnreg": 64},
        {"enable_fp_fusion": False},
        {"launch_cooperative_grid": True},
    ],
)
def test_options(options: dict[str, Any]) -> None:
    agrees(with_options(**options), lambda: torch.randn(5000, device="cuda"))


@pytest.mark.parametrize("options", [{"num_ctas": 2}, {"num_ctas": 4}, {"launch_pdl": True}])
def test_clusters_and_dependent_launches(options: dict[str, Any]) -> None:
    needs(9)
    agrees(with_options(**options), lambda: torch.randn(5000, device="cuda"))


def test_scratch_memory_of_kernels_that_make_descriptors() -> None:
    needs(9)
    triton.set_allocator(
        lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8)
    )

    def double(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 64))
        described_kernel[grid](x, out, *x.shape, 16, 64)
        return out

    agrees(double, lambda: torch.randn(100, 256, device="cuda"))


def test_autotuning_by_tritons_own_benchmark_leaves_the_contents_of_one_run() -> None:
    configs = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256, 1024)]
    tuned = triton.autotune(configs, key=["n"], restore_value=["x"])(in_place_kernel)

    def increment(x: torch.Tensor) -> torch.Tensor:
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())
        return x

    fast = trident.optimize(increment, on_unsupported="raise")
    x = torch.zeros(10_000, device="cuda")
    with torch.no_grad():
        for count in range(1, 5):
            assert bool((fast(x) == count).all())
        assert fast.stats()["misses"] == 1
        # What prepare tunes, it tunes on memory of its own.
        other = torch.zeros(20_000, device="cuda")
        fast.prepare(other)
        assert not bool(other.any()) and (20_000, "torch.float32") in tuned.cache
        misses = fast.stats()["misses"]
        assert bool((fast(other) == 1).all()) and fast.stats()["misses"] == misses


@torch.library.triton_op("trident_test_gpu::scale", mutates_args=())
def scale_operator(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256),)
    torch.library.wrap_triton(scale_kernel)[grid](x, out, x.numel(), factor, BLOCK=256)
    return out


def test_operators_made_of_kernels() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return scale_operator(scale_operator(x, 2.5) + 1, 0.5)

    fast = agrees(call, lambda: torch.randn(5000, device="cuda"))
    assert fast.stats()["launches"] == 2 * 4 and fast.stats()["aten_boxed"] == 0


def test_kernel_that_warmup_compiled_is_launched_itself() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel = scale_kernel.warmup(x, out, x.numel(), 2.0, BLOCK=256, grid=(1,))
        kernel._init_handles()
        assert kernel.n_regs > 0
        kernel[(triton.cdiv(x.numel(), 256), 1, 1)](x, out, x.numel(), 2.0, 256)
        return out

    agrees(call, lambda: torch.randn(5000, device="cuda"))


def test_a_grid_that_cannot_be_launched_raises_eagers_error() -> None:
    def call(x: torch.Tensor, rows: int) -> torch.Tensor:
        out = torch.zeros_like(x)
        scale_kernel[(1, rows)](x, out, x.numel(), 2.0, BLOCK=256)
        return out

    fast = trident.optimize(call)
    x = torch.randn(256, device="cuda")
    with torch.no_grad():
        for function in (call, fast):
            with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: invalid argument"):
                function(x, 70_000)
        torch.testing.assert_close(fast(x, 3), x * 2)
