"""Launches on the CPU: kernels of many kinds, in place on host memory, against eager math."""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
import triton.language.extra.libdevice as device_functions
from triton.language import arange as lanes
from triton.language import constexpr
from triton.language.extra.libdevice import rsqrt
from triton.runtime.errors import InterpreterError

from trident.kernels import (
    DEFAULT_TARGET,
    interpreted_runner,
    record_launch,
    route_launches,
    specialize,
    unpack_scalar,
)


def run_interpreted(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
    """What the native cpu driver does with a launch."""
    request, tensors = record_launch(kernel, args, kwargs, grid, lambda x: x.data_ptr() % 16)
    variant = specialize(request, DEFAULT_TARGET)
    values = [
        unpack_scalar(param.type, param.bits)
        if param.tensor is None
        else tensors[param.tensor].data_ptr()
        for param in variant.params
    ]
    interpreted_runner(variant)(request.grid, values)


@pytest.fixture(autouse=True)
def routed() -> Any:
    with route_launches(run_interpreted):
        yield


@triton.jit
def scale(x, o, s, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * s, mask=i < n)


@pytest.mark.parametrize(
    "factor",
    [3, 2.5, 1, 1.0, True, False, 0, -7, 16, 1e-3, math.inf, -math.inf, math.nan, 2**31, 2**40],
)
def test_scalars_have_the_compilers_types(factor: Any) -> None:
    x, o = torch.arange(1, 41, dtype=torch.float32), torch.zeros(40)
    scale[(3,)](x, o, factor, 40, B=16)
    expected = (x.double() * float(factor)).float()
    torch.testing.assert_close(o, expected, equal_nan=True, rtol=2e-7, atol=0)


@triton.jit
def types(o, a, B: tl.constexpr):
    if a.dtype == tl.float32:
        kind = 1
    elif a.dtype == tl.int32:
        kind = 2
    elif a.dtype == tl.int64:
        kind = 3
    elif a.dtype == tl.uint64:
        kind = 4
    else:
        kind = 5
    tl.store(o, kind)
    tl.store(o + 1, a.to(tl.float32).to(tl.int32))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2.0, 1), (2, 2), (-5, 2), (2**31, 3), (-(2**31) - 1, 3), (2**63, 4), (True, 5)],
)
def test_arguments_are_tensors_of_their_type(value: Any, kind: int) -> None:
    o = torch.zeros(2, dtype=torch.int32)
    types[(1,)](o, value, B=1)
    assert o[0] == kind


@triton.jit
def optional(x, w, o, stride, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i * stride)
    if w is not None:
        v = v * tl.load(w + i)
    tl.store(o + i, v)


def test_none_pointers_and_unit_strides() -> None:
    x, w, o = torch.randn(16), torch.randn(16), torch.zeros(8)
    optional[(1,)](x, None, o, 2, B=8)
    assert torch.equal(o, x[::2])
    optional[(1,)](x, w, o, 1, B=8)
    assert torch.equal(o, x[:8] * w[:8])


SHIFT = constexpr(3)
KIND = tl.constexpr("plus")


@triton.jit
def _inner(v):
    return v * 2


@triton.jit
def _body(v, k: tl.constexpr):
    return _inner(v) + k


helper = _body


@triton.jit
def __named(x, o, n, B: constexpr):
    i = tl.program_id(0) * B + lanes(0, B)
    v = helper(tl.load(x + i, mask=i < n), SHIFT)
    if KIND == "plus":
        v = v + 100
    tl.store(o + i, v, mask=i < n)


def test_aliased_imports_helpers_and_constexpr_globals() -> None:
    x, o = torch.arange(40.0), torch.zeros(40)
    globals()["__named"][(3,)](x, o, 40, B=16)
    assert torch.equal(o, x * 2 + 103)


