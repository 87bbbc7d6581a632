"""Changes between two calls of functions that launch Triton kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import trident

OFFSET: tl.constexpr = tl.constexpr(3)
BLOCK = 16
SETTINGS = {"alpha": 2.0}


@triton.jit
def scale_kernel(x, out, n, alpha, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) * alpha
    if SHIFT != 0:
        value = value + SHIFT
    tl.store(out + i, value, mask=i < n)


@triton.jit
def plus_kernel(x, out, n, alpha, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + alpha, mask=i < n)


@triton.jit
def captured_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + OFFSET, mask=i < n)


KERNEL: Any = scale_kernel


def launch(x: torch.Tensor, alpha: Any = 2.0, shift: Any = 0) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    KERNEL[(triton.cdiv(n, BLOCK),)](x, out, n, alpha, shift, BLOCK)
    return out


def reference(x: torch.Tensor, alpha: Any = 2.0, shift: Any = 0) -> torch.Tensor:
    return x * alpha + shift if KERNEL is scale_kernel else x + alpha


def agree(fast: Any, *args: Any, **kwargs: Any) -> str:
    before = fast.stats()
    torch.testing.assert_close(fast(*args, **kwargs), reference(*args, **kwargs))
    after = fast.stats()
    names = {"hits": "h", "misses": "m", "fallbacks": "f"}
    return "".join(names[k] * (after[k] - before[k]) for k in names)


@pytest.fixture
def fast() -> Any:
    return trident.optimize(launch, on_unsupported="raise")


def test_scalars_and_constexprs(fast: Any, device: torch.device) -> None:
    x = torch.arange(40.0, device=device)
    with torch.no_grad():
        assert agree(fast, x) == "m"
        assert agree(fast, x) == "h"
        for arguments in (
            {"alpha": 3.0},
            {"alpha": 3},
            {"alpha": 1},
            {"alpha": 16},
            {"alpha": True},
            {"shift": 5},
            {"shift": 5.0},
            {"shift": 6},
        ):
            assert agree(fast, x, **arguments) == "m", arguments
        assert agree(fast, x, alpha=3.0) == "h"
        assert agree(fast, x + 1) == "h"


def test_sizes_offsets_and_dtypes(fast: Any, device: torch.device) -> None:
    base = torch.arange(100.0, device=device)
    with torch.no_grad():
        assert agree(fast, base[:32]) == "m"
        assert agree(fast, base[4:36]) == "h"
        assert agree(fast, base[1:33]) == "m"  # misaligned
        assert agree(fast, base[:33]) == "m"
        assert agree(fast, base[:32].half()) == "m"
        assert agree(fast, base[:0]) == "m"


def test_globals_around_a_launch(
    fast: Any, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.arange(40.0, device=device)
    here = __import__("sys").modules[__name__]
    with torch.no_grad():
        assert agree(fast, x) == "m"
        monkeypatch.setattr(here, "BLOCK", 32)
        assert agree(fast, x) == "m"
        monkeypatch.setattr(here, "KERNEL", plus_kernel)
        assert agree(fast, x) == "m"
        monkeypatch.setattr(here, "KERNEL", scale_kernel)
        assert agree(fast, x) in ("h", "m")


def test_kernel_that_captures_a_global(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        captured_kernel[(1,)](x, out, x.numel(), 64)
        return out

    fast = trident.optimize(f)
    x = torch.arange(40.0, device=device)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), x + 3)
        assert fast.stats()["hits"] == 1
        monkeypatch.setattr(__import__("sys").modules[__name__], "OFFSET", tl.constexpr(10))
        hits = fast.stats()["hits"]
        # Eager Triton refuses to launch; whatever happens here, the old program must not run.
        try:
            torch.testing.assert_close(fast(x), x + 10)
        except Exception as error:
            assert not isinstance(error, AssertionError), error
        assert fast.stats()["hits"] == hits


def test_keywords_and_state(device: torch.device) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alpha = 2.0
            self.kernels = {"scale": scale_kernel, "plus": plus_kernel}
            self.choice = "scale"

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            self.kernels[self.choice][(1,)](x, out, x.numel(), self.alpha, SHIFT=0, BLOCK=64)
            return out

    module = Scaled()
    fast = trident.optimize(module, on_unsupported="raise")
    x = torch.arange(40.0, device=device)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), x * 2)
        module.alpha = 3.0
        torch.testing.assert_close(fast(x), x * 3)
        module.choice = "plus"
        torch.testing.assert_close(fast(x), x + 3)
        module.kernels["plus"] = scale_kernel
        torch.testing.assert_close(fast(x), x * 3)
        module.choice, module.alpha = "scale", 2.0
        torch.testing.assert_close(fast(x), x * 2)
    assert fast.stats()["fallbacks"] == 0


def test_in_place_and_aliasing_launches(device: torch.device) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scale_kernel[(1,)](x, y, 8, 2.0, 1, 16)
        return y + 0

    fast = trident.optimize(f, on_unsupported="raise")
    with torch.no_grad():
        for same in (False, True, False, True):
            x = torch.arange(8.0, device=device)
            y = x if same else torch.zeros(8, device=device)
            expected = x * 2 + 1
            torch.testing.assert_close(fast(x, y), expected)
            torch.testing.assert_close(y, expected)
    assert fast.stats()["hits"] == 2
