"""Random sequences of shapes agree with eager, bit for bit."""

from __future__ import annotations

import pytest
import torch
from dynamic_helpers import agree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trident import optimize

pytestmark = pytest.mark.usefixtures("no_fallback")


_PROPERTIES = {
    "mixed": lambda x, y: (
        torch.cat([x, y.flip(1)], 0).softmax(-1)[1:, : x.shape[1] - 1].sum(1),
        (x @ y.t()).reshape(-1),
        x.shape[0] + 0 if x.shape[1] % 3 == 0 else y.shape[0],
    ),
}
_mixed = optimize(_PROPERTIES["mixed"])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 40))
def test_any_shapes_agree_with_eager(n: int, m: int, k: int) -> None:
    agree(_mixed, _PROPERTIES["mixed"], lambda: (torch.randn(n, k), torch.randn(m, k)))
