"""Symbolic sizes through operators: one specialization serves every length, as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamic_helpers import agree, specializations

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")


LENGTHS = [5, 7, 9, 2, 64, 33, 3, 16, 100]


def sliced(x: torch.Tensor) -> Any:
    return x[1:], x[:, ::2].contiguous(), x[-2:] + 1


def reshaped(x: torch.Tensor) -> Any:
    return x.reshape(-1, 2).t().contiguous(), x.view(x.shape[0] * 4)[1:], x.flatten().unsqueeze(0)


def expanded(x: torch.Tensor) -> Any:
    return x[:, :1].expand(x.shape[0], 6) * 2, x.unsqueeze(0).expand(3, -1, -1)


def in_place(x: torch.Tensor) -> Any:
    x[1:].mul_(2)
    x.add_(x.shape[0])
    return x.sum(0), x


def made(x: torch.Tensor) -> Any:
    n = x.shape[0]
    grid = torch.arange(n)
    return grid, torch.zeros(n, 2) + n, torch.full((n,), 3.0), torch.ones(2, n).tril(), n


def reduced(x: torch.Tensor) -> Any:
    return x.sum(0), x.mean(1), x.amax(0, keepdim=True) + 1, x.cumsum(0), x.std()


def gathered(x: torch.Tensor) -> Any:
    index = torch.arange(x.shape[0] - 1, -1, -1)
    parts = (x.chunk(2, 1), x.flip(0), torch.stack([x, x]), x.repeat(2, 1), x.triu())
    return x[index], x.index_select(0, index), *parts


def measured(x: torch.Tensor) -> Any:
    half = x[: len(x) // 2]
    return half + len(half), F.pad(x, (0, 0, len(x) % 3, 1))


def branching(x: torch.Tensor) -> Any:
    return x * 2 if x.shape[0] > 8 else x + x.shape[0]


UNARY = [sliced, reshaped, expanded, in_place, made, reduced, gathered, measured]


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_one_specialization_serves_every_length(function: Callable[..., Any]) -> None:
    optimized = optimize(function)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
    # All lengths, and 2 where the code cuts off one row: one row is left.
    assert specializations(optimized) <= 2
    assert optimized.stats()["hits"] >= len(LENGTHS) - 3


def test_matrix_products_and_attention() -> None:
    weight, bias = torch.randn(16, 8), torch.randn(16)

    def function(x: torch.Tensor, mask: torch.Tensor) -> Any:
        h = F.gelu(F.linear(x, weight, bias))
        heads = h.view(2, -1, 2, 8).transpose(1, 2)
        q, k, v = heads, heads + 1, heads * 2
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = torch.matmul(q, k.transpose(-1, -2)).masked_fill(mask, -1e9).softmax(-1)
        mixed = scores @ v
        return attended, mixed.transpose(1, 2).reshape(2, x.shape[1], 16), F.layer_norm(h, (16,))

    optimized = optimize(function)
    for n in LENGTHS:
        agree(
            optimized,
            function,
            lambda n=n: (torch.randn(2, n, 8), torch.ones(n, n, dtype=torch.bool).triu(1)),
        )
    assert specializations(optimized) == 1


def test_two_sizes_vary_by_themselves() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cat([x, y], 1)[:, 2:], x @ x.t(), y.t().contiguous()

    optimized = optimize(function)
    for n, m in [(5, 7), (6, 9), (3, 11), (20, 4), (2, 2), (9, 9)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(4, n), torch.randn(4, m)))
    assert specializations(optimized) == 1


def test_a_second_size_begins_to_vary() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.softmax(-1).sum(0)

    optimized = optimize(function)
    for n, m in [(5, 7), (5, 8), (5, 9), (6, 9), (7, 3), (8, 20)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(n, m),))
    # The one whose second size varies, and the one whose sizes both vary.
    assert specializations(optimized) == 2


def test_equal_sizes_that_part_later() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.sum(0) + y.sum(0), x.shape[0], y.shape[0]

    optimized = optimize(function)
    for n, m in [(5, 5), (7, 7), (9, 9), (9, 4), (3, 8), (6, 6)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(n, 3), torch.randn(m, 3)))
    before = specializations(optimized)
    for n, m in [(30, 40), (12, 31)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(n, 3), torch.randn(m, 3)))
    assert specializations(optimized) == before


def test_branches_on_a_size_are_guarded() -> None:
    optimized = optimize(branching)
    for n in [5, 6, 9, 10, 8, 3, 2, 50]:
        agree(optimized, branching, lambda n=n: (torch.randn(n, 2),))
    assert specializations(optimized) == 2


def test_comparisons_are_bools() -> None:
    def function(x: torch.Tensor, n: int) -> Any:
        many = x.shape[0] > 2
        kept = x.sum(0, keepdim=x.shape[0] != 6)
        attended = F.scaled_dot_product_attention(x, x, x, is_causal=n < 100)
        flags = torch.full((2,), many), {True: x + 1, False: x}[many], many and n > 2
        return kept, attended, flags, isinstance(many, bool), x.cumsum(0) * (n >= 4)

    optimized = optimize(function)
    for length, n in [(5, 4), (7, 5), (9, 20), (100, 16), (3, 7)]:
        agree(optimized, function, lambda length=length, n=n: (torch.randn(length, 4), n))
    assert specializations(optimized) == 1
    agree(optimized, function, lambda: (torch.randn(6, 4), 120))
    assert specializations(optimized) == 2


def test_divisors_are_guarded() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // 4, 4, -1) if x.shape[0] % 4 == 0 else x

    optimized = optimize(function)
    for n in [4, 8, 12, 3, 5, 2, 40]:
        agree(optimized, function, lambda n=n: (torch.randn(n, 3),))
    # 4 rows leave one row of four, which is a size of its own kind.
    assert specializations(optimized) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.randn(n, 4).t(),
        lambda n: torch.randn(4, n).t(),
        lambda n: torch.randn(n, 8)[:, ::2],
        lambda n: torch.randn(2 * n, 4)[::2],
        lambda n: torch.randn(n + 3, 4)[3:],
        lambda n: torch.randn(4, n + 2)[:, 2:],
        lambda n: torch.randn(2, n, 3).permute(2, 0, 1),
        lambda n: torch.randn(1, 4).expand(n, 4),
        lambda n: torch.randn(4, 50)[:, :n],
    ],
)
def test_strided_arguments(make: Callable[[int], torch.Tensor]) -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, x.reshape(-1), x.sum(0), x.transpose(0, 1), x.clone(), x[..., 1:].contiguous()

    optimized = optimize(function)
    for n in [5, 7, 10, 3, 20]:
        agree(optimized, function, lambda n=n: (make(n),))
    # A view's address may be a multiple of 16 or not, which is a fact of its own.
    assert specializations(optimized) <= 4
    assert optimized.stats()["hits"] >= 1


def test_layout_change_is_another_specialization() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1) * 2 if x.is_contiguous() else x.sum(0)

    optimized = optimize(function)
    for n in [5, 6, 9]:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
        agree(optimized, function, lambda n=n: (torch.randn(4, n).t(),))
        agree(optimized, function, lambda n=n: (torch.randn(n, 8)[:, :4],))
