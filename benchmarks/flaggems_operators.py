"""The 25 FlagGems operators that the benchmark calls, and what it calls them with."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent

UNARY = (*("abs", "exp", "neg", "silu", "gelu", "relu", "tanh", "sigmoid", "rsqrt", "sin", "cos"),)
BINARY = ("add", "mul", "lt")
OPERATORS = (
    *(*UNARY, *BINARY, "pow", "masked_fill", "softmax", "rms_norm", "cumsum", "sum_dim", "cat"),
    *("embedding", "mm", "addmm", "bmm"),
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of the five calls of each operator.

    Attributes:
        shapes: of elementwise operators, norms and reductions.
        rows: of lookups and products.
        vocabulary: rows of the embedding's table.
        width: its columns, and both extents of a product's weight.
        heads: batch of the batched product of rows x depth and depth x columns.
    """

    shapes: Sequence[tuple[int, int]]
    rows: Sequence[int]
    vocabulary: int
    width: int
    heads: int
    depth: int
    columns: int


FULL = Sizes(
    [(1, 4096), (16, 4096), (128, 4096), (1, 12288), (1024, 128)],
    (1, 4, 16, 64, 128),
    *(1000, 4096, 32, 128, 512),
)
SMALL = Sizes(
    [(1, 128), (4, 128), (8, 128), (1, 384), (32, 16)], (1, 4, 16, 3, 8), *(100, 64, 2, 32, 64)
)

Normal = Callable[..., torch.Tensor]


def arguments(
    name: str, sizes: Sizes, index: int, normal: Normal, below: Callable[..., torch.Tensor]
) -> tuple[Any, ...]:
    """What an operator is called with, on the `index`-th of its sizes.

    Args:
        normal: makes a bfloat16 tensor of a shape; ``below(limit, *shape)`` one of int64.
    """
    shape, rows, width = sizes.shapes[index], sizes.rows[index], sizes.width
    if name in UNARY:
        return (normal(*shape),)
    if name in BINARY:
        return normal(*shape), normal(*shape)
    table: dict[str, Callable[[], tuple[Any, ...]]] = {
        "pow": lambda: (normal(*shape), 2),
        "masked_fill": lambda: (normal(*shape), normal(*shape) > 0, 0.5),
        "softmax": lambda: (normal(*shape), -1),
        "rms_norm": lambda: (normal(*shape), [shape[-1]], normal(shape[-1]), 1e-6),
        "cumsum": lambda: (normal(*shape), -1),
        "sum_dim": lambda: (normal(*shape), [-1]),
        "cat": lambda: ([normal(*shape), normal(*shape)], -1),
        "embedding": lambda: (
            normal(sizes.vocabulary, width),
            below(sizes.vocabulary, 1, rows),
        ),
        "mm": lambda: (normal(rows, width), normal(width, width)),
        "addmm": lambda: (normal(width), normal(rows, width), normal(width, width)),
        "bmm": lambda: (
            normal(sizes.heads, rows, sizes.depth),
            normal(sizes.heads, sizes.depth, sizes.columns),
        ),
    }
    return table[name]()


def wrapper(package: Any, name: str) -> Callable[..., Any]:
    """FlagGems' function of an operator."""
    return getattr(package.ops, {"pow": "pow_tensor_scalar"}.get(name, name))


@contextlib.contextmanager
def flag_gems(smoke: bool) -> Iterator[Any]:
    """The package; in a smoke run without a GPU with what the tests put in its place."""
    sys.path.insert(0, str(ROOT / "tests" / "python" / "corpora"))
    with contextlib.ExitStack() as stack:
        import pytest
        from h200 import describe_h200, import_flag_gems
        from triton_on_cpu import triton_on_cpu

        patch = stack.enter_context(pytest.MonkeyPatch.context())
        without_gpu = smoke and not torch.cuda.is_available()
        if without_gpu:
            stack.enter_context(triton_on_cpu())
            describe_h200(patch)
        yield import_flag_gems(patch, without_gpu)
