"""Loading variants: what the native module is given, and that equal variants share one kernel."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from trident.kernels import (
    DEFAULT_TARGET,
    Variant,
    is_interpreted,
    native_kernel,
    record_launch,
    specialize,
)


@triton.jit
def shift(x, amount, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + amount)


class Kernel:
    """Stands in for the native class: keeps what it was made of."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        self.kind, self.args, self.kwargs = kind, args, kwargs

    @staticmethod
    def cuda(cubin: bytes, name: str, **kwargs: Any) -> Kernel:
        return Kernel("cuda", cubin, name, **kwargs)

    @staticmethod
    def interpreted(run: Any, **kwargs: Any) -> Kernel:
        return Kernel("cpu", run, **kwargs)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    import trident
    from trident.kernels import native

    module = types.ModuleType("trident._C")
    module.Kernel = Kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trident._C", module)
    monkeypatch.setattr(trident, "_C", module, raising=False)
    monkeypatch.setattr(native, "_kernels", type(native._kernels)())
    monkeypatch.setattr(native, "_recent", type(native._recent)())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def variant_of(x: torch.Tensor, amount: Any, width: int = 8) -> Variant:
    request, _ = record_launch(
        shift, (x, amount), {"B": width}, (1,), lambda tensor: tensor.data_ptr() % 16
    )
    return specialize(request, DEFAULT_TARGET)


def test_cpu_kernel_runs_on_addresses() -> None:
    x = torch.arange(8.0)
    kernel = native_kernel(variant_of(x, 2.5), "cpu")
    assert kernel.kind == "cpu"
    assert kernel.kwargs == {"label": "shift", "params": ["*fp32", "fp32"]}
    kernel.args[0]((1, 1, 1), (x.data_ptr(), 2.5))
    assert torch.equal(x, torch.arange(8.0) + 2.5)


@pytest.mark.skipif(is_interpreted(shift), reason="nothing is compiled under TRITON_INTERPRET=1")
def test_cuda_kernel_gets_the_cubin_and_its_launch_attributes() -> None:
    kernel = native_kernel(variant_of(torch.zeros(8), 3), "cuda")
    cubin, name = kernel.args
    assert kernel.kind == "cuda" and cubin[:4] == b"\x7fELF" and name == "shift"
    assert kernel.kwargs == {
        "label": "shift",
        "params": ["*fp32", "i32"],
        "shared": 0,
        "num_warps": 4,
        "num_ctas": 1,
        "cluster": (1, 1, 1),
        "launch_pdl": False,
        "cooperative": False,
        "global_scratch_size": 0,
        "global_scratch_align": 1,
        "profile_scratch_size": 0,
        "profile_scratch_align": 1,
        "tensor_maps": [],
    }


def test_equal_variants_share_a_kernel() -> None:
    x = torch.zeros(8)
    first = native_kernel(variant_of(x, 3.0), "cpu")
    assert native_kernel(variant_of(torch.ones(8), 4.0), "cpu") is first
    assert native_kernel(variant_of(x, 3), "cpu") is not first
    assert native_kernel(variant_of(x, 3.0, 4), "cpu") is not first


def test_idle_kernels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from trident.kernels import native

    monkeypatch.setattr(native, "MAX_IDLE", 1)
    x = torch.zeros(8)
    held = native_kernel(variant_of(x, 3.0), "cpu")
    native_kernel(variant_of(x, 3.0, 4), "cpu")
    native_kernel(variant_of(x, 3.0, 2), "cpu")
    gc.collect()
    assert len(native._recent) == 1 and len(native._kernels) == 2
    assert native_kernel(variant_of(x, 3.0), "cpu") is held