def make_kernel(amount: int, function: Any) -> Any:
    shift = tl.constexpr(amount)

    @triton.jit
    def kernel(x, o, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(o + i, function(tl.load(x + i), 1) + shift)

    return kernel


def test_closures_see_their_own_cells() -> None:
    x = torch.arange(8.0)
    for amount in (5, 7):
        o = torch.zeros(8)
        make_kernel(amount, _body)[(1,)](x, o, B=8)
        assert torch.equal(o, x * 2 + 1 + amount)


@triton.jit
def row_norm(x, o, n, eps, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    scale = rsqrt(tl.sum(v * v, axis=0) / n + eps)
    tl.store(o + row * n + i, (v * scale).to(o.dtype.element_ty), mask=i < n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_reductions_and_libdevice(dtype: torch.dtype) -> None:
    x = torch.randn(4, 24, dtype=dtype)
    o = torch.zeros_like(x)
    row_norm[(4,)](x, o, 24, 1e-6, B=32)
    wide = x.double()
    expected = wide * torch.rsqrt(wide.pow(2).mean(1, keepdim=True) + 1e-6)
    torch.testing.assert_close(o, expected.to(dtype))


@triton.jit
def elementwise(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, device_functions.tanh(v))
    tl.store(o + B + i, device_functions.erf(v))
    tl.store(o + 2 * B + i, device_functions.pow(v, 2.0))
    tl.store(o + 3 * B + i, tl.sigmoid(v))
    tl.store(o + 4 * B + i, v.abs())
    tl.store(o + 5 * B + i, max(v, 0.0))


def test_elementwise_functions() -> None:
    x, o = torch.randn(16), torch.zeros(6, 16)
    elementwise[(1,)](x, o, B=16)
    w = x.double()
    expected = torch.stack([w.tanh(), w.erf(), w.pow(2), w.sigmoid(), w.abs(), w.clamp(min=0)])
    torch.testing.assert_close(o, expected.float(), rtol=1e-6, atol=1e-6)


@triton.jit
def matmul(a, b, c, M: tl.constexpr, N: tl.constexpr, K, B: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in tl.range(0, K, B, num_stages=2):
        k = start + tl.arange(0, B)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + m[:, None] * N + n[None, :], total)


def test_dot_in_a_loop() -> None:
    a, b, c = torch.randn(16, 40), torch.randn(40, 32), torch.zeros(16, 32)
    matmul[(1,)](a, b, c, 16, 32, 40, B=16)
    torch.testing.assert_close(c, (a.double() @ b.double()).float(), rtol=1e-5, atol=1e-5)


@triton.jit
def histogram(x, counts, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


def test_atomics() -> None:
    x = torch.randint(0, 5, (50,))
    counts = torch.zeros(5, dtype=torch.int32)
    histogram[(4,)](x, counts, 50, B=16)
    assert torch.equal(counts.long(), torch.bincount(x, minlength=5))


@triton.jit
def loops(o, n, STEPS: tl.constexpr):
    i = 0
    total = 0
    while i < n:
        if i % 2 == 0 and i > 2 or i == 1:
            total += i
        i += 1
    tl.store(o, total)
    wide = 0.0
    for j in tl.static_range(STEPS):
        wide += j * 0.5
    tl.store(o + 1, wide.to(tl.int32))
    last = -1
    for j in range(n, 0, -2):
        last = j.to(tl.int64)
    tl.store(o + 2, last)
    tl.store(o + 3, not (n > 3))


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_loops_and_conditions(n: int) -> None:
    o = torch.zeros(4, dtype=torch.int64)
    loops[(1,)](o, n, STEPS=5)
    total = sum(i for i in range(n) if (i % 2 == 0 and i > 2) or i == 1)
    last = ([-1, *range(n, 0, -2)])[-1]
    assert o.tolist() == [total, 5, last, int(n <= 3)]


@triton.jit
def block_logic(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, ((v > 1) and (v < 5)) or (v == 7))
    tl.store(o + B + i, not (v > 1))


@pytest.mark.filterwarnings("ignore:Logical operators")
def test_logic_of_blocks_is_elementwise() -> None:
    x, o = torch.arange(8.0), torch.zeros(2, 8, dtype=torch.bool)
    block_logic[(1,)](x, o, B=8)
    assert torch.equal(o[0], ((x > 1) & (x < 5)) | (x == 7))
    assert torch.equal(o[1], ~(x > 1))


class Pair(NamedTuple):
    pointer: Any
    count: Any


@triton.jit
def tuples(pair, values, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(pair.pointer + i, mask=i < pair.count, other=-1.0)
    tl.store(o + i, v * values[0] + values[1][1])


def test_tuples_and_named_tuples() -> None:
    x, o = torch.arange(8.0), torch.zeros(8)
    tuples[(1,)](Pair(x, 5), (2.0, (None, 3)), o, B=8)
    expected = torch.where(torch.arange(8) < 5, x, -1.0) * 2 + 3
    assert torch.equal(o, expected)


@triton.jit
def _larger(left, right):
    return tl.where(left > right, _inner(left) / 2, right)


@triton.jit
def _sum_and_count(a, b, c, d):
    return a + c, b + d


@triton.jit
def reductions(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o, tl.reduce(v, 0, _larger))
    tl.store(o + 1, tl.max(v, axis=0))
    total, count = tl.reduce((v, tl.full((B,), 1.0, tl.float32)), 0, _sum_and_count)
    tl.store(o + 2, total / count)
    tl.store(o + 3, tl.argmax(v, axis=0))
    tl.store(o + 4, v.sum(axis=0))
    tl.store(o + 8 + i, tl.cumsum(v, 0))


def test_reductions_with_own_combine_functions() -> None:
    x, o = torch.randn(8), torch.zeros(16)
    reductions[(1,)](x, o, B=8)
    w = x.double()
    expected = [w.max(), w.max(), w.mean(), w.argmax().double(), w.sum()]
    torch.testing.assert_close(o[:5].double(), torch.stack(expected), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(o[8:].double(), w.cumsum(0), rtol=1e-5, atol=1e-6)


@triton.jit
def activate(x, o, ACT: tl.constexpr, ACC: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    half: tl.constexpr = B // 2
    v = ACT(tl.load(x + i).to(ACC))
    tl.store(o + i, v, mask=i < half)


def test_functions_and_dtypes_as_constexprs() -> None:
    x, o = torch.randn(8), torch.zeros(8)
    activate[(1,)](x, o, ACT=_inner, ACC=tl.float16, B=8)
    assert torch.equal(o[:4], (x.half() * 2).float()[:4]) and not o[4:].any()


@triton.jit
def stamp(o, nx, ny, B: tl.constexpr = 4):
    i, j, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (k * tl.num_programs(1) + j) * tl.num_programs(0) + i
    tl.store(o + at, i + 10 * j + 100 * k)


@pytest.mark.parametrize("grid", [(6,), (3, 2), (1, 2, 3), (0, 2), lambda meta: (meta["nx"],)])
def test_grids(grid: Any) -> None:
    o = torch.full((6,), -1, dtype=torch.int32)
    stamp[grid](o, 6, 1)
    extents = (*(grid if isinstance(grid, tuple) else (6,)), 1, 1)[:3]
    expected = torch.full((6,), -1, dtype=torch.int32)
    order = [
        i + 10 * j + 100 * k
        for k in range(extents[2])
        for j in range(extents[1])
        for i in range(extents[0])
    ]
    expected[: len(order)] = torch.tensor(order, dtype=torch.int32)
    assert torch.equal(o, expected)


def test_views_and_overlaps_are_written_in_place() -> None:
    storage = torch.arange(20.0)
    scale[(1,)](storage[4:], storage[4:], 2.0, 8, B=8)
    assert torch.equal(
        storage, torch.cat([torch.arange(4.0), torch.arange(4.0, 12) * 2, torch.arange(12.0, 20)])
    )


@triton.jit
def failing(x, n):
    if n > 2:
        tl.store(x, tl.full((2,), 0.0, tl.float32) + tl.full((4,), 0.0, tl.float32))


def test_errors_are_the_interpreters_and_the_language_is_restored() -> None:
    before = (tl.load, tl.tensor.__dict__.get("__add__"), "__bool__" in vars(tl.tensor), tl.sum)
    with pytest.raises(InterpreterError, match="Cannot make_shape_compatible"):
        failing[(1,)](torch.zeros(4), 5)
    after = (tl.load, tl.tensor.__dict__.get("__add__"), "__bool__" in vars(tl.tensor), tl.sum)
    assert all(a is b for a, b in zip(before, after, strict=True))
    test_reductions_with_own_combine_functions()


def test_users_module_is_left_alone() -> None:
    before = set(globals())
    test_dot_in_a_loop()
    test_elementwise_functions()
    assert set(globals()) == before


def test_threads_take_turns() -> None:
    errors: list[BaseException] = []
    outputs = [torch.zeros(40) for _ in range(4)]
    x = torch.arange(40.0)

    def work(index: int) -> None:
        try:
            with route_launches(run_interpreted):
                for _ in range(5):
                    scale[(3,)](x, outputs[index], float(index), 40, B=16)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for index, output in enumerate(outputs):
        assert torch.equal(output, x * index)


def test_wrong_number_of_values_is_refused() -> None:
    request, _ = record_launch(
        scale, (torch.zeros(4), torch.zeros(4), 2.0, 4), {"B": 4}, (1,), lambda _: 0
    )
    with pytest.raises(ValueError, match="scale takes 4 values, not 1"):
        interpreted_runner(request)((1, 1, 1), [0])
