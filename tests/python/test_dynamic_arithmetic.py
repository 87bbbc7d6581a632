"""Python's arithmetic on sizes and numbers that vary: computed on a hit as Python computes it."""

from __future__ import annotations

import builtins
import math
import struct
from collections.abc import Callable
from math import sqrt
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from dynamic_helpers import flat, specializations
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trident

pytestmark = pytest.mark.usefixtures("no_fallback")

SIZES = (5, 8, 13, 16, 33, 100)


def bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        data = value.contiguous().reshape(-1).view(torch.uint8).tolist() if value.numel() else []
        return value.dtype, value.shape, value.stride(), data
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return type(value), value


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return [*map(bits, flat(function(*arguments)))]
    except Exception as error:
        return type(error), str(error).partition("\n")[0]


def serve(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> int:
    """Compares each call with eager; how many specializations there are in the end."""
    optimized = trident.optimize(function)
    for arguments in calls:
        assert outcome(optimized, arguments) == outcome(function, arguments), arguments[1:]
    return specializations(optimized)


def of_sizes(function: Callable[[torch.Tensor, int], Any]) -> int:
    return serve(lambda x: function(x, x.shape[0]), [(torch.linspace(-1, 2, n),) for n in SIZES])


def of_ints(function: Callable[[torch.Tensor, int], Any]) -> int:
    return serve(function, [(torch.linspace(-1, 2, 12), n) for n in (5, 8, -3, 33, 100, 2**40 + 1)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: (x * float(n), float(n), x / math.sqrt(n), sqrt(n), n**0.5, n**-0.5),
        lambda x, n: (x * (1 / math.sqrt(n)), 1 / n, x * (1.0 / n), x.sum() / n, n / 3),
        lambda x, n: (math.log(n), math.log2(n), math.log(n, 3), math.log(3, n), math.exp(-1 / n)),
        lambda x, n: (math.ceil(n / 3), math.floor(n / 3), round(n / 2), int(n * 0.4), n // 2.5),
        lambda x, n: (x[: math.ceil(n / 2)], torch.zeros(int(n * 0.5)), x[int(n) // 2 :]),
        lambda x, n: (torch.tensor(n), torch.tensor([n, 0.5]), torch.tensor([[n], [3]]), x),
        lambda x, n: (x / torch.tensor(n), torch.tensor(n / 3, dtype=torch.float64)),
        lambda x, n: (torch.full((n,), n / 2), torch.arange(n) / n, torch.full((n,), float(n))),
        lambda x, n: (x, x.nbytes, x[1:].nbytes // 2, torch.zeros(x.nbytes), x.half().nbytes / n),
        lambda x, n: (x, n > 3, n.bit_length(), math.isqrt(n), divmod(n, 3), 1 << n.bit_length()),
    ],
    ids=[
        "roots",
        "inverses",
        "logs",
        "ints",
        "slices",
        "tensors",
        "scalars",
        "filled",
        "bytes",
        "bits",
    ],
)
def test_one_specialization_serves_every_size(function: Callable[..., Any]) -> None:
    assert of_sizes(function) == 1


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, n: (x * float(n), n / 7, math.ceil(n / 2), int(n * 0.5), round(n / 2)), 1),
        (lambda x, n: (n % 2.5, n // 2.5, 2.5 // n, math.sin(n), math.tanh(n)), 1),
        (lambda x, n: (x * 0.5 * (1 + math.cos(math.pi * n / 100)), abs(n / 3), -(n / 3)), 1),
        (lambda x, n: (x, abs(n), abs(n - 8) * 3 // 2, -abs(2 * n) % 7, abs(n) / 3), 1),
        (lambda x, n: (x * abs(n), abs(n) > 8, abs(n - 5) == 0), 3),
        (lambda x, n: (n.bit_length(), n**2.0, (n / 7) ** 3, math.pow(n, 3)), 1),
        (lambda x, n: x * min(1.0, n / 50), 2),
        (lambda x, n: (x, n > 20, n == 8.0), 3),
        (lambda x, n: x * 2 if math.atan(n) > 1.5 else x, 2),
    ],
)
def test_ints_of_any_sign(function: Callable[..., Any], expected: int) -> None:
    assert of_ints(function) <= expected + 1  # 2**40 + 1 may be alone: its square is no float


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: (x, str(n)),
        lambda x, n: (x, round(n / 3, 2)),
        lambda x, n: (x, (n / 3).hex(), {n / 2: 1}),
        lambda x, n: x * {5: 1.0, 8: 2.0}.get(n, 3.0),
        lambda x, n: (x, math.hypot(n, 2), complex(n)),
    ],
)
def test_what_needs_the_value_stays_fixed(function: Callable[..., Any]) -> None:
    assert of_sizes(function) == len(SIZES)


def test_an_error_that_the_code_catches_is_no_rule_for_other_numbers() -> None:
    def inverse(x: torch.Tensor, n: int) -> torch.Tensor:
        try:
            return x * (1 / n)
        except ZeroDivisionError:
            return x - 1

    def rest(x: torch.Tensor, n: int) -> torch.Tensor:
        try:
            return x * (7 % n)
        except ZeroDivisionError:
            return x - 1

    def root(x: torch.Tensor, n: int) -> torch.Tensor:
        try:
            return x * math.sqrt(n)
        except ValueError:
            return x - 1

    for function in (inverse, rest, root):
        serve(function, [(torch.arange(3.0), n) for n in (3, 0, 5, -1, 7, 0, -2)])


def many(x: torch.Tensor, f: float, g: float, n: int, m: int) -> Any:
    whole = f - g
    return (
        (x * (f / 3 + n), f * g, f // 0.7, f % 0.7, n / 3, float(n), math.tanh(f), abs(g)),
        (n % 2.5, math.sin(n / 7), math.atan(g), n.bit_length(), divmod(n, 7), math.copysign(1, n)),
        (f > g, f == n, g != g, math.isnan(f), math.isinf(g), whole < 0, not f),
        (n * 0.1) ** 3 if n else 0.0,
    )


def partial(x: torch.Tensor, f: float, g: float, n: int, m: int) -> Any:
    return (
        (1 / f, n / m, math.sqrt(g), f**g, math.exp(f), math.log(g), 3 // f, n // m),
        (int(f), round(g), math.ceil(f), math.floor(g), math.isqrt(m), 1 << m, x * f**2),
    )


_many, _partial = trident.optimize(many), trident.optimize(partial)


@settings(max_examples=60, deadline=None)
@given(st.floats(), st.floats(), st.integers(-(2**63), 2**63 - 1), st.integers(-9, 70))
@example(0.3, 0.7, 5, 3)
@example(0.7, 2.5, 7, 4)
@example(-0.0, math.inf, 2**53 + 1, 0)
@example(710.0, 1e308, -(2**63), 61)
@example(-8.0, 1 / 3, 3, 62)
@example(-8.0, 3.0, 3, 2)
@example(0.5, 2**52 + 0.5, 2**62, 1)
def test_any_numbers_agree_with_python_bit_for_bit(f: float, g: float, n: int, m: int) -> None:
    arguments = (torch.arange(3.0), f, g, n, m)
    assert outcome(_partial, arguments) == outcome(partial, arguments)
    assert outcome(_many, arguments) == outcome(many, arguments)


@triton.jit
def add_one(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def test_a_block_size_is_fixed_by_power_of_two(device: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        add_one[(1,)](x, out, x.numel(), B=triton.next_power_of_2(x.numel()))
        return out

    optimized = trident.optimize(function)
    for n in (5, 6, 8, 7, 9, 16, 13, 33, 64, 60):
        x = torch.arange(float(n), device=device)
        torch.testing.assert_close(optimized(x), x + 1, rtol=0, atol=0)
    assert specializations(optimized) == 3  # for 8, 16 and 64


def test_a_grid_of_a_float_division(device: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        add_one[(math.ceil(x.numel() / 16),)](x, out, x.numel(), B=16)
        return out

    optimized = trident.optimize(function)
    for n in (5, 40, 33, 16, 17, 100):
        x = torch.arange(float(n), device=device)
        torch.testing.assert_close(optimized(x), x + 1, rtol=0, atol=0)
    assert specializations(optimized) == 1


def test_numbers_in_state_are_computed_with() -> None:
    class Schedule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            self.rate = 0.5 * (1 + math.cos(math.pi * self.steps / 100))
            return x * self.rate / (1 - 0.9**self.steps)

    mine, eager = Schedule(), Schedule()
    optimized = trident.optimize(mine)
    x = torch.arange(3.0)
    for _ in range(8):
        assert torch.equal(optimized(x), eager(x))
        assert (mine.steps, mine.rate) == (eager.steps, eager.rate)
    assert specializations(optimized) <= 3  # one without the attribute, one for its first value
    assert optimized.stats()["hits"] >= 5


def test_a_condition_on_a_float_is_told() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if math.sqrt(x.shape[0]) > 4.5 else x

    optimized = trident.optimize(function)
    for n in (5, 8, 9, 50):
        optimized(torch.ones(n))
    text = trident.explain(optimized)
    assert "does not hold" in text and "test_dynamic_arithmetic.py" in text
    assert "where not sqrt(float(size 0 of x)) > 4.5 (at " in text


def test_builtins_are_themselves_again() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        if n == 7:
            raise RuntimeError(float(n))
        return x * int(n / 2) * sqrt(n)

    optimized = trident.optimize(function)
    for n in (3, 4, 5):
        optimized(torch.ones(2), n)
    with pytest.raises(RuntimeError, match="7.0"):
        optimized(torch.ones(2), 7)
    assert (math.sqrt.__self__, math.sqrt.__name__, math.log.__self__) == (math, "sqrt", math)
    assert builtins.int("11", base=2) == 3 and int(2.5) == 2 and float("0.5") == 0.5
    environment = torch.fx.experimental.symbolic_shapes.ShapeEnv()
    size = environment.create_unbacked_symint()
    assert not isinstance(size / 2, int)
    with pytest.raises(torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode):
        float(size)
