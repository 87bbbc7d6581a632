"""Liger's kernels through their autograd functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from corpus import Case, Draw, Tally, need
from triton_on_cpu import Launches, check_compiles

need("liger_kernel")

from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction  # noqa: E402
from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction  # noqa: E402
from liger_kernel.ops.fused_linear_cross_entropy import (  # noqa: E402
    LigerFusedLinearCrossEntropyFunction,
)
from liger_kernel.ops.geglu import LigerGELUMulFunction  # noqa: E402
from liger_kernel.ops.group_norm import LigerGroupNormFunction  # noqa: E402
from liger_kernel.ops.layer_norm import LigerLayerNormFunction  # noqa: E402
from liger_kernel.ops.rms_norm import LigerRMSNormFunction  # noqa: E402
from liger_kernel.ops.rope import LigerRopeFunction  # noqa: E402
from liger_kernel.ops.softmax import LigerSoftmaxFunction  # noqa: E402
from liger_kernel.ops.swiglu import LigerSiLUMulFunction  # noqa: E402

CORPUS = "Liger"
BF16 = torch.bfloat16

# Liger counts the targets that are not ignored on the host, with `.item()`.
READS_VALUE = r"depends on the value of a tensor \(aten._local_scalar_dense"
RUN_EAGERLY = {
    "cross_entropy": READS_VALUE,
    "cross_entropy_softcap": READS_VALUE,
    "fused_linear_cross_entropy": READS_VALUE,
}


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False)


def gemma_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return LigerRMSNormFunction.apply(x, weight, 1e-6, 1.0, "gemma", False)


def rms_norm_in_place(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "none", True)


def fused_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
    return LigerFusedAddRMSNormFunction.apply(x, residual, weight, 1e-6, 0.0, "llama", False)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return LigerLayerNormFunction.apply(x, weight, bias, 1e-5)


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    return LigerRopeFunction.apply(q, k, cos, sin)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> Any:
    return LigerSiLUMulFunction.apply(gate, up)


def geglu(gate: torch.Tensor, up: torch.Tensor) -> Any:
    return LigerGELUMulFunction.apply(gate, up)


def softmax(x: torch.Tensor) -> Any:
    return LigerSoftmaxFunction.apply(x)


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> Any:
    return LigerCrossEntropyFunction.apply(
        logits, target, None, -100, 0.0, 0.1, "mean", None, False
    )


def cross_entropy_softcap(logits: torch.Tensor, target: torch.Tensor) -> Any:
    return LigerCrossEntropyFunction.apply(logits, target, None, -100, 0.0, 0.0, "sum", 30.0, False)


def fused_linear_cross_entropy(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> Any:
    return LigerFusedLinearCrossEntropyFunction.apply(x, weight, target)


def group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return LigerGroupNormFunction.apply(x, weight, bias, 4, 2, 1e-5)


def rope_arguments(draw: Draw) -> tuple[torch.Tensor, ...]:
    # Heads and positions as a model has them: a transposed view.
    q, k = draw.normal(2, 6, 4, 16).transpose(1, 2), draw.normal(2, 6, 2, 16).transpose(1, 2)
    return q, k, draw.normal(1, 6, 16), draw.normal(1, 6, 16)


CASES = [
    Case("rms_norm", rms_norm, lambda d: (d.normal(3, 5, 48), d.normal(48))),
    Case("rms_norm_bf16", rms_norm, lambda d: (d.normal(4, 64, dtype=BF16), d.normal(64))),
    Case(
        "gemma_rms_norm",
        gemma_rms_norm,
        lambda d: (d.normal(3, 48, dtype=BF16), d.normal(48, dtype=BF16)),
    ),
    Case("rms_norm_in_place", rms_norm_in_place, lambda d: (d.normal(3, 48), d.normal(48))),
    Case(
        "fused_add_rms_norm",
        fused_add_rms_norm,
        lambda d: (d.normal(3, 5, 48), d.normal(3, 5, 48), d.normal(48)),
    ),
    Case("layer_norm", layer_norm, lambda d: (d.normal(4, 40), d.normal(40), d.normal(40))),
    Case("rope", rope, rope_arguments),
    Case("swiglu", swiglu, lambda d: (d.normal(2, 3, 40), d.normal(2, 3, 40))),
    Case("geglu", geglu, lambda d: (d.normal(2, 3, 40), d.normal(2, 3, 40))),
    Case("softmax", softmax, lambda d: (d.normal(4, 40),)),
    Case("cross_entropy", cross_entropy, lambda d: (d.normal(7, 33), d.below(33, 7))),
    Case(
        "cross_entropy_softcap", cross_entropy_softcap, lambda d: (d.normal(7, 33), d.below(33, 7))
    ),
    Case(
        "fused_linear_cross_entropy",
        fused_linear_cross_entropy,
        lambda d: (d.normal(7, 16), d.normal(33, 16), d.below(33, 7)),
    ),
    Case("group_norm", group_norm, lambda d: (d.normal(2, 4, 32), d.normal(4), d.normal(4))),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimized_is_eager(
    case: Case, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    tally.check(case, device, RUN_EAGERLY)


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
