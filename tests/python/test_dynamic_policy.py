"""Which sizes are left open: `dynamic=`, what earlier calls showed, 0 and 1, what code allows."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from dynamic_helpers import agree, specializations

import trident
from trident import optimize
from trident.optimize import optimizer_of

pytestmark = pytest.mark.usefixtures("no_fallback")


LENGTHS = [5, 7, 9, 2, 64, 33, 3, 16, 100]


def sliced(x: torch.Tensor) -> Any:
    return x[1:], x[:, ::2].contiguous(), x[-2:] + 1


def reduced(x: torch.Tensor) -> Any:
    return x.sum(0), x.mean(1), x.amax(0, keepdim=True) + 1, x.cumsum(0), x.std()


def outcomes(optimized: Any, calls: list[tuple[Any, ...]]) -> str:
    """One letter per call: h(it) or m(iss)."""
    letters = ""
    for arguments in calls:
        hits = optimized.stats()["hits"]
        optimized(*arguments)
        letters += "h" if optimized.stats()["hits"] > hits else "m"
    return letters


@pytest.mark.parametrize("options", [{}, {"dynamic": "auto"}])
def test_the_second_length_begins_to_vary(options: Any) -> None:
    optimized = trident.optimize(sliced, **options)
    assert outcomes(optimized, [(torch.randn(n, 4),) for n in (5, 5, 7, 9, 2, 33)]) == "mhmhmh"
    for n in LENGTHS:
        agree(optimized, sliced, lambda n=n: (torch.randn(n, 4),))
    assert "varying: size 0 of x" in trident.explain(optimized)


def test_dynamic_true_needs_no_first_length() -> None:
    optimized = trident.optimize(reduced, dynamic=True)
    assert outcomes(optimized, [(torch.randn(n, 4),) for n in (5, 7, 9, 33)]) == "mhhh"
    assert outcomes(optimized, [(torch.randn(5, n),) for n in (3, 8)]) == "hh"


def test_dynamic_false_fixes_every_length() -> None:
    optimized = trident.optimize(sliced, dynamic=False)
    for n in LENGTHS[:4]:
        agree(optimized, sliced, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) == 4
    assert "varying" not in trident.explain(optimized)


def test_a_fixed_specialization_goes_first() -> None:
    """One with fixed sizes has less to compute, so a length that recurs keeps its own."""
    optimized = trident.optimize(reduced)
    calls = [(torch.randn(n, 4),) for n in (5, 5, 7, 5, 9, 5)]
    assert outcomes(optimized, calls) == "mhmhhh"
    entries = {bool(record.symbols): hits for record, hits, _ in entries_of(optimized)}
    assert entries == {False: 3, True: 1}


def test_a_length_that_never_recurred_needs_no_specialization_of_its_own() -> None:
    optimized = trident.optimize(reduced)
    outcomes(optimized, [(torch.randn(n, 4),) for n in (5, 7, 5)])
    assert [bool(record.symbols) for record, _, _ in entries_of(optimized)] == [True]
    assert optimized.stats()["evictions"] == 0


def test_sizes_that_varied_once_vary_in_later_specializations() -> None:
    """A batch of 1 after two batches: that its length varies is known already."""
    optimized = trident.optimize(reduced)
    calls = [(torch.randn(*shape),) for shape in ((3, 5), (4, 7), (1, 6), (1, 9), (2, 1), (8, 1))]
    assert outcomes(optimized, calls) == "mmmhmh"


def entries_of(optimized: Any) -> list[Any]:
    return trident._C.entries(optimizer_of(optimized).scm)


def test_where_not_all_sizes_can_vary_those_that_differ_do() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, f"{x.shape[1]} columns"

    optimized = optimize(function, dynamic=True)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) == 1
    assert "varying: size 0 of x" in trident.explain(optimized)


def test_sizes_that_vary_are_no_obstacle_to_a_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0]

    optimized = trident.optimize(function, dynamic=True, graphs=True)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
    record = optimizer_of(optimized).records[0]
    assert record.symbols
    assert record.graph_obstacle is None


def test_sizes_that_must_agree_are_compared() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    optimized = optimize(function, dynamic=True)
    agree(optimized, function, lambda: (torch.randn(5, 2), torch.randn(5, 2)))
    agree(optimized, function, lambda: (torch.randn(8, 2), torch.randn(8, 2)))
    with pytest.raises(RuntimeError, match="must match the size"):
        optimized(torch.randn(6, 2), torch.randn(7, 2))
    agree(optimized, function, lambda: (torch.randn(1, 2), torch.randn(7, 2)))
    agree(optimized, function, lambda: (torch.randn(9, 2), torch.randn(1, 2)))


def test_zero_and_one_have_their_own() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum(0)

    optimized = optimize(scaled)
    for n in [5, 6, 0, 8, 1, 0, 1, 30]:
        agree(optimized, scaled, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) == 3


def test_numbers_that_the_code_needs_are_not_compiled_without_end() -> None:
    def function(x: torch.Tensor, f: float) -> Any:
        return x * 2 if f > 0.5 else x, str(f)

    optimized = optimize(function, max_specializations=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(14):
            got = optimized(torch.ones(2), step / 10)
            assert got[1] == str(step / 10) and torch.equal(
                got[0], function(torch.ones(2), step / 10)[0]
            )
    stats = optimized.stats()
    assert stats["misses"] <= 6 and stats["fallbacks"] >= 8
    assert sum("new values of them are not compiled" in str(each.message) for each in caught) == 1


def test_unsupported_calls_that_keep_changing_are_not_captured_without_end() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step, self.captured = 0, 0

        def forward(self, x: torch.Tensor) -> Any:
            self.step += 1
            return x * float(x.sum())

    module = Counter()
    optimized = optimize(module)
    attempts: list[Any] = []
    compile_ = optimizer_of(optimized)._attempts.compile
    optimizer_of(optimized)._attempts.compile = lambda *a: attempts.append(1) or compile_(*a)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for _ in range(10):
            optimized(torch.ones(2))
    assert module.step == 10 and optimized.stats()["fallbacks"] == 10
    assert len(attempts) <= 4
