"""Which programs say of themselves that they cannot become CUDA graphs; captures are on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import trident
from trident.optimize import optimizer_of


def attention(dropout: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: scaled_dot_product_attention(x, x, x, dropout_p=dropout)


@pytest.mark.parametrize(
    ("function", "obstacle"),
    [
        (lambda x: x @ x, None),
        (attention(0.0), None),
        (attention(0.5), "draws random numbers"),
        (lambda x: x + torch.rand_like(x), "draws random numbers"),
        (lambda x: torch.linalg.inv(x) * 2, "reads values on the host"),
        (lambda x: x[0], "an output shares memory with an input"),
        (lambda x: torch.relu(x).chunk(2, 1), "two outputs share memory"),
    ],
)
def test_obstacles(
    function: Callable[[torch.Tensor], torch.Tensor], obstacle: str | None, device: torch.device
) -> None:
    fast = trident.optimize(function, on_unsupported="raise")
    with torch.no_grad():
        fast(torch.eye(4, device=device).expand(1, 2, 4, 4).clone())
    found = optimizer_of(fast).records[0].graph_obstacle
    assert found == obstacle if obstacle is None else obstacle in found
