"""What the tests of varying sizes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def specializations(optimized: Any) -> int:
    """How many compiled specializations there are now."""
    return optimized.stats()["specializations"]


def flat(result: Any) -> list[Any]:
    """The leaves of nested tuples and lists."""
    if isinstance(result, (tuple, list)):
        return [each for item in result for each in flat(item)]
    return [result]


def agree(
    optimized: Callable[..., Any], function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]
) -> None:
    """Calls both with equal arguments and compares results, geometry and what was written."""
    torch.manual_seed(0)
    mine = make()
    torch.manual_seed(0)
    theirs = make()
    got, expected = flat(optimized(*mine)), flat(function(*theirs))
    assert len(got) == len(expected)
    for a, b in zip([*got, *mine], [*expected, *theirs], strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        else:
            assert a == b
