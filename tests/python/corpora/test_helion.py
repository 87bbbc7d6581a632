"""Calls of Helion's kernel objects, with shapes that are static (its default) and dynamic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from corpus import Case, Draw, Tally, need
from triton_on_cpu import Launches, check_compiles

import trident

need("helion", "helion_kernels")

import helion  # noqa: E402
import helion_kernels as kernels  # noqa: E402

CORPUS = "Helion"


def made(function: Callable[..., Any], static_shapes: bool) -> Any:
    """The kernel of a function, in the one configuration that it has here."""
    config = kernels.CONFIGS[function]
    return helion.kernel(config=config, static_shapes=static_shapes)(function)


def cases(static_shapes: bool) -> list[Case]:
    add, softmax, rms_norm, matmul, row_sums = (
        made(function, static_shapes) for function in kernels.CONFIGS
    )
    kind = "static" if static_shapes else "dynamic"
    return [
        Case(f"add-{kind}", add, lambda d: (d.normal(33, 48), d.normal(33, 48))),
        Case(f"softmax-{kind}", softmax, lambda d: (d.normal(5, 64, dtype=torch.bfloat16),)),
        Case(f"rms_norm-{kind}", rms_norm, lambda d: (d.normal(6, 64), d.normal(64), 1e-6)),
        Case(f"matmul-{kind}", matmul, lambda d: (d.normal(40, 24), d.normal(24, 20))),
        Case(f"row_sums-{kind}", row_sums, lambda d: (d.normal(6, 32), d.normal(6))),
        Case(
            f"two kernels and an operator-{kind}",
            lambda x, y: torch.relu(softmax(add(x, y)) - 0.01),
            lambda d: (d.normal(6, 64), d.normal(6, 64)),
        ),
        Case(
            f"a keyword-{kind}",
            lambda x, w: rms_norm(x, weight=w, eps=1e-5),
            lambda d: (d.normal(6, 64), d.normal(64)),
        ),
    ]


CASES = [*cases(True), *cases(False)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimized_is_eager(
    case: Case, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    tally.check(case, device, {})


@torch.no_grad()
@pytest.mark.parametrize("static_shapes", [True, False])
def test_sizes_that_change(
    static_shapes: bool, device: torch.device, launches: Launches | None
) -> None:
    add = made(kernels.add, static_shapes)
    fast = trident.optimize(add)
    draw = Draw(device, 0)
    # Helion looks up anew what it compiled before, once it learns more to tell calls apart by.
    for rows in (16, 32, 48, 1) * 3:
        x, y = draw.normal(rows, 32), draw.normal(rows, 32)
        assert torch.equal(fast(x, y), x + y)
    stats = fast.stats()
    assert (stats["fallbacks"], stats["errors"]) == (0, 0), trident.explain(fast)
    assert stats["hits"] >= 4, trident.explain(fast)
    assert stats["specializations"] <= 7, trident.explain(fast)


@torch.no_grad()
def test_another_configuration_and_a_reset(device: torch.device, launches: Launches | None) -> None:
    add = made(kernels.add, True)
    fast = trident.optimize(add)
    x, y = Draw(device, 0).normal(16, 32), Draw(device, 1).normal(16, 32)

    def misses() -> int:
        for _ in range(2):
            assert torch.equal(fast(x, y), x + y)
        return int(fast.stats()["misses"])

    assert misses() == 1
    bound = add.bind((x, y))
    bound.set_config(helion.Config(block_sizes=[8, 8]))
    assert misses() == 2
    add.reset()
    assert misses() == 3
    assert fast.stats()["fallbacks"] == 0


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
