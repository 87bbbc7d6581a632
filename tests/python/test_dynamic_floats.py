"""Floats that change from call to call: run-time values, with the bits that Python computes."""

from __future__ import annotations

import inspect
import math
import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._refs
import torch.nn.functional as F
import triton
import triton.language as tl
from dynamic_helpers import flat, specializations
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trident

pytestmark = pytest.mark.usefixtures("no_fallback")

VALUES = (0.3, 0.7, 1.1, 0.37, math.inf, -0.0, math.nan, 5e-324, -2.5)


def bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.stride(), value.contiguous().view(torch.uint8).tolist()
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


def outcomes(function: Callable[..., Any], values: tuple[float, ...] = VALUES) -> str:
    optimized = trident.optimize(function)
    letters = ""
    for value in values:
        x = torch.linspace(-2, 3, 12).view(3, 4)
        hits = optimized.stats()["hits"]
        got, expected = flat(optimized(x.clone(), value)), flat(function(x.clone(), value))
        assert [*map(bits, got)] == [*map(bits, expected)], value
        letters += "h" if optimized.stats()["hits"] > hits else "m"
    return letters


@pytest.mark.parametrize(
    "function",
    [
        lambda x, f: (x * f, f * x, x / f, x + f * 2.0, (1.0 - f) * x),
        lambda x, f: (torch.add(x, x, alpha=f), x.clamp(min=f), torch.lerp(x, x + 1, f)),
        lambda x, f: (F.leaky_relu(x, f), F.elu(x, f), torch.full((2,), f), x > f),
        lambda x, f: (torch.where(x > 0, x, f), x.masked_fill(x > 0, f), x.mul_(f), x.fill_(f)),
        lambda x, f: (f, -f * 3, f / 3, f / x.shape[0], f * x.shape[1] + 1, f * 0.1 * 10 + 0.2),
    ],
    ids=["arithmetic", "scalars", "activations", "masks", "results"],
)
def test_a_float_is_a_run_time_value(function: Callable[..., Any]) -> None:
    assert outcomes(function) == "mm" + "h" * (len(VALUES) - 2)


def test_an_exponent_is_one_unless_pytorch_asks_for_it() -> None:
    # The fake implementation of PyTorch 2.11 compares it with 1, 2 and 0.5.
    asks = "statically_known_true" not in inspect.getsource(torch._refs.pow)
    expected = "m" * len(VALUES) if asks else "mm" + "h" * (len(VALUES) - 2)
    assert outcomes(lambda x, f: x**f) == expected


@pytest.mark.parametrize(
    "function",
    [
        lambda x, f: x * f if f > 0.5 else x - f,
        lambda x, f: x * (f * 0.0),
        lambda x, f: x * (f - f),
        lambda x, f: ((f + 0.1) - 0.1, x * ((f + 0.1) - 0.1)),
        lambda x, f: ((f + 0.1) + 0.2, f + (0.1 + 0.2), x * (f + (0.1 + 0.2))),
        lambda x, f: (x * 2, f"{f}"),
        lambda x, f: x * round(f) if math.isfinite(f) else x,
        lambda x, f: x * (2.0 if f else 3.0),
        lambda x, f: x * {0.3: 1.0, 0.7: 2.0}.get(f, 3.0),
        lambda x, f: F.layer_norm(x, (4,), eps=abs(f)) if f == f else x,
        lambda x, f: (x * 2, 1.0 / f if f else 1.0),
        lambda x, f: (x * 2, math.sqrt(abs(f)), math.copysign(1.0, f)),
    ],
    ids=[
        "branch",
        "zero",
        "difference",
        "there and back",
        "order",
        "text",
        "round",
        "truth",
        "key",
        "eps",
        "inverse",
        "math",
    ],
)
def test_a_float_whose_value_the_code_uses_is_right(function: Callable[..., Any]) -> None:
    outcomes(function)


def test_a_float_that_the_code_compares_does_not_fix_sizes() -> None:
    optimized = trident.optimize(lambda x, f: x * 2 if f > 0.5 else x)
    for n in (3, 4, 5, 6, 7):
        optimized(torch.ones(n), 0.7)
    assert specializations(optimized) == 1


