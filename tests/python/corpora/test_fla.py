"""Flash Linear Attention: norms, rotary embedding, and one linear attention forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from corpus import Case, Draw, Tally, need
from triton_on_cpu import Launches, check_compiles

CORPUS = "Flash Linear Attention"
RUN_EAGERLY: dict[str, str] = {}


@pytest.fixture(scope="module")
def fla(h200: pytest.MonkeyPatch) -> None:
    """The package asks for the device when it is imported."""
    need("fla.modules", "fla.ops.linear_attn")


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    from fla.modules.norm.layernorm import layer_norm

    return layer_norm(x, weight, bias)


def rms_norm_residual(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> Any:
    from fla.modules.norm.layernorm import rms_norm

    return rms_norm(x, weight, None, residual, prenorm=True)


def group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    from fla.modules.norm.layernorm import group_norm

    return group_norm(x, weight, bias, num_groups=4)


def rms_norm_gated(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor) -> Any:
    from fla.modules.norm.fused_norm_gate import rms_norm_gated

    return rms_norm_gated(x, gate, weight, None)


def l2norm(x: torch.Tensor) -> Any:
    from fla.modules.norm.l2norm import l2norm

    return l2norm(x)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    from fla.modules.rotary.ops import rotary_embedding

    return rotary_embedding(x, cos, sin)


def rotary_in_place(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, offset: int) -> Any:
    from fla.modules.rotary.ops import rotary_embedding

    return rotary_embedding(x, cos, sin, interleaved=True, inplace=True, seqlen_offsets=offset)


def chunk_linear_attn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from fla.ops.linear_attn import chunk_linear_attn

    return chunk_linear_attn(q, k, v, output_final_state=True, normalize=False)


def fused_recurrent_linear_attn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from fla.ops.linear_attn import fused_recurrent_linear_attn

    return fused_recurrent_linear_attn(q, k, v, normalize=True)


def heads(d: Draw) -> tuple[torch.Tensor, ...]:
    q, k, v = (d.normal(1, 32, 2, 16) for _ in range(3))
    return q, k, v


CASES = [
    Case("layer_norm", layer_norm, lambda d: (d.normal(3, 40), d.normal(40), d.normal(40))),
    Case(
        "rms_norm_residual",
        rms_norm_residual,
        lambda d: (d.normal(2, 3, 40), d.normal(40), d.normal(2, 3, 40)),
    ),
    Case("rms_norm_wide", rms_norm_residual, lambda d: (d.normal(2, 640), d.normal(640), None)),
    Case("group_norm", group_norm, lambda d: (d.normal(3, 64), d.normal(64), d.normal(64))),
    Case(
        "rms_norm_gated", rms_norm_gated, lambda d: (d.normal(3, 40), d.normal(3, 40), d.normal(40))
    ),
    Case("l2norm", l2norm, lambda d: (d.normal(3, 40),)),
    Case("rotary", rotary, lambda d: (d.normal(2, 6, 3, 16), d.normal(6, 8), d.normal(6, 8))),
    Case(
        "rotary_in_place",
        rotary_in_place,
        lambda d: (d.normal(2, 6, 3, 16), d.normal(9, 4), d.normal(9, 4), 3),
        tuned_in_place=True,
    ),
    Case("chunk_linear_attn", chunk_linear_attn, heads),
    Case("fused_recurrent_linear_attn", fused_recurrent_linear_attn, heads),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimized_is_eager(
    case: Case, fla: None, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    tally.check(case, device, RUN_EAGERLY)


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
