"""Conch's operators: activations, norms, rotary, attention, quantization, caches, vision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from corpus import Case, Draw, Tally, need
from triton_on_cpu import Launches, check_compiles

need("conch.ops.activation.silu_and_mul")

from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul  # noqa: E402
from conch.ops.activation.silu_and_mul import silu_and_mul  # noqa: E402
from conch.ops.attention.paged_attention import paged_attention  # noqa: E402
from conch.ops.attention.varlen_attention import varlen_attention  # noqa: E402
from conch.ops.embedding.rotary_embedding import rotary_embedding  # noqa: E402
from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm  # noqa: E402
from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm  # noqa: E402
from conch.ops.quantization.bitsandbytes.functional import (  # noqa: E402
    dequantize_4bit,
    quantize_4bit,
)
from conch.ops.quantization.fp8 import scaled_fp8_quant  # noqa: E402
from conch.ops.quantization.gemm import mixed_precision_gemm, scaled_gemm  # noqa: E402
from conch.ops.quantization.int8 import scaled_int8_quant  # noqa: E402
from conch.ops.vision.bev_pool import bev_pool  # noqa: E402
from conch.ops.vision.nms import nms  # noqa: E402
from conch.ops.vision.voxelization import VoxelizationParameter, generate_voxels  # noqa: E402
from conch.ops.vllm.copy_blocks import copy_blocks  # noqa: E402
from conch.ops.vllm.reshape_and_cache import reshape_and_cache  # noqa: E402

CORPUS = "Conch"
HALF = torch.float16
RUN_EAGERLY = {
    # A table of the caches' addresses, read by the kernel.
    "copy_blocks": "uses Tensor.data_ptr",
    # As many indices come back as boxes are kept.
    "nms": "a tensor's size depends on the values of another",
}


def four_bits(x: torch.Tensor) -> torch.Tensor:
    """There and back, in 4 bits."""
    packed, state = quantize_4bit(x)
    return dequantize_4bit(packed, state)


def int4_gemm(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return mixed_precision_gemm(x, packed, scales, None, 4, 8, 32)


def voxels(points: torch.Tensor) -> Any:
    """How many voxels hold points: the rest is in the order of atomics, or undefined."""
    return generate_voxels(points, VoxelizationParameter((0, 0, 0), (4, 4, 2), (1, 1, 1), 2))[0]


def cache_arguments(d: Draw) -> tuple[Any, ...]:
    key, value = d.normal(3, 2, 32, dtype=HALF), d.normal(3, 2, 32, dtype=HALF)
    caches = d.normal(4, 16, 2, 32, dtype=HALF), d.normal(4, 16, 2, 32, dtype=HALF)
    return key, value, *caches, d.permutation(64)[:3]


def paged_arguments(d: Draw) -> tuple[Any, ...]:
    query = d.normal(2, 4, 32, dtype=HALF)
    caches = d.normal(4, 16, 2, 32, dtype=HALF), d.normal(4, 16, 2, 32, dtype=HALF)
    table = d.permutation(4).reshape(2, 2).to(torch.int32)
    return query, *caches, table, torch.tensor([20, 13], dtype=torch.int32, device=d.device)


def varlen_arguments(d: Draw) -> tuple[Any, ...]:
    query, caches, table, lengths = (p := paged_arguments(d))[0], p[1:3], p[3], p[4]
    starts = torch.tensor([0, 1, 2], dtype=torch.int32, device=d.device)
    return query, *caches, starts, 1, lengths, 20, table


def block_arguments(d: Draw) -> tuple[Any, ...]:
    keys, values = ([d.normal(6, 64, dtype=HALF) for _ in range(2)] for _ in range(2))
    return keys, values, torch.tensor([[0, 3], [1, 5]], device=d.device)


def bev_arguments(d: Draw) -> tuple[Any, ...]:
    starts = torch.tensor([0, 3, 5], dtype=torch.int32, device=d.device)
    lengths = torch.tensor([3, 2, 3], dtype=torch.int32, device=d.device)
    cells = torch.stack([d.permutation(8) % 4 for _ in range(3)] + [d.permutation(8) * 0], 1)
    return d.normal(8, 16), cells.to(torch.int32), starts, lengths, 1, 4, 4, 4


def box_arguments(d: Draw) -> tuple[Any, ...]:
    corner = d.uniform(8, 2)
    return torch.cat([corner, corner + 0.2 + d.uniform(8, 2)], 1), d.uniform(8), 0.5


CASES = [
    Case("silu_and_mul", silu_and_mul, lambda d: (d.normal(3, 80, dtype=HALF),)),
    Case("gelu_tanh_and_mul", gelu_tanh_and_mul, lambda d: (d.normal(3, 80),)),
    Case("rms_norm", rms_norm, lambda d: (d.normal(3, 48), d.normal(48), 1e-6)),
    Case(
        "fused_add_rms_norm",
        fused_add_rms_norm,
        lambda d: (d.normal(3, 48), d.normal(3, 48), d.normal(48), 1e-6),
    ),
    Case("gemma_rms_norm", gemma_rms_norm, lambda d: (d.normal(3, 48), d.normal(48), 1e-6)),
    Case(
        "gemma_rms_norm_residual",
        gemma_rms_norm,
        lambda d: (d.normal(3, 48), d.normal(48), 1e-6, d.normal(3, 48)),
    ),
    Case(
        "rotary_embedding",
        rotary_embedding,
        lambda d: (d.below(8, 5), d.normal(5, 64), d.normal(5, 32), 16, d.normal(8, 16)),
    ),
    Case("paged_attention", paged_attention, paged_arguments),
    Case("varlen_attention", varlen_attention, varlen_arguments),
    Case("reshape_and_cache", reshape_and_cache, cache_arguments),
    Case("copy_blocks", copy_blocks, block_arguments),
    Case("int8_quant", scaled_int8_quant, lambda d: (d.normal(3, 64), d.uniform(1) + 0.01)),
    Case("fp8_quant", scaled_fp8_quant, lambda d: (d.normal(3, 64), d.uniform(1) + 0.5)),
    Case("four_bits", four_bits, lambda d: (d.normal(256),)),
    Case(
        "int4_gemm",
        int4_gemm,
        lambda d: (
            d.normal(4, 64, dtype=HALF),
            d.below(2**31, 8, 64, dtype=torch.int32),
            d.normal(2, 64, dtype=HALF),
        ),
    ),
    Case("bev_pool", bev_pool, bev_arguments),
    Case("nms", nms, box_arguments),
    Case("generate_voxels", voxels, lambda d: (4 * d.uniform(12, 4),)),
]


# Loads a zero point through a null pointer and drops it: compiled, that is no load at all.
SCALED_GEMM = Case(
    "scaled_gemm",
    scaled_gemm,
    lambda d: (
        d.below(9, 16, 64, dtype=torch.int8),
        d.below(9, 64, 64, dtype=torch.int8),
        d.uniform(1),
        d.uniform(1),
        HALF,
    ),
)


@pytest.mark.gpu
def test_scaled_gemm_is_eager(tally: Tally, device: torch.device) -> None:
    tally.check(SCALED_GEMM, device, RUN_EAGERLY)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimized_is_eager(
    case: Case, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    tally.check(case, device, RUN_EAGERLY)


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
