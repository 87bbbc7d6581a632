"""Llama and Qwen3 with Liger's Triton kernels generate tokens, eagerly and through Trident.

    python examples/llama_qwen_demo.py [--tokens 32]

The models are Hugging Face's own architectures, small and with random weights, so nothing is
downloaded. On a GPU the reference is the same model in eager mode. Without one, eager Liger
cannot run (Triton's interpreter stops in its kernels), so the reference is the model with Hugging
Face's own modules, whose mathematics is the same; Trident still runs Liger's kernels. Exits 0
only if tokens and logits agree for every model.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from liger_kernel.transformers import apply_liger_kernel_to_llama, apply_liger_kernel_to_qwen3
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    StaticCache,
)
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

import trident

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
PROMPT_LENGTH = 8
SLOTS = 64  # of the static cache
# On a GPU both sides run the same kernels, so the logits must be equal; on the CPU Liger's
# kernels round differently from Hugging Face's modules.
TOLERANCE = 0.0 if DEVICE.type == "cuda" else 1e-4
SIZES = dict(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=256,
    # Large untied random weights: the tokens vary, so that a wrong state of the cache would show.
    tie_word_embeddings=False,
    initializer_range=0.2,
)


@dataclasses.dataclass(frozen=True)
class Family:
    """One architecture: how to make it, how Liger's kernels get in, and the module they patch."""

    name: str
    make: Callable[[], PreTrainedModel]
    apply_liger: Callable[..., None]
    source: ModuleType


FAMILIES = (
    Family(
        "Llama",
        lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attn_implementation="sdpa")),
        apply_liger_kernel_to_llama,
        modeling_llama,
    ),
    Family(
        "Qwen3",
        lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, attn_implementation="sdpa")),
        apply_liger_kernel_to_qwen3,
        modeling_qwen3,
    ),
)


@dataclasses.dataclass
class Generation:
    """Greedy tokens, (count,); each step's logits, (count, vocab), and host seconds."""

    tokens: torch.Tensor
    logits: torch.Tensor
    seconds: list[float]

    @property
    def milliseconds_per_token(self) -> float:
        """Median time until a decode step returns, the prefill and the first step left out."""
        return statistics.median(self.seconds[2:] or self.seconds) * 1e3


def build(family: Family) -> PreTrainedModel:
    torch.manual_seed(0)
    return family.make().to(device=DEVICE, dtype=DTYPE).eval()


@contextlib.contextmanager
def liger_kernels(family: Family, model: PreTrainedModel) -> Iterator[None]:
    """Puts Liger's kernels in; what Liger replaces in Hugging Face's modules comes back after."""
    originals = dict(vars(family.source))
    family.apply_liger(
        model=model,
        rope=True,
        rms_norm=True,
        swiglu=True,
        cross_entropy=False,
        fused_linear_cross_entropy=False,
    )
    try:
        yield
    finally:
        vars(family.source).update(originals)


@torch.no_grad()
def generate(call: Callable[..., Any], model: PreTrainedModel, count: int) -> Generation:
    """`count` greedy tokens after a fixed prompt, over a fresh static cache."""
    cache = StaticCache(config=model.config, max_cache_len=SLOTS)
    generator = torch.Generator().manual_seed(1)
    vocabulary = model.config.vocab_size
    ids = torch.randint(0, vocabulary, (1, PROMPT_LENGTH), generator=generator).to(DEVICE)
    positions = torch.arange(PROMPT_LENGTH, device=DEVICE)[None]
    tokens, logits, seconds = [], [], []
    for _ in range(count):
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        output = call(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
        seconds.append(time.perf_counter() - start)
        logits.append(output.logits[0, -1])
        ids = output.logits[:, -1:].argmax(-1)
        tokens.append(ids[0, 0])
        positions = positions[:, -1:] + 1
    return Generation(torch.stack(tokens), torch.stack(logits), seconds)


def run(family: Family, count: int) -> bool:
    """Generates with one family both ways, prints the comparison, and tells whether all agrees."""
    model = build(family)
    if DEVICE.type == "cpu":
        reference_name = "plain Hugging Face modules, eager"
        reference = generate(model, model, count)
    with liger_kernels(family, model):
        if DEVICE.type == "cuda":
            reference_name = "eager + Liger"
            reference = generate(model, model, count)
        fast = trident.optimize(model)
        actual = generate(fast, model, count)
        stats = fast.stats()

    same_tokens = torch.equal(actual.tokens, reference.tokens)
    difference = (actual.logits.float() - reference.logits.float()).abs().max().item()
    same_logits = difference <= TOLERANCE
    native = stats["fallbacks"] == 0 and stats["errors"] == 0 and stats["hits"] > 0
    tokens_verdict = "agree" if same_tokens else "DIFFER"
    logits_verdict = "agree" if same_logits else "DIFFER"
    print(f"{family.name}: {count} tokens, reference: {reference_name}", flush=True)
    print(f"  tokens   {tokens_verdict}: {actual.tokens.tolist()}")
    print(
        f"  logits   {logits_verdict}: largest difference {difference:.3g} (allowed {TOLERANCE:g})"
    )
    print(
        f"  calls    {stats['calls']}: {stats['hits']} hits, {stats['misses']} misses, "
        f"{stats['fallbacks']} fallbacks, {stats['errors']} errors"
    )
    print(
        f"  work     {stats['launches']} Triton launches, {stats['aten_typed']} typed and "
        f"{stats['aten_boxed']} boxed ATen calls, {stats['specializations']} specializations"
    )
    print(
        f"  host     {actual.milliseconds_per_token:.3f} ms per token with Trident, "
        f"{reference.milliseconds_per_token:.3f} ms for the reference"
    )
    print(f"  driver   {stats['driver']}")
    if not native:
        print("  Trident did not run every call natively; trident.explain(fast) says why:")
        print(trident.explain(fast))
    return same_tokens and same_logits and native


def main(arguments: list[str] | None = None) -> int:
    """Runs every family; returns the exit status."""
    parser = argparse.ArgumentParser(description="Generate with and without Trident and compare.")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to generate (default 32)")
    count = parser.parse_args(arguments).tokens
    if not 1 <= count <= SLOTS - PROMPT_LENGTH:
        parser.error(f"--tokens must lie between 1 and {SLOTS - PROMPT_LENGTH}")
    # transformers 5.20 renames past_key_values and takes the old name until 5.40.
    warnings.filterwarnings("ignore", message=".*past_key_values.*")
    print(f"Device: {torch.cuda.get_device_name() if DEVICE.type == 'cuda' else 'CPU'}, {DTYPE}")
    print("Compiling on first use: two specializations per model ...", flush=True)
    agreed = [run(family, count) for family in FAMILIES]
    print("All agree." if all(agreed) else "NOT all agree.")
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
