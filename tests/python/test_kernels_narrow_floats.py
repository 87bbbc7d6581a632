"""bfloat16 and fp8 in kernels on the CPU, against PyTorch, whose rounding is the hardware's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from trident.kernels import DEFAULT_TARGET, interpreted_runner, record_launch, specialize
from trident.kernels.narrow_floats import fp8_codes, rounded, truncated, widened

BF16 = torch.bfloat16


def run(kernel: Any, *args: Any) -> None:
    """One program of a kernel, in the interpreter."""
    request, tensors = record_launch(kernel, args, {}, (1,), lambda x: x.data_ptr() % 16)
    interpreted_runner(specialize(request, DEFAULT_TARGET))(
        (1, 1, 1), [tensor.data_ptr() for tensor in tensors]
    )


def values(*shape: int) -> torch.Tensor:
    return (3 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))).to(BF16)


@triton.jit
def arithmetic(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i), tl.load(b + i)
    tl.store(out + i, x + y)
    tl.store(out + N + i, x * y - y)
    tl.store(out + 2 * N + i, -x)
    tl.store(out + 3 * N + i, 0.3 * tl.abs(x))
    tl.store(out + 4 * N + i, tl.maximum(x, y))
    tl.store(out + 5 * N + i, tl.where(x < y, x, y))
    tl.store(out + 6 * N + i, x / y)


def test_arithmetic_rounds_after_each_operation() -> None:
    x, y = values(64), values(2, 64)[1]
    out = torch.empty(7, 64, dtype=BF16)
    run(arithmetic, x, y, out, 64)
    expected = [
        x + y,
        x * y - y,
        -x,
        torch.tensor(0.3, dtype=BF16) * x.abs(),
        torch.maximum(x, y),
        torch.minimum(x, y),
        (x.float() / y.float()).to(BF16),
    ]
    for row, wanted in zip(out, expected, strict=True):
        assert torch.equal(row, wanted)


@triton.jit
def casts(f, i, bf, out, ints, wide, N: tl.constexpr):
    n = tl.arange(0, N)
    tl.store(out + n, tl.load(f + n).to(tl.bfloat16))
    tl.store(out + N + n, tl.load(i + n).to(tl.bfloat16))
    tl.store(out + 2 * N + n, tl.load(f + n).to(tl.bfloat16, fp_downcast_rounding="rtz"))
    tl.store(ints + n, tl.load(bf + n).to(tl.int32))
    tl.store(wide + n, tl.load(bf + n).to(tl.float64))


def test_casts() -> None:
    f, i, bf = values(64).float() * 1.37, torch.arange(-32, 32) * 12345, values(64)
    out, ints = torch.empty(3, 64, dtype=BF16), torch.empty(64, dtype=torch.int32)
    wide = torch.empty(64, dtype=torch.float64)
    run(casts, f, i, bf, out, ints, wide, 64)
    assert torch.equal(out[0], f.to(BF16))
    assert torch.equal(out[1], i.to(BF16))
    assert torch.equal(out[2].view(torch.int16), (f.view(torch.int32) >> 16).to(torch.int16))
    assert torch.equal(ints, bf.int()) and torch.equal(wide, bf.double())


@triton.jit
def larger(x, y):
    return tl.where(x > y, x, y)


@triton.jit
def products(a, out, extrema, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    x = tl.load(a + at)
    tl.store(out + at, tl.dot(x, tl.trans(x)))
    tl.store(extrema, tl.reduce(tl.load(a + i), 0, larger))
    tl.store(extrema + 1, tl.max(tl.load(a + i), 0).to(tl.bfloat16))
    tl.store(extrema + 2, tl.sum(tl.load(a + i), 0).to(tl.bfloat16))


def test_dot_and_reductions() -> None:
    x, out, extrema = values(16, 16), torch.empty(16, 16), torch.empty(3, dtype=BF16)
    run(products, x, out, extrema, 16)
    torch.testing.assert_close(out, x.float() @ x.float().T)
    assert extrema[0] == extrema[1] == x[0].max()
    torch.testing.assert_close(extrema[2], x[0].float().sum().to(BF16))


@triton.jit
def atomic(a, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(a + i, tl.load(a + i))


def test_atomics_are_refused_rather_than_wrong() -> None:
    with pytest.raises(Exception, match="bfloat16 atomics"):
        run(atomic, values(16), 16)


def test_rounding_at_the_edges() -> None:
    floats = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, 1.00390625, 1.01171875], np.float32
    )
    expected = torch.from_numpy(floats).to(BF16)
    got = torch.from_numpy(widened(rounded(floats)))
    assert torch.equal(got.nan_to_num(7.0), expected.float().nan_to_num(7.0))
    assert got.isnan().tolist() == expected.isnan().tolist()
    assert not np.isinf(widened(truncated(np.float32([3.4e38])))[0])


@triton.jit
def fp8(x, out, back, product, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    value = tl.load(x + at).to(out.dtype.element_ty)
    tl.store(out + at, value)
    tl.store(back + at, value.to(tl.float16))
    tl.store(product + at, tl.dot(value, tl.trans(value)))


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8(kind: torch.dtype) -> None:
    x = torch.cat([values(8, 32).float() * 1.37, 0.001 * values(16, 32).float()[8:]]).view(16, 32)
    x = torch.cat([x, x.neg() * 3], 0)
    out, back = torch.empty(32, 32, dtype=kind), torch.empty(32, 32, dtype=torch.float16)
    product = torch.empty(32, 32)
    run(fp8, x, out, back, product, 32)
    expected = x.to(kind)
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))
    assert torch.equal(back, expected.half())
    torch.testing.assert_close(product, expected.float() @ expected.float().T)


def test_fp8_saturates_and_keeps_nan() -> None:
    floats = np.array([449.0, -1e9, np.inf, np.nan, 464.0, -0.0], np.float32)
    codes = torch.from_numpy(fp8_codes(floats, tl.float8e4nv)).view(torch.float8_e4m3fn).float()
    assert codes[:3].tolist() == [448.0, -448.0, 448.0] and codes[3].isnan()
    assert codes[4:].tolist() == [448.0, 0.0] and codes[5].signbit()
    nearest = np.float32([1.94, 7.8, 0.0009, 60000.0])
    down = fp8_codes(nearest, tl.float8e5, toward_zero=True)
    assert torch.from_numpy(down).view(torch.float8_e5m2).float().tolist()[:2] == [1.75, 7.0]
