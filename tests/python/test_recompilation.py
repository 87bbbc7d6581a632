"""What keeps changing between calls is not compiled without end."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import trident
from trident.optimize import optimizer_of
from trident.report.misses import Miss

LIMIT = 4


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Config:
    made = 0


def named(x: torch.Tensor, name: Any) -> Any:
    return x * 2, name


def counted(x: torch.Tensor) -> Any:
    return x * 2 + Config.made


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale: Callable[[torch.Tensor], torch.Tensor] = lambda x: x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(x) * 2


def optimize(target: Any, limit: int = LIMIT, **options: Any) -> Any:
    return trident.optimize(target, max_specializations=limit, **options)


def compiled(fast: Any) -> int:
    return int(fast.stats()["misses"])


def quietly(call: Callable[[], Any]) -> list[str]:
    """Calls something; returns the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught]


def with_new_names(times: int, start: int = 0, function: Any = named) -> tuple[Any, list[str]]:
    fast, x = optimize(function), torch.ones(3)

    def call() -> None:
        for step in range(start, start + times):
            result, name = fast(x, f"name {step}")
            assert name == f"name {step}" and torch.equal(result, x * 2)

    return fast, quietly(call)


def test_text_that_is_new_in_each_call() -> None:
    fast, messages = with_new_names(40)
    stats = fast.stats()
    # Four in a row, then one after 4, 8 and 16 others.
    assert (stats["misses"], stats["fallbacks"], stats["hits"]) == (LIMIT + 3, 33, 0)
    (message,) = messages
    assert f"none of the last {LIMIT} compilations served another call" in message
    assert "What keeps changing is argument name (lately 'name 1', 'name 2', 'name 3')" in message
    assert "none of the last" in trident.explain(fast)


def test_a_function_that_is_new_in_each_call() -> None:
    fast, x = optimize(lambda x, scale: scale(x) + 1), torch.ones(3)

    def call() -> None:
        for step in range(40):
            assert torch.equal(fast(x, lambda x, step=step: x * step), x * step + 1)

    (message,) = quietly(call)
    assert compiled(fast) <= LIMIT + 3 and "argument scale" in message


def test_an_attribute_that_is_new_in_each_call() -> None:
    module = Holder()
    fast, x = optimize(module), torch.ones(3)

    def call() -> None:
        for step in range(40):
            module.scale = lambda x, step=step: x * step  # type: ignore[misc]
            assert torch.equal(fast(x), x * step * 2)

    (message,) = quietly(call)
    assert compiled(fast) <= LIMIT + 3 and "module.scale" in message


def test_a_hook_around_each_call() -> None:
    module = torch.nn.Linear(3, 3)
    fast, x, seen = optimize(module), torch.ones(3), []

    def call() -> None:
        for step in range(40):
            hook = module.register_forward_hook(lambda m, a, out, step=step: out + step)
            seen.append(fast(x))
            hook.remove()
            assert torch.equal(seen[-1], module(x) + step)

    (message,) = quietly(call)
    assert compiled(fast) <= LIMIT + 3 and "_forward_hooks" in message


def test_a_class_attribute_that_is_counted_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Config, "made", 0)
    fast, x = optimize(counted), torch.ones(3)

    def call() -> None:
        for _ in range(40):
            Config.made += 1
            assert torch.equal(fast(x), x * 2 + Config.made)

    (message,) = quietly(call)
    assert compiled(fast) <= LIMIT + 3 and "Config.made" in message
    before = compiled(fast)
    fast(x)  # it is counted up no more
    assert compiled(fast) == before + 1
    fast(x)
    assert fast.stats()["hits"] == 1


def test_calls_that_are_refused_and_new_each_time_are_not_captured_without_end() -> None:
    captured = []

    def refused(x: torch.Tensor, name: str) -> tuple[torch.Tensor, str]:
        captured.append(type(x * 2) is not torch.Tensor)
        return x * float(x.sum()) * 2 / 3, name

    fast, _ = with_new_names(40, function=refused)
    assert fast.stats()["fallbacks"] == 40 and sum(captured) <= 2 * (LIMIT + 3)


def test_calls_that_are_refused_and_come_again_are_no_reason_to_stop() -> None:
    def refused(x: torch.Tensor, name: str) -> Any:
        return x * 2 if name == "fine" else x * float(x.sum())

    fast, x = optimize(refused), torch.ones(3)
    quietly(lambda: [fast(x, str(step)) for step in range(LIMIT) for _ in range(2)])
    fast(x, "fine")
    assert compiled(fast) == 1


def test_kinds_of_calls_that_come_again_are_all_compiled() -> None:
    fast, x = optimize(named), torch.ones(3)
    for _ in range(2):
        for step in range(LIMIT):
            fast(x, str(step))
    assert fast.stats()["misses"] == fast.stats()["hits"] == LIMIT
    quietly(lambda: fast(x, "another"))
    assert compiled(fast) == LIMIT + 1


