"""The smallest whole example: a module with its own Triton kernel, optimized, compared with eager.

python examples/quickstart.py

Without a GPU, Triton's interpreter stands in for it, for eager and for Trident.
"""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = (
        "1"  # for eager's own launches; Triton reads it when it is imported
    )

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

import trident  # noqa: E402


@triton.jit
def gelu_gate_kernel(gate_ptr, value_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    gate = tl.load(gate_ptr + offsets, mask=mask)
    value = tl.load(value_ptr + offsets, mask=mask)
    # The logistic approximation of GELU.
    tl.store(out_ptr + offsets, gate / (1.0 + tl.exp(-1.702 * gate)) * value, mask=mask)


def gelu_gate(gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * value, elementwise, for contiguous tensors of one shape and dtype."""
    out = torch.empty_like(gate)
    count = gate.numel()
    gelu_gate_kernel[(triton.cdiv(count, 256),)](gate, value, out, count, BLOCK=256)
    return out


class GatedMlp(torch.nn.Module):
    """down(gelu(gate(x)) * up(x)); x: (..., width)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(gelu_gate(self.gate(x), self.up(x)))


@torch.no_grad()
def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = GatedMlp(64, 256).to(device).eval()
    fast = trident.optimize(model)

    agree = True
    for call, rows in enumerate((4, 4, 7, 4, 7)):
        x = torch.randn(rows, 64, device=device)
        expected = model(x)
        actual = fast(x)
        same = torch.equal(actual, expected)
        agree &= same
        print(f"call {call}, {rows} rows: {'equal to eager' if same else 'DIFFERS from eager'}")

    stats = fast.stats()
    print(
        ", ".join(
            f"{name} {stats[name]}" for name in ("driver", "calls", "hits", "misses", "fallbacks")
        )
    )
    # One compilation per shape; every other call is a hit.
    agree &= stats["fallbacks"] == 0 and stats["hits"] == 3
    print("agree" if agree else "DISAGREE")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
