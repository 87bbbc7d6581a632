"""Operators whose kernels lay results out otherwise than a trace says, for inputs with gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair
from torch import nn

import trident
from trident.capture import layouts


def channels_last() -> torch.Tensor:
    return torch.arange(180.0).reshape(2, 6, 5, 3).to(memory_format=torch.channels_last)


def reversed_axes() -> torch.Tensor:
    return torch.arange(60.0).reshape(5, 4, 3).permute(2, 1, 0)


def seen(y: torch.Tensor) -> Any:
    """A result, views of it, and its strides."""
    return y, y.reshape(-1)[:7] + 1, y.transpose(0, 1) * 2, y[0], y.stride()


def group_norm(x: torch.Tensor) -> Any:
    return seen(nn.functional.group_norm(x, 2))


def batch_norm(x: torch.Tensor) -> Any:
    channels = x.shape[1]
    return seen(nn.functional.batch_norm(x, torch.zeros(channels), torch.ones(channels)))


def convolution(x: torch.Tensor) -> Any:
    weight = torch.ones(4, x.shape[1], 3, 3)
    return seen(nn.functional.conv2d(x, weight, padding=1))


def pooling(x: torch.Tensor) -> Any:
    return seen(nn.functional.avg_pool2d(x, 2)), seen(nn.functional.max_pool2d(x, 2))


def padding(x: torch.Tensor) -> Any:
    return seen(nn.functional.pad(x, (1, 1))), seen(nn.functional.interpolate(x, scale_factor=2))


def sorting(x: torch.Tensor) -> Any:
    return seen(x.sort(0)[0]), seen(x.softmax(1)), seen(x.cumsum(0)), seen(torch.cat([x, x], 1))


IMAGES = (group_norm, batch_norm, convolution, pooling, padding, sorting)
CASES = [(channels_last, f) for f in IMAGES] + [(reversed_axes, f) for f in (batch_norm, sorting)]


@pytest.mark.parametrize(("make", "function"), CASES, ids=lambda f: f.__name__)
def test_strides_and_views_are_eagers(
    make: Callable[[], torch.Tensor], function: Callable[[torch.Tensor], Any]
) -> None:
    with torch.no_grad():
        assert Pair(lambda: function, make).call(2) == "mh"
        assert Pair(lambda: function, lambda: make().contiguous()).call(2) == "mh"


@pytest.mark.parametrize("function", [group_norm, batch_norm], ids=lambda f: f.__name__)
def test_the_kernels_layout_is_the_traces(function: Callable[[torch.Tensor], Any]) -> None:
    """`group_norm` keeps the order of its input on the CPU, its fake implementation does not."""
    with torch.no_grad():
        pair = Pair(lambda: function, channels_last)
        assert pair.call(2) == "mh"
        assert pair.call(1, lambda: channels_last()[:1]) == "m"
        assert pair.call(2, lambda: channels_last()[:1]) == "hh"


@pytest.mark.parametrize("difference", [None, "device", "sizes"])
def test_results_that_nothing_reads_may_be_other_than_told(
    difference: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention's seeds are on another device than its fake implementation says."""
    tried = layouts.layouts_of_kernel

    def with_other_indices(*call: Any) -> Any:
        found: Any = [*tried(*call)]  # type: ignore[misc]
        if call[0] is torch.ops.aten.sort.default:
            other = {None: None, "device": {"device": "meta"}, "sizes": {"sizes": (1,)}}[difference]
            found[1] = other and found[1]._replace(**other)
        return found

    monkeypatch.setattr(layouts, "layouts_of_kernel", with_other_indices)
    x = torch.randn(3, 4).t()
    with torch.no_grad():
        fast = trident.optimize(lambda x: x.sort(0)[0] + 1, on_unsupported="raise")
        with pytest.raises(trident.UnsupportedError, match=r"sort.*lays its result out"):
            fast(x)
        monkeypatch.setattr(layouts, "_ATTENTION", "aten::sort")
        fast = trident.optimize(lambda x: x.sort(0)[0] + 1, on_unsupported="raise")
        assert torch.equal(fast(x), x.sort(0)[0] + 1)
        for function in (lambda x: x.sort(0)[1] + 1, lambda x: x.sort(0)):
            fast = trident.optimize(function, on_unsupported="raise")
            with pytest.raises(trident.UnsupportedError, match=r"sort.*one of its results is used"):
                fast(x)


HEADS = nn.MultiheadAttention(4, 2, batch_first=True).eval()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_results_that_a_kernel_leaves_undefined_are_none(masked: bool, weights: bool) -> None:
    mask = torch.ones(3, 3, dtype=torch.bool).triu(1) if masked else None

    def function(x: torch.Tensor) -> Any:
        y, found = HEADS(x, x, x, need_weights=weights, attn_mask=mask)
        return y, found, x if found is None else found + 1

    with torch.no_grad():
        pair = Pair(lambda: function, lambda: torch.ones(2, 3, 4))
        assert pair.call(2) == "mh"


def test_results_that_may_be_undefined_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "layouts_of_kernel", lambda *_: "an error")
    x = torch.ones(2, 3)
    with torch.no_grad():
        fast = trident.optimize(lambda x: torch.aminmax(x)[0] + 1, on_unsupported="raise")
        assert torch.equal(fast(x), x.min() + 1)
        fast = trident.optimize(lambda x: tuple(torch.aminmax(x)), on_unsupported="raise")
        with pytest.raises(trident.UnsupportedError, match=r"aminmax.*undefined.*an error"):
            fast(x)


def convolves(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.conv1d(x, torch.ones(1, 2, 3), padding=1)


def attends(x: torch.Tensor) -> torch.Tensor:
    query = x[:, None].expand(1, 2, 2, 8).contiguous()
    return nn.functional.scaled_dot_product_attention(query, query, query)


def stacks(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x])


@pytest.mark.parametrize("function", [convolves, attends, stacks])
def test_results_are_no_views_where_eagers_are_not(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    fast, x = trident.optimize(function), torch.ones(1, 2, 8)
    for _ in range(2):
        with torch.no_grad():
            result, expected = fast(x), function(x)
        assert result._is_view() == expected._is_view() and result._version == expected._version
        result.add_(torch.ones((), requires_grad=True))
