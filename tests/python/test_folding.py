"""What depends on nothing is computed once; what the caller could tell apart is not."""

import pathlib
from typing import Any

import torch

import trident
from trident.optimize import optimizer_of


def compiled(function: Any, *args: Any) -> tuple[Any, int]:
    """The optimized function after its first call, and how many operators a hit calls."""
    fast = trident.optimize(function, on_unsupported="raise")
    fast(*args)
    before = fast.stats()
    fast(*args)
    after = fast.stats()
    return fast, sum(after[key] - before[key] for key in ("aten_typed", "aten_boxed"))


def rope(x: torch.Tensor) -> torch.Tensor:
    """Positions, frequencies and a causal mask, none of which depend on x."""
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, 8, 2).float() / 8)
    angles = torch.outer(torch.arange(6).float(), frequencies)
    table = torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype)
    mask = torch.arange(6)[None, :] <= torch.arange(6)[:, None]
    bias = torch.zeros(6, 6, dtype=x.dtype).masked_fill(~mask, float("-inf"))
    return torch.softmax((x * table) @ x.t() + bias, -1)


@torch.no_grad()
def test_tables_and_masks_become_constants_with_eagers_bits() -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    fast, operators = compiled(rope, x)
    assert operators == 4  # mul, mm, add, softmax
    assert torch.equal(fast(x).view(torch.int16), rope(x).view(torch.int16))


@torch.no_grad()
def test_constant_that_is_returned_is_the_callers_own() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(4)
        return x + positions, positions

    fast, operators = compiled(function, torch.ones(4))
    assert operators == 2
    _, first = fast(torch.ones(4))
    first.fill_(9)
    total, second = fast(torch.ones(4))
    assert second.tolist() == [0, 1, 2, 3] and total.tolist() == [1, 2, 3, 4]


@torch.no_grad()
def test_constant_that_is_written_is_made_anew() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        counts = torch.zeros(4)
        counts[1:].add_(x[1:])
        return counts * 2

    fast, _ = compiled(function, torch.ones(4))
    for _ in range(2):
        assert fast(torch.ones(4)).tolist() == [0, 2, 2, 2]


@torch.no_grad()
def test_view_of_a_constant_that_escapes_keeps_it_out_of_the_specialization() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(6)
        return x * positions, positions[2:]

    fast, _ = compiled(function, torch.ones(6))
    fast(torch.ones(6))[1].zero_()
    assert fast(torch.ones(6))[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert fast(torch.ones(6))[1].tolist() == [2, 3, 4, 5]


@torch.no_grad()
def test_literal_of_the_code_becomes_a_constant() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0, 4.0]).square().sqrt()

    x = torch.tensor([1.0, 3.0, -2.0])
    fast, operators = compiled(lambda x: x + torch.tensor([1, 2, 4]) * 2, x)
    assert operators == 1
    assert fast(x).tolist() == [3.0, 7.0, 6.0]
    fast, _ = compiled(function, x)
    assert torch.equal(fast(x), function(x))


@torch.no_grad()
def test_random_numbers_and_large_results_are_computed_by_each_call() -> None:
    fast, operators = compiled(lambda x: x + torch.rand(4), torch.ones(4))
    assert operators == 2
    assert not torch.equal(fast(torch.ones(4)), fast(torch.ones(4)))
    large = 64 * 1024
    _, operators = compiled(lambda x: x + torch.arange(large).sum() * 0, torch.ones(4))
    assert operators > 1


@torch.no_grad()
def test_constants_follow_the_default_dtype() -> None:
    fast = trident.optimize(lambda x: x * torch.ones(3), on_unsupported="raise")
    x = torch.ones(3, dtype=torch.float32)
    assert fast(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert fast(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert fast(x).dtype == torch.float32


@torch.no_grad()
def test_constants_of_autocast_code_are_what_the_graph_says() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        eye = torch.eye(4)
        return x @ (eye * 0.1 + eye)

    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        fast, _ = compiled(function, x)
        mine, eager = fast(x), function(x)
    assert mine.dtype == eager.dtype == torch.bfloat16
    assert torch.equal(mine, eager)


@torch.no_grad()
def test_equal_tables_of_several_layers_are_one_constant() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x * torch.arange(4) + torch.arange(4.0) - torch.full((4,), -0.0)
        return x - torch.full((4,), 0.0)

    x = torch.tensor([0.0, -0.0, 1.0, 2.0])
    fast, operators = compiled(function, x)
    assert operators == 10
    (record,) = optimizer_of(fast).records
    text = pathlib.Path(record.source).with_suffix(".cpp").read_text()
    # x; integers and floats from 0 to 3; the two zeros, which differ in their sign.
    assert "5,  // num_inputs" in text
    assert torch.equal(fast(x).view(torch.int32), function(x).view(torch.int32))
