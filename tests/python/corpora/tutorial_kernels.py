"""The kernels that Triton's tutorials teach, each with the Python function that launches it."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(left, right, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    total = tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside)
    tl.store(out + at, total, mask=inside)


def vector_add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(left)
    vector_add_kernel[lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)](
        left, right, out, out.numel(), BLOCK=64
    )
    return out


@triton.jit
def softmax_kernel(x, out, x_stride, out_stride, rows, columns, COLUMNS: tl.constexpr):
    """Each program takes every `num_programs`-th row."""
    at = tl.arange(0, COLUMNS)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        values = tl.load(x + row * x_stride + at, mask=at < columns, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * out_stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Over the last axis of a matrix."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    width = triton.next_power_of_2(columns)
    softmax_kernel[(min(rows, 3),)](
        x, out, x.stride(0), out.stride(0), rows, columns, COLUMNS=width, num_warps=8
    )
    return out


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def tile_of(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile: column by column within bands of GROUP rows, which reuses cache."""
    band = tile // (GROUP * tiles_n)
    height = min(tiles_m - band * GROUP, GROUP)
    within = tile % (GROUP * tiles_n)
    return band * GROUP + within % height, within // height


@triton.jit
def tile_product(
    a, b, row, column, m, n, k, am, ak, bk, bn, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """One M x N tile of a @ b, in fp32. Rows and columns beyond the edge wrap around."""
    rows = (row * M + tl.arange(0, M)) % m
    columns = (column * N + tl.arange(0, N)) % n
    inner = tl.arange(0, K)
    a_at = a + rows[:, None] * am + inner[None, :] * ak
    b_at = b + inner[:, None] * bk + columns[None, :] * bn
    total = tl.zeros((M, N), tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        left = k - step * K
        x = tl.load(a_at, mask=inner[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
        a_at += K * ak
        b_at += K * bk
    return total


@triton.jit
def store_tile(c, value, row, column, m, n, cm, cn, M: tl.constexpr, N: tl.constexpr):
    rows = row * M + tl.arange(0, M)
    columns = column * N + tl.arange(0, N)
    at = c + rows[:, None] * cm + columns[None, :] * cn
    tl.store(at, value, mask=(rows[:, None] < m) & (columns[None, :] < n))


MATMUL_CONFIGS = [
    triton.Config({"M": 16, "N": 32, "K": 16, "GROUP": 2}, num_stages=3, num_warps=4),
    triton.Config({"M": 32, "N": 16, "K": 32, "GROUP": 4}, num_stages=4, num_warps=2),
]


@triton.autotune(MATMUL_CONFIGS, key=["m", "n", "k"])
@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    m,
    n,
    k,
    am,
    ak,
    bk,
    bn,
    cm,
    cn,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    row, column = tile_of(tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), GROUP)
    total = tile_product(a, b, row, column, m, n, k, am, ak, bk, bn, M, N, K)
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    store_tile(c, total.to(c.dtype.element_ty), row, column, m, n, cm, cn, M, N)


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str = "") -> torch.Tensor:
    (m, k), (_, n) = a.shape, b.shape
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["M"]) * triton.cdiv(n, meta["N"]),)](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), ACTIVATION=activation
    )
    return c


