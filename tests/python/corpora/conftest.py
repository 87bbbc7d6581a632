"""Fixtures of the corpora's tests, and the lines that they print at the end of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
from corpus import Tally
from triton.runtime.interpreter import InterpretedFunction
from triton_on_cpu import Launches, triton_on_cpu

_tallies: list[Tally] = []


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Tally:
    """Counts the cases of a module, under the name of its corpus."""
    found = Tally(request.module.CORPUS)
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


class _NoDevice:
    """Stands in for `torch.cuda.device`: there is nothing to switch to."""

    def __init__(self, device: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


@dataclasses.dataclass
class Properties:
    """What `torch.cuda.get_device_properties` says of an H200, as far as corpora ask."""

    name: str = "NVIDIA H200"
    major: int = 9
    minor: int = 0
    multi_processor_count: int = 132
    total_memory: int = 150 << 30
    L2_cache_size: int = 60 << 20
    shared_memory_per_block_optin: int = 227 << 10
    warp_size: int = 32


H200 = Properties()


@pytest.fixture(scope="module")
def h200(launches: Launches | None) -> Iterator[pytest.MonkeyPatch]:
    """Where there is no GPU: `torch.cuda` describes an H200, for corpora that ask before they
    launch. `torch.cuda.is_available()` stays False, and no tensor is ever on it."""
    with pytest.MonkeyPatch.context() as patch:
        if launches is not None:
            patch.setattr(torch.cuda, "get_device_name", lambda device=None: H200.name)
            patch.setattr(torch.cuda, "device_count", lambda: 1)
            patch.setattr(torch.cuda, "current_device", lambda: 0)
            patch.setattr(torch.cuda, "get_device_properties", lambda device=None: H200)
            patch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
            patch.setattr(torch.cuda, "device", _NoDevice)
        yield patch