@triton.jit
def scale(x, o, n, factor, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def test_a_float_argument_of_a_kernel(device: torch.device) -> None:
    def function(x: torch.Tensor, factor: float) -> torch.Tensor:
        out = torch.empty_like(x)
        scale[(1,)](x, out, x.numel(), factor * 0.5, B=64)
        return out

    optimized = trident.optimize(function)
    x = torch.arange(40.0, device=device)
    for factor in (0.1, 0.7, 1e-30, 1 / 3, -0.0, math.inf):
        expected = x * torch.tensor(factor * 0.5, dtype=torch.float32, device=device)
        torch.testing.assert_close(optimized(x, factor), expected, rtol=0, atol=0, equal_nan=True)
    assert specializations(optimized) == 1


_computed = trident.optimize(lambda x, f, g: (x * f, f * g + 0.1 - g, (f - g) * 3 / 7.0, -f + 2))


NAMESPACE = f"trident_test_{uuid.uuid4().hex[:8]}"


@torch.library.custom_op(f"{NAMESPACE}::traced", mutates_args=())
def traced(x: torch.Tensor, f: float, bias: float | None = None) -> torch.Tensor:
    return x * f if bias is None else x * f + bias


@torch.library.triton_op(f"{NAMESPACE}::launching", mutates_args={})
def launching(x: torch.Tensor, f: float) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(scale)[(1,)](x, out, x.numel(), f, B=64)
    return out


@torch.library.custom_op(f"{NAMESPACE}::called", mutates_args=())
def called(x: torch.Tensor, f: float = 0.7, *, bias: float = 1.1) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * f + bias).float()


@torch.library.custom_op(f"{NAMESPACE}::in_place", mutates_args=("x",))
def in_place(x: torch.Tensor, f: float) -> None:
    x.mul_(f)


@torch.library.custom_op(f"{NAMESPACE}::nested", mutates_args=())
def nested(x: torch.Tensor, f: float) -> torch.Tensor:
    return x * f if f == 0.25 else nested(x, 0.25) + f


@torch.library.custom_op(f"{NAMESPACE}::sized", mutates_args=())
def sized(x: torch.Tensor, f: float) -> torch.Tensor:
    return torch.from_numpy(x.numpy()[: 1 + (f > 0.5)])


@sized.register_fake
def _(x: torch.Tensor, f: float) -> torch.Tensor:
    return x.new_empty((1 + (f > 0.5), x.shape[1]))


for _operator in (traced, called, nested):
    _operator.register_fake(lambda x, *args, **kwargs: torch.empty_like(x))


def changed(x: torch.Tensor, f: float) -> torch.Tensor:
    y = x.clone()
    in_place(y, f)
    return y


@pytest.mark.parametrize(
    "function",
    [
        lambda x, f: (traced(x, f), traced(x, f=f * 2, bias=f), traced(x, 0.7, f)),
        lambda x, f: (called(x, f), called(x, bias=f), called(x, f=f + 1, bias=f)),
        lambda x, f: getattr(torch.ops, NAMESPACE).called(called(x, f), f),
        lambda x, f: getattr(torch.ops, NAMESPACE).called.default(x, f + x.shape[0]),
        changed,
    ],
)
def test_a_float_argument_of_a_custom_operator(function: Callable[..., Any]) -> None:
    values = (0.3, 0.7, 1.1, 0.37, -2.5, 0.7)
    assert outcomes(function, values) == "mm" + "h" * (len(values) - 2)


@pytest.mark.parametrize("operator", [nested, sized])
def test_a_float_that_a_custom_operator_compares(operator: Callable[..., Any]) -> None:
    assert outcomes(operator, (0.3, 0.7, 0.25, 0.9, 0.7, 0.25, 0.3, 0.9)).endswith("hhhh")


def test_a_float_argument_of_a_kernel_in_an_operator(device: torch.device) -> None:
    optimized = trident.optimize(launching)
    x = torch.arange(40.0, device=device)
    for factor in (0.25, 0.5, 3.0, -0.75):
        torch.testing.assert_close(optimized(x, factor), x * factor, rtol=0, atol=0)
    assert specializations(optimized) == 1


def test_an_int_for_a_float_of_a_custom_operator() -> None:
    optimized = trident.optimize(called)
    x = torch.arange(3.0)
    for number in (2, 3, 5, -1):
        assert torch.equal(optimized(x, number), called(x, number))
    assert specializations(optimized) == 1


@settings(max_examples=100, deadline=None)
@given(st.floats(width=64), st.floats(width=64))
@example(0.1, 0.2)
@example(math.inf, -math.inf)
def test_any_floats_agree_with_python_bit_for_bit(f: float, g: float) -> None:
    x = torch.arange(3.0)
    got = _computed(x, f, g)
    expected = (x * f, f * g + 0.1 - g, (f - g) * 3 / 7.0, -f + 2)
    for a, b in zip(got, expected, strict=True):
        same = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        assert same or bits(a) == bits(b) or bool(torch.as_tensor(b).isnan().any())