@triton.jit
def dropout_kernel(x, out, count, probability, seed, BLOCK: tl.constexpr):
    """The mask is not stored: the seed gives it again."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < count)
    kept = tl.rand(seed, at) > probability
    tl.store(out + at, tl.where(kept, values / (1 - probability), 0.0), mask=at < count)


def dropout(x: torch.Tensor, probability: float, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), probability, seed, BLOCK=32)
    return out


@triton.jit
def layer_norm_kernel(x, out, weight, bias, mean, rstd, stride, count, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    out += row * stride
    totals = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        totals += tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    average = tl.sum(totals, axis=0) / count
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
        centred = tl.where(at < count, values - average, 0.0)
        squares += centred * centred
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / count + eps)
    tl.store(mean + row, average)
    tl.store(rstd + row, scale)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
        w, b = tl.load(weight + at, mask=at < count), tl.load(bias + at, mask=at < count)
        tl.store(out + at, (values - average) * scale * w + b, mask=at < count)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):  # type: ignore[no-untyped-def]
        out = torch.empty_like(x)
        flat = x.reshape(-1, x.shape[-1])
        rows, count = flat.shape
        mean = torch.empty((rows,), dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
        layer_norm_kernel[(rows,)](
            flat, out, weight, bias, mean, rstd, flat.stride(0), count, eps, BLOCK=32, num_warps=2
        )
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.eps = eps
        return out


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, 1e-5)  # type: ignore[no-any-return]


@triton.jit
def attend(
    total,
    weight_sum,
    largest,
    q,
    k_at,
    v_at,
    start,
    stop,
    length,
    stride_k,
    stride_v,
    rows,
    M: tl.constexpr,
    N: tl.constexpr,
    DIAGONAL: tl.constexpr,
):
    """Goes on over keys and values from `start` to `stop` and corrects the softmax on the way."""
    for first in range(start, stop, N):
        first = tl.multiple_of(first, N)
        columns = first + tl.arange(0, N)
        k = tl.load(k_at + first * stride_k, mask=columns[None, :] < length, other=0.0)
        scores = tl.dot(q, k)
        visible = columns[None, :] < length
        if DIAGONAL:
            visible = visible & (columns[None, :] <= rows[:, None])
        scores = tl.where(visible, scores, -1.0e6)
        higher = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.math.exp2(scores - higher[:, None])
        correction = tl.math.exp2(largest - higher)
        v = tl.load(v_at + first * stride_v, mask=columns[:, None] < length, other=0.0)
        total = tl.dot(powers.to(v.dtype), v, total * correction[:, None])
        weight_sum = weight_sum * correction + tl.sum(powers, 1)
        largest = higher
    return total, weight_sum, largest


@triton.heuristics({"EVEN": lambda meta: meta["length"] % meta["M"] == 0})
@triton.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    scale,
    stride_head,
    stride_row,
    length,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64) * stride_head
    rows = tl.program_id(0) * M + tl.arange(0, M)
    depth = tl.arange(0, D)
    q_at = q + head + rows[:, None] * stride_row + depth[None, :]
    if EVEN:
        block = tl.load(q_at)
    else:
        block = tl.load(q_at, mask=rows[:, None] < length, other=0.0)
    # exp2 is cheaper than exp: log2(e) goes into the scale.
    block = (block * (scale * 1.44269504)).to(q.dtype.element_ty)
    k_at = k + head + tl.arange(0, N)[None, :] * stride_row + depth[:, None]
    v_at = v + head + tl.arange(0, N)[:, None] * stride_row + depth[None, :]
    total = tl.zeros((M, D), tl.float32)
    weight_sum = tl.zeros((M,), tl.float32)
    largest = tl.zeros((M,), tl.float32) - float("inf")
    if CAUSAL:
        diagonal = tl.program_id(0) * M
        total, weight_sum, largest = attend(
            total, weight_sum, largest, block, k_at, v_at, 0, diagonal, length,
            stride_row, stride_row, rows, M, N, False,
        )  # fmt: skip
        total, weight_sum, largest = attend(
            total, weight_sum, largest, block, k_at, v_at, diagonal, diagonal + M, length,
            stride_row, stride_row, rows, M, N, True,
        )  # fmt: skip
    else:
        total, weight_sum, largest = attend(
            total, weight_sum, largest, block, k_at, v_at, 0, length, length,
            stride_row, stride_row, rows, M, N, False,
        )  # fmt: skip
    out_at = out + head + rows[:, None] * stride_row + depth[None, :]
    result = (total / weight_sum[:, None]).to(out.dtype.element_ty)
    tl.store(out_at, result, mask=rows[:, None] < length)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Flash attention forward; q, k, v contiguous of shape (batch, heads, length, depth)."""
    batch, heads, length, depth = q.shape
    out = torch.empty_like(q)
    attention_kernel[(triton.cdiv(length, 16), batch * heads)](
        q, k, v, out, depth**-0.5, q.stride(1), q.stride(2), length,
        D=depth, M=16, N=16, CAUSAL=causal,
    )  # fmt: skip
    return out


