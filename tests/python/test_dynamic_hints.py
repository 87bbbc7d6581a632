"""`trident.Dim`: what varies is said beforehand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamic_helpers import agree, specializations

import trident
from trident import Dim, HintError

pytestmark = pytest.mark.usefixtures("no_fallback")


def function(x: torch.Tensor, y: torch.Tensor, count: int = 2) -> Any:
    return x.sum(0) * count + y.sum(1, keepdim=True), x.shape[0] * count


def shapes(*sizes: tuple[int, int]) -> Any:
    return [lambda n=n, m=m: (torch.randn(n, 3), torch.randn(4, m)) for n, m in sizes]


@pytest.mark.parametrize(
    "hint",
    [{0: Dim("n")}, (Dim("n"), None), [Dim("n")]],
    ids=["dictionary", "tuple", "list"],
)
def test_a_hinted_size_is_open_from_the_first_call_on(hint: Any) -> None:
    optimized = trident.optimize(function, dynamic={"x": hint, "y": None})
    for make in shapes((5, 6), (7, 6), (9, 6), (2, 6)):
        agree(optimized, function, make)
    assert specializations(optimized) == 1
    # What is not hinted stays fixed, however often it changes.
    for make in shapes((5, 7), (5, 8), (6, 8)):
        agree(optimized, function, make)
    assert specializations(optimized) == 3


def test_strides_follow_the_sizes_that_are_hinted() -> None:
    def middle(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 2) + 1

    optimized = trident.optimize(middle, dynamic={"x": {1: Dim("n"), 2: Dim("m")}})
    for n, m in [(5, 7), (6, 9), (3, 4)]:
        agree(optimized, middle, lambda n=n, m=m: (torch.randn(2, n, m),))
    assert specializations(optimized) == 1


def test_sizes_of_one_name_are_equal() -> None:
    def added(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, x.shape[0]

    same = trident.optimize(added, dynamic={"x": {0: Dim("n")}, "y": {0: Dim("n")}})
    for n in (5, 6, 7):
        agree(same, added, lambda n=n: (torch.randn(n), torch.randn(n)))
    assert specializations(same) == 1
    agree(same, added, lambda: (torch.randn(4), torch.randn(1)))
    assert specializations(same) == 2


def test_a_range_is_a_condition() -> None:
    optimized = trident.optimize(function, dynamic={"x": {0: Dim("n", min=4, max=8)}})
    for make in shapes((4, 6), (8, 6), (6, 6)):
        agree(optimized, function, make)
    assert specializations(optimized) == 1
    for make in shapes((9, 6), (3, 6), (100, 6)):
        agree(optimized, function, make)
    assert specializations(optimized) == 4


def test_an_int_argument() -> None:
    optimized = trident.optimize(function, dynamic={"count": Dim("count", min=1)})
    x, y = torch.randn(3, 3), torch.randn(4, 2)
    for count in (1, 2, 5, 17):
        got, expected = optimized(x, y, count), function(x, y, count)
        assert torch.equal(got[0], expected[0]) and got[1] == expected[1]
        got = optimized(x, y, count=count)
        assert torch.equal(got[0], expected[0])
    assert specializations(optimized) == 2  # by position, and by keyword


def test_sizes_zero_and_one_have_their_own() -> None:
    optimized = trident.optimize(function, dynamic={"x": {0: Dim("n", min=0)}})
    for make in shapes((5, 6), (1, 6), (0, 6), (7, 6), (1, 6)):
        agree(optimized, function, make)
    assert specializations(optimized) == 3


def test_a_module_names_the_arguments_of_forward() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    optimized = trident.optimize(Twice(), dynamic={"x": {0: Dim("n")}})
    for n in (5, 6, 7):
        assert torch.equal(optimized(torch.ones(n)), torch.full((n,), 2.0))
    assert specializations(optimized) == 1


@pytest.mark.parametrize(
    "hints, message",
    [
        ({"z": {0: Dim("n")}}, "no argument 'z', only x, y, count"),
        ({"x": {-1: Dim("n")}}, "the axis -1"),
        ({"x": {0: 5}}, "use an axis and a Dim"),
        ({"x": {"rows": Dim("n")}}, "use an axis and a Dim"),
        ({"x": "n"}, "use a Dim or Dims by axis"),
        ({"x": {0: Dim("n")}, "y": {0: Dim("n", max=5)}}, "another range for Dim\\('n'\\)"),
    ],
)
def test_wrong_hints_are_refused_at_once(hints: Any, message: str) -> None:
    with pytest.raises(HintError, match=message):
        trident.optimize(function, dynamic=hints)


@pytest.mark.parametrize(
    "hints, message",
    [
        ({"x": {2: Dim("n")}}, "'x' has 2 axes, and no axis 2"),
        ({"x": Dim("n")}, "'x' has a Dim, which is for ints"),
        ({"count": {0: Dim("n")}}, "'count' has hints for axes and is a int"),
    ],
)
def test_hints_that_do_not_fit_a_call_are_an_error_of_it(hints: Any, message: str) -> None:
    optimized = trident.optimize(function, dynamic=hints)
    with pytest.raises(HintError, match=message):
        optimized(torch.ones(3, 3), torch.ones(4, 2), 2)
    stats = optimized.stats()
    assert (stats["errors"], stats["fallbacks"], stats["calls"]) == (1, 0, 1)


@pytest.mark.parametrize(
    "arguments, error",
    [
        (("n", 5, 4), ValueError),
        (("not a name",), ValueError),
        ((5,), TypeError),
        (("n", "low"), TypeError),
        (("n", 0, 2.5), TypeError),
        (("n", None), TypeError),
    ],
)
def test_a_dim_says_what_is_wrong_with_it(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="Dim"):
        Dim(*arguments)


def test_hints_are_kept_by_copies() -> None:
    import copy

    module = torch.nn.Linear(3, 3)
    optimized = copy.deepcopy(trident.optimize(module, dynamic={"input": {0: Dim("n")}}))
    for n in (4, 5, 6):
        optimized(torch.ones(n, 3))
    assert specializations(optimized) == 1
