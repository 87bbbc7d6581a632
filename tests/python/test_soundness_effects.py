"""What a call does to Python objects, to tensors, and to the random number generators."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, describe
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM


def with_state(forward: Callable[..., Any], **attributes: Callable[[], Any]) -> Any:
    def make() -> nn.Module:
        made = type("Made", (nn.Module,), {"forward": forward, "__module__": __name__})()
        for name, value in attributes.items():
            setattr(made, name, value())
        return made

    return make


def steps(make: Any, arguments: Any, times: int, state: Callable[[Any], Any]) -> str:
    """Calls both arms; compares results and, after each call, the state."""
    outcomes = ""
    with torch.no_grad():
        pair = Pair(make, arguments)
        for _ in range(times):
            outcomes += pair.call(1)
            assert describe(state(pair.target)) == describe(state(pair.eager))
    return outcomes


class Box:
    pass


def counter(self: Any, x: torch.Tensor) -> Any:
    self.count = (self.count + 1) % 2
    return x * self.count


def keeps_tensor(self: Any, x: torch.Tensor) -> Any:
    self.last = x * 2
    self.table["last"] = self.last
    return self.last + 1


def grows(self: Any, x: torch.Tensor) -> Any:
    self.cache = x if self.cache is None else torch.cat([self.cache, x])
    return self.cache.sum()


def appends(self: Any, x: torch.Tensor) -> Any:
    self.log.append(x + 1)
    del self.log[:-2]
    return len(self.log) + x


def in_place(self: Any, x: torch.Tensor) -> Any:
    self.buffer.add_(x)
    self.buffer[0] = 0
    return self.buffer * 2


def dictionaries(self: Any, x: torch.Tensor) -> Any:
    self.table["new"] = {"x": x * 2}
    self.table.pop("old", None)
    self.ordered["z"] = 1
    return x + len(self.table)


def attributes(self: Any, x: torch.Tensor) -> Any:
    self.box.value = (x * 2, "text", [x])
    if hasattr(self, "gone"):
        del self.gone
    return x + 1


def rebinds_parameter(self: Any, x: torch.Tensor) -> Any:
    self.buffer = self.buffer + x
    return self.buffer * 2


EFFECTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "counter": (with_state(counter, count=lambda: 0), lambda m: m.count),
    "tensor": (
        with_state(keeps_tensor, last=lambda: None, table=dict),
        lambda m: (m.last, m.table, m.table["last"] is m.last),
    ),
    "growing tensor": (with_state(grows, cache=lambda: None), lambda m: m.cache),
    "list": (with_state(appends, log=list), lambda m: m.log),
    "in place": (with_state(in_place, buffer=lambda: torch.zeros(4)), lambda m: m.buffer),
    "dictionaries": (
        with_state(dictionaries, table=lambda: {"old": 1}, ordered=collections.OrderedDict),
        lambda m: (m.table, m.ordered),
    ),
    "attributes": (with_state(attributes, box=Box, gone=lambda: 1), lambda m: vars(m.box)),
    "buffer": (
        with_state(rebinds_parameter, buffer=lambda: torch.zeros(4)),
        lambda m: m.buffer,
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_effects_are_replayed(name: str) -> None:
    make, state = EFFECTS[name]
    outcomes = steps(make, lambda: torch.arange(4.0), 4, state)
    assert "f" not in outcomes and "e" not in outcomes
    if name not in ("growing tensor",):  # every length is another program
        assert "h" in outcomes, outcomes


def test_effects_on_arguments() -> None:
    def f(x: torch.Tensor, log: list[Any], table: dict[str, Any], box: Any) -> Any:
        log.append(x * 2)
        table["x"] = log[-1]
        box.value = len(log)
        return table["x"]

    with torch.no_grad():
        pair = Pair(lambda: f, lambda: (torch.ones(2), [1], {"y": 2}, Box()))
        assert pair.call(3) == "mhh"


def slot(self: Any, x: torch.Tensor) -> Any:
    self.slotted.value = 3
    return x + 1


class Slotted:
    __slots__ = ("value",)


def order(self: Any, x: torch.Tensor) -> Any:
    self.table["a"] = self.table.pop("a")
    return x + 1


def moved(self: Any, x: torch.Tensor) -> Any:
    self.table.move_to_end("a")
    return x + 1


def elements(self: Any, x: torch.Tensor) -> Any:
    self.values.add(len(self.values))
    return x + len(self.values)


def tagged(self: Any, x: torch.Tensor) -> Any:
    self.weight.tag = getattr(self.weight, "tag", 0) + 1
    return x * self.weight.tag


def tagged_result(self: Any, x: torch.Tensor) -> Any:
    y = x + 1
    y.tag = 5
    return y, y.tag


def data(self: Any, x: torch.Tensor) -> Any:
    self.weight.data = self.weight.data + x
    return self.weight + 0


def grad_flag(self: Any, x: torch.Tensor) -> Any:
    flag = self.weight.requires_grad
    self.weight.requires_grad_(not flag)
    return x * (2.0 if flag else 3.0)


def own_class(self: Any, x: torch.Tensor) -> Any:
    self.box.__class__ = Other if type(self.box) is Box else Box
    return x * len(type(self.box).__name__)


class Other:
    pass


def factory(self: Any, x: torch.Tensor) -> Any:
    self.table.default_factory = int
    return x + 1


REFUSED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "slot": (with_state(slot, slotted=Slotted), lambda m: m.slotted.value),
    "order": (with_state(order, table=lambda: {"a": 1, "b": 2}), lambda m: m.table),
    "order of an OrderedDict": (
        with_state(moved, table=lambda: collections.OrderedDict(a=1, b=2)),
        lambda m: m.table,
    ),
    "set": (with_state(elements, values=set), lambda m: sorted(m.values)),
    "attribute of a tensor": (
        with_state(tagged, weight=lambda: torch.ones(4)),
        lambda m: m.weight.tag,
    ),
    "attribute of the result": (with_state(tagged_result), lambda m: None),
    "data": (with_state(data, weight=lambda: torch.ones(4)), lambda m: m.weight),
    "requires_grad": (
        with_state(grad_flag, weight=lambda: torch.ones(4)),
        lambda m: m.weight.requires_grad,
    ),
    "class": (with_state(own_class, box=Box), lambda m: type(m.box).__name__),
    "default_factory": (
        with_state(factory, table=lambda: collections.defaultdict(list)),
        lambda m: m.table.default_factory,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_effects_that_cannot_be_replayed_run_eagerly(name: str) -> None:
    make, state = REFUSED[name]
    # An effect that is there already changes nothing: from then on the call can be captured.
    assert steps(make, lambda: torch.arange(4.0), 3, state) in ("fff", "fmh")


def test_an_exception_after_an_effect_is_eagers() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        self.count += 1
        if x.shape[0] == 3:
            raise ValueError("three")
        return x + self.count

    make = with_state(forward, count=lambda: 0)
    with torch.no_grad():
        pair = Pair(make)
        pair.call(1)
        assert pair.call(1, lambda: torch.ones(3)) == "e"
        assert pair.target.count == pair.eager.count == 2
        pair.call(1)
        assert pair.target.count == pair.eager.count == 3


def test_growing_cache_of_a_language_model() -> None:
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=64,
        max_position_embeddings=64,
    )

    def make() -> nn.Module:
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()

    pair = Pair(make)
    for _ in range(2):  # the second run meets a fresh cache of the same structure
        tokens = torch.tensor([[1, 2, 3]])
        caches = DynamicCache(config=config), DynamicCache(config=config)
        for _step in range(3):
            with torch.no_grad():
                got, expected = (
                    arm(input_ids=tokens, past_key_values=cache, use_cache=True)
                    for arm, cache in zip((pair.fast, pair.eager), caches, strict=True)
                )
            torch.testing.assert_close(got.logits, expected.logits)
            assert type(got) is type(expected)
            assert got.past_key_values is caches[0]
            for mine, theirs in zip(caches[0].layers, caches[1].layers, strict=True):
                torch.testing.assert_close(mine.keys, theirs.keys)
                torch.testing.assert_close(mine.values, theirs.values)
            tokens = expected.logits[:, -1:].argmax(-1)
    stats = pair.fast.stats()
    assert stats["fallbacks"] == 0 and stats["hits"] == 3 and stats["misses"] == 3


def test_random_numbers_are_eagers() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = nn.functional.dropout(x, 0.5, self.training) + torch.rand(4)
        return y, torch.randint(0, 100, (4,)), torch.randn_like(x), x.clone().uniform_()

    with torch.no_grad():
        pair = Pair(with_state(forward))
        results = []
        for arm in (pair.fast, pair.eager):
            torch.manual_seed(11)
            results.append([describe(arm(torch.ones(4))) for _ in range(4)])
            results[-1].append(describe(torch.rand(3)))
        assert results[0] == results[1]
        assert len({repr(result) for result in results[0][:4]}) == 4
        assert pair.fast.stats()["hits"] == 3
        pair.change(lambda m: m.eval())
        torch.manual_seed(1)
        first = pair.fast(torch.ones(4))
        torch.manual_seed(1)
        assert describe(first) == describe(pair.eager(torch.ones(4)))


def test_capture_leaves_the_generators_alone() -> None:
    fast = Pair(lambda: lambda x: x + torch.rand(4)).fast
    torch.manual_seed(5)
    random.seed(5)
    expected = random.random()
    random.seed(5)
    with torch.no_grad():
        fast.prepare(torch.ones(4))
    assert random.random() == expected
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with torch.no_grad():
        fast.prepare(torch.ones(1))
    assert torch.equal(torch.get_rng_state(), state)
