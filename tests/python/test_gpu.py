"""On a GPU: the hit path with launches, streams, CUDA graphs, shared memory, memory, errors."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest
import torch
import triton
import triton.language as tl
from bytecode_watch import python_events
from triton.runtime.errors import OutOfResources

import trident
from trident.graphs import HITS_BEFORE_AUTOMATIC_CAPTURE

pytestmark = pytest.mark.gpu
ROOT = pathlib.Path(__file__).resolve().parents[2]


@triton.jit
def scaled_add_kernel(x, y, out, count, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    value = tl.load(x + offsets, mask=mask) * scale + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, value, mask=mask)


def scaled_add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    """x * scale + y, for contiguous tensors of one shape."""
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256),)
    scaled_add_kernel[grid](x, y, out, x.numel(), scale, BLOCK=256)
    return out


@triton.jit
def matmul_kernel(a, b, out, size_k, size_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, size_k, BK):
        left = tl.load(a + rows[:, None] * size_k + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * size_n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * size_n + columns[None, :], total.to(out.dtype.element_ty))


def matmul(a: torch.Tensor, b: torch.Tensor, stages: int) -> torch.Tensor:
    """a @ b for float16 and sizes that are multiples of 128; 32 KiB of shared memory per stage."""
    (size_m, size_k), size_n = a.shape, b.shape[1]
    out = torch.empty(size_m, size_n, device=a.device, dtype=a.dtype)
    matmul_kernel[(size_m // 128, size_n // 128)](
        *(a, b, out, size_k, size_n), BM=128, BN=128, BK=64, num_stages=stages, num_warps=8
    )
    return out


class Chain(torch.nn.Module):
    """Several launches with operators of PyTorch and temporaries between them. x: (rows, 64)."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(depth))
        self.cuda()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = scaled_add(torch.tanh(layer(x)), x, 0.5)
        return x


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_hit_with_launches_runs_no_bytecode() -> None:
    model = Chain()
    fast = trident.optimize(model)
    x = torch.randn(8, 64, device="cuda")
    fast(x)
    launches = fast.stats()["launches"]
    result, events = python_events(fast, x)
    assert events == []
    same(result, model(x))
    stats = fast.stats()
    assert launches == 4 and stats["launches"] >= 8
    assert (stats["misses"], stats["fallbacks"], stats["driver"]) == (1, 0, "cuda")


