"""How inputs and outputs reach a CUDA graph: launches are pointed at them, or they are copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from graph_helpers import WARM, record_of, scale_add_kernel

import trident
from trident import _C
from trident.graphs import capture_graph
from trident.optimize import optimizer_of

pytestmark = pytest.mark.gpu


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[_C.GraphReplay]:
    """The graphs that are captured in a test, in their order."""
    found: list[_C.GraphReplay] = []

    def capture(*arguments: Any) -> Any:
        found.append(capture_graph(*arguments))
        return found[-1]

    monkeypatch.setattr("trident.miss.capture_graph", capture)
    return found


def scaled_twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scale_add_kernel[(1,)](x, x, out, x.numel(), BLOCK=256)
    return out


@torch.no_grad()
def test_large_or_written_inputs_that_move_run_in_stream_mode_or_are_captured_anew() -> None:
    def append(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, x)
        return cache.sum(0) + x

    fast = trident.optimize(append, graphs=True)
    for _ in range(3):
        cache, expected_cache = torch.zeros(8, 32, device="cuda"), torch.zeros(8, 32, device="cuda")
        for step in range(8):
            x = torch.randn(1, 32, device="cuda")
            at = torch.tensor([step], device="cuda")
            assert torch.equal(fast(cache, x, at), append(expected_cache, x, at))
            assert torch.equal(cache, expected_cache)
    assert fast.stats()["misses"] == 1


@torch.no_grad()
def test_a_large_input_that_keeps_moving_is_staged(replays: list[_C.GraphReplay]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + x.flip(0)

    fast = trident.optimize(function, graphs=True)
    kept = [torch.randn(300_000, device="cuda") for _ in range(4 * WARM)]
    for x in kept:
        assert torch.equal(fast(x), function(x))
    first, second = replays
    assert first.replays <= 1
    assert second.replays > WARM
    assert "1 inputs staged" in record_of(fast).graph


@torch.no_grad()
def test_a_large_input_of_a_kernel_and_an_operator_that_keeps_moving_is_staged(
    replays: list[_C.GraphReplay],
) -> None:
    y = torch.randn(100_000, device="cuda")

    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out + x.flip(0)

    fast = trident.optimize(function, graphs=True)
    kept = [torch.randn(100_000, device="cuda") for _ in range(4 * WARM)]
    for x in kept:
        before = x.clone()
        assert torch.equal(fast(x), function(x))
        assert torch.equal(x, before)
    first, second = replays
    assert first.replays <= 1
    assert second.replays > WARM
    assert "1 inputs staged" in record_of(fast).graph


@torch.no_grad()
def test_an_input_of_a_kernel_that_is_written_as_well_is_never_staged() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scale_add_kernel[(1,)](x, y, x, x.numel(), BLOCK=256)
        return x + y

    fast = trident.optimize(function, graphs=True)
    for _ in range(4 * WARM):
        x, y = torch.randn(200, device="cuda"), torch.randn(200, device="cuda")
        mine, theirs = x.clone(), x.clone()
        assert torch.equal(fast(mine, y), function(theirs, y))
        assert torch.equal(mine, theirs)
    assert "1 inputs staged" in record_of(fast).graph  # y


@triton.jit
def accumulate_kernel(total_ptr, x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(total_ptr + offsets, mask=mask) + tl.load(x_ptr + offsets, mask=mask)
    tl.store(total_ptr + offsets, total, mask=mask)


@triton.jit
def four_tensors_kernel(a_ptr, b_ptr, c_ptr, d_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    left = tl.load(a_ptr + offsets, mask=mask) + tl.load(b_ptr + offsets, mask=mask)
    right = tl.load(c_ptr + offsets, mask=mask) * tl.load(d_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, left + right, mask=mask)


@torch.no_grad()
def test_launches_are_pointed_at_inputs_and_outputs_that_move(
    replays: list[_C.GraphReplay],
) -> None:
    def function(x: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = x.shape[1]
        grid = (triton.cdiv(n, 256),)
        first, second = torch.empty_like(x[0]), torch.empty_like(x[0])
        scale_add_kernel[grid](x[1], total, first, n, BLOCK=256)
        accumulate_kernel[grid](total, x[0], n, BLOCK=256)
        scale_add_kernel[grid](first, total, second, n, BLOCK=256)
        return second, first

    fast = trident.optimize(function, graphs=True)
    kept = []
    for _ in range(4 * WARM):
        x, total = torch.randn(2, 100_000, device="cuda"), torch.randn(100_000, device="cuda")
        expected_total = total.clone()
        outputs, expected = fast(x, total), function(x, expected_total)
        kept.append((x, outputs, expected))
        for got, wanted in zip((*outputs, total), (*expected, expected_total), strict=True):
            assert torch.equal(got, wanted)
    (replay,) = replays
    assert replay.replays >= 3 * WARM
    assert "0 inputs staged, 0 of 2 outputs copied" in record_of(fast).graph
    for _, outputs, expected in kept:
        for got, wanted in zip(outputs, expected, strict=True):
            assert torch.equal(got, wanted)


@torch.no_grad()
@pytest.mark.parametrize(
    ("view", "copied"),
    [
        (lambda out: out.squeeze(1), 0),
        (lambda out: out[:, 0].t(), 0),
        (lambda out: out[:2], 1),  # the kernel writes more than that
        (lambda out: out[2:], 1),
        (lambda out: out.view(torch.int32), 1),  # an operator makes it
    ],
)
def test_launches_are_pointed_at_outputs_that_are_views(
    replays: list[_C.GraphReplay], view: Callable[[torch.Tensor], torch.Tensor], copied: int
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale_add_kernel[(1,)](x, x, out, x.numel(), BLOCK=256)
        return view(out)

    fast = trident.optimize(function, graphs=True)
    kept = []
    for _ in range(4 * WARM):
        x = torch.randn(4, 1, 32, device="cuda")
        kept.append((fast(x), function(x)))
    for got, expected in kept:
        assert torch.equal(got, expected) and got.stride() == expected.stride()
    assert sum(replay.replays for replay in replays) >= 3 * WARM
    assert f"{copied} of 1 outputs copied" in record_of(fast).graph


@torch.no_grad()
def test_a_small_input_that_one_kernel_takes_several_times_is_not_staged(
    replays: list[_C.GraphReplay],
) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        four_tensors_kernel[(1,)](x, y, x, x, out, x.numel(), BLOCK=256)
        return out

    fast = trident.optimize(function, graphs=True)
    for _ in range(4 * WARM):
        x, y = torch.randn(2, 64, device="cuda")
        assert torch.equal(fast(x, y), function(x, y))
    assert sum(replay.replays for replay in replays) >= 3 * WARM
    assert "0 inputs staged, 0 of 1 outputs copied" in record_of(fast).graph


@torch.no_grad()
def test_inputs_that_share_memory_in_another_way_are_still_eagers(
    replays: list[_C.GraphReplay],
) -> None:
    def function(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(total)
        accumulate_kernel[(1,)](total, x, 200, BLOCK=256, num_warps=1)  # loads before it stores
        scale_add_kernel[(1,)](x, total, out, 200, BLOCK=256)
        return out

    fast = trident.optimize(function, graphs=True)
    memory = torch.randn(4 * WARM, 400, device="cuda")
    for step, row in enumerate(memory):
        distance = (0, 16, 32, 200)[step % 4]  # the two overlap, but for the last
        theirs = row.clone()
        got = fast(row[distance:][:200], row[:200])
        assert torch.equal(got, function(theirs[distance:][:200], theirs[:200]))
        assert torch.equal(row, theirs)
    assert sum(replay.replays for replay in replays) > WARM


@torch.no_grad()
def test_launches_whose_kernel_varies_are_pointed_as_well(replays: list[_C.GraphReplay]) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        out = torch.empty_like(x)
        scale_add_kernel[(triton.cdiv(n, 256),)](x, x, out, n, BLOCK=256)
        return out

    fast = trident.optimize(function, graphs=True)
    for step in range(8 * WARM):
        n = (100_000, 99_999, 65_536)[step % 3]
        x = torch.randn(n, device="cuda")
        assert torch.equal(fast(x, n), function(x, n))
    assert optimizer_of(fast).records[-1].symbols
    assert sum(replay.replays for replay in replays) > 3 * WARM
    assert "0 inputs staged, 0 of 1 outputs copied" in optimizer_of(fast).records[-1].graph


@torch.no_grad()
def test_a_grid_of_no_programs_is_captured_without_its_launch() -> None:
    def function(x: torch.Tensor, blocks: int) -> torch.Tensor:
        out = torch.zeros_like(x)
        scale_add_kernel[(blocks,)](x, x, out, x.numel(), BLOCK=256)
        rest = torch.empty_like(x)
        scale_add_kernel[(1,)](x, out, rest, x.numel(), BLOCK=256)
        return rest

    fast = trident.optimize(function, graphs=True, dynamic=False)
    for blocks in (0, 1):
        for _ in range(2 * WARM):
            x = torch.randn(200, device="cuda")
            assert torch.equal(fast(x, blocks), function(x, blocks))
    assert all(each.graph.startswith("captured") for each in optimizer_of(fast).records)


@triton.jit
def next_row_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < width
    tl.store(out_ptr + offsets, tl.load(x_ptr + width + offsets, mask=mask), mask=mask)


@torch.no_grad()
def test_a_kernel_that_reads_around_its_input_gets_no_copy_of_it(
    replays: list[_C.GraphReplay],
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        next_row_kernel[(1,)](x, out, x.numel(), BLOCK=256)
        return out + x  # an operator, so that no launch is pointed at x

    whole = torch.zeros(400, device="cuda")
    tables = [torch.randn(2, 200, device="cuda") for _ in range(4 * WARM)]
    fast = trident.optimize(function, graphs=True)
    for table in tables:
        assert torch.equal(fast(table[0]), table[0] + table[1])
    assert "0 inputs staged" in record_of(fast).graph

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return scaled_twice(x) + x

    staging = trident.optimize(doubled, graphs=True)
    for _ in range(2 * WARM):
        staging(whole[:200].clone())
    assert "1 inputs staged" in record_of(staging).graph
    # The same specialization, whose graph stages: parts of a larger tensor are not served by it.
    served = replays[-1].replays
    assert served > 0
    for table in tables[:2]:
        assert torch.equal(staging(table[0]), doubled(table[0]))
    assert replays[-1].replays == served


@torch.no_grad()
def test_a_kernel_that_reads_around_its_input_is_pointed_at_it(
    replays: list[_C.GraphReplay],
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        next_row_kernel[(1,)](x, out, x.numel(), BLOCK=256)
        return out

    fast = trident.optimize(function, graphs=True)
    tables = [torch.randn(2, 200, device="cuda") for _ in range(4 * WARM)]
    for table in tables:
        assert torch.equal(fast(table[0]), table[1])
    (replay,) = replays
    assert replay.replays > 2 * WARM


@torch.no_grad()
def test_a_program_that_copies_its_output_is_not_mistaken_for_the_graphs_own_copy() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        doubled = x * 2
        other = doubled.clone()
        other.add_(1)
        return doubled, other.sum()

    fast = trident.optimize(function, graphs=True)
    for _ in range(WARM + 4):
        x = torch.randn(64, 64, device="cuda")
        for got, expected in zip(fast(x), function(x), strict=True):
            assert torch.equal(got, expected)


@torch.no_grad()
@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float32, torch.int64, torch.complex64]
)
def test_copies_of_all_sizes_and_alignments(dtype: torch.dtype) -> None:
    fast = trident.optimize(lambda x: x.flip(0), graphs=True)
    for size in (2, 3, 8, 1000, 4096):
        for offset in (0, 1):
            for seed in range(WARM + 1):
                values = torch.randint(2, (size + 1,), device="cuda") * 3 + seed % 2
                x = values.to(dtype)[offset : offset + size]
                assert torch.equal(fast(x), x.flip(0)), (size, offset)
    captured = [
        record.graph
        for record, _, compiled in _C.entries(optimizer_of(fast).scm)
        if compiled and record.graph.startswith("captured")
    ]
    assert captured
    assert all("1 inputs staged, 1 of 1 outputs copied" in each for each in captured), captured


@torch.no_grad()
def test_an_input_that_is_aligned_only_at_times(replays: list[_C.GraphReplay]) -> None:
    fast = trident.optimize(lambda x: x.flip(0), graphs=True, dynamic=False)
    base = torch.randn(1024 + 4, device="cuda")
    for step in range(6 * WARM):
        x = base[step % 4 : step % 4 + 1024]
        assert torch.equal(fast(x), x.flip(0))
    assert fast.stats()["fallbacks"] == 0
    assert sum(each.replays for each in replays) > 2 * WARM
