"""Calls that a program cannot stand for: they run eagerly, say why, and stay right."""

from __future__ import annotations

import datetime
import logging
import os
import pathlib
import random
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from soundness_helpers import Pair, describe
from torch import nn

import trident


def prints(x: torch.Tensor) -> torch.Tensor:
    print("called")
    return x + 1


def writes(x: torch.Tensor) -> torch.Tensor:
    sys.__stdout__.write("")  # type: ignore[union-attr]
    return x + 1


def logs(x: torch.Tensor) -> torch.Tensor:
    logging.getLogger("user").warning("called")
    return x + 1


def warns(x: torch.Tensor) -> torch.Tensor:
    warnings.warn("called", stacklevel=1)
    return x + 1


def reads_clock(x: torch.Tensor) -> torch.Tensor:
    return x + (time.time() > 0)


def reads_date(x: torch.Tensor) -> torch.Tensor:
    return x + datetime.datetime.now().year


def draws_number(x: torch.Tensor) -> torch.Tensor:
    return x + random.randint(0, 10**9)


def draws_own_number(x: torch.Tensor) -> torch.Tensor:
    return x + random.random()


def draws_numpy_number(x: torch.Tensor) -> torch.Tensor:
    return x + float(numpy.random.rand())


def draws_bytes(x: torch.Tensor) -> torch.Tensor:
    return x + len(str(uuid.uuid4())) + len(os.urandom(4))


