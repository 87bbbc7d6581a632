"""Calls of Helion's kernel objects: what Helion compiled runs natively, chosen by its rules."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import trident

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1",
    reason="eager kernels need a GPU or TRITON_INTERPRET=1: see test_kernels_interpret_mode.py",
)

# A stand-in with Helion's protocol: a kernel binds to arguments by a key of their metadata,
# compiles at a bound kernel's first call, and runs Python that launches through Triton.


class Settings:
    def __init__(self, static_shapes: bool) -> None:
        self.static_shapes = static_shapes


class Kernel:
    def __init__(self, fn: Callable[..., Any], static_shapes: bool = True) -> None:
        self.name = fn.__name__
        self.fn = fn
        self.settings = Settings(static_shapes)
        self._key_fn: Any = None
        self._annotations: list[Any] = []
        self._bound_kernels: dict[Any, BoundKernel] = {}
        self._specialize_extra: dict[Any, list[Any]] = {}
        self._bind_lock = threading.RLock()

    def normalize_args(self, *args: Any, scale: float = 2.0) -> tuple[Any, ...]:
        return args if len(args) == 2 else (*args, scale)

    def bind(self, args: tuple[Any, ...]) -> BoundKernel:
        with self._bind_lock:
            key = tuple(self._key(each) for each in args)
            if key not in self._bound_kernels:
                self._bound_kernels[key] = BoundKernel(self, args)
            return self._bound_kernels[key]

    def _key(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return type(value)
        if self.settings.static_shapes:
            return value.dtype, tuple(value.size()), tuple(value.stride())
        return value.dtype, tuple(min(size, 2) for size in value.size())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = self.normalize_args(*args, **kwargs)
        return self.bind(args)(*args)

    def reset(self) -> None:
        self._bound_kernels.clear()


class BoundKernel:
    def __init__(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        assert not any(isinstance(each, torch.SymInt) for each in args)
        self.kernel = kernel
        self._run: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._run is None:
            self.set_config(64)
        assert self._run is not None
        return self._run(*args)

    def set_config(self, block: int) -> None:
        self._run = written(block)


@triton.jit
def scale_kernel(x_ptr, out_ptr, scale, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * scale * FACTOR, mask=offsets < n)


FACTOR = 1


def written(block: int) -> Callable[..., Any]:
    factor = FACTOR  # compiled in

    def run(x: torch.Tensor, scale: float) -> torch.Tensor:
        out = torch.empty_like(x)
        n = x.numel()
        scale_kernel[(triton.cdiv(n, block),)](x, out, scale, n, BLOCK=block, FACTOR=factor)
        return out

    return run


def scale(x: torch.Tensor, scale: float = 2.0) -> Any:
    """What a user would have written in Helion."""


@pytest.fixture(autouse=True)
def helion(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = types.ModuleType("helion.runtime.kernel")
    vars(module).update(Kernel=Kernel, BoundKernel=BoundKernel)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with torch.no_grad():
        yield


def outcomes(fast: Any, inputs: list[torch.Tensor], expected: Callable[[torch.Tensor], Any]) -> str:
    seen = ""
    for x in inputs:
        before = fast.stats()
        assert torch.equal(fast(x), expected(x))
        after = fast.stats()
        seen += "".join(
            letter * (after[name] - before[name])
            for letter, name in (("m", "misses"), ("h", "hits"), ("f", "fallbacks"))
        )
    return seen


def test_a_kernel_that_helion_has_compiled(device: torch.device) -> None:
    kernel = Kernel(scale)
    x = torch.randn(100, device=device)
    kernel(x)
    fast = trident.optimize(lambda x: kernel(x, scale=3.0) + 1)
    assert outcomes(fast, [x, x, x], lambda x: x * 3 + 1) == "mhh"
    assert "scale_kernel" in trident.explain(fast)


def test_the_first_call_of_all_lets_helion_compile(device: torch.device) -> None:
    kernel = Kernel(scale)
    fast = trident.optimize(lambda x: kernel(x))
    x = torch.randn(100, device=device)
    assert outcomes(fast, [x, x], lambda x: x * 2) == "mh"
    assert len(kernel._bound_kernels) == 1


def test_static_shapes_are_kernels_of_their_own(device: torch.device) -> None:
    kernel = Kernel(scale)
    fast = trident.optimize(lambda x: kernel(x))
    inputs = [torch.randn(size, device=device) for size in (100, 200, 300)]
    assert outcomes(fast, [*inputs, *inputs], lambda x: x * 2) == "mmmhhh"
    assert len(kernel._bound_kernels) == 3


def test_dynamic_shapes_share_a_kernel(device: torch.device) -> None:
    kernel = Kernel(scale, static_shapes=False)
    fast = trident.optimize(lambda x: kernel(x))
    inputs = [torch.randn(size, device=device) for size in (100, 200, 300, 1)]
    assert outcomes(fast, inputs, lambda x: x * 2) == "mmhm"
    assert len(kernel._bound_kernels) == 2


def test_another_configuration_and_a_reset_are_misses(device: torch.device) -> None:
    global FACTOR
    kernel = Kernel(scale)
    fast = trident.optimize(lambda x: kernel(x))
    x = torch.randn(100, device=device)
    try:
        assert outcomes(fast, [x, x], lambda x: x * 2) == "mh"
        FACTOR = 3
        kernel.bind((x, 2.0)).set_config(32)
        assert outcomes(fast, [x, x], lambda x: x * 6) == "mh"
        FACTOR = 5
        kernel.reset()
        assert outcomes(fast, [x, x], lambda x: x * 10) == "mh"
    finally:
        FACTOR = 1


def test_a_kernel_that_an_object_holds_or_replaces(device: torch.device) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = Kernel(scale)

        def forward(self, x: torch.Tensor) -> Any:
            return self.kernel(x)

    model = Model()
    fast = trident.optimize(model)
    x = torch.randn(100, device=device)
    assert outcomes(fast, [x, x], lambda x: x * 2) == "mh"
    model.kernel = Kernel(scale)
    assert outcomes(fast, [x, x], lambda x: x * 2) == "mh"


def test_a_bound_kernel(device: torch.device) -> None:
    kernel = Kernel(scale)
    x = torch.randn(100, device=device)
    bound = kernel.bind((x, 2.0))
    bound(x, 2.0)
    fast = trident.optimize(lambda x: bound(x, 4.0))
    assert outcomes(fast, [x, x], lambda x: x * 4) == "mh"


def test_helion_that_is_imported_after_the_first_call(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    helion = sys.modules["helion.runtime.kernel"]
    # Another Helion than the one of the tests before.
    vars(helion).update(Kernel=type("Kernel", (Kernel,), {"__call__": Kernel.__call__}))
    monkeypatch.delitem(sys.modules, "helion.runtime.kernel")
    kernels: list[Any] = []
    fast = trident.optimize(lambda x: kernels[0](x) if kernels else x * 2)
    x = torch.randn(100, device=device)
    assert outcomes(fast, [x, x], lambda x: x * 2) == "mh"
    monkeypatch.setitem(sys.modules, "helion.runtime.kernel", helion)
    kernels.append(vars(helion)["Kernel"](scale))
    assert outcomes(fast, [x, x], lambda x: x * 2) == "mh"


def test_what_cannot_be_looked_up_runs_eagerly_with_the_reason(device: torch.device) -> None:
    kernel = Kernel(scale)
    kernel._key_fn = lambda x, scale: x.size(0)
    x = torch.randn(100, device=device)
    fast = trident.optimize(lambda x: kernel(x))
    with pytest.warns(UserWarning, match="scale chooses by a key of its own"):
        assert torch.equal(fast(x), x * 2)
    assert fast.stats()["fallbacks"] == 1