def test_a_kind_that_keeps_hitting_does_not_hide_those_that_never_do() -> None:
    fast, x = optimize(named), torch.ones(3)

    def call() -> None:
        for step in range(60):
            fast(x, "always")
            fast(x, f"name {step}")

    quietly(call)
    assert fast.stats()["hits"] == 59 and compiled(fast) <= 1 + LIMIT + 4


def test_calls_that_come_twice_and_never_again_are_compiled() -> None:
    fast, x = optimize(named), torch.ones(3)

    def call() -> None:
        for step in range(30):
            for _ in range(2):
                fast(x, f"pair {step}")

    quietly(call)
    assert fast.stats()["hits"] == compiled(fast) == 30


def test_a_call_that_repeats_is_compiled_and_the_count_starts_again() -> None:
    fast, _ = with_new_names(10)
    x, before = torch.ones(3), compiled(fast)
    fast(x, "settled")
    assert compiled(fast) == before
    fast(x, "settled")
    assert compiled(fast) == before + 1
    fast(x, "settled")
    assert fast.stats()["hits"] == 1
    for step in range(LIMIT):
        fast(x, f"later {step}")
    assert compiled(fast) == before + 1 + LIMIT


def test_a_function_at_the_address_of_an_earlier_one_is_no_repetition() -> None:
    fast, x = optimize(lambda x, scale: scale(x)), torch.ones(3)

    def call() -> None:
        for step in range(40):
            factor = torch.tensor(float(step))
            assert torch.equal(fast(x, lambda x, factor=factor: x * factor), x * step)

    quietly(call)
    assert compiled(fast) <= LIMIT + 3


def test_one_open_number_among_fixed_ones() -> None:
    fast = optimize(lambda x, factor: (x * 2, str(factor)))

    def call() -> None:
        for step in range(40):
            assert fast(torch.ones(step + 2), step / 3)[1] == str(step / 3)

    quietly(call)
    assert compiled(fast) <= LIMIT + 4


def test_nothing_is_evicted_meanwhile() -> None:
    fast, x = optimize(named), torch.ones(3)
    for step in range(LIMIT):
        fast(x, str(step))
    quietly(lambda: [fast(x, f"name {step}") for step in range(LIMIT)])
    assert fast.stats()["evictions"] == 0
    for step in range(LIMIT):
        fast(x, str(step))
    assert fast.stats()["hits"] == LIMIT


def test_prepare_compiles_all_the_same() -> None:
    fast, _ = with_new_names(10)
    fast.prepare(torch.ones(3), "prepared")
    fast(torch.ones(3), "prepared")
    assert fast.stats()["hits"] == 1


def test_a_call_does_not_fail_because_others_were_in_vain() -> None:
    fast, x = optimize(named, on_unsupported="raise"), torch.ones(3)
    messages = quietly(lambda: [fast(x, f"name {step}") for step in range(10)])
    stats = fast.stats()
    assert stats["errors"] == 0 and stats["fallbacks"] > 0 and len(messages) == 1


def test_what_cannot_be_compiled_is_refused_each_time_where_that_is_asked_for() -> None:
    fast = optimize(lambda x, name: x * float(x.sum()), on_unsupported="raise")
    for step in range(3 * LIMIT):
        with pytest.raises(trident.UnsupportedError):
            fast(torch.ones(3), str(step))


def test_an_error_meanwhile_is_the_users() -> None:
    fast, _ = with_new_names(5)
    with pytest.raises(TypeError, match="unsupported operand"):
        fast(None, "name")
    assert fast.stats()["errors"] == 1


def test_sizes_become_symbols_however_few_specializations_are_kept() -> None:
    fast = optimize(lambda x: x * 2, limit=1)
    quietly(lambda: [fast(torch.ones(size)) for size in range(2, 12)])
    assert compiled(fast) == 2 and fast.stats()["hits"] == 8


def test_a_miss_of_another_thread_does_not_disturb_what_looks_at_the_last_ones() -> None:
    fast, x = optimize(named), torch.ones(3)
    history = optimizer_of(fast).misses

    class Differences(tuple[()]):
        def __iter__(self) -> Iterator[Any]:
            if not threads:  # what comes between, here for certain
                threads.append(threading.Thread(target=fast, args=(x, "another")))
                threads[0].start()
                threads[0].join()
            return iter(())

    threads: list[threading.Thread] = []
    fast(x, "first")
    history.add(Miss(1, "a call", 0, Differences()))
    fast(x, "second")
    assert history.keeps_changing() is not None
    assert threads and len(history.misses) == 4


def test_threads() -> None:
    fast, x = optimize(named), torch.ones(3)
    problems: list[Exception] = []

    def call(thread: int) -> None:
        try:
            for step in range(30):
                assert fast(x, f"{thread} {step}")[1] == f"{thread} {step}"
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=call, args=(each,)) for each in range(4)]

    def run() -> None:
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    messages = quietly(run)
    stats = fast.stats()
    assert not problems and len(messages) <= 1
    assert stats["calls"] == 120 == stats["misses"] + stats["fallbacks"]
    assert stats["misses"] <= LIMIT + 6
