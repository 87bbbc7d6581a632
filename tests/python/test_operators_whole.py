"""Composite operators that compute something else of a traced tensor than of a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import describe

import trident

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "svdvals": lambda x: torch.linalg.svdvals(x),
    "svdvals by keyword": lambda x: torch.linalg.svdvals(A=x),
    "svd": lambda x: torch.svd(x, compute_uv=False),
    "svd as a method": lambda x: x.svd(True, False),
    "svd with vectors": lambda x: x.svd(),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.t()),
    "cond": lambda x: torch.linalg.cond(x),
    "cond -2": lambda x: torch.linalg.cond(x, p=-2),
    "cond fro": lambda x: torch.linalg.cond(x[:, :4], "fro"),
    "matrix norm 2": lambda x: torch.linalg.matrix_norm(x, 2),
    "matrix norm nuc": lambda x: torch.linalg.matrix_norm(x, ord="nuc", keepdim=True),
    "matrix norm": lambda x: torch.linalg.matrix_norm(x),
    "norm 2": lambda x: torch.linalg.norm(x, 2),
    "norm nuc": lambda x: torch.linalg.norm(x, ord="nuc", dim=(0, 1)),
    "norm of vectors": lambda x: torch.linalg.norm(x, 2, dim=1),
    "nuclear norm": lambda x: torch.norm(x, p="nuc"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_spectra_are_eagers_to_the_last_bit(name: str, device: torch.device) -> None:
    function = FUNCTIONS[name]
    fast = trident.optimize(function)
    generator = torch.Generator().manual_seed(3)
    for rows in (4, 4, 5, 6, 7):
        x = torch.randn(rows, 8, generator=generator).to(device)
        for given in (x, x.t().contiguous().t()):
            if name == "cond fro" and rows != 4:
                continue
            assert describe(fast(given)) == describe(function(given))
    assert fast.stats()["fallbacks"] == 0


def test_spectra_with_gradients_run_eagerly() -> None:
    x = torch.randn(4, 4, requires_grad=True)
    fast = trident.optimize(FUNCTIONS["svdvals"])
    fast(x).sum().backward()
    assert x.grad is not None and fast.stats()["fallbacks"] == 1


@torch.no_grad()
def test_a_result_that_is_given() -> None:
    def into(x: torch.Tensor) -> Any:
        out = torch.empty(4)
        return torch.linalg.svdvals(x, out=out), out

    fast = trident.optimize(into)
    x = torch.randn(4, 4)
    assert describe(fast(x)) == describe(into(x))
