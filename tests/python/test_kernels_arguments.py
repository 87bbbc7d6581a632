"""Arguments and launches of every kind, through an optimized function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl

import trident

BLOCK = 16


@pytest.fixture(autouse=True)
def no_grad() -> Any:
    with torch.no_grad():
        yield


@triton.jit
def store_scalar(out, value, other, KIND: tl.constexpr):
    tl.store(out, value)
    tl.store(out + 1, other)


@triton.jit(do_not_specialize=["value"], do_not_specialize_on_alignment=["other"])
def store_unspecialized(out, value, other, KIND: tl.constexpr):
    tl.store(out, value)
    tl.store(out + 1, other)


i64 = tl.int64  # the name that Triton's compiler looks up in annotations


@triton.jit
def store_annotated(out, value: tl.int64, other: i64, KIND: tl.constexpr):
    tl.store(out, value)
    tl.store(out + 1, other)


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def scale_const(x: tl.const, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def repeated(function: Callable[..., Any], *args: Any, hits: int = 2, **kwargs: Any) -> Any:
    """The result of the last of some calls, which all but the first hit."""
    fast = trident.optimize(function, on_unsupported="raise")
    for _ in range(hits + 1):
        result = fast(*args, **kwargs)
    stats = fast.stats()
    assert (stats["misses"], stats["hits"]) == (1, hits)
    return result


BOUNDARIES = [0, 1, -1, 16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kernel", [store_scalar, store_unspecialized, store_annotated])
def test_integers_at_the_boundaries_of_their_types(
    kernel: Any, dynamic: bool, device: torch.device
) -> None:
    def call(value: int) -> torch.Tensor:
        out = torch.zeros(2, dtype=torch.int64, device=device)
        kernel[(1,)](out, value, value, KIND=0)
        return out

    fast = trident.optimize(call, on_unsupported="raise", dynamic=dynamic)
    for _ in range(2):
        for value in BOUNDARIES:
            assert fast(value).tolist() == [value, value]
    stats = fast.stats()
    assert stats["hits"] >= len(BOUNDARIES) and stats["fallbacks"] == 0
    assert dynamic or stats["misses"] == len(BOUNDARIES)


def test_integers_beyond_int64(device: torch.device) -> None:
    def call(bits: int, less: int) -> torch.Tensor:
        out = torch.zeros(2, dtype=torch.uint64, device=device)
        value = 2**bits - less
        store_scalar[(1,)](out, value, value, KIND=0)
        return out

    assert repeated(call, 63, 0).tolist() == [2**63] * 2
    assert repeated(call, 64, 1).tolist() == [2**64 - 1] * 2
    if torch.cuda.is_available():  # the error is eager's
        with pytest.raises(OverflowError):
            trident.optimize(call)(64, 0)


@pytest.mark.parametrize("value", [True, False])
def test_truth_values(value: bool, device: torch.device) -> None:
    def call(value: bool) -> torch.Tensor:
        out = torch.zeros(2, dtype=torch.int32, device=device)
        store_scalar[(1,)](out, value, not value, KIND=None)
        return out

    assert repeated(call, value).tolist() == [int(value), int(not value)]


def test_floats_are_single_precision_unless_annotated(device: torch.device) -> None:
    @triton.jit
    def store_double(out, value, other: tl.float64, KIND: tl.constexpr):
        tl.store(out, value.to(tl.float64))
        tl.store(out + 1, other)

    def call(value: float) -> torch.Tensor:
        out = torch.zeros(2, dtype=torch.float64, device=device)
        store_double[(1,)](out, value, value, KIND=0)
        return out

    single = torch.tensor(0.1, dtype=torch.float32).double().item()
    assert repeated(call, 0.1).tolist() == [single, 0.1]


@pytest.mark.parametrize("kernel", [scale, scale_const])
@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
    ],
)
def test_pointers_of_every_type(kernel: Any, dtype: torch.dtype, device: torch.device) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), 2, BLOCK)
        return y

    x = torch.arange(40, device=device).to(dtype)
    torch.testing.assert_close(repeated(call, x), x * 2)


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fn])
def test_eight_bit_floats(dtype: torch.dtype, device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no eight bit floats")

    @triton.jit
    def widen(x, y, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n, other=0.0).to(tl.float32), mask=i < n)

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, device=x.device)
        widen[(1,)](x, y, x.numel(), 64)
        return y

    x = torch.linspace(-4, 4, 40, device=device).to(dtype)
    torch.testing.assert_close(repeated(call, x), x.float())


class Pair(NamedTuple):
    x: Any
    factor: Any


@triton.jit
def scale_pair(pair, rest, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(pair.x + i, mask=i < n) * pair.factor
    if rest[1] is not None:
        value += tl.load(rest[1] + i, mask=i < n)
    tl.store(rest[0] + i, value, mask=i < n)


@pytest.mark.parametrize("with_bias", [True, False])
def test_tuples_named_tuples_and_none_in_them(with_bias: bool, device: torch.device) -> None:
    def call(x: torch.Tensor, bias: torch.Tensor | None, factor: Any) -> torch.Tensor:
        y = torch.empty_like(x)
        n = x.numel()
        scale_pair[(triton.cdiv(n, BLOCK),)](Pair(x, factor), (y, bias), n, BLOCK)
        return y

    x = torch.randn(40, device=device)
    bias = torch.randn(40, device=device) if with_bias else None
    expected = x * 2.5 + (bias if with_bias else 0)
    torch.testing.assert_close(repeated(call, x, bias, 2.5), expected)


@triton.jit
def double(value):
    return value * 2


@triton.jit
def triple(value):
    return value * 3


@triton.jit
def every_constexpr(
    out,
    x,
    FUNCTION: tl.constexpr,
    DTYPE: tl.constexpr,
    NAME: tl.constexpr,
    NUMBERS: tl.constexpr,
    NOTHING: tl.constexpr,
    FLAG: tl.constexpr = True,
):
    value = FUNCTION(tl.load(x)).to(DTYPE)
    if NAME == "plus":
        value += NUMBERS[0]
    if NOTHING is None:
        value += NUMBERS[1][0]
    if FLAG:
        value += 1000
    tl.store(out, value)


def test_constexprs_of_every_kind(device: torch.device) -> None:
    def call(x: torch.Tensor, function: Any, dtype: Any, *rest: Any, **kwargs: Any) -> Any:
        out = torch.zeros(1, device=x.device)
        every_constexpr[(1,)](out, x, function, dtype, *rest, **kwargs)
        return out

    x = torch.full((1,), 2.75, device=device)
    fast = trident.optimize(call, on_unsupported="raise")
    cases = [
        ((x, double, tl.float32, "plus", (10, (100,)), None), {}, 5.5 + 1110),
        ((x, triple, tl.float32, "plus", (10, (100,)), None), {}, 8.25 + 1110),
        ((x, double, tl.int32, "plus", (10, (100,)), None), {}, 5 + 1110),
        ((x, double, tl.int32, "minus", (10, (100,)), None), {}, 5 + 1100),
        ((x, double, tl.int32, "minus", (10, (200,)), None), {}, 5 + 1200),
        ((x, double, tl.int32, "minus", (10, (200,)), 0), {}, 5 + 1000),
        ((x, double, tl.int32, "minus", (10, (200,)), 0), {"FLAG": False}, 5),
    ]
    for _ in range(2):
        for args, kwargs, expected in cases:
            assert fast(*args, **kwargs).item() == expected
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (len(cases),) * 2


def test_launches_of_every_form(device: torch.device) -> None:
    x = torch.randn(40, device=device)
    n = 40
    saved = scale[(3,)]

    def by_keyword(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scale[(3,)](factor=2.0, n=n, y=y, x=x, BLOCK=BLOCK, num_warps=8, num_stages=1)
        return y

    def by_saved_launcher(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        saved(x, y, n, 2.0, BLOCK)
        return y

    def by_local_launcher(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launcher = scale[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 1, 1)]
        launcher(x, y, n, 2.0, BLOCK=BLOCK)
        return y

    def by_run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scale.run(x, y, n, 2.0, grid=(3,), warmup=False, BLOCK=BLOCK)
        return y

    def by_expanded_arguments(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        arguments = {"n": n, "factor": 2.0}
        scale[[3]](*(x, y), **arguments, BLOCK=BLOCK)
        return y

    @torch.compiler.disable
    def launch_undisturbed(x: torch.Tensor, y: torch.Tensor) -> None:
        scale[(3, 1)](x, y, n, 2.0, BLOCK)

    def by_disabled_code(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch_undisturbed(x, y)
        return y

    for function in (
        by_keyword,
        by_saved_launcher,
        by_local_launcher,
        by_run,
        by_expanded_arguments,
        by_disabled_code,
    ):
        torch.testing.assert_close(repeated(function, x), x * 2)


@triton.jit
def mark_programs(out, X: tl.constexpr, Y: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + x + X * (y + Y * z), 1)


@pytest.mark.parametrize("grid", [(4,), [4, 3], (4, 3, 2), (2, 0, 3), (0,)])
def test_grids(grid: Any, device: torch.device) -> None:
    sizes = [*grid, 1, 1][:3]

    def call(out: torch.Tensor) -> torch.Tensor:
        mark_programs[grid](out, sizes[0], sizes[1])
        return out

    out = torch.zeros(64, dtype=torch.int32, device=device)
    count = sizes[0] * sizes[1] * sizes[2]
    assert repeated(call, out).tolist() == [1] * count + [0] * (64 - count)


def make_wide_kernel(count: int, tmp_path: Any) -> Any:
    """A kernel that stores its `count` scalar parameters."""
    names = [f"a{index}" for index in range(count)]
    stores = "".join(f"    tl.store(out + {i}, {name})\n" for i, name in enumerate(names))
    source = "import triton\nimport triton.language as tl\n@triton.jit\n"
    source += f"def wide(out, {', '.join(names)}):\n    tl.store(out, 0.0)\n{stores}"
    path = tmp_path / f"wide_{count}.py"
    path.write_text(source)
    namespace: dict[str, Any] = {"__name__": "wide", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), namespace)
    return namespace["wide"]


@pytest.mark.parametrize("count", [0, 63, 64, 128])
def test_any_number_of_arguments(count: int, tmp_path: Any, device: torch.device) -> None:
    kernel = make_wide_kernel(count, tmp_path)
    values = [index + 0.5 for index in range(count)]

    def call(out: torch.Tensor) -> torch.Tensor:
        kernel[(1,)](out, *values)
        return out

    out = torch.full((count + 1,), -1.0, device=device)
    assert repeated(call, out).tolist()[:count] == ([0.0] if count == 0 else values)[:count]


def test_tensors_that_are_empty_strided_repeated_or_have_no_axes(device: torch.device) -> None:
    @triton.jit
    def add(x, y, out, n, stride, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        value = tl.load(x + i * stride, mask=i < n) + tl.load(y + i * stride, mask=i < n)
        tl.store(out + i * stride, value, mask=i < n)

    def call(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        n = x.numel()
        add[(min(n, 1),)](x, y, out, n, x.stride(0) if x.dim() else 1, BLOCK)
        return out

    base = torch.arange(30.0, device=device)
    torch.testing.assert_close(
        repeated(call, base[::3], base[::3], base.clone()[::3]), base[::3] * 2
    )
    scalar = torch.full((), 3.0, device=device)
    assert repeated(call, scalar, scalar, torch.zeros((), device=device)).item() == 6.0
    empty = base[:0]
    assert repeated(call, empty, empty, empty.clone()).numel() == 0
    shifted = torch.arange(30.0, device=device)
    repeated(call, shifted[1:11], shifted[1:11], shifted[1:11], hits=1)  # in place, not aligned
    assert shifted.tolist()[:3] == [0.0, 4.0, 8.0]


def test_two_kernels_of_one_name_and_one_picked_at_run_time(device: torch.device) -> None:
    def make(amount: int) -> Any:
        SHIFT = tl.constexpr(amount)

        @triton.jit
        def shift(x, out, n, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK)
            tl.store(out + i, tl.load(x + i, mask=i < n) + SHIFT, mask=i < n)

        return shift

    kernels = {"few": make(1), "many": make(100)}

    def call(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernels["few" if x.numel() < 8 else "many"][(1,)](x, out, x.numel(), BLOCK)
        return out

    few, many = torch.randn(4, device=device), torch.randn(12, device=device)
    torch.testing.assert_close(repeated(call, few), few + 1)
    torch.testing.assert_close(repeated(call, many), many + 100)


def test_an_error_in_a_kernel_leaves_later_calls_working(device: torch.device) -> None:
    @triton.jit
    def checked(out, WIDTH: tl.constexpr):
        tl.static_assert(WIDTH < 4, "too wide")
        tl.store(out, WIDTH)

    def call(out: torch.Tensor, width: int) -> torch.Tensor:
        checked[(1,)](out, width)
        return out

    fast = trident.optimize(call)
    out = torch.zeros(1, dtype=torch.int32, device=device)
    assert fast(out, 3).item() == 3
    for _ in range(2):
        with pytest.raises(Exception, match="."):
            fast(out, 5)
    assert fast(out, 3).item() == 3 and fast.stats()["errors"] == 2
