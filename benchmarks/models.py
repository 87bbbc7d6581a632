"""The Hugging Face models that the benchmarks run, with random weights and Liger's kernels."""

from __future__ import annotations

import warnings
from typing import Any

import common
import torch

SLOTS = 1024  # of the static cache

SHAPES: dict[str, dict[str, Any]] = {
    "llama3.2-1b": dict(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        tie_word_embeddings=True,
    ),
    "qwen3-0.6b": dict(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        tie_word_embeddings=True,
    ),
}


def run_worker(script: str, job: str, name: str, key: str, timeout: float) -> dict[str, Any]:
    """A model's result from a process of its own, with an error if there is none.

    Results name their model by ``key``.
    """
    found = common.run_worker(script, [job, "--models", name], timeout)
    return {key: name, **(found[0] if found else {"error": "no result"})}


def build(name: str) -> torch.nn.Module:
    """The model with Liger's kernels in, random bf16 weights, on the GPU."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama, apply_liger_kernel_to_qwen3
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    warnings.filterwarnings("ignore", message=".*past_key_values.*")
    torch.manual_seed(0)
    llama = name.startswith("llama")
    config_class, model_class = (
        (LlamaConfig, LlamaForCausalLM) if llama else (Qwen3Config, Qwen3ForCausalLM)
    )
    config = config_class(**SHAPES[name], attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = model_class(config).eval()
    torch.set_default_dtype(torch.float32)
    apply_liger = apply_liger_kernel_to_llama if llama else apply_liger_kernel_to_qwen3
    apply_liger(
        model=model,
        rope=True,
        rms_norm=True,
        swiglu=True,
        cross_entropy=False,
        fused_linear_cross_entropy=False,
    )
    return model


class Step(torch.nn.Module):
    """A model with its cache: ids and positions, both (1, n) int64, to logits (1, n, vocab)."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        from transformers import StaticCache

        self.model = model
        self.cache = StaticCache(config=model.config, max_cache_len=SLOTS)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        output = self.model(
            input_ids=ids, position_ids=positions, past_key_values=self.cache, use_cache=True
        )
        return output.logits