def seeds(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return x + torch.rand(4)


def forks(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        return x + torch.rand(4)


def asks_item(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum().item() > 0 else x * 3


def asks_truth(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def asks_number(x: torch.Tensor) -> torch.Tensor:
    return x * int(x[0]) * float(x[1])


def asks_list(x: torch.Tensor) -> torch.Tensor:
    return x * len(x.tolist())


def asks_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


def asks_text(x: torch.Tensor) -> Any:
    return x, f"{x}"


def asks_nonzero(x: torch.Tensor) -> torch.Tensor:
    return x[x > 1] * 2


def asks_unique(x: torch.Tensor) -> torch.Tensor:
    return x.unique()


def asks_offset(x: torch.Tensor) -> torch.Tensor:
    return x + x.storage_offset()


def asks_version(x: torch.Tensor) -> torch.Tensor:
    return x + x._version


def asks_base(x: torch.Tensor) -> torch.Tensor:
    return x + (x._base is None) + x.is_leaf


def asks_storage(x: torch.Tensor) -> torch.Tensor:
    return x + x.untyped_storage().nbytes()


def asks_address(x: torch.Tensor) -> torch.Tensor:
    return x + (x.data_ptr() != 0)


def asks_grad(x: torch.Tensor) -> torch.Tensor:
    return x + (x.grad is None)


def asks_identity(x: torch.Tensor) -> torch.Tensor:
    return x + (id(x) > 0)


def swaps_data(x: torch.Tensor) -> torch.Tensor:
    x.data = torch.full((4,), 5.0)
    return x + 1


def wants_grad(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).requires_grad_()


def makes_parameter(x: torch.Tensor) -> torch.Tensor:
    return nn.Parameter(x + 1, requires_grad=False)


def asks_globals(x: torch.Tensor) -> torch.Tensor:
    return x + len(globals()["__name__"])


def asks_for_file(x: torch.Tensor) -> torch.Tensor:
    return x + os.path.exists("nowhere") + pathlib.Path("nowhere").exists() + len(os.getcwd())


def asks_for_frame(x: torch.Tensor) -> torch.Tensor:
    return x + sys._getframe().f_lineno


def asks_hash(x: torch.Tensor) -> torch.Tensor:
    return x + (hash(x) == hash(None))


def starts_thread(x: torch.Tensor) -> torch.Tensor:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(1))
    thread.start()
    thread.join()
    return x + len(found)


def records_event(x: torch.Tensor) -> torch.Tensor:
    if torch.cuda.is_available():
        torch.cuda.Event().record()
    else:
        print(end="")
    return x + 1


def asks_inference(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x + 1
    return y + y.is_inference()


def asks_inference_by_function(x: torch.Tensor) -> Any:
    return x + torch.is_inference(x)


FUNCTIONS: list[Callable[[Any], Any]] = [
    *(prints, writes, logs, warns, reads_clock, reads_date, seeds, forks),
    *(asks_item, asks_truth, asks_number, asks_list, asks_numpy, asks_text, asks_nonzero),
    *(asks_unique, asks_offset, asks_version, asks_base, asks_storage),
    *(asks_address, asks_grad, asks_identity, swaps_data, wants_grad, makes_parameter),
    *(asks_inference, asks_inference_by_function),
    *(asks_globals, asks_for_file, asks_for_frame, asks_hash, starts_thread, records_event),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_runs_eagerly(function: Callable[[Any], Any]) -> None:
    base = torch.arange(16.0)
    views = [lambda: base[4:8].clone(), lambda: base[8:12].clone(), lambda: -base[4:8]]
    if function in (asks_offset, asks_base):
        views = [lambda: base[4:8], lambda: base[8:12]]
    with torch.no_grad():
        pair = Pair(lambda: function)
        for view in views:
            torch.manual_seed(0)
            assert pair.call(2, view) == "ff"


def test_a_generator_of_its_own_is_named_as_the_reason() -> None:
    def draws(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return x + torch.rand(4, generator=generator)

    with torch.no_grad():
        pair = Pair(lambda: draws, lambda: (torch.ones(4), torch.Generator().manual_seed(7)))
        assert pair.call() == "ff"
        fast = trident.optimize(draws, on_unsupported="raise")
        with pytest.raises(trident.UnsupportedError, match="generator of its own.*refused.py"):
            fast(torch.ones(4), torch.Generator())


def test_random_numbers_of_python_and_numpy() -> None:
    for function in (draws_number, draws_own_number, draws_numpy_number):
        with torch.no_grad():
            fast = Pair(lambda function=function: function).fast
            results = []
            for arm in (fast, function):
                random.seed(1)
                numpy.random.seed(1)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results.append([describe(arm(torch.ones(4))) for _ in range(3)])
            assert results[0] == results[1], function.__name__
    with torch.no_grad():
        assert Pair(lambda: draws_bytes).call() == "ff"


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = trident.optimize(prints)
        for _ in range(3):
            fast(torch.ones(4))
    assert capsys.readouterr().out == "called\n" * 3


def test_the_warning_names_reason_and_line() -> None:
    fast = trident.optimize(prints)
    with torch.no_grad(), pytest.warns(UserWarning, match=r"print.*test_soundness_refused\.py:\d+"):
        fast(torch.ones(4))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        fast(torch.ones(4))  # once


def test_raises_where_that_is_asked_for() -> None:
    fast = trident.optimize(prints, on_unsupported="raise")
    with torch.no_grad(), pytest.raises(trident.UnsupportedError, match="print"):
        fast(torch.ones(4))


class Own(Exception):
    pass


def test_exceptions_of_the_users_code() -> None:
    def f(x: torch.Tensor, mode: str) -> torch.Tensor:
        if mode == "own":
            raise Own("mine")
        if mode == "index":
            return x[10]
        if mode == "shape":
            return x @ torch.ones(3)
        if mode == "attribute":
            return x.missing  # type: ignore[attr-defined,no-any-return]
        return x + 1

    with torch.no_grad():
        pair = Pair(lambda: f)
        for mode in ("own", "index", "shape", "attribute"):
            assert pair.call(2, lambda mode=mode: (torch.ones(4), mode)) == "ee", mode
        assert pair.call(2, lambda: (torch.ones(4), "fine")) == "mh"
        with pytest.raises(Own, match="mine"):
            pair.fast(torch.ones(4), "own")


def test_code_that_catches_what_a_trace_raises() -> None:
    """Code that hides a trace's refusal must not be frozen into what it did instead."""

    def careful(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * x.sum().item()
        except Exception:
            return x * 100

    def quiet(x: torch.Tensor) -> torch.Tensor:
        try:
            print(end="")
        except Exception:
            return x * 100
        return x * 2

    def offset(x: torch.Tensor) -> torch.Tensor:
        try:
            return x + x.storage_offset()
        except Exception:
            return x * 100

    def cached(x: torch.Tensor) -> torch.Tensor:
        try:
            COUNTS["n"] = COUNTS.get("n", 0)
            return x + COUNTS["n"]
        finally:
            COUNTS.clear()

    for function in (careful, quiet, offset, cached):
        with torch.no_grad():
            outcomes = Pair(lambda function=function: function).call(3)
            assert "m" not in outcomes or function is cached, (function.__name__, outcomes)


COUNTS: dict[str, int] = {}


def test_what_a_call_leaves_changed_is_changed_once() -> None:
    """Settings of the process: the trace of a call that changes them must not count."""

    def counts(x: torch.Tensor) -> torch.Tensor:
        os.environ["TRIDENT_TEST"] = str(int(os.environ.get("TRIDENT_TEST", "0")) + 1)
        return x + int(os.environ["TRIDENT_TEST"])

    def turns_gradients_off(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x + 1

    def toggles(x: torch.Tensor) -> torch.Tensor:
        torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())
        torch.set_default_dtype(torch.float64)
        return x + torch.ones(1).to(x.dtype)

    def leaves_as_it_was(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad(), torch.no_grad():
            return x + 1

    def runs_with_other_kernels(x: torch.Tensor) -> torch.Tensor:
        with torch.backends.mkldnn.flags(enabled=False):
            return x + 1

    settings = (
        torch.is_grad_enabled,
        torch.are_deterministic_algorithms_enabled,
        torch.get_default_dtype,
        lambda: os.environ.get("TRIDENT_TEST"),
    )
    # With gradients off already, turning them off changes nothing.
    hitting = {counts: 0, turns_gradients_off: 1, toggles: 0, leaves_as_it_was: 2}
    hitting[runs_with_other_kernels] = 0
    for function in hitting:
        seen = []
        for arm in (trident.optimize(function), function):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results = [describe(arm(torch.ones(2))) for _ in range(3)]
                seen.append((results, [get() for get in settings]))
                if arm is not function:
                    hits = arm.stats()["hits"]
            finally:
                torch.set_grad_enabled(True)
                torch.use_deterministic_algorithms(False)
                torch.set_default_dtype(torch.float32)
                os.environ.pop("TRIDENT_TEST", None)
        assert seen[0] == seen[1], function.__name__
        assert hits == hitting[function], function.__name__


def test_an_error_of_a_call_that_ran_eagerly_says_why_it_did() -> None:
    def prints_and_fails(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        raise Own("mine")

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise Own("mine")

    for function, noted in ((prints_and_fails, True), (fails, False)):
        fast = trident.optimize(function)
        with torch.no_grad(), pytest.raises(Own, match="^mine") as caught:
            fast(torch.ones(2))
        notes = getattr(caught.value, "__notes__", [])
        assert any("ran eagerly" in note and "print" in note for note in notes) == noted
