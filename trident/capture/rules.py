"""Calls whose effect or result a trace would freeze."""

from __future__ import annotations

import builtins
import datetime
import io
import logging
import os
import random
import time
import warnings
from typing import Any

import numpy
import torch


def call_rules() -> dict[Any, Any]:
    """What the native recorder refuses: see csrc/guards/recorder.h."""
    rules = dict(_RULES)
    if torch.is_inference_mode_enabled():  # a trace runs outside of it
        rules[torch.is_inference_mode_enabled] = (
            "the call asks whether inference mode is on, which it is not while it is captured"
        )
    return rules


def _make_rules() -> dict[Any, Any]:
    output = "the call prints, logs or reads: {} has an effect outside of its tensors"
    clock = (
        "the call asks for the time or a random number of Python: {} gives another result each time"
    )
    inside = "the call asks for what a trace cannot replay: {}"
    rules: dict[Any, Any] = {
        getattr(builtins, name): output.format(name) for name in ("print", "open", "input")
    }
    rules[warnings.warn] = output.format("warnings.warn")
    rules[logging.Logger._log] = output.format("logging")
    rules[io.TextIOWrapper.write] = output.format("write")
    for name in ("id", "globals"):
        rules[getattr(builtins, name)] = inside.format(name)
    for name in ("time", "perf_counter", "monotonic", "sleep", "process_time", "thread_time"):
        rules[getattr(time, name)] = clock.format(f"time.{name}")
    for name in ("time_ns", "perf_counter_ns", "monotonic_ns", "process_time_ns", "localtime"):
        rules[getattr(time, name)] = clock.format(f"time.{name}")
    for cls, name in (
        (datetime.datetime, "now"),
        (datetime.datetime, "utcnow"),
        (datetime.date, "today"),
    ):
        rules[getattr(cls, name)] = clock.format(f"datetime.{name}")
    for name in ("random", "getrandbits"):
        rules[getattr(random, name)] = clock.format(f"random.{name}")
    rules[os.urandom] = (clock.format("os.urandom"),)
    generator = torch.Generator
    for name in ("manual_seed", "seed", "set_state", "get_state", "initial_seed"):
        rules[getattr(generator, name)] = (f"the call uses Generator.{name}",)
    return rules


_RULES = _make_rules()


class RandomState:
    """Python's and NumPy's global generators, as they were before a trace."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy: Any = numpy.random.get_state(legacy=True)

    def restore(self) -> str | None:
        """Puts the generators back; returns why the call is not supported if they were used."""
        reason = None
        if random.getstate() != self._python:
            random.setstate(self._python)
            reason = "the call draws random numbers from Python's random module"
        now: Any = numpy.random.get_state(legacy=True)
        if any(not numpy.array_equal(a, b) for a, b in zip(now, self._numpy, strict=True)):
            numpy.random.set_state(self._numpy)
            reason = "the call draws random numbers from numpy.random"
        return reason
