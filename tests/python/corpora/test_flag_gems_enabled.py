"""FlagGems registered over ATen, as `flag_gems.enable()` does: captured, not called back."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from corpus import Draw, need, same
from h200 import import_flag_gems
from triton_on_cpu import Launches, check_compiles

import trident

# Operators of the function below and those that FlagGems' own wrappers call.
OPERATORS = (
    *("mm", "silu", "gelu", "mul.Tensor", "add.Tensor", "softmax", "_softmax", "mean.dim"),
    *("native_layer_norm", "cat", "sum", "cumsum", "full_like", "zeros", "ones", "arange"),
    *("fill_.Scalar", "sub.Tensor"),
)


@pytest.fixture(scope="module")
def flag_gems(
    h200: pytest.MonkeyPatch, launches: Launches | None, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    need("sqlalchemy")
    h200.setenv("FLAGGEMS_CACHE_DIR", str(tmp_path_factory.mktemp("flag_gems")))
    try:
        return import_flag_gems(h200, without_gpu=launches is not None)
    except ModuleNotFoundError:
        need("flag_gems")
        raise


@contextlib.contextmanager
def enabled(package: Any, device: torch.device) -> Iterator[None]:
    """What `flag_gems.use_gems()` does, for the device that the tests run on."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, function, *condition in package._FULL_CONFIG:
                if name in OPERATORS and all(each() for each in condition):
                    library.impl(name, function, "CUDA" if device.type == "cuda" else "CPU")
        yield
    finally:
        library._destroy()


def block(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, gain: torch.Tensor) -> Any:
    hidden = torch.nn.functional.silu(x @ up.t()) * torch.nn.functional.gelu(x @ up.t())
    y = torch.softmax(hidden @ down.t(), -1)
    normed = torch.nn.functional.layer_norm(x, (x.shape[-1],), gain)
    return (
        normed - (y + x).mean(-1, keepdim=True),
        torch.cat([y, x], 0),
        y.sum(),
        torch.cumsum(y, 1),
        torch.full_like(x, 3.0),
        torch.arange(7, device=x.device),
        torch.zeros(3, device=x.device),
    )


def arguments(draw: Draw) -> tuple[torch.Tensor, ...]:
    sizes = ((8, 16), (32, 16), (16, 32), (16,))
    return tuple(draw.normal(*size, dtype=torch.bfloat16) for size in sizes)


@torch.no_grad()
def test_registered_operators_are_in_the_program(
    flag_gems: Any, device: torch.device, launches: Launches | None
) -> None:
    fast = trident.optimize(block, on_unsupported="raise", graphs=False)
    drawn = [arguments(Draw(device, seed)) for seed in range(3)]
    plain = [block(*given) for given in drawn]
    same([fast(*given) for given in drawn], plain, "before")
    before = fast.stats()
    assert before["launches"] == 0
    with enabled(flag_gems, device):
        got = [fast(*given) for given in drawn]
        wanted = [block(*given) for given in drawn]
    same(got, wanted, "enabled")
    stats = fast.stats()
    assert stats["misses"] - before["misses"] == 1 and stats["hits"] - before["hits"] == 2
    assert stats["launches"] >= 3 * 10 and stats["aten_boxed"] == 0
    assert "Python code at each hit" not in trident.explain(fast)
    same([fast(*given) for given in drawn], plain, "afterwards")
    with enabled(flag_gems, device):
        got = [fast(*given) for given in drawn]
    same(got, wanted, "enabled again")
    assert fast.stats()["misses"] == stats["misses"]


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
