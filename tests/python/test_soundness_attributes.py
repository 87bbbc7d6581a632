"""Attributes and defaults of what is no plain object: kernels, functions, partials, subclasses."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from soundness_helpers import Pair, check_function

import trident


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@triton.jit
def add_kernel(x_ptr, out_ptr, n, ADDED: tl.constexpr):
    offsets = tl.arange(0, 8)
    tl.store(
        out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + ADDED, mask=offsets < n
    )


@triton.jit
def subtract_kernel(x_ptr, out_ptr, n, ADDED: tl.constexpr):
    offsets = tl.arange(0, 8)
    tl.store(
        out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) - ADDED, mask=offsets < n
    )


def plain(x: Any) -> Any:
    return x


class Tuple(tuple[Any, ...]):
    pass


class Text(str):
    pass


class Number(float):
    pass


HOLDERS: dict[str, Callable[[], Any]] = {
    "kernel": lambda: triton.jit(add_kernel.fn),
    "heuristics": lambda: triton.heuristics({"ADDED": lambda a: 1})(add_kernel),
    "cached function": lambda: functools.lru_cache(plain),
    "function": lambda: lambda x: x,
    "partial": lambda: functools.partial(plain),
    "tuple": lambda: Tuple((1,)),
    "frozen set": lambda: type("Frozen", (frozenset,), {})((1,)),
    "text": lambda: Text("a"),
    "number": lambda: Number(1.0),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_attributes_that_are_read(kind: str) -> None:
    holder = HOLDERS[kind]()
    for read in (lambda x, h: x * h.scale, lambda x, h: x * getattr(h, "further", 1.0)):
        fast = trident.optimize(read)
        for scale in (1.0, 2.0, 3.0, 4.0):
            holder.scale = scale
            if scale > 2:
                holder.further = scale
            for _ in range(2):
                assert torch.equal(fast(torch.ones(2), holder), read(torch.ones(2), holder))


@pytest.mark.parametrize("held", ["argument", "attribute", "closure"])
@pytest.mark.parametrize("kind", HOLDERS)
def test_attributes_that_are_assigned(kind: str, held: str) -> None:
    """Each call counts once, whether it is replayed or left to eager, and no fake tensor stays."""
    holder = HOLDERS[kind]()

    def count(x: torch.Tensor, holder: Any) -> Any:
        holder.calls = getattr(holder, "calls", 0) + 1
        if not hasattr(holder, "buffer"):
            holder.buffer = torch.zeros(2)
        holder.buffer.add_(x)
        return x * holder.calls + holder.buffer

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.holder = holder

        def forward(self, x: torch.Tensor) -> Any:
            return count(x, self.holder)

    call: Any = {
        "argument": lambda: functools.partial(trident.optimize(count), holder=holder),
        "attribute": lambda: trident.optimize(Module()),
        "closure": lambda: trident.optimize(lambda x: count(x, holder)),
    }[held]()
    for number in range(1, 5):
        assert torch.equal(call(torch.ones(2)), torch.full((2,), 2.0 * number))
        assert holder.calls == number and type(holder.buffer) is torch.Tensor


def _partial(value: Any) -> Any:
    return functools.partial(torch.mul, other=value)


def test_numbers_among_the_arguments_of_partials() -> None:
    x = torch.ones(2)
    module = torch.nn.Module()
    module.act = _partial(1.0)  # type: ignore[assignment]
    held = trident.optimize(lambda x: module.act(x))  # type: ignore[operator]
    given = trident.optimize(lambda x, act: act(x))
    nested = trident.optimize(lambda x, acts: acts[0](x))
    for value in (1.0, 2.0, 3.0, 4.0):
        module.act = _partial(value)  # type: ignore[assignment]
        for result in (
            held(x),
            given(x, _partial(value)),
            given(x, functools.partial(_partial(value))),
            nested(x, [functools.partial(torch.mul, torch.full((2,), value))]),
        ):
            assert torch.equal(result, x * value)
    assert held.stats()["hits"] == 2


def test_what_a_call_changes_in_a_partial() -> None:
    def count(x: torch.Tensor, partial: Any) -> Any:
        partial.keywords["count"] = partial.keywords.get("count", 0) + 1
        return x * partial.keywords["count"]

    fast, partial = trident.optimize(count), functools.partial(plain)
    assert [fast(torch.ones(1), partial).item() for _ in range(4)] == [1, 2, 3, 4]
    assert partial.keywords == {"count": 4}


@pytest.mark.parametrize("state", [torch.ones(2), [1.0]], ids=["tensor", "list"])
def test_defaults_beside_state(state: Any) -> None:
    def scaled(x: Any, factor: float = 1.0, state: Any = state, *, by: float = 1.0) -> Any:
        return x * factor * by * state[0]

    fast = trident.optimize(lambda x: scaled(x))
    whole = trident.optimize(scaled)
    for value in (1.0, 2.0, 3.0, 4.0):
        scaled.__defaults__ = (value, state)
        scaled.__kwdefaults__ = {"by": value + 1}
        for each in (fast, whole):
            assert torch.equal(each(torch.ones(2)), scaled(torch.ones(2)))
    for value in (5.0, 6.0, 7.0):
        scaled.__kwdefaults__["by"] = value  # type: ignore[index]
        assert torch.equal(fast(torch.ones(2)), scaled(torch.ones(2)))


def test_dictionaries_whose_entries_are_attributes() -> None:
    class Lenient(dict[str, Any]):
        __getattr__ = dict.get
        __setattr__ = dict.__setitem__  # type: ignore[assignment]

    class Strict(dict[str, Any]):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__  # type: ignore[assignment]

    class Made(collections.defaultdict[str, Any]):
        pass

    for make in (Lenient, Strict, lambda **items: Made(float, items)):
        pair = Pair(
            lambda: lambda x, d: (x * d["s"], list(d)), lambda m=make: (torch.ones(2), m(s=1.0))
        )
        assert pair.call() == "mh"


def test_numbers_in_slots() -> None:
    @dataclasses.dataclass(slots=True)
    class Config:
        number: int
        scale: float

    class Base:
        __slots__ = ("number",)

    class Derived(Base):
        __slots__ = ("number",)  # hides the other one

    both = lambda x, c: x * c.number + Base.number.__get__(c)  # type: ignore[attr-defined]  # noqa: E731
    fast, hiding = trident.optimize(lambda x, c: x * c.number + c.scale), trident.optimize(both)
    for number in range(2, 8):
        config = Config(number, number / 4)
        assert torch.equal(fast(torch.ones(2), config), torch.ones(2) * number + number / 4)
        derived = Derived()
        derived.number = number
        Base.number.__set__(derived, 10 * number)  # type: ignore[attr-defined]
        assert torch.equal(hiding(torch.ones(2), derived), both(torch.ones(2), derived))
    assert fast.stats()["specializations"] == 1


@pytest.mark.device
def test_heuristics_and_what_they_are_of() -> None:
    kernel: Any = triton.heuristics({"ADDED": lambda a: 1})(add_kernel)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def launch(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, x.numel())
        return out

    x = torch.zeros(3, device=device)
    fast = trident.optimize(launch)
    for change, expected in (
        (lambda: None, 1.0),
        (lambda: kernel.values.update(ADDED=lambda a: 2), 2.0),
        (lambda: setattr(kernel, "values", {"ADDED": lambda a: 3}), 3.0),
        (lambda: setattr(kernel, "fn", subtract_kernel), -3.0),
    ):
        change()
        for _ in range(2):
            assert torch.equal(fast(x), torch.full_like(x, expected))
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (4, 4)


def test_configurations_that_code_reads() -> None:
    tuner: Any = triton.autotune([triton.Config({"ADDED": 4}), triton.Config({"ADDED": 8})], ["n"])(
        add_kernel
    )
    check_function(
        lambda x: x * tuner.configs[0].kwargs["ADDED"],
        lambda: tuner.configs[0].kwargs.update(ADDED=16),
    )
    check_function(lambda x: x * tuner.configs[0].kwargs["ADDED"], tuner.configs.reverse)
