"""Liger's forward kernels: on the CPU against eager math in float64, and compiled for sm_90."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from trident.kernels import (
    DEFAULT_TARGET,
    Variant,
    compile_variants,
    interpreted_runner,
    is_interpreted,
    record_launch,
    route_launches,
    specialize,
    unpack_scalar,
)

pytest.importorskip("liger_kernel")


@pytest.fixture
def launched() -> Iterator[list[Variant]]:
    """Runs launches in the interpreter and notes their variants."""
    variants: list[Variant] = []

    def handler(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
        request, tensors = record_launch(kernel, args, kwargs, grid, lambda x: x.data_ptr() % 16)
        variant = specialize(request, DEFAULT_TARGET)
        values = [
            unpack_scalar(param.type, param.bits)
            if param.tensor is None
            else tensors[param.tensor].data_ptr()
            for param in variant.params
        ]
        interpreted_runner(variant)(request.grid, values)
        variants.append(variant)

    with route_launches(handler):
        yield variants
    assert variants
    if not is_interpreted(variants[0].kernel):
        for compiled in compile_variants(variants):
            assert compiled.cubin[:4] == b"\x7fELF"


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected, rtol=2e-5, atol=2e-6)


def test_rms_norm(launched: list[Variant]) -> None:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    x, w = torch.randn(3, 5, 48), torch.randn(48)
    y = LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)
    wide = x.double()
    check(y, wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * w.double())


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_gated_units(launched: list[Variant], activation: str) -> None:
    from liger_kernel.ops.geglu import LigerGELUMulFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    a, b = torch.randn(4, 40), torch.randn(4, 40)
    if activation == "silu":
        check(LigerSiLUMulFunction.apply(a, b), F.silu(a.double()) * b.double())
    else:
        check(LigerGELUMulFunction.apply(a, b), F.gelu(a.double(), approximate="tanh") * b.double())


def test_layer_norm(launched: list[Variant]) -> None:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    x, w, b = torch.randn(4, 40), torch.randn(40), torch.randn(40)
    y = LigerLayerNormFunction.apply(x, w, b, 1e-5)
    check(y, F.layer_norm(x.double(), (40,), w.double(), b.double(), 1e-5))


def test_softmax(launched: list[Variant]) -> None:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    x = torch.randn(4, 40)
    check(LigerSoftmaxFunction.apply(x), x.double().softmax(-1))


def test_rope(launched: list[Variant]) -> None:
    from liger_kernel.ops.rope import LigerRopeFunction

    q, k = torch.randn(2, 4, 6, 16), torch.randn(2, 2, 6, 16)
    angles = torch.arange(6.0)[:, None] * torch.rand(8)[None]
    cos, sin = (torch.cat([f(angles)] * 2, -1)[None] for f in (torch.cos, torch.sin))

    def rotate(x: torch.Tensor) -> torch.Tensor:
        turned = torch.cat([-x[..., 8:], x[..., :8]], -1)
        return x * cos[:, None] + turned * sin[:, None]

    expected = rotate(q.double()), rotate(k.double())
    actual = LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)
    check(actual[0], expected[0])
    check(actual[1], expected[1])


@pytest.mark.parametrize(("smoothing", "softcap"), [(0.0, None), (0.1, 30.0)])
def test_cross_entropy(launched: list[Variant], smoothing: float, softcap: float | None) -> None:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    logits, target = torch.randn(7, 33), torch.randint(0, 33, (7,))
    target[2] = -100
    wide = logits.double() if softcap is None else softcap * torch.tanh(logits.double() / softcap)
    loss = LigerCrossEntropyFunction.apply(
        logits, target, None, -100, 0.0, smoothing, "mean", softcap, False
    )[0]
    check(loss, F.cross_entropy(wide, target, label_smoothing=smoothing))
