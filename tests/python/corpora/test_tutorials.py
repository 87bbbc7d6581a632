"""The kernels of Triton's tutorials, also against PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import tutorial_kernels as tutorials
from corpus import Case, Draw, Tally
from triton_on_cpu import Launches, check_compiles

CORPUS = "Triton's tutorials"
HALF = torch.float16
RUN_EAGERLY = {"grouped_gemm": "uses Tensor.data_ptr"}  # a table of addresses, read by the kernel


def heads(d: Draw, length: int) -> tuple[torch.Tensor, ...]:
    q, k, v = (d.normal(1, 2, length, 16) for _ in range(3))
    return q, k, v


def offsets(d: Draw) -> torch.Tensor:
    return torch.tensor([0, 5, 5, 24], dtype=torch.int32, device=d.device)


CASES = [
    Case("vector_add", tutorials.vector_add, lambda d: (d.normal(200), d.normal(200))),
    Case("vector_add_of_views", tutorials.vector_add, lambda d: (d.normal(99)[1:], d.normal(98))),
    Case(
        "launched_by_function",
        tutorials.launched_by_function,
        lambda d: (d.normal(200), d.normal(200)),
    ),
    Case("softmax", tutorials.softmax, lambda d: (d.normal(7, 50),)),
    Case("softmax_of_columns", tutorials.softmax, lambda d: (d.normal(7, 60)[:, :50],)),
    Case("matmul", tutorials.matmul, lambda d: (d.normal(40, 24), d.normal(24, 33))),
    Case(
        "matmul_leaky_relu",
        tutorials.matmul,
        lambda d: (d.normal(20, 24, dtype=HALF), d.normal(33, 24, dtype=HALF).T, "leaky_relu"),
    ),
    Case("dropout", tutorials.dropout, lambda d: (d.normal(100), 0.5, 123)),
    Case(
        "layer_norm",
        tutorials.layer_norm,
        lambda d: (d.normal(3, 5, 40), d.normal(40), d.normal(40)),
    ),
    Case("attention", tutorials.attention, lambda d: (*heads(d, 32), False)),
    Case("attention_causal", tutorials.attention, lambda d: (*heads(d, 40), True)),
    Case(
        "grouped_gemm",
        tutorials.grouped_gemm,
        lambda d: ([d.normal(20, 16), d.normal(8, 33)], [d.normal(16, 24), d.normal(33, 16)]),
    ),
    Case(
        "ragged_gemm",
        tutorials.ragged_gemm,
        lambda d: (d.normal(24, 20), d.normal(3, 20, 24), offsets(d)),
    ),
    Case(
        "persistent_matmul",
        tutorials.persistent_matmul,
        lambda d: (d.normal(40, 24), d.normal(24, 33)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimized_is_eager(
    case: Case,
    tally: Tally,
    device: torch.device,
    launches: Launches | None,
    h200: pytest.MonkeyPatch,
) -> None:
    tally.check(case, device, RUN_EAGERLY)


@torch.no_grad()
def test_kernels_compute_what_pytorch_does(
    device: torch.device, launches: Launches | None, h200: pytest.MonkeyPatch
) -> None:
    close = torch.testing.assert_close
    d = Draw(device, 1)
    x, a, b = d.normal(7, 50), d.normal(40, 24), d.normal(24, 33)
    precise = {"rtol": 1e-2, "atol": 2e-2}  # on a GPU products of fp32 are TF32's
    close(tutorials.vector_add(x, x.flip(0).contiguous()), x + x.flip(0))
    close(tutorials.softmax(x), x.softmax(-1))
    close(tutorials.matmul(a, b, "leaky_relu"), F.leaky_relu(a @ b, 0.01), **precise)
    close(tutorials.persistent_matmul(a, b), a @ b, **precise)
    w, bias = d.normal(50), d.normal(50)
    close(tutorials.layer_norm(x, w, bias), F.layer_norm(x, (50,), w, bias))
    dropped = tutorials.dropout(x, 0.5, 7)
    kept = dropped != 0
    assert 100 < kept.sum() < 250
    close(dropped[kept], 2 * x[kept])
    for causal, length in ((False, 32), (True, 40)):
        q, k, v = heads(d, length)
        wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        close(tutorials.attention(q, k, v, causal), wanted, **precise)
    (out,) = tutorials.grouped_gemm([a], [b])
    close(out, a @ b, **precise)
    rows, weights = d.normal(24, 20), d.normal(3, 20, 24)
    wanted = torch.cat([rows[:5] @ weights[0], rows[5:] @ weights[2]])
    close(tutorials.ragged_gemm(rows, weights, offsets(d)), wanted, **precise)


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
