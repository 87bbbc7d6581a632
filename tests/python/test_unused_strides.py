"""Strides behind no element, in results: of axes of size 1 and of tensors without elements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dynamic_helpers import flat
from torch import nn

import trident

pytestmark = pytest.mark.usefixtures("no_fallback")

# Sizes, and strides that tensors of these sizes have one after another.
GEOMETRIES: dict[str, tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] = {
    "row": ((1, 5), ((1, 1), (5, 1), (7, 1), (0, 1))),
    "column": ((5, 1), ((1, 5), (1, 1), (2, 7))),
    "one": ((1, 1), ((3, 7), (1, 1), (0, 0))),
    "middle": ((2, 1, 3), ((3, 1, 1), (3, 3, 1), (12, 9, 1))),
    "transposed": ((1, 2, 3), ((99, 1, 2), (6, 1, 2), (1, 3, 1))),
    "image": ((2, 1, 4, 4), ((16, 1, 4, 1), (16, 16, 4, 1), (32, 5, 4, 1))),
    "channels last": ((1, 4, 2, 2), ((1, 1, 8, 4), (16, 1, 8, 4), (16, 4, 2, 1))),
    "pixel": ((2, 4, 1, 1), ((4, 1, 4, 4), (4, 1, 1, 1), (4, 1, 9, 9))),
    "empty": ((1, 0, 2), ((9, 1, 1), (2, 2, 1))),
    "expanded": ((3, 1, 2), ((0, 7, 0), (2, 2, 1), (0, 2, 1))),
}


def arithmetic(x: torch.Tensor) -> Any:
    y = x + 1
    return y, 1 - x, x * x, -x, x > 2, torch.where(x > 2, x, 0.0), (y * 2).unsqueeze(0) * 3


def activations(x: torch.Tensor) -> Any:
    return x.relu() * 2, x.exp(), nn.functional.gelu(x), x.clamp(0, 2), x.masked_fill(x > 2, 1.0)


def of_the_same_shape(x: torch.Tensor) -> Any:
    inner = torch.zeros_like((x + 1).unsqueeze(-1))
    made = torch.empty_like(x).fill_(1)
    return (
        made,
        torch.ones_like(x),
        torch.full_like(x, 2.0, dtype=torch.int64),
        inner,
        made.t_() if (x.dim() == 2) else made,
    )


def reductions(x: torch.Tensor) -> Any:
    kept = x.sum(-1, keepdim=True)
    return kept, kept * x, x.mean(0, keepdim=True), x.norm(dim=-1, keepdim=True), x.cumsum(-1)


def normalized(x: torch.Tensor) -> Any:
    size = x.shape[-1:]
    return nn.functional.layer_norm(x, size), x.log_softmax(-1), x.softmax(0), x.sort(-1)[0]


def reshaped(x: torch.Tensor) -> Any:
    turned = x.permute(*reversed(range(x.dim())))
    return (
        turned.reshape(-1, 1),
        turned.reshape(x.shape),
        (x + 1).flatten(),
        turned.contiguous() + 1,
    )


def copied(x: torch.Tensor) -> Any:
    kept = x.clone(memory_format=torch.preserve_format)
    image = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.double()
    return kept, image * 2, x.clone().unsqueeze_(0), torch.cat([x, x]), torch.stack([x, x], -1)


def gathered(x: torch.Tensor) -> Any:
    if x.numel() == 0:
        return x.flip(0)
    first = torch.tensor([0])
    return x[first], x[..., first], x[:, None][..., first], x.flip(0), x.roll(1, -1), x.tril()


def products(x: torch.Tensor) -> Any:
    weight = torch.ones(x.shape[-1], 2)
    return x @ weight, torch.einsum("...i,ij->...j", x, weight), nn.functional.linear(x, weight.t())


def into_memory(x: torch.Tensor) -> Any:
    like = torch.mul(x, 2, out=torch.empty_like(x))
    return like, torch.add(x, 1, out=torch.empty(x.shape)), torch.zeros(x.shape).copy_(x) + 1


def shown_to_python(x: torch.Tensor) -> Any:
    y = x + 1
    made = torch.empty_like(x).fill_(1)
    strides = (*y.stride(), *made.stride())
    return (y * 2 if y.stride(0) == made.stride(0) else y - 2), strides


def pointwise(x: torch.Tensor) -> Any:
    return arithmetic(x), activations(x), of_the_same_shape(x), shown_to_python(x)


def moved(x: torch.Tensor) -> Any:
    return reshaped(x), copied(x), gathered(x), into_memory(x)


def computed(x: torch.Tensor) -> Any:
    return reductions(x), normalized(x), products(x)


def geometry(values: Any, arguments: tuple[torch.Tensor, ...]) -> list[Any]:
    """Geometry and values of results, and which of the arguments they share memory with."""
    found: list[Any] = []
    for each in flat(values):
        if not isinstance(each, torch.Tensor):
            found.append(each)
            continue
        memory = each.untyped_storage().data_ptr()
        shared = [memory == other.untyped_storage().data_ptr() for other in arguments]
        layout = (each.shape, each.stride(), each.storage_offset(), each.dtype)
        found.append((*layout, shared if each.numel() else None, each.tolist()))
    return found


def check(function: Callable[..., Any], name: str, dynamic: Any) -> None:
    """Results of a first call, of hits, and of hits after other calls are eager's."""
    sizes, strides = GEOMETRIES[name]
    fast = trident.optimize(function, dynamic=dynamic)
    for stride in (strides[0], *strides, *strides):
        mine, theirs = ((torch.arange(400.0) % 7).as_strided(sizes, stride, 4) for _ in range(2))
        got, expected = fast(mine), function(theirs)
        assert geometry(got, (mine,)) == geometry(expected, (theirs,)), stride
    assert fast.stats()["hits"] > len(strides)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("function", [pointwise, moved, computed], ids=lambda each: each.__name__)
