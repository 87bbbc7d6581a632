"""PyTorch's switches that choose kernels, and weights that grow adapters: each is a fact."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from soundness_helpers import Pair, check, describe
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import trident


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def switch(owner: Any, name: str) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, not before)
    try:
        yield
    finally:
        setattr(owner, name, before)


SWITCHES: dict[str, Callable[[], Any]] = {
    "attention by definition": lambda: sdpa_kernel(SDPBackend.MATH),
    "attention by flash": lambda: sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]),
    "threads": lambda: threads(torch.get_num_threads() + 1),
    "oneDNN": lambda: torch.backends.mkldnn.flags(enabled=False),
    "cuDNN": lambda: switch(torch.backends.cudnn, "enabled"),
    "cuDNN's benchmark": lambda: switch(torch.backends.cudnn, "benchmark"),
    "TF32 of cuDNN": lambda: switch(torch.backends.cudnn, "allow_tf32"),
    "fp16 reductions": lambda: switch(
        torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"
    ),
    "bf16 reductions": lambda: switch(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"
    ),
    "autocast without cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
}


def attends(x: torch.Tensor) -> Any:
    attended = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    return attended, x @ x.transpose(-1, -2), torch.get_num_threads()


def test_switches_are_facts() -> None:
    """Each switch has a specialization of its own, and the first one serves in between."""
    # Setting it once makes the default explicit, which code can tell apart.
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32
    pair = Pair(lambda: attends, lambda: torch.arange(64.0).reshape(1, 2, 4, 8) / 64)
    with torch.no_grad():
        assert pair.call() == "mh"
        for name, mode in SWITCHES.items():
            with mode():
                assert pair.call() == "mh", name
            assert pair.call(1) == "h", name


class Adapted(nn.Module):
    """What LoRA puts in the place of a layer."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.ones(2, 4))
        self.up = nn.Parameter(torch.ones(4, 2))
        self.scale = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.down.t() @ self.up.t() * self.scale


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer: nn.Module = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * 2


def test_adapters_come_change_and_go() -> None:
    pair = check(Net, lambda m: setattr(m, "layer", Adapted(m.layer)))
    with torch.no_grad():
        pair.change(lambda m: m.layer.up.data.mul_(3))
        assert pair.call() == "hh"
        pair.change(lambda m: setattr(m.layer, "scale", 0.25))
        assert pair.call() == "mh"
        pair.change(lambda m: setattr(m, "layer", m.layer.base))
        assert pair.call() == "hh"  # as it was at first


class Counted:
    factor = 2

    @classmethod
    def scaled(cls, x: torch.Tensor) -> torch.Tensor:
        return x * cls.factor

    @staticmethod
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_methods_of_classes() -> None:
    fast, shifted = trident.optimize(Counted.scaled), trident.optimize(Counted.shifted)
    x = torch.arange(4.0)
    try:
        for factor in (2, 2, 3, 3, 2):
            Counted.factor = factor
            assert torch.equal(fast(x), x * factor)
            assert torch.equal(shifted(x), x + 1)
    finally:
        Counted.factor = 2
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (2, 3)
    assert (shifted.stats()["misses"], shifted.stats()["hits"]) == (1, 4)


@pytest.mark.parametrize(("window", "hits"), [(None, 5), (4, 0)], ids=["static", "sliding"])
def test_caches_of_fixed_size(window: int | None, hits: int) -> None:
    """A sliding cache counts its tokens in Python, which is state that differs in each call."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=16,
        sliding_window=window,
    )
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(config).eval()
    fast = trident.optimize(model)
    with torch.no_grad():
        logits = []
        for arm in (fast, model):
            cache = transformers.StaticCache(config=config, max_cache_len=8)
            for position in range(7):
                ids = torch.tensor([[position + 1]])
                out = arm(input_ids=ids, past_key_values=cache, use_cache=True)
                logits.append(out.logits)
    for mine, theirs in zip(logits[:7], logits[7:], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    stats = fast.stats()
    assert stats["hits"] >= hits and stats["hits"] + stats["misses"] == 7


def test_empty_memory_is_filled_where_algorithms_are_deterministic() -> None:
    def forward(x: torch.Tensor) -> Any:
        return torch.empty(3), torch.empty_like(x), x.new_empty(2, dtype=torch.int32)

    fast, x = trident.optimize(forward), torch.ones(2)
    fast(x)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            assert describe(fast(x)) == describe(forward(x))
    finally:
        torch.use_deterministic_algorithms(False)


def test_autocasts_dtype_is_asked_for_while_it_is_off() -> None:
    def forward(x: torch.Tensor) -> Any:
        return x.to(torch.get_autocast_dtype("cpu")), torch.get_autocast_cpu_dtype()

    fast, x = trident.optimize(forward), torch.ones(2)
    before = torch.get_autocast_dtype("cpu")
    try:
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            torch.set_autocast_dtype("cpu", dtype)
            for _ in range(2):
                assert describe(fast(x)) == describe(forward(x))
    finally:
        torch.set_autocast_dtype("cpu", before)
    with torch.autocast("cpu", dtype=torch.float16):
        assert describe(fast(x)) == describe(forward(x))
        hits = fast.stats()["hits"]
        assert describe(fast(x)) == describe(forward(x)) and fast.stats()["hits"] == hits + 1


def of_another_dtype(x: torch.Tensor) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return x + 1, torch.ones(2), torch.arange(3) / 2, torch.tensor(1.5), torch.full((2,), 1.0)
    finally:
        torch.set_default_dtype(before)


def with_other_kernels(x: torch.Tensor) -> Any:
    with torch.backends.mkldnn.flags(enabled=False):
        return torch.nn.functional.conv1d(x.view(1, 1, -1), torch.ones(1, 1, 2))


def deterministic(x: torch.Tensor) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return x + torch.empty(4)
    finally:
        torch.use_deterministic_algorithms(False)


def flushed(x: torch.Tensor) -> Any:
    torch.set_flush_denormal(True)
    try:
        return x * 1e-42
    finally:
        torch.set_flush_denormal(False)


def precise(x: torch.Tensor) -> Any:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        return x.view(2, 2) @ x.view(2, 2)
    finally:
        torch.set_float32_matmul_precision(before)


def asks_for_wrapped_settings(x: torch.Tensor) -> Any:
    return (
        x + 1,
        str(torch.backends.cuda.preferred_linalg_library()),
        torch.is_warn_always_enabled(),
        numpy.geterr(),
    )


@pytest.mark.parametrize(
    "function",
    [of_another_dtype, with_other_kernels, deterministic, flushed, precise],
)
def test_settings_that_a_call_changes_for_a_while(function: Callable[..., Any]) -> None:
    with torch.no_grad():
        assert Pair(lambda: function).call(3) == "fff"


def test_settings_that_are_asked_for(device: torch.device) -> None:
    pair = Pair(lambda: asks_for_wrapped_settings)
    with torch.no_grad():
        assert pair.call() == "ff"
        before = numpy.seterr(all="ignore")
        try:
            assert pair.call() == "ff"
        finally:
            numpy.seterr(**before)
