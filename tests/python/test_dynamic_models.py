"""Whole models whose lengths and batches vary."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from dynamic_helpers import specializations

from trident import optimize
from trident.optimize import optimizer_of

pytestmark = pytest.mark.usefixtures("no_fallback")


def llama(liger: bool) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    if liger:
        # The kernels of the model's own submodules only: other tests use the plain classes.
        liger_kernel = pytest.importorskip("liger_kernel.transformers.monkey_patch")
        for module in model.modules():
            if type(module).__name__ == "LlamaRMSNorm":
                liger_kernel._patch_rms_norm_module(module)
    return model, config


# Batches and lengths, with 1 and 2, odd ones and multiples of 16.
SHAPES = [
    (2, 5),
    (3, 7),
    (1, 9),
    (4, 1),
    (1, 1),
    (2, 2),
    (1, 33),
    (16, 16),
    (5, 48),
    (1, 2),
    (7, 1),
]


def prefill(liger: bool, device: torch.device) -> Any:
    # transformers asks whether it is traced, and then gives attention an explicit mask where eager
    # leaves it out: on a GPU that is another kernel.
    exact = not liger and device.type == "cpu"
    plain, _ = llama(liger=False)
    plain = plain.to(device)
    model, _ = llama(liger=liger)
    model = model.to(device)
    model.load_state_dict(plain.state_dict())
    optimized = optimize(model)
    for batch, length in SHAPES:
        ids = torch.randint(0, 64, (batch, length), device=device)
        got = optimized(input_ids=ids, use_cache=False).logits
        expected = plain(input_ids=ids, use_cache=False).logits
        assert got.stride() == expected.stride()
        tolerance = 0 if exact else 1e-4
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    return optimized


@pytest.mark.parametrize("liger", [False, True], ids=["plain", "liger"])
def test_prefill_of_any_batch_and_length(liger: bool, device: torch.device) -> None:
    optimized = prefill(liger, device)
    stats = optimized.stats()
    assert stats["specializations"] <= 4  # one, or more than one, of each
    assert stats["fallbacks"] == 0 and stats["evictions"] == 0
    assert (stats["launches"] > 0) is liger


def test_decoding_with_a_static_cache_stays_fixed() -> None:
    transformers = pytest.importorskip("transformers")
    model, config = llama(liger=False)
    optimized = optimize(model)

    def generate(function: Any) -> torch.Tensor:
        cache = transformers.StaticCache(config=config, max_cache_len=32)
        ids = torch.arange(6)[None]
        logits = []
        for step in range(8):
            first = 0 if step == 0 else 5 + step
            positions = torch.arange(first, first + ids.shape[1])[None]
            result = function(
                input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True
            )
            logits.append(result.logits[:, -1])
            # As generate() does: a view of all tokens, whose stride grows.
            ids = torch.arange(7 + step)[None][:, -1:]
        return torch.cat(logits)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        expected = generate(model)
        for _ in range(2):
            torch.testing.assert_close(generate(optimized), expected, rtol=0, atol=0)
    records = optimizer_of(optimized).records
    assert all(not record.symbols for record in records), [record.symbols for record in records]
    assert specializations(optimized) <= 3
    assert optimized.stats()["fallbacks"] == 0


def test_decoding_with_a_growing_cache() -> None:
    transformers = pytest.importorskip("transformers")
    model, config = llama(liger=False)
    optimized = optimize(model)

    def generate(function: Any) -> torch.Tensor:
        cache = transformers.DynamicCache(config=config)
        torch.manual_seed(0)
        logits = []
        for length in [6, *[1] * 12]:
            ids = torch.randint(0, 64, (1, length))
            result = function(input_ids=ids, past_key_values=cache, use_cache=True)
            logits.append(result.logits[:, -1])
        assert cache.get_seq_length() == 18
        return torch.cat(logits)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers renames the argument
        expected = generate(model)
        for _ in range(2):
            torch.testing.assert_close(generate(optimized), expected, rtol=0, atol=0)
    assert specializations(optimized) == 2  # prefill, and one step with a cache of any length
    assert optimized.stats()["fallbacks"] == 0
