"""State that changes with every call: counters, lengths, caches in attributes, lists that grow."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dynamic_helpers import specializations
from soundness_helpers import Pair

pytestmark = pytest.mark.usefixtures("no_fallback")


class Module(torch.nn.Module):
    """A module whose forward is a function of it and the argument."""

    def __init__(self, body: Callable[[Any, torch.Tensor], Any], **attributes: Any) -> None:
        super().__init__()
        self.body = body
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self, x)


def pair(body: Callable[[Any, torch.Tensor], Any], make: Callable[[], dict[str, Any]]) -> Pair:
    return Pair(lambda: Module(body, **make()), lambda: torch.arange(6.0).view(2, 3) + 1)


def counted(self: Any, x: torch.Tensor) -> Any:
    self.step += 1
    return x * self.step, self.step


def test_a_counter_becomes_a_symbol() -> None:
    both = pair(counted, lambda: {"step": 0})
    assert both.call(6) == "mmhhhh"
    assert both.target.step == both.eager.step == 6
    assert type(both.target.step) is int
    assert specializations(both.fast) == 2


def test_a_counter_that_is_set_back_hits() -> None:
    both = pair(counted, lambda: {"step": 0})
    both.call(4)
    both.change(lambda module: setattr(module, "step", 0))
    assert both.call(3) == "hhh"
    both.change(lambda module: setattr(module, "step", -7))
    assert both.call(3) == "hhh"


def test_a_counter_beyond_64_bits_is_right() -> None:
    both = pair(lambda self, x: (counted(self, x)[1], self.step * self.step), lambda: {"step": 5})
    both.call(3)
    for value in (2**31 - 1, 2**32, 2**61, 2**62, 2**63 - 1, 2**63, -(2**63)):
        both.change(lambda module, value=value: setattr(module, "step", value))
        both.call(1)


def test_a_branch_on_a_counter_is_guarded() -> None:
    def body(self: Any, x: torch.Tensor) -> Any:
        self.step += 1
        return x * 2 if self.step > 4 else x + self.step

    both = pair(body, lambda: {"step": 0})
    assert both.call(9) == "mmhhmhhhh"


def test_state_that_recurs_keeps_its_fixed_specialization() -> None:
    both = pair(lambda self, x: x * self.mode, lambda: {"mode": 3})
    assert both.call(2) == "mh"
    both.change(lambda module: setattr(module, "mode", 5))
    assert both.call(2) == "mh"
    records = {bool(record.symbols) for record in both.fast.__class__.__trident_optimizer__.records}
    assert records == {False, True}
    both.change(lambda module: setattr(module, "mode", 3))
    assert both.call(1) == "h"
    both.change(lambda module: setattr(module, "mode", 8))
    assert both.call(1) == "h"


def count_in_list(self: Any, x: torch.Tensor) -> Any:
    self.box[0] += 1
    return x * self.box[0]


def count_in_dictionary(self: Any, x: torch.Tensor) -> Any:
    self.box["n"] += 1
    return x * self.box["n"]


def count_in_tuple(self: Any, x: torch.Tensor) -> Any:
    self.box = (self.box[0] + 1, 7)
    return x * self.box[0]


@pytest.mark.parametrize(
    "body, box",
    [(count_in_list, [4, "a"]), (count_in_dictionary, {"n": 2}), (count_in_tuple, (2, 7))],
    ids=["list", "dictionary", "tuple"],
)
def test_numbers_in_containers_of_the_state(body: Any, box: Any) -> None:
    both = pair(body, lambda: {"box": copy.copy(box)})
    assert both.call(5) == "mmhhh"


def test_a_float_of_the_state_is_a_run_time_value() -> None:
    def body(self: Any, x: torch.Tensor) -> Any:
        self.rate = self.rate * 0.9 + 0.01
        return x * self.rate, self.rate

    both = pair(body, lambda: {"rate": 1.0})
    assert both.call(6) == "mmhhhh"
    assert both.target.rate == both.eager.rate and type(both.target.rate) is float


def test_a_cache_that_grows_in_an_attribute() -> None:
    def body(self: Any, x: torch.Tensor) -> Any:
        self.cache = torch.cat([self.cache, x])
        self.length += x.shape[0]
        return self.cache.sum(0) / self.length, self.cache[-1:]

    both = pair(body, lambda: {"cache": torch.ones(4, 3), "length": 4})
    assert both.call(7) == "mmhhhhh"
    assert both.target.cache.shape == (18, 3)


def test_a_parameter_that_grows_has_a_specialization_per_size() -> None:
    both = pair(
        lambda self, x: x @ self.weight, lambda: {"weight": torch.nn.Parameter(torch.ones(3, 4))}
    )
    for size in (4, 5, 6):
        both.change(
            lambda module, size=size: setattr(
                module, "weight", torch.nn.Parameter(torch.arange(3.0 * size).view(3, size))
            )
        )
        assert both.call(2) == "mh"


def appended(self: Any, x: torch.Tensor) -> Any:
    self.seen.append(x.shape[0])
    self.means += [x.mean()]
    return x + 1


def test_lists_that_are_only_appended_to_do_not_matter() -> None:
    both = pair(appended, lambda: {"seen": [], "means": []})
    assert both.call(6) == "mmhhhh"
    assert both.target.seen == [2] * 6 and type(both.target.seen) is list
    assert torch.equal(torch.stack(both.target.means), torch.stack(both.eager.means))
    both.change(lambda module: module.seen.clear())
    assert both.call(1) == "h" and both.target.seen == [2]


@pytest.mark.parametrize(
    "read",
    [
        len,
        bool,
        sum,
        lambda seen: seen[-1],
        lambda seen: [*seen][0],
        lambda seen: len([0] + seen),
        lambda seen: (seen == []) + 1,
        lambda seen: seen.count(2),
        lambda seen: len(sorted(seen)),
        lambda seen: 2 in seen,
        lambda seen: len(torch.utils._pytree.tree_leaves(seen)),
        lambda seen: int(torch.tensor(seen).sum()),
        lambda seen: len(str(seen)),
        lambda seen: len(seen.copy()),
    ],
)
def test_a_list_that_is_read_is_guarded(read: Callable[[list[int]], Any]) -> None:
    def body(self: Any, x: torch.Tensor) -> Any:
        self.seen.append(x.shape[0])
        return x * int(read(self.seen))

    both = pair(body, lambda: {"seen": []})
    both.call(4)
    assert both.target.seen == [2] * 4


def test_a_list_that_is_read_by_another_path_is_guarded_again() -> None:
    def body(self: Any, x: torch.Tensor) -> Any:
        self.seen.append(x.shape[0])
        return x * len(self.seen) if self.reads else x + 1

    both = pair(body, lambda: {"seen": [], "reads": False})
    assert both.call(4) == "mmhh"
    both.change(lambda module: setattr(module, "reads", True))
    both.call(3)
    both.change(lambda module: setattr(module, "reads", False))
    both.call(3)
    assert len(both.target.seen) == 10


def test_a_list_shows_itself_as_a_list() -> None:
    def body(self: Any, x: torch.Tensor) -> Any:
        self.seen.append(1)
        right = type(self.seen) is list and isinstance(self.seen, list)
        return x * 2 if right and self.seen.__class__ is list else x

    both = pair(body, lambda: {"seen": []})
    both.call(4)
