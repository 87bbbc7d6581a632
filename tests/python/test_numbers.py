"""Python numbers in place of tensors: made into tensors once, with eager's results bit for bit."""

import pathlib
from typing import Any

import torch

import trident
from trident.optimize import optimizer_of

NUMBERS = (True, 3, -2, 2.5, -0.0, 1e-30, float("inf"))


def arithmetic(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Every operator that takes a number for a tensor, of every type with every kind of number."""
    results = []
    for x in tensors:
        for number in NUMBERS:
            results += [x + number, x * number, x / number, number * x]
            if x.dtype != torch.bool and not isinstance(number, bool):
                results.append(x - number)
            divides = number not in (0, float("inf")) and not isinstance(number, bool)
            if divides and not x.dtype.is_complex:
                results += [torch.floor_divide(x, number), torch.remainder(x, number)]
    return results


def same_bits(mine: torch.Tensor, eager: torch.Tensor) -> bool:
    if (mine.dtype, mine.shape, mine.stride()) != (eager.dtype, eager.shape, eager.stride()):
        return False
    return torch.equal(mine.reshape(-1).view(torch.uint8), eager.reshape(-1).view(torch.uint8))


@torch.no_grad()
def test_arithmetic_with_numbers_is_eagers_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(5, generator=generator) * 10
    tensors = [
        values,
        values.double(),
        values.bfloat16(),
        values.half(),
        values.int(),
        values.to(torch.uint8),
        values > 0,
        torch.complex(values, -values),
        torch.tensor(0.1),  # of no dimension, like a number's tensor, but with weight in promotion
        torch.tensor(7),
    ]
    fast = trident.optimize(arithmetic, on_unsupported="raise")
    fast(*tensors)
    results, expected = fast(*tensors), arithmetic(*tensors)
    assert len(results) == len(expected)
    for mine, eager in zip(results, expected, strict=True):
        assert same_bits(mine, eager), (mine, eager)
    stats: Any = fast.stats()
    assert (stats["hits"], stats["aten_boxed"]) == (1, 0)


@torch.no_grad()
def test_relu_into_planned_memory_is_eagers_bit_for_bit() -> None:
    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [torch.relu(x) * 1 for x in tensors]

    special = torch.tensor([-1.5, -0.0, 0.0, 2.5, float("nan"), float("inf"), -float("inf")])
    tensors = [special, special.double(), special.bfloat16(), torch.tensor([-3, 0, 7])]
    fast = trident.optimize(function, on_unsupported="raise")
    fast(*tensors)
    for mine, eager in zip(fast(*tensors), function(*tensors), strict=True):
        assert same_bits(mine, eager)
    (record,) = optimizer_of(fast).records
    text = pathlib.Path(record.source).with_suffix(".cpp").read_text()
    assert text.count("TRIDENT_TRY(clamp_min_out(") == 4 and "relu(" not in text


@torch.no_grad()
def test_default_dtype_decides_what_a_number_makes_of_integers() -> None:
    fast = trident.optimize(lambda x: x * 0.5, on_unsupported="raise")
    x = torch.arange(4)
    assert fast(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert fast(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert fast(x).dtype == torch.float32
    assert fast.stats()["misses"] == 2


@torch.no_grad()
def test_number_goes_into_an_in_place_operator_and_keeps_its_type() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3).add_(0.25)
        return x

    fast = trident.optimize(function, on_unsupported="raise")
    mine, eager = torch.arange(4.0).bfloat16(), torch.arange(4.0).bfloat16()
    for _ in range(2):
        assert fast(mine) is mine
        assert same_bits(mine, function(eager))


@torch.no_grad()
def test_program_makes_each_distinct_number_once() -> None:
    fast = trident.optimize(lambda x: (x * 2 + 2.0) * 2 - 2.0 + True, on_unsupported="raise")
    x = torch.arange(3.0)
    assert torch.equal(fast(x), (x * 2 + 2.0) * 2 - 2.0 + True)
    (record,) = optimizer_of(fast).records
    text = pathlib.Path(record.source).with_suffix(".cpp").read_text()
    assert "3,  // num_number_tensors" in text
    assert text.count("num[number::") == 5


@torch.no_grad()
def test_number_that_varies_still_selects_the_overload_for_numbers() -> None:
    fast = trident.optimize(lambda x: x * x.shape[0] + 1.5, dynamic=True, on_unsupported="raise")
    for size in (4, 9):
        x = torch.arange(float(size))
        assert same_bits(fast(x), x * size + 1.5)
    assert fast.stats()["misses"] == 1


STRIDES = ((5, 1), (7, 1), (1, 1), (100, 1), (0, 1), (3, 1))


@torch.no_grad()
def test_strides_of_axes_of_size_one_are_eagers() -> None:
    def function(x: torch.Tensor) -> Any:
        doubled = x * 2
        return doubled + x.sum(), torch.relu(doubled - 1.5) * 2

    for dynamic in (False, True):
        fast = trident.optimize(function, dynamic=dynamic, on_unsupported="raise")
        for stride in STRIDES * 2:
            x = torch.arange(400.0).as_strided((1, 5), stride)
            for mine, eager in zip(fast(x), function(x), strict=True):
                assert same_bits(mine, eager), (stride, mine.stride(), eager.stride())
