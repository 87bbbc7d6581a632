"""Launches whose sizes, grids, addresses and integers vary between calls."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
import triton
import triton.language as tl
from dynamic_helpers import specializations

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")


@triton.jit
def add_one(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def scale_rows(x, o, stride, n, factor, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    value = tl.load(x + row * stride + i, mask=i < n, other=0.0)
    tl.store(o + row * stride + i, value * factor, mask=i < n)


def launch_add_one(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_one[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), B=16)
    return out * 2


def test_launches_with_symbolic_size_and_grid(device: torch.device) -> None:
    optimized = optimize(launch_add_one)
    for n in [5, 7, *range(2, 201, 9), 16, 32, 160, 1, 200]:
        x = torch.arange(float(n), device=device)
        torch.testing.assert_close(optimized(x), (x + 1) * 2, rtol=0, atol=0)
    # First length, the rest, multiples of 16, and 1.
    assert specializations(optimized) <= 4


class AddOne(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return launch_add_one(x)


@pytest.mark.parametrize("names", [("0", "1"), ("n0", "s1"), ("f0", "d1"), ("INT8_MAX", "r2")])
def test_modules_named_like_what_a_program_calls_its_own(
    names: tuple[str, str], device: torch.device
) -> None:
    function = torch.nn.Sequential(OrderedDict((name, AddOne()) for name in names))
    optimized = optimize(function)
    for n in (3, 5, 7, 9):
        x = torch.arange(float(n), device=device)
        torch.testing.assert_close(optimized(x), ((x + 1) * 2 + 1) * 2, rtol=0, atol=0)
    assert specializations(optimized) == 1


def test_launch_with_block_size_chosen_from_a_symbolic_width(device: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        scale_rows[(x.shape[0],)](x, out, x.stride(0), x.shape[1], 0.5, B=block)
        return out

    optimized = optimize(function)
    for n, m in [(3, 5), (4, 5), (5, 7), (6, 8), (7, 6), (2, 9), (3, 16), (9, 30), (2, 31)]:
        x = torch.randn(n, m, device=device)
        torch.testing.assert_close(optimized(x), x * 0.5, rtol=0, atol=0)


def test_launch_at_a_symbolic_offset(device: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        half = x.shape[0] // 2
        doubled = x * 2
        out = torch.empty(half, device=x.device)
        add_one[(triton.cdiv(half, 16),)](doubled[half : 2 * half], out, half, B=16)
        return out

    optimized = optimize(function)
    for n in [6, 10, 11, 14, 8, 16, 64, 33, 66, 128, 3]:
        x = torch.arange(float(n), device=device)
        half = n // 2
        torch.testing.assert_close(optimized(x), x[half : 2 * half] * 2 + 1, rtol=0, atol=0)


def test_launch_with_symbolic_int_argument(device: torch.device) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        out = torch.zeros_like(x)
        add_one[lambda meta: (triton.cdiv(n, meta["B"]),)](x, out, n, B=16)
        return out

    optimized = optimize(function)
    x = torch.arange(64.0, device=device)
    for n in [5, 6, 17, 16, 48, 1, 0, 33]:
        expected = torch.where(x < n, x + 1, torch.zeros_like(x))
        torch.testing.assert_close(optimized(x, n), expected, rtol=0, atol=0)


@triton.jit
def scale_pair(x, o, pair, n, factor, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o + i, value * factor * pair[0] + pair[1], mask=i < n)


@pytest.mark.parametrize("wrapped", ["argument", "member", "size"])
def test_a_constant_object_of_a_varying_number(wrapped: str, device: torch.device) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        out = torch.zeros_like(x)
        factor, first, count = n, n, x.numel()
        if wrapped == "argument":
            factor = tl.constexpr(factor)
        elif wrapped == "member":
            first = tl.constexpr(first)
        else:
            count = tl.constexpr(count)
        scale_pair[(1,)](x, out, (first, 2), count, factor, B=32)
        return out

    optimized = optimize(function)
    for n in [3, 4, 5, 6]:
        x = torch.arange(float(n), device=device)
        torch.testing.assert_close(optimized(x, n), x * n * n + 2, rtol=0, atol=0)


@triton.jit
def fill(o, n, scale, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, scale, mask=i < n)


@triton.jit
def fill_pair(o, ns, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, 1.0, mask=i < ns[0] + ns[1])


def filled(x: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.zeros(64, device=x.device)
    fill[(1,)](out, n, 2.0, B=64)
    return out


def filled_pair(x: torch.Tensor, *ns: int) -> torch.Tensor:
    out = torch.zeros(64, device=x.device)
    fill_pair[(1,)](out, ns, B=64)
    return out


ONE_VALUE = {
    "quotient": lambda x: filled(x, x.numel() // x.shape[0]),
    "difference": lambda x: filled(x, (x.shape[0] + 1 - x.shape[0]) * 11),
    "multiple of 16": lambda x: filled(x, (x.shape[0] - x.shape[0] + 1) * 48),
    "one": lambda x: filled(x, x.shape[0] // x.shape[0]),
    "zero": lambda x: filled(x, x.shape[0] * 0),
    "rest": lambda x: filled(x, divmod(x.shape[0] * 4, 4)[1] + 6),
    "slice": lambda x: filled(x, x[-5:].shape[0] * 3),
    "window": lambda x: filled(x, x.unfold(0, 3, 1).shape[-1]),
    "reshaped": lambda x: filled(x, x.view(-1, 4).shape[1]),
    "joined": lambda x: filled(x, torch.cat([x, x]).shape[0] // x.shape[0] + 5),
    "real": lambda x: filled(x, int(x.shape[0] / x.shape[0]) * 7),
    "tuple": lambda x: filled_pair(x, x.shape[0] // x.shape[0] + 2, x.shape[0]),
}


@pytest.mark.parametrize("name", ONE_VALUE)
def test_integers_that_have_one_value_for_all_sizes(name: str, device: torch.device) -> None:
    function = ONE_VALUE[name]
    optimized = optimize(function)
    for rows in (6, 8, 10, 12, 16, 20):
        x = torch.ones(rows, 8, device=device)
        n = {"tuple": rows + 3, "quotient": 8, "difference": 11, "multiple of 16": 48}
        n |= {"one": 1, "zero": 0, "rest": 6, "slice": 15, "window": 3, "reshaped": 4}
        n |= {"joined": 7, "real": 7}
        assert (optimized(x) != 0).sum() == n[name], rows
    assert specializations(optimized) <= 2


def test_an_integer_that_a_branch_leaves_one_value(device: torch.device) -> None:
    def step(x: torch.Tensor, total: int, past: int) -> torch.Tensor:
        if total - past == 1:
            return filled(x, total - past + 4)
        return filled(x, total - past)

    optimized = optimize(step)
    x = torch.ones(2, device=device)
    for total, past in ((9, 2), (10, 3), (4, 3), (5, 4), (6, 5), (20, 3)):
        expected = 5 if total - past == 1 else total - past
        assert (optimized(x, total, past) != 0).sum() == expected
