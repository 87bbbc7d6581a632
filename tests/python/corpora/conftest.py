"""Fixtures of the corpora's tests, and the lines that they print at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton
from corpora_report import TALLIES
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


def pytest_sessionfinish(session: pytest.Session) -> None:
    told = [tally.told() for tally in _tallies]
    of_worker = getattr(session.config, "workeroutput", None)  # sent to the process that reports
    if of_worker is not None:
        of_worker["corpora"] = told
    else:
        session.config.stash[TALLIES] += told


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
