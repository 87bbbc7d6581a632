"""Tensors in globals, closures, defaults, classes and caches: neither arguments nor attributes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from soundness_helpers import Pair
from torch import nn

import trident

SHIFT = torch.zeros(4)
TABLE: dict[str, Any] = {}
TOOLS: list[Any] = []


class Holder:
    shift = torch.zeros(4)


HOLDER = Holder()


@triton.jit
def add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < count
    value = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, value, mask=mask)


def launch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[(1,)](x, y, out, x.numel(), BLOCK=8)
    return out


def module(function: Callable[[torch.Tensor], Any]) -> nn.Module:
    """A module whose forward, a method, calls a function: nothing of it is an attribute."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    return Model()


def of_global(shift: torch.Tensor) -> Any:
    global SHIFT
    SHIFT = shift
    return module(lambda x: x + SHIFT)


def of_launch(shift: torch.Tensor) -> Any:
    global SHIFT
    SHIFT = shift
    return module(lambda x: launch(x, SHIFT))


def of_dictionary(shift: torch.Tensor) -> Any:
    TABLE["shift"] = shift
    return module(lambda x: x + TABLE["shift"])


def of_class(shift: torch.Tensor) -> Any:
    Holder.shift = shift
    return module(lambda x: x + Holder.shift)


def of_object(shift: torch.Tensor) -> Any:
    HOLDER.shift = shift
    return module(lambda x: x + HOLDER.shift)


def of_helper(shift: torch.Tensor) -> Any:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x + shift

    return module(helper)


def of_default(shift: torch.Tensor) -> Any:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, by: torch.Tensor = shift) -> torch.Tensor:
            return x + by

    return Model()


def of_cache(shift: torch.Tensor) -> Any:
    @functools.lru_cache
    def cached(count: int) -> tuple[torch.Tensor, int]:
        return shift, count

    return module(lambda x: x + cached(x.numel())[0])


PLACES = [
    *(of_global, of_launch, of_dictionary, of_class, of_object, of_helper, of_default, of_cache),
]


@pytest.mark.parametrize("place", PLACES)
def test_is_an_input_like_a_weight(place: Callable[[torch.Tensor], Any]) -> None:
    shift = torch.arange(4.0)
    x = torch.ones(4)
    with torch.no_grad():
        fast = trident.optimize(place(shift))
        for _ in range(2):
            assert fast(x).tolist() == [1, 2, 3, 4]
            shift.mul_(2)
            assert fast(x).tolist() == [1, 3, 5, 7]
            shift.div_(2)
    assert {name: fast.stats()[name] for name in ("misses", "hits")} == {"misses": 1, "hits": 3}


@pytest.mark.parametrize("place", [of_global, of_launch, of_dictionary, of_object])
def test_another_tensor_in_its_place(place: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(4)
    with torch.no_grad():
        fast = trident.optimize(place(torch.arange(4.0)))
        assert fast(x).tolist() == [1, 2, 3, 4]
        place(torch.full((4,), 2.0))
        assert fast(x).tolist() == [3, 3, 3, 3]
        assert fast.stats()["misses"] == 1
        place(torch.full((4,), 3.0, dtype=torch.float64))
        assert fast(x).tolist() == [4, 4, 4, 4]
        assert fast.stats()["misses"] == 2


def test_what_is_added_to_the_state_is_said() -> None:
    with torch.no_grad():
        fast = trident.optimize(of_global(torch.ones(4)))
        fast(torch.ones(4))
        of_global(torch.ones(1))
        fast(torch.ones(4))
    assert f"{__name__}.SHIFT: size 0: 4 -> 1" in trident.explain(fast)


@pytest.mark.parametrize("write", [lambda t: t.add_(1), lambda t: t[:2].mul_(3)])
def test_is_written_once_per_call(write: Callable[[torch.Tensor], Any]) -> None:
    def make() -> Any:
        shift = torch.arange(1.0, 5.0)

        def helper(x: torch.Tensor) -> Any:
            write(shift)
            return x + shift

        return module(helper)

    with torch.no_grad():
        assert Pair(make).call(3) == "mhh"


READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tolist": lambda t: t.tolist()[0],
    "repr": lambda t: len(str(t)),
    "format": lambda t: len(f"{t[0]:.1f}") if t.dim() == 0 else len(f"{t}"),
    "numpy": lambda t: float(t.numpy()[0]),
    "array": lambda t: float(t.__array__()[0]),
    "version": lambda t: t._version,
    "data": lambda t: t.untyped_storage()[0],
    "item": lambda t: t.sum().item(),
    "item of what is computed": lambda t: (t * 2)[0].item(),
    "comparison": lambda t: 2.0 if t[0] > 7 else 1.0,
}


@pytest.mark.parametrize("name", READS)
def test_its_value_is_not_taken_for_a_constant(name: str) -> None:
    read = READS[name]

    def make() -> Any:
        shift = torch.full((2,), 5.0)
        TOOLS.append(shift)

        def helper(x: torch.Tensor) -> Any:
            return x * read(shift)

        return module(helper)

    TOOLS.clear()
    with torch.no_grad():
        pair = Pair(make)
        assert pair.call(2) == "ff"
        for shift in TOOLS:
            shift.mul_(123.0)
        assert pair.call(2) == "ff"


def test_writing_one_that_requires_grad_is_left_alone() -> None:
    def make() -> Any:
        shift = torch.ones(4)

        def helper(x: torch.Tensor) -> Any:
            shift.requires_grad_(not shift.requires_grad)
            return x + shift.detach(), shift.requires_grad

        return module(helper)

    with torch.no_grad():
        assert Pair(make).call(3) == "fff"


def test_result_that_is_such_a_tensor() -> None:
    shift = torch.arange(4.0)
    fast = trident.optimize(module(lambda x: (shift, shift[1:], x + shift)))
    for _ in range(2):
        whole, part, _ = fast(torch.ones(4))
        assert whole is shift
        assert part.data_ptr() == shift[1:].data_ptr()
    assert fast.stats()["hits"] == 1


def test_shares_memory_with_a_weight() -> None:
    def make() -> Any:
        linear = nn.Linear(4, 4)
        nn.init.constant_(linear.weight, 0.5)
        nn.init.zeros_(linear.bias)
        row = linear.weight.data[0]

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = linear

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                row.add_(1)
                return self.linear(x)

        return Model()

    with torch.no_grad():
        assert Pair(make).call(3) == "mhh"


def test_comparing_it_with_an_attribute_runs_eagerly() -> None:
    def make() -> Any:
        default = torch.ones(4)

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = default

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x if self.scale is default else x * self.scale

        return Model()

    with torch.no_grad():
        pair = Pair(make)
        assert pair.call(2) == "ff"
        pair.change(lambda model: setattr(model, "scale", torch.full((4,), 3.0)))
        pair.call(2)


def test_tensors_of_a_cache_reach_a_steady_state() -> None:
    @functools.cache
    def cached(count: int) -> torch.Tensor:
        return torch.arange(float(count))

    with torch.no_grad():
        fast = trident.optimize(module(lambda x: x + cached(x.numel())), dynamic=False)
        for count in [*range(2, 8), *range(2, 8)]:
            fast(torch.ones(count))
        misses = fast.stats()["misses"]
        for count in range(2, 8):
            assert fast(torch.ones(count)).tolist() == [float(i + 1) for i in range(count)]
        assert fast.stats()["misses"] == misses