@pytest.mark.parametrize("dynamic", [False, "auto"])
def test_results_have_eagers_strides(function: Callable[..., Any], name: str, dynamic: Any) -> None:
    check(function, name, dynamic)


@pytest.mark.parametrize("name", ["middle", "channels last"])
@pytest.mark.parametrize("function", [arithmetic, activations, reductions, products])
def test_they_do_so_among_symbols(function: Callable[..., Any], name: str) -> None:
    check(function, name, True)


def test_random_numbers_are_drawn_as_in_eager() -> None:
    """A kernel that is run for its layout draws nothing that is missed afterwards."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + x

    fast = trident.optimize(function)
    x = torch.ones(8).as_strided((1, 4), (7, 1))
    torch.manual_seed(0)
    got = [fast(x), fast(x), torch.rand(2)]
    torch.manual_seed(0)
    expected = [function(x), function(x), torch.rand(2)]
    assert geometry(got, (x,)) == geometry(expected, (x,))


def test_what_a_kernel_makes_of_them_is_not_planned() -> None:
    """Each of these calls hits the same program, though its inner results have other strides."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return ((x + 1) * 2).exp().sum(1)

    fast = trident.optimize(function)
    for stride in GEOMETRIES["row"][1]:
        x = torch.arange(40.0).as_strided((1, 5), stride)
        assert geometry(fast(x), (x,)) == geometry(function(x), (x,))
    assert fast.stats()["misses"] == 1


def test_what_needs_them_is_captured_once(caplog: pytest.LogCaptureFixture) -> None:
    """Where a result shows such strides they become facts, without a second trace."""
    fast = trident.optimize(lambda x: (x.t(), x * 2))
    with caplog.at_level(logging.INFO, "trident"):
        for stride in ((7, 1), (9, 1), (7, 1)):
            x = torch.arange(40.0).as_strided((1, 5), stride)
            assert fast(x)[0].stride() == stride[::-1]
    assert fast.stats()["misses"] == 2
    messages = [record.getMessage() for record in caplog.records]
    first = messages[: [" published after " in each for each in messages].index(True)]
    assert not any("stay fixed" in each for each in first)
