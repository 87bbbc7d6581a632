"""What all Python tests share: the GPU marker, the device, and which Trident is under test."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import warnings
from typing import Any

import corpora_report
import pytest
import torch
from hypothesis import HealthCheck, settings

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Subprocesses that tests start with the repository as current folder must not import its source
# folder either.
os.environ.setdefault("PYTHONSAFEPATH", "1")

# Property-based tests try the same examples in every run, so that a failure is the change's own.
# `make fuzz` tries random ones, and prints the seeds that repeat them.
_common = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("repeatable", _common, max_examples=2000, derandomize=True, database=None)
settings.register_profile(
    "fuzz", _common, max_examples=int(os.environ.get("TRIDENT_FUZZ_EXAMPLES", "20000"))
)
settings.load_profile("repeatable")


def pytest_report_header() -> list[str]:
    """The versions that a result depends on, and where trident is imported from."""
    spec = importlib.util.find_spec("trident")
    where = pathlib.Path(spec.origin).parent if spec and spec.origin else None
    notice = ""
    if where == ROOT / "trident":
        notice = " (source folder, not the installed package: use `make test`)"
    triton = importlib.util.find_spec("triton")
    version = __import__("triton").__version__ if triton else "not installed"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return [
        f"trident: {where}{notice}",
        f"torch: {torch.__version__}, triton: {version}, GPU: {gpu}",
    ]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[corpora_report.TALLIES] = []


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any, error: object) -> None:
    told = getattr(node, "workeroutput", {}).get("corpora", [])
    node.config.stash[corpora_report.TALLIES] += told


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    tallies = config.stash[corpora_report.TALLIES]
    if tallies:
        terminalreporter.section("corpora")
        for line in corpora_report.lines(tallies):
            terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker("device")
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA GPU, and torch.cuda.is_available() is False here")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def device() -> torch.device:
    """Where kernels run here: the GPU if there is one, else the CPU, by Triton's interpreter."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def no_fallback() -> Any:
    """Without gradients, and every warning of a fallback or an eviction is a failure."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield
