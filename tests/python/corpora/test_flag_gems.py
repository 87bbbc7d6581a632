"""FlagGems' operator wrappers: 25 operators on five shapes, in bfloat16."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from corpus import Case, Draw, Tally, need
from triton_on_cpu import Launches, check_compiles, run_once

CORPUS = "FlagGems"
SHAPES = [(1, 128), (4, 128), (8, 128), (1, 384), (32, 16)]
ROWS = (1, 4, 16, 3, 8)
if torch.cuda.is_available():
    SHAPES = [(1, 4096), (16, 4096), (128, 4096), (1, 12288), (1024, 128)]
    ROWS = (1, 4, 16, 64, 128)
DEPTH = 4096 if torch.cuda.is_available() else 64
HEADS = 32 if torch.cuda.is_available() else 2
UNARY = (*("abs", "exp", "neg", "silu", "gelu", "relu", "tanh", "sigmoid", "rsqrt", "sin", "cos"),)
BINARY = ("add", "mul", "lt")


@pytest.fixture(scope="module")
def flag_gems(
    h200: pytest.MonkeyPatch, launches: Launches | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The package, with caches of its own: nothing is tuned or generated yet."""
    h200.setenv("FLAGGEMS_CACHE_DIR", str(tmp_path_factory.mktemp("flag_gems")))
    if launches is not None:
        h200.setenv("GEMS_VENDOR", "nvidia")
    need("sqlalchemy", "flag_gems")
    package = sys.modules["flag_gems"]
    if launches is not None:
        h200.setattr("triton.testing.do_bench", run_once)
        _for_this_triton(h200)
    return package


def _for_this_triton(patch: pytest.MonkeyPatch) -> None:
    """FlagGems 5.0.2 knows Triton up to 3.6. In later versions block pointers have no type of their
    own, which its generated kernels ask for, and launches go on taking all arguments."""
    entry = sys.modules["flag_gems.utils.libentry"]
    if entry.minor_version > 6:  # type: ignore[attr-defined]
        patch.setattr(entry, "minor_version", 6)
        configs = importlib.import_module("flag_gems.utils.codegen_config_utils").CODEGEN_COFIGS
        for config in filter(None, configs.values()):
            patch.setattr(config, "prefer_block_pointer", False)


def bf16(draw: Draw, *shape: int) -> torch.Tensor:
    return draw.normal(*shape, dtype=torch.bfloat16)


Arguments = Callable[[Draw], tuple[Any, ...]]


def _arguments(name: str, index: int) -> Arguments:
    """What an operator is called with, on the shape of this index."""
    shape, rows = SHAPES[index], ROWS[index]
    last = shape[-1]
    table: dict[str, Arguments] = {
        **{each: lambda d: (bf16(d, *shape),) for each in UNARY},
        **{each: lambda d: (bf16(d, *shape), bf16(d, *shape)) for each in BINARY},
        "pow": lambda d: (bf16(d, *shape), 2),
        "masked_fill": lambda d: (bf16(d, *shape), bf16(d, *shape) > 0, 0.5),
        "softmax": lambda d: (bf16(d, *shape), -1),
        "rms_norm": lambda d: (bf16(d, *shape), [last], bf16(d, last), 1e-6),
        "cumsum": lambda d: (bf16(d, *shape), -1),
        "sum_dim": lambda d: (bf16(d, *shape), [-1]),
        "cat": lambda d: ([bf16(d, *shape), bf16(d, *shape)], -1),
        "embedding": lambda d: (bf16(d, 100, DEPTH), d.below(100, 1, rows)),
        "mm": lambda d: (bf16(d, rows, DEPTH), bf16(d, DEPTH, DEPTH)),
        "addmm": lambda d: (bf16(d, DEPTH), bf16(d, rows, DEPTH), bf16(d, DEPTH, DEPTH)),
        "bmm": lambda d: (bf16(d, HEADS, rows, 32), bf16(d, HEADS, 32, 64)),
    }
    return table[name]


OPERATORS = (
    *UNARY,
    *BINARY,
    *("pow", "masked_fill", "softmax", "rms_norm", "cumsum", "sum_dim", "cat"),
    *("embedding", "mm", "addmm", "bmm"),
)


def _function(package: Any, name: str) -> Callable[..., Any]:
    return getattr(package.ops, {"pow": "pow_tensor_scalar"}.get(name, name))


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_eager(
    name: str, flag_gems: Any, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    tally.check(Case(name, _function(flag_gems, name), _arguments(name, 0)), device, {})


def _all(functions: list[Callable[..., Any]], *arguments: tuple[Any, ...]) -> list[Any]:
    return [function(*given) for function, given in zip(functions, arguments, strict=True)]


@pytest.mark.parametrize(
    "index", range(1, len(SHAPES)), ids=lambda i: "x".join(map(str, SHAPES[i]))
)
def test_operators_on_other_shapes(
    index: int, flag_gems: Any, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    """All operators in one call, so that each further shape costs one specialization."""
    functions = [_function(flag_gems, name) for name in OPERATORS]
    makers = [_arguments(name, index) for name in OPERATORS]
    case = Case(
        f"all operators on {SHAPES[index]}",
        functools.partial(_all, functions),
        lambda draw: tuple(make(draw) for make in makers),
    )
    tally.check(case, device, {})


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
