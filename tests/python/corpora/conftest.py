"""Fixtures of the corpora's tests, and the lines that they print at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
from corpus import Tally
from h200 import describe_h200
from triton.runtime.interpreter import InterpretedFunction
from triton_on_cpu import Launches, triton_on_cpu

_tallies: list[Tally] = []


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest, launches: Launches | None) -> Tally:
    """Counts the cases of a module, under the name of its corpus."""
    found = Tally(request.module.CORPUS, launches)
    _tallies.append(found)
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _tallies:
        return
    terminalreporter.section("corpora")
    for tally in _tallies:
        for line in tally.lines():
            terminalreporter.write_line(line)


@pytest.fixture(scope="module")
def launches() -> Iterator[Launches | None]:
    """Makes eager kernels run without a GPU, and collects what was launched; None on a GPU."""
    if torch.cuda.is_available():
        yield None
        return
    probe = triton.jit(_no_kernel)
    if isinstance(probe, InterpretedFunction):
        pytest.skip("under TRITON_INTERPRET=1 kernels are not those that a GPU would run")
    with triton_on_cpu() as found:
        yield found


def _no_kernel() -> None:
    pass


@pytest.fixture(scope="module")
def h200(launches: Launches | None) -> Iterator[pytest.MonkeyPatch]:
    """Where there is no GPU: `torch.cuda` describes an H200, for corpora that ask first."""
    with pytest.MonkeyPatch.context() as patch:
        if launches is not None:
            describe_h200(patch)
        yield patch