@pytest.mark.slow
def test_llama_and_qwen_in_bfloat16_give_eagers_tokens_and_logits() -> None:
    # In a process of its own, because Liger patches Hugging Face's modules.
    script = ROOT / "examples" / "llama_qwen_demo.py"
    done = subprocess.run(
        [sys.executable, str(script), "--tokens", "32"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch.bfloat16" in done.stdout and "reference: eager + Liger" in done.stdout
    assert done.stdout.count("tokens   agree") == 2
    assert done.stdout.count("largest difference 0 (allowed 0)") == 2
    counts = re.findall(r"(\d+) hits, (\d+) misses, (\d+) fallbacks, (\d+) errors", done.stdout)
    assert counts == [("30", "2", "0", "0")] * 2


# --- streams


def test_call_runs_on_the_current_stream() -> None:
    model = Chain()
    fast = trident.optimize(model)
    x, late = torch.zeros(8, 64, device="cuda"), torch.randn(8, 64, device="cuda")
    expected = model(late)
    for _ in range(2):  # a miss, then a hit
        x.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Work on any other stream would not wait for this, and would see zeros.
            torch.cuda._sleep(200_000_000)
            x.copy_(late)
            y = fast(x)
        side.synchronize()
        same(y, expected)
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (1, 1)


def test_two_threads_on_two_streams_do_not_disturb_each_other() -> None:
    model = Chain()
    fast = trident.optimize(model)
    inputs = [torch.randn(256, 64, device="cuda") for _ in range(2)]
    expected = [model(x) for x in inputs]
    fast(inputs[0])
    torch.cuda.synchronize()
    gate = threading.Barrier(2)
    results: list[list[torch.Tensor]] = [[], []]
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.no_grad(), torch.cuda.stream(stream):
                gate.wait()
                for _ in range(100):
                    results[index].append(fast(inputs[index]))
            stream.synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for got, wanted in zip(results, expected, strict=True):
        assert len(got) == 100
        for each in got:
            same(each, wanted)
    stats = fast.stats()
    assert (stats["misses"], stats["hits"], stats["errors"]) == (1, 200, 0)


def test_prepared_call_can_be_captured_in_a_cuda_graph() -> None:
    model = Chain()
    fast = trident.optimize(model)
    x = torch.randn(8, 64, device="cuda")
    fast.prepare(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x)  # cuBLAS makes its workspace outside of the capture
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        y = fast(x)
    assert (fast.stats()["hits"], fast.stats()["misses"]) == (1, 0)
    for _ in range(3):
        x.copy_(torch.randn(8, 64, device="cuda"))
        graph.replay()
        replayed = y.clone()
        other = torch.randn(8, 64, device="cuda")
        same(fast(other), model(other))  # calls between replays spoil neither
        same(replayed, model(x))
        graph.replay()
        same(y, replayed)


def test_a_call_that_is_not_prepared_cannot_be_captured() -> None:
    model = Chain()
    fast = trident.optimize(model)
    x = torch.randn(8, 64, device="cuda")
    model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(trident.NotPreparedError, match="prepare"):
        with torch.cuda.graph(graph):
            fast(x)
    same(fast(x), model(x))
    assert (fast.stats()["errors"], fast.stats()["misses"]) == (1, 1)


# --- kernels


def test_kernel_with_more_than_48_kib_of_shared_memory() -> None:
    a = torch.randn(256, 512, device="cuda", dtype=torch.float16)
    b = torch.randn(512, 384, device="cuda", dtype=torch.float16)
    expected = matmul(a, b, 4)
    compiled = matmul_kernel[(2, 3)](
        *(a, b, expected, 512, 384), BM=128, BN=128, BK=64, num_stages=4, num_warps=8
    )
    assert compiled.metadata.shared > 48 * 1024
    fast = trident.optimize(matmul)
    for _ in range(2):
        same(fast(a, b, 4), expected)
    torch.testing.assert_close(expected, a @ b, rtol=1e-2, atol=1e-2)
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (1, 1)


def test_kernel_that_does_not_fit_raises_as_eager_and_later_calls_work() -> None:
    a = torch.randn(128, 1024, device="cuda", dtype=torch.float16)
    b = torch.randn(1024, 128, device="cuda", dtype=torch.float16)
    fast = trident.optimize(matmul)
    for count in (1, 2):
        with pytest.raises(OutOfResources, match="shared memory"):
            fast(a, b, 12)
        assert fast.stats()["errors"] == count
    same(fast(a, b, 2), matmul(a, b, 2))
    same(fast(a, b, 2), matmul(a, b, 2))
    stats = fast.stats()
    assert (stats["errors"], stats["misses"], stats["hits"]) == (2, 1, 1)


def test_grid_of_no_programs_launches_nothing() -> None:
    model = Chain()
    fast = trident.optimize(model)
    x = torch.empty(0, 64, device="cuda")
    for _ in range(2):
        assert fast(x).shape == (0, 64)
    torch.cuda.synchronize()
    other = torch.randn(3, 64, device="cuda")
    same(fast(other), model(other))
    assert fast.stats()["fallbacks"] == 0 and fast.stats()["hits"] == 1


def test_tensors_that_are_not_aligned_to_16_bytes() -> None:
    fast = trident.optimize(scaled_add)
    base = torch.randn(1025, device="cuda")
    y = torch.randn(1024, device="cuda")
    # Every order: an aligned kernel on these addresses would fault or read other elements.
    for start in (0, 1, 0, 1):
        x = base[start : start + 1024]
        assert (x.data_ptr() % 16 == 0) == (start == 0)
        same(fast(x, y, 2.0), scaled_add(x, y, 2.0))
        torch.testing.assert_close(fast(x, y, 2.0), x * 2 + y)
    torch.cuda.synchronize()
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (2, 6)


# --- memory


def test_outputs_are_never_overwritten_by_later_calls() -> None:
    model = Chain()
    fast = trident.optimize(model)
    inputs = [torch.randn(8, 64, device="cuda") for _ in range(16)]
    outputs = [fast(x) for x in inputs]
    assert len({y.data_ptr() for y in outputs}) == len(outputs)
    for x, y in zip(inputs, outputs, strict=True):
        same(y, model(x))


def test_device_memory_does_not_grow() -> None:
    fast = trident.optimize(Chain())
    inputs = [torch.randn(rows, 64, device="cuda") for rows in (8, 96)]
    for _ in range(HITS_BEFORE_AUTOMATIC_CAPTURE + 2):  # a graph brings memory of its own, once
        for x in inputs:
            fast(x)
    torch.cuda.synchronize()

    def in_use() -> tuple[int, ...]:
        used = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        if "PYTEST_XDIST_WORKER" in os.environ:  # other processes use the device, too
            return used
        return *used, torch.cuda.mem_get_info()[0]

    before = in_use()
    for _ in range(100):
        for x in inputs:
            fast(x)
    torch.cuda.synchronize()
    assert in_use() == before
    assert fast.stats()["hits"] == 200 + 2 * (HITS_BEFORE_AUTOMATIC_CAPTURE + 1)