@triton.jit
def grouped_kernel(
    addresses, sizes, groups, NUM: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """A fixed number of programs takes the tiles of all products of the group in turn."""
    tile = tl.program_id(0)
    before = 0
    for group in range(groups):
        m, n, k = (
            tl.load(sizes + group * 3),
            tl.load(sizes + group * 3 + 1),
            tl.load(sizes + group * 3 + 2),
        )
        tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
        a = tl.load(addresses + group * 3).to(tl.pointer_type(tl.float32))
        b = tl.load(addresses + group * 3 + 1).to(tl.pointer_type(tl.float32))
        c = tl.load(addresses + group * 3 + 2).to(tl.pointer_type(tl.float32))
        while tile < before + tiles_m * tiles_n:
            row, column = (tile - before) // tiles_n, (tile - before) % tiles_n
            total = tile_product(a, b, row, column, m, n, k, k, 1, n, 1, M, N, K)
            store_tile(c, total, row, column, m, n, n, 1, M, N)
            tile += NUM
        before += tiles_m * tiles_n


def grouped_gemm(lefts: list[torch.Tensor], rights: list[torch.Tensor]) -> list[torch.Tensor]:
    """Products of pairs of contiguous fp32 matrices, through a table of their addresses."""
    outs, addresses, sizes = [], [], []
    for a, b in zip(lefts, rights, strict=True):
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device)
        outs.append(c)
        addresses += [a.data_ptr(), b.data_ptr(), c.data_ptr()]
        sizes += [a.shape[0], b.shape[1], a.shape[1]]
    device = lefts[0].device
    grouped_kernel[(4,)](
        torch.tensor(addresses, device=device),
        torch.tensor(sizes, dtype=torch.int32, device=device),
        len(outs),
        NUM=4,
        M=16,
        N=16,
        K=16,
    )
    return outs


@triton.jit
def ragged_kernel(
    a, b, c, offsets, n, k, groups, NUM: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    K: tl.constexpr,
):  # fmt: skip
    """The same over rows of one matrix: those of group g are offsets[g] to offsets[g + 1]."""
    tile = tl.program_id(0)
    before = 0
    tiles_n = tl.cdiv(n, N)
    for group in range(groups):
        first = tl.load(offsets + group)
        m = tl.load(offsets + group + 1) - first
        tiles = tl.cdiv(m, M) * tiles_n
        while tile < before + tiles:
            row, column = (tile - before) // tiles_n, (tile - before) % tiles_n
            total = tile_product(
                a + first * k, b + group * k * n, row, column, m, n, k, k, 1, n, 1, M, N, K
            )
            store_tile(c + first * n, total, row, column, m, n, n, 1, M, N)
            tile += NUM
        before += tiles


def ragged_gemm(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Rows of `a` (total, k) times the matrix of their group in `b` (groups, k, n)."""
    groups, k, n = b.shape
    c = torch.empty((a.shape[0], n), device=a.device, dtype=a.dtype)
    ragged_kernel[(3,)](a, b, c, offsets, n, k, groups, NUM=3, M=16, N=16, K=16)
    return c


@triton.jit
def persistent_kernel(
    a, b, c, m, n, k, am, ak, bk, bn, cm, cn, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    GROUP: tl.constexpr, NUM: tl.constexpr,
):  # fmt: skip
    """As many programs as multiprocessors, each over every NUM-th tile."""
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, NUM, flatten=True):
        row, column = tile_of(tile, tiles_m, tiles_n, GROUP)
        total = tile_product(a, b, row, column, m, n, k, am, ak, bk, bn, M, N, K)
        store_tile(c, total.to(c.dtype.element_ty), row, column, m, n, cm, cn, M, N)


def persistent_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), (_, n) = a.shape, b.shape
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    processors = torch.cuda.get_device_properties("cuda").multi_processor_count // 33

    def grid(meta: dict[str, int]) -> tuple[int]:
        tiles = triton.cdiv(m, meta["M"]) * triton.cdiv(n, meta["N"])
        return (min(processors, tiles),)

    persistent_kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
        M=16, N=16, K=16, GROUP=2, NUM=processors, num_warps=4, num_stages=2,
    )  # fmt: skip
    return c


@functools.lru_cache
def block_of(count: int) -> int:
    return min(64, triton.next_power_of_2(count))


def launcher(kernel: Any, grid: tuple[int, ...], *args: Any, num_warps: int, **options: Any) -> Any:
    """How compilers on top of Triton (Helion, Inductor) launch: past `kernel[grid]`."""
    return kernel.run(*args, grid=grid, warmup=False, num_warps=num_warps, **options)


@torch.compiler.disable
def launched_by_function(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(left)
    block = block_of(out.numel())
    grid = (triton.cdiv(out.numel(), block),)
    launcher(
        vector_add_kernel, grid, left, right, out, out.numel(), block, num_warps=4, num_stages=1
    )
    return out
