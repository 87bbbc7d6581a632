"""From the trace's end to publication: what another thread changes meanwhile, and what is kept."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import trident
from trident import pipeline
from trident.capture.observer import Observer
from trident.optimize import optimizer_of

FACTOR = 3.0


class Settings:
    def __init__(self, gain: float) -> None:
        self.gain = gain


SETTINGS = Settings(2.0)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale * FACTOR * SETTINGS.gain


@pytest.fixture
def kept_globals() -> Iterator[None]:
    yield
    globals()["FACTOR"] = 3.0
    SETTINGS.gain = 2.0


STAGES = {
    "trace": (Observer, "finish"),  # the trace is over, its reads are not recorded yet
    "capture": (pipeline, "generate"),
    "build": (pipeline, "build"),
}


def _meanwhile(monkeypatch: pytest.MonkeyPatch, stage: str, change: Callable[[], object]) -> None:
    """Makes `change` happen once, before or in a stage of a miss, as another thread would."""
    owner, name = STAGES[stage]
    original = getattr(owner, name)
    pending = [change]

    def staged(*args: Any, **kwargs: Any) -> Any:
        while pending:
            pending.pop()()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, staged)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "global": lambda module: globals().__setitem__("FACTOR", 4.0),
    "inside of a global": lambda module: setattr(SETTINGS, "gain", 5.0),
    "attribute": lambda module: setattr(module, "scale", 0.25),
}


@pytest.mark.usefixtures("kept_globals")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_what_changes_during_a_compilation_is_not_baked_in(
    monkeypatch: pytest.MonkeyPatch, name: str, stage: str
) -> None:
    module = Scaled()
    fast = trident.optimize(module)
    x = torch.ones(4)
    before = module(x)
    _meanwhile(monkeypatch, stage, lambda: CHANGES[name](module))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = fast(x)
    after = module(x)
    assert not torch.equal(before, after)
    assert torch.equal(first, after)
    for _ in range(2):  # and nothing that was published says otherwise
        assert torch.equal(fast(x), after)
    assert fast.stats()["hits"] >= 1


@torch.no_grad()
def test_what_only_a_trace_runs_is_not_guarded() -> None:
    fast = trident.optimize(lambda x: x.reshape(-1, x.shape[0] // 2), dynamic=True)
    fast(torch.ones(8))  # sizes are symbols: sympy and what it builds on run, in the trace alone
    (record,) = optimizer_of(fast).records
    names = [str(source.get("__name__")) for source, name, _ in record.reads if name is not None]
    assert record.symbols and names
    assert not [name for name in names if name.startswith(("sympy", "mpmath", "torch.fx"))]


def _call_whose_results_lead_back_to_it() -> list[weakref.ref[Any]]:
    class Out:
        owner: Any = None

        def __init__(self, y: torch.Tensor) -> None:
            self.y = y

    class Owner:
        fast: Any = None

    fast = trident.optimize(lambda x: Out(x + 1))
    fast(torch.ones(2))
    assert isinstance(fast(torch.ones(2)), Out) and fast.stats()["hits"] == 1
    owner = Out.owner = Owner()
    owner.fast = fast
    return [weakref.ref(owner), weakref.ref(Out)]


def test_a_class_that_results_are_made_of_can_be_collected_with_its_table() -> None:
    alive = _call_whose_results_lead_back_to_it()
    gc.collect()
    assert [each() for each in alive] == [None, None]


def _weight_of_a_layer_whose_rows_varied() -> weakref.ref[Any]:
    layer = torch.nn.Linear(4, 4)
    fast = trident.optimize(torch.nn.Sequential(layer))
    with torch.no_grad():
        for rows in (3, 5, 7):
            fast(torch.ones(rows, 4))
    assert fast.stats()["hits"] == 1  # of the specialization with a symbol
    return weakref.ref(layer.weight)


def test_a_trace_over_symbols_keeps_no_tensor_of_the_call_alive() -> None:
    weight = _weight_of_a_layer_whose_rows_varied()
    gc.collect()
    assert weight() is None


THREADS = """
import threading, torch, trident

fast = trident.optimize(lambda x, n: x + n, on_unsupported="raise", dynamic=False)
for n in range(3):
    thread = threading.Thread(target=lambda: print(fast(torch.zeros(()), n).item()))
    thread.start()
    thread.join()
print(fast.stats()["misses"])
"""


def test_captures_in_threads_that_end() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["0.0", "1.0", "2.0", "3"]), done.stderr
