"""On a GPU: symbolic specializations with compiled kernels, and the variants that calls choose."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from dynamic_helpers import specializations
from torch.nn.attention import SDPBackend, sdpa_kernel

import trident
from trident.optimize import optimizer_of

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("no_fallback")]


@triton.jit
def scaled_rows(x, out, stride, columns, count, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    value = tl.load(x + row * stride + offsets, mask=mask)
    tl.store(out + row * columns + offsets, value * factor + count, mask=mask)


def scale(x: torch.Tensor, count: int, factor: float) -> torch.Tensor:
    out = torch.empty(x.shape, device=x.device)
    scaled_rows[(x.shape[0],)](x, out, x.stride(0), x.shape[1], count, factor, BLOCK=128)
    return out


def check(optimized: object, x: torch.Tensor, count: int, factor: float) -> None:
    got = optimized(x, count, factor)  # type: ignore[operator]
    assert torch.equal(got, scale(x, count, factor))


def test_every_class_of_integer_and_address() -> None:
    optimized = trident.optimize(scale)
    memory = torch.randn(1 << 16, device="cuda")
    for start in (0, 1, 4, 6):
        for rows, columns in ((3, 100), (5, 96), (16, 128), (7, 33), (2, 64)):
            x = memory[start : start + rows * columns].view(rows, columns)
            for count in (1, 0, 16, 17, -3, 2**31, 2**33 + 16):
                check(optimized, x, count, count / 3)
    # Numbers vary first, then sizes, then addresses.
    assert specializations(optimized) == 3
    program_calls = optimized.stats()
    assert program_calls["calls"] == program_calls["hits"] + program_calls["misses"]
    assert program_calls["misses"] < program_calls["calls"] / 2


def test_wide_strides() -> None:
    optimized = trident.optimize(scale)
    for stride in (128, 130, 2**20, 2**20 + 1):
        memory = torch.randn(stride * 2 + 200, device="cuda")
        x = memory.as_strided((3, 100), (stride, 1))
        check(optimized, x, 5, 0.5)
    assert specializations(optimized) == 1


def test_prepare_makes_a_variant_available_in_a_graph_capture() -> None:
    optimized = trident.optimize(scale, graphs=False)
    x = torch.randn(4, 100, device="cuda")
    for count in (5, 6):
        optimized(x, count, 0.5)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(trident.NotPreparedError, match="prepare"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.clone()  # PyTorch warns of a graph of nothing
            optimized(x, 1, 0.5)
    torch.cuda.synchronize()
    optimized.prepare(x, 1, 0.5)
    with torch.cuda.graph(graph):
        out = optimized(x, 1, 0.5)
    graph.replay()
    assert torch.equal(out, scale(x, 1, 0.5))


def test_fixed_sizes_and_varying_ones_go_into_graphs() -> None:
    optimized = trident.optimize(scale, graphs=True)
    fixed = torch.randn(4, 100, device="cuda")
    for _ in range(8):
        check(optimized, fixed, 5, 0.5)
    for rows in (5, 6, 7):
        for _ in range(8):
            check(optimized, torch.randn(rows, 100, device="cuda"), 5, 0.5)
    records = optimizer_of(optimized).records
    assert [str(record.graph).startswith("captured") for record in records] == [True, True]


def test_strides_behind_no_element_do_not_keep_a_call_from_its_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(1) * 2

    optimized = trident.optimize(function, graphs=True)
    memory = torch.randn(64, 64, device="cuda")
    for row in range(12):
        x = memory.as_strided((1, 64), (64 + row, 1))
        assert torch.equal(optimized(x), function(x))
    assert specializations(optimized) == 1
    assert optimizer_of(optimized).records[0].graph.startswith("captured")


@pytest.mark.parametrize(
    "backend",
    [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION],
    ids=lambda backend: backend.name,
)
@torch.no_grad()
def test_attention_serves_all_lengths(backend: SDPBackend) -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    fast = trident.optimize(attention)
    with sdpa_kernel([backend]):
        for length in (48, 80, 100, 64, 513, 2):
            q, k, v = (
                torch.randn(1, 4, length, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)
            )
            torch.testing.assert_close(fast(q, k, v), attention(q, k, v), rtol=2e-2, atol=2e-2)
    assert specializations(fast) <= 2
    assert fast.stats()["misses"] <= 3
