"""What the tests of the interface share: kernels, functions and modules, and counts of outcomes."""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

STATS = {
    *("calls", "hits", "misses", "fallbacks", "errors", "evictions"),
    *("specializations", "launches", "aten_typed", "aten_boxed", "driver"),
}


@triton.jit
def double_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * 2.0, mask=mask)


@triton.jit
def broken_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + tl.there_is_no_such_function(x))


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def pick(x: torch.Tensor, broken: bool) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = broken_kernel if broken else double_kernel
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


class Affine(torch.nn.Module):
    """2 * (x @ weight.T + bias), the doubling by a Triton kernel. x: (rows, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return double(self.linear(x))

    def expected(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.linear(x)


class Counting(torch.nn.Module):
    """Counts its calls in an attribute and sums its inputs in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x
        return self.total * self.calls


def add_one(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + 1


def prints(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("seen")
    return y


def reads_the_value(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def line_of(function: Callable[..., Any], text: str) -> str:
    """``file.py:line`` of the line of a function that holds `text`."""
    lines, first = inspect.getsourcelines(function)
    offset = next(index for index, line in enumerate(lines) if text in line)
    file = pathlib.Path(function.__code__.co_filename).name
    return f"{file}:{first + offset}"


def outcomes(fast: Any) -> dict[str, int]:
    """The counts of outcomes that are not 0, without `calls`, which must be their sum."""
    stats = fast.stats()
    counts = {name: stats[name] for name in ("hits", "misses", "fallbacks", "errors")}
    assert sum(counts.values()) == stats["calls"]
    return {name: count for name, count in counts.items() if count}
