"""Functions that together cover what a host program can contain; shared by several test files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of tensors and a maker of its inputs."""

    name: str
    function: Callable[..., Any]
    make: Callable[[], list[torch.Tensor]]


CASES: list[Case] = []


def case(*shapes: tuple[int, ...] | torch.Tensor) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function whose inputs are normal noise of the given shapes, or given tensors."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def make() -> list[torch.Tensor]:
            generator = torch.Generator().manual_seed(7)
            return [
                each.clone()
                if isinstance(each, torch.Tensor)
                else torch.randn(each, generator=generator)
                for each in shapes
            ]

        CASES.append(Case(function.__name__, function, make))
        return function

    return register


@case((4, 8), (5, 8), (5,))
def linear_with_bias(x, weight, bias):
    return F.linear(x, weight, bias)


@case((2, 3, 8), (6, 8))
def chain_of_linears_and_views(x, weight):
    y = F.linear(x, weight)
    z = y.view(2, 3, 2, 3).transpose(1, 2)
    return F.softmax(z @ z.transpose(-1, -2), dim=-1)


@case((4, 6))
def numbers_for_tensors(x):
    return (x * 2 + 1) / 3 - 0.5, x == 0, 2 - x, x**2, 1 / (x.abs() + 1)


@case((4, 6))
def returns_input_and_views_of_it(x):
    return x, x.t(), x[1:, ::2], x.detach()


@case((4, 6))
def returns_views_of_one_fresh_tensor(x):
    y = x + 1
    return y, y.t(), y[0], y.view(-1)


@case((4, 6))
def returns_the_same_tensor_twice(x):
    y = x.exp()
    z = y.t()
    return y, z, y, z


@case((4, 6))
def writes_into_its_input(x):
    x.add_(1).mul_(2)
    return x.sum()


@case((4, 6), (6,))
def writes_through_a_view_of_its_input(x, row):
    x[2].copy_(row)
    x[:, 1].zero_()
    return x.clone(), x[2]


@case((4, 6))
def clone_keeps_its_contents(x):
    kept = x.clone()
    x.fill_(3)
    return kept + x, kept


@case((4, 6))
def writes_through_a_view_of_a_temporary(x):
    y = x * 2
    y[1].add_(10)
    z = y.view(-1)
    z[::3].zero_()
    return y.sum(dim=1)


@case((8, 6))
def several_results(x):
    values, indices = x.topk(3, dim=0)
    ordered, _ = x.sort(dim=1, descending=True)
    largest = x.max(dim=1)
    return values, indices, ordered[:, 0], largest.values, largest.indices


@case((8, 6))
def split_and_join(x):
    a, b, c = x.split(2, dim=1)
    d, e = torch.chunk(x, 2, dim=0)
    return torch.cat([a * 2, c, b], dim=1), torch.stack([d, e]), *x.unbind(1)[:2]


@case(torch.tensor([[0, 3], [2, 9]]), (10, 4))
def embedding_and_index(ids, table):
    y = F.embedding(ids, table)
    return y, table[ids.view(-1)], table[:, ids[0]], y[ids < 3].shape[0] * y if False else y * 2


@case((2, 3, 8, 8), (4, 3, 3, 3), (4,))
def convolution_net(x, weight, bias):
    y = F.relu(F.conv2d(x, weight, bias, padding=1))
    y = F.max_pool2d(y, 2)
    return F.adaptive_avg_pool2d(y, 1).flatten(1)


@case((2, 3, 8, 8), (4, 3, 3, 3))
def convolution_in_channels_last(x, weight):
    x = x.to(memory_format=torch.channels_last)
    return F.conv2d(x, weight, stride=2), x


@case((3, 8), (8,), (8,))
def layer_norm(x, weight, bias):
    return F.layer_norm(x, (8,), weight, bias)


@case((4, 8), (8,), (8,))
def batch_norm_updates_its_buffers(x, mean, variance):
    return F.batch_norm(x, mean, variance.abs_(), training=True, momentum=0.1)


@case((1, 4, 5, 8), (1, 4, 7, 8), (1, 4, 7, 8))
def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


@case((4, 6))
def factories(x):
    positions = torch.arange(6)
    return (
        x + positions,
        torch.zeros(4, 6) + x,
        torch.full((2, 2), -math.inf),
        torch.ones_like(x),
        torch.arange(1, 9, 2),
        torch.full_like(x, math.nan),
        x.new_zeros(3, dtype=torch.int32),
    )


@case((5, 5))
def masks(x):
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    return x.masked_fill(~mask, -math.inf).softmax(-1), torch.where(mask, x, 0.0)


@case((4, 6))
def casts(x):
    y = x.to(torch.bfloat16)
    return y, (y * y).float(), x.to(torch.float64).sum(), x.double().mean(-1, keepdim=True).int()


@case((4, 6))
def as_strided_views(x):
    y = x * 3
    return (
        y.as_strided((3, 3), (6, 2), 1) + 1,
        x.as_strided((2, 3), (1, 2)),
        x.as_strided((2,), (3,), 4) * 1,
    )


@case((4, 6))
def reinterpreted_bits(x):
    y = x + 1
    return y.view(torch.int32) & 0x7FFFFFFF, x.view(torch.int32) + 1


@case((4, 6))
def complex_view(x):
    z = torch.view_as_complex(x.view(4, 3, 2).contiguous())
    return torch.view_as_real(z * z).flatten(1)


@case((4, 6))
def constants(x):
    c = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    c.mul_(2)
    return x + c, torch.tensor(3.5) * x


@case((4, 6), (6,))
def out_argument(x, destination):
    torch.sum(x, dim=0, out=destination)
    return destination * 2


@case((3, 4, 32, 16), (3, 4, 1, 16), torch.tensor([5]))
def cache_update(cache, new, position):
    cache.index_copy_(2, position, new)
    return cache.sum(dim=2)


@case((0, 4))
def empty_tensors(x):
    return x * 2, x.sum(dim=0), torch.cat([x, x + 1])


@case((4, 6))
def scatter_and_gather(x):
    indices = torch.zeros(4, 2, dtype=torch.long)
    return x.gather(1, indices), x.scatter(1, indices, 9.0), x.cumsum(1), x.argmax(-1), x.flip(0)


@case(torch.tensor(2.0), torch.tensor([1, 2, 3]))
def zero_dimensional_and_integers(scalar, whole):
    return scalar * whole, whole // 2, whole % 2, whole + scalar.int(), (whole > 1).any()


@case((4, 6))
def nothing_to_do(x):
    return (x.view(6, 4),)


@case((4, 6))
def gelu_tanh_and_strings(x):
    return F.gelu(x, approximate="tanh"), torch.div(x, 0.7, rounding_mode="floor")


@case((4, 6), (4, 6))
def repeated_buffers(x, y):
    for step in range(6):
        y = torch.tanh(x * y) + x.roll(step, 1)
        x = (y - x).abs().sqrt()
    return x, y
