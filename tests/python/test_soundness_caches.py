"""Functions with a cache that the call uses: what they return is what eager would get from them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair

import trident


@dataclasses.dataclass(frozen=True)
class Tile:
    rows: int
    name: str


def test_second_call_uses_what_the_first_computed() -> None:
    @functools.lru_cache
    def tile(n: int) -> Tile:
        return Tile(n * 2, "tile")

    pair = Pair(lambda: lambda x: x * tile(x.shape[0]).rows)
    with torch.no_grad():
        assert pair.call(3) == "mhh"  # captured right after the eager run that fills the cache
    tile(17)
    with torch.no_grad():
        assert pair.call(1) == "h"  # other entries do not matter


@pytest.mark.parametrize("decorate", [functools.cache, functools.lru_cache])
def test_cleared_cache_is_noticed(decorate: Callable[..., Any]) -> None:
    setting = {"scale": 2.0}

    @decorate
    def scale() -> float:
        return setting["scale"]

    with torch.no_grad():
        pair = Pair(lambda: lambda x: x * scale())
        assert pair.call(3) == "mhh"
        setting["scale"] = 3.0
        assert pair.call(1) == "h"  # eager, too, gets the old value
        scale.cache_clear()
        scale()
        assert pair.call(2) == "mh"
        assert pair.eager(torch.ones(1)).item() == 3.0


@pytest.mark.parametrize("decorate", [functools.cache, functools.lru_cache])
def test_capture_leaves_the_entries_of_other_calls(decorate: Callable[..., Any]) -> None:
    computed = []

    @decorate
    def scale(n: int) -> float:
        computed.append(n)
        return 2.0 * n

    with torch.no_grad():
        fast = trident.optimize(lambda x: x * scale(x.shape[0]))
        for n in (2, 3, 5, 2, 3, 5):
            assert fast(torch.ones(n)).tolist() == [2.0 * n] * n
    assert computed == [2, 3, 5]
    assert fast.stats()["hits"] == 3


def test_entry_that_a_bounded_cache_dropped_is_noticed() -> None:
    setting = {"scale": 2.0}

    @functools.lru_cache(maxsize=3)
    def scale(n: int) -> float:
        return setting["scale"] * n

    with torch.no_grad():
        pair = Pair(lambda: lambda x: x * scale(1))
        assert pair.call(2) == "mh"
        setting["scale"] = 5.0
        for n in (2, 3, 4, 2, 3, 1):  # the entry is dropped, and made anew in the same memory
            scale(n)
        pair.call(2)
        assert pair.fast(torch.ones(1)).item() == 5.0


@pytest.mark.parametrize("result", [lambda: [1.0], lambda: {"a": 1}, lambda: ([2.0], 1)])
def test_results_that_can_change_run_eagerly(result: Callable[[], Any]) -> None:
    @functools.cache
    def cached() -> Any:
        return result()

    def use(x: torch.Tensor) -> torch.Tensor:
        found = cached()
        found = found[0] if isinstance(found, list | tuple) else found
        found = found[0] if isinstance(found, list) else found
        return x * (found["a"] if isinstance(found, dict) else found)

    with torch.no_grad():
        assert set(Pair(lambda: use).call(3)) == {"f"}


def test_cache_without_room_runs_eagerly() -> None:
    @functools.lru_cache(maxsize=1)
    def scale(n: int) -> float:
        return 2.0 * n

    with torch.no_grad():
        assert set(Pair(lambda: lambda x: x * scale(2)).call(3)) == {"f"}


def test_global_function_with_a_cache() -> None:
    with torch.no_grad():
        global_scale.cache_clear()
        pair = Pair(lambda: use_global)
        assert pair.call(2) == "mh"
        global_scale.cache_clear()
        pair.call(1)
        assert pair.call(2) == "hh"


@functools.lru_cache
def global_scale(n: int) -> float:
    return 0.5 * n


def use_global(x: torch.Tensor) -> torch.Tensor:
    return x + global_scale(x.dim())
