"""Whole models whose lengths and batches vary."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from dynamic_helpers import specializations

from trident import optimize

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


def test_prefill_of_any_length() -> None:
    model, _ = llama(liger=False)
    optimized = optimize(model)
    for n in [5, 7, 9, 64, 1, 2, 33, 16, 48]:
        ids = torch.randint(0, 64, (1, n))
        got = optimized(input_ids=ids, use_cache=False).logits
        expected = model(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert specializations(optimized) <= 4
    assert optimized.stats()["fallbacks"] == 0


def test_prefill_of_any_length_with_liger_kernels(device: torch.device) -> None:
    plain, _ = llama(liger=False)
    plain = plain.to(device)
    model, _ = llama(liger=True)
    model = model.to(device)
    model.load_state_dict(plain.state_dict())
    optimized = optimize(model)
    for n in [5, 7, 9, 1, 2, 33, 16, 48]:
        ids = torch.randint(0, 64, (1, n), device=device)
        got = optimized(input_ids=ids, use_cache=False).logits
        expected = plain(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert optimized.stats()["launches"] > 0
    assert specializations(optimized) <= 4


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
