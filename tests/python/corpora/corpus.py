"""What the tests of all corpora share: cases, the comparison with eager, and the tally."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from triton_on_cpu import Launches

import trident

# The most calls until a hit: tuning may take an eager one per kernel, and one is the capture.
CALLS = 5


def need(*modules: str) -> None:
    """Skips the module or test that asks, unless all must be there: TRIDENT_TEST_CORPORA=all."""
    for module in modules:
        if os.environ.get("TRIDENT_TEST_CORPORA") == "all":
            importlib.import_module(module)
        else:
            # Of a module that is there, but cannot be imported here, pytest gives the reason.
            pytest.importorskip(module, exc_type=ImportError)


class Draw:
    """Random tensors of one seed on one device."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Standard normal values."""
        return torch.randn(shape, generator=self._generator).to(self.device, dtype)

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Values between 0 and 1."""
        return torch.rand(shape, generator=self._generator).to(self.device, dtype)

    def below(self, limit: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integers from 0 on."""
        values = torch.randint(limit, shape, generator=self._generator)
        return values.to(self.device, dtype)

    def permutation(self, count: int) -> torch.Tensor:
        """The numbers below `count` in random order, int64."""
        return torch.randperm(count, generator=self._generator).to(self.device)


@dataclasses.dataclass(frozen=True)
class Case:
    """One public function of a corpus with arguments.

    Attributes:
        name: unique within the corpus.
        function: what is optimized.
        arguments: makes a call's positional arguments.
        tuned_in_place: eager has to run once before, since its autotuner benchmarks a kernel on
            memory that the kernel changes, and leaves there what all its runs made of it.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[Draw], tuple[Any, ...]]
    tuned_in_place: bool = False


@dataclasses.dataclass
class Tally:
    """What became of the cases of one corpus that have run so far."""

    corpus: str
    launches: Launches | None = None
    captured: list[str] = dataclasses.field(default_factory=list)
    fallback: dict[str, str] = dataclasses.field(default_factory=dict)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "corpus": self.corpus,
            "captured": self.captured,
            "fallback": self.fallback,
            "wrong": self.wrong,
        }

    @torch.no_grad()
    def check(self, case: Case, device: torch.device, expected: Mapping[str, str]) -> Any:
        """Optimized against eager, on other values in each call, until a call hits.

        Args:
            case: what to call.
            device: where.
            expected: the cases that run eagerly, with a pattern for the reason.

        Returns:
            The optimized function.
        """
        # An exception in here, in a kernel or of a comparison, is a wrong result, too.
        self.wrong.append(case.name)
        fast = trident.optimize(case.function)
        if case.tuned_in_place:
            case.function(*case.arguments(Draw(device, 0)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(CALLS):
                theirs, mine = (case.arguments(Draw(device, seed)) for _ in range(2))
                got = fast(*mine)  # first, so that what eager would tune or generate is not there
                wanted = case.function(*theirs)
                same(got, wanted, "result")
                same(mine, theirs, "arguments")
                stats = fast.stats()
                if stats["hits"]:
                    break
        if self.launches is not None:
            self.launches.check_captured()
        self.wrong.remove(case.name)
        assert stats["errors"] == 0
        optimizer = type(fast).__trident_optimizer__
        reasons = "; ".join(dict.fromkeys(optimizer.warnings.eager_reasons()))
        if stats["hits"]:
            self.captured.append(case.name)
            assert case.name not in expected, f"{case.name} is captured now"
            assert stats["misses"] == 1, stats
        else:
            self.fallback[case.name] = reasons
            assert case.name in expected, f"{case.name} runs eagerly: {reasons}"
            assert re.search(expected[case.name], reasons), reasons
        return fast


def same(got: Any, wanted: Any, where: str) -> None:
    """Asserts equal types, structure, geometry and, of tensors, bits."""
    assert type(got) is type(wanted), where
    if isinstance(wanted, torch.Tensor):
        for name in ("dtype", "device", "shape", "requires_grad"):
            assert getattr(got, name) == getattr(wanted, name), f"{where}: {name}"
        assert got.stride() == wanted.stride(), where
        assert torch.equal(_bits(got), _bits(wanted)), f"{where}: values differ"
    elif dataclasses.is_dataclass(wanted):
        same(vars(got), vars(wanted), where)
    elif isinstance(wanted, Mapping):
        assert list(got) == list(wanted), where
        for key, value in wanted.items():
            same(got[key], value, f"{where}[{key!r}]")
    elif isinstance(wanted, tuple | list):
        assert len(got) == len(wanted), where
        for index, value in enumerate(wanted):
            same(got[index], value, f"{where}[{index}]")
    else:
        assert got == wanted, where


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
