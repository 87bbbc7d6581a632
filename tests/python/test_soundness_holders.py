"""State that modules rarely hold: namespaces, NumPy's numbers, keys, attributes of libraries."""

from __future__ import annotations

import random
import types
import warnings
import weakref
from typing import Any

import numpy
import pytest
import torch
from soundness_helpers import Pair, check, describe
from torch import nn

import trident


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(scale=2.0, inner=types.SimpleNamespace(shift=1))
        self.root = numpy.sqrt(4.0)
        self.step = numpy.int64(3)

    def forward(self, x: torch.Tensor) -> Any:
        shifted = x * self.config.scale + self.config.inner.shift
        return shifted * self.root + int(self.step), self.root


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.config, "scale", 3.0),
        lambda m: setattr(m.config.inner, "shift", 5),
        lambda m: setattr(m, "root", numpy.float64(1.5)),
        lambda m: setattr(m, "root", numpy.float32(2.0)),
        lambda m: setattr(m, "step", numpy.int64(4)),
        lambda m: setattr(m, "config", types.SimpleNamespace(scale=2.5, inner=m.config.inner)),
    ],
)
def test_namespaces_and_numbers_of_numpy(change: Any) -> None:
    check(Configured, change)


def test_a_namespace_is_assigned() -> None:
    def counts(x: torch.Tensor, box: types.SimpleNamespace) -> torch.Tensor:
        box.last = x + box.count
        box.count = 1 - box.count
        return box.last * 2

    def arguments() -> Any:
        return torch.arange(4.0), types.SimpleNamespace(count=1)

    assert Pair(lambda: counts, arguments).call(2) == "mh"


class Remembers(nn.Module):
    """Counts calls under a key."""

    def __init__(self, key: Any) -> None:
        super().__init__()
        self.layer = nn.Identity()
        self.seen: Any = {}
        self.key = key

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = self.key(self, x)
        self.seen[key] = self.seen.get(key, 0) % 2 + 1
        return x * self.seen[key] + len(self.seen)


@pytest.mark.parametrize(
    ("key", "outcomes"),
    [
        (lambda m, x: "text", "mmmh"),
        (lambda m, x: (1, None, x.dtype), "mmmh"),
        (lambda m, x: type(m.layer), "mmmh"),
        (lambda m, x: m.layer, "ffff"),
        (lambda m, x: weakref.ref(m.layer), "ffff"),
    ],
    ids=["text", "tuple", "class", "object", "reference"],
)
def test_keys_that_a_call_adds(key: Any, outcomes: str) -> None:
    """An object would enter the dictionary as the trace's clone of it."""
    pair = Pair(lambda: Remembers(key))
    assert pair.call(4) == outcomes
    assert list(pair.target.seen.values()) == list(pair.eager.seen.values())


def test_attributes_of_libraries_that_a_call_assigns() -> None:
    def marks_module(x: torch.Tensor) -> torch.Tensor:
        torch.trident_mark = getattr(torch, "trident_mark", 0) + 1  # type: ignore[attr-defined]
        return x * torch.trident_mark  # type: ignore[attr-defined,no-any-return]

    def marks_class(x: torch.Tensor) -> torch.Tensor:
        nn.Linear.trident_mark = getattr(nn.Linear, "trident_mark", 0) + 1  # type: ignore[assignment]
        return x * nn.Linear.trident_mark

    def marks_by_name(x: torch.Tensor) -> torch.Tensor:
        nn.Linear.trident_mark = getattr(nn.Linear, "trident_mark", 0) + 1
        return x * nn.Linear.trident_mark

    for function in (marks_module, marks_class, marks_by_name):
        results = []
        for arm in (trident.optimize(function), function):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results.append([describe(arm(torch.ones(2))) for _ in range(3)])
            finally:
                for owner in (torch, nn.Linear):
                    if "trident_mark" in vars(owner):
                        delattr(owner, "trident_mark")
        assert results[0] == results[1], function.__name__


class Values(set[int]):
    """A set of a class of its own."""


def sets_of_all_tables(kind: type[set[int]], count: int) -> list[set[int]]:
    """Sets of numbers whose hashes collide, with elements removed again, in tables of all sizes."""
    chooses = random.Random(0)
    made = []
    for _ in range(count):
        found = kind()
        for _ in range(chooses.randrange(60)):
            value = chooses.choice((1, 8, 32)) * chooses.randrange(20)
            (found.discard if chooses.random() < 0.4 else found.add)(value)
        made.append(found)
    return made


@pytest.mark.parametrize("kind", [set, Values])
def test_sets_are_seen_in_their_order_of_iteration(kind: type[set[int]]) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sets = sets_of_all_tables(kind, 300)

        def forward(self, x: torch.Tensor) -> Any:
            found = []
            for values in self.sets:
                copy = values.copy()
                taken = [copy.pop() for _ in values]
                copy = set(values)
                copy.update((3, 64, 1000))
                found.append((list(values), taken, list(copy)))
            return x + 1, str(found)

    made = Holder().sets
    assert sum(list(set(list(each))) != list(each) for each in made) > 20
    pair = Pair(Holder, on_unsupported="raise")
    with torch.no_grad():
        assert pair.call(3) == "mhh"
    assert pair.fast.stats()["specializations"] == 1


def test_taking_an_element_out_of_a_set_and_putting_it_back() -> None:
    class Rotates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values = {2, 3, 5}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            value = self.values.pop()
            self.values.add(value)
            return x * value

    with torch.no_grad():
        assert Pair(Rotates).call(4) == "ffff"


ROTATED: set[int] = set()


def test_a_global_set_gets_its_order_back() -> None:
    def rotates(x: torch.Tensor) -> torch.Tensor:
        value = ROTATED.pop()
        ROTATED.add(value)
        return x * value

    results = []
    for arm in (trident.optimize(rotates), rotates):
        globals()["ROTATED"] = {8, 0, 16, 3}
        found = []
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            for _ in range(6):
                found.append((arm(torch.ones(1)).item(), list(ROTATED)))
        results.append(found)
    assert results[0] == results[1]


def test_results_with_named_items() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last: Any = (torch.zeros(1), torch.zeros(1))

        def forward(self, x: torch.Tensor) -> Any:
            before, self.last = self.last, x.topk(2)
            return x.sort(), torch.max(x.view(2, 2), 0), before[0].sum()

    with torch.no_grad():
        pair = Pair(Keeps, lambda: torch.tensor([3.0, 1.0, 4.0, 1.5]))
        assert pair.call(4) == "mmhh"
        assert type(pair.target.last) is torch.return_types.topk
        pair = Pair(lambda: lambda found: (found.values + 1, found[1], found))
        assert pair.call(3, lambda: (torch.max(torch.arange(6.0).view(2, 3), 0),)) == "mhh"
