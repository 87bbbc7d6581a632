"""Tensors that are arguments or results: geometry, sharing, aliasing, kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair
from torch import nn

# Pairs of tensors that a program must tell apart, or must not.
TENSORS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "values": (lambda: torch.ones(4), lambda: torch.zeros(4), "h"),
    "dtype": (lambda: torch.ones(4), lambda: torch.ones(4).double(), "m"),
    "integers": (lambda: torch.ones(4), lambda: torch.ones(4).long(), "m"),
    "size": (lambda: torch.ones(4), lambda: torch.ones(5), "m"),
    "rank": (lambda: torch.ones(4), lambda: torch.ones(1, 4), "m"),
    "scalar": (lambda: torch.ones(1), lambda: torch.tensor(1.0), "m"),
    "empty": (lambda: torch.ones(4), lambda: torch.ones(0), "m"),
    "strides": (lambda: torch.ones(4, 4), lambda: torch.ones(4, 4).t(), "m"),
    "expanded": (lambda: torch.ones(4, 4), lambda: torch.ones(4, 1).expand(4, 4), "m"),
    "channels last": (
        lambda: torch.ones(2, 3, 4, 4),
        lambda: torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "m",
    ),
    "misaligned": (lambda: torch.ones(4), lambda: torch.ones(5)[1:], "m"),
    "offset, aligned": (lambda: torch.ones(4), lambda: torch.arange(8.0)[4:], "h"),
    "Parameter": (
        lambda: torch.ones(4),
        lambda: nn.Parameter(torch.ones(4), requires_grad=False),
        "m",
    ),
    "requires_grad": (lambda: torch.ones(4), lambda: torch.ones(4, requires_grad=True), "m"),
    "attribute": (lambda: torch.ones(4), lambda: _tagged(torch.ones(4), 2.0), "m"),
}


def _tagged(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    tensor.scale = scale  # type: ignore[attr-defined]
    return tensor


def every_view(x: Any) -> Any:
    scale = getattr(x, "scale", 1.0)
    isparam = isinstance(x, nn.Parameter)
    return x * scale + isparam, x.reshape(-1)[:1], x.stride(), x.dim(), x.is_contiguous()


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_facts(name: str) -> None:
    first, second, outcome = TENSORS[name]
    with torch.no_grad():
        pair = Pair(lambda: every_view)
        assert pair.call(1, first) == "m"
        assert pair.call(1, second) == outcome
        assert pair.call(1, first) == "h"
        assert pair.call(1, second) == "h"


def test_attributes_of_tensor_arguments_by_value() -> None:
    with torch.no_grad():
        pair = Pair(lambda: every_view)
        assert pair.call(2, lambda: _tagged(torch.ones(4), 2.0)) == "mh"
        assert pair.call(2, lambda: _tagged(torch.ones(4), 3.0)) == "mh"


def test_same_tensor_twice() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return y * 2, x is y

    def same() -> Any:
        x = torch.ones(4)
        return x, x

    def apart() -> Any:
        return torch.ones(4), torch.ones(4)

    def overlapping() -> Any:
        x = torch.ones(8)
        return x[:4], x[:4]

    with torch.no_grad():
        pair = Pair(lambda: f)
        assert pair.call(2, same) == "mh"
        assert pair.call(2, apart) == "mh"
        assert pair.call(1, overlapping) == "h"
        assert pair.call(1, same) == "h"


def test_captured_with_overlapping_tensors() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        view = y.view(2, 2)
        x.mul_(2)
        return view + 1, view, x.view(2, 2).t()

    def overlapping() -> Any:
        base = torch.arange(8.0)
        return base[0:4], base[4:8]

    def nested() -> Any:
        base = torch.arange(4.0)
        return base, base[:]

    def apart() -> Any:
        return torch.arange(4.0), torch.arange(4.0) + 10

    with torch.no_grad():
        for first in (overlapping, nested, apart):
            pair = Pair(lambda: f)
            assert pair.call(1, first) == "m"
            for other in (overlapping, nested, apart):
                assert pair.call(1, other) == "h"


def test_input_that_is_a_weight() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, x: torch.Tensor) -> Any:
            x.add_(1)
            return self.weight * 2, x is self.weight

    with torch.no_grad():
        pair = Pair(M)
        assert pair.call(2, lambda: nn.Parameter(torch.ones(4), requires_grad=False)) == "mh"
        mine, theirs = pair.fast(pair.target.weight), pair.eager(pair.eager.weight)
        assert mine[1] is theirs[1] is True
        torch.testing.assert_close(mine[0], theirs[0])
        mine, theirs = pair.fast(pair.target.weight), pair.eager(pair.eager.weight)
        torch.testing.assert_close(mine[0], theirs[0])
        assert pair.fast.stats()["hits"] == 2
        assert pair.call(1, lambda: nn.Parameter(torch.ones(4), requires_grad=False)) == "h"


def test_outputs_alias_as_in_eager() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 2
        return x, x[1:], y.view(2, 2), z, z[:2], z.detach(), x.t() if x.dim() == 2 else x.view(-1)

    def aliases(tensors: Any, inputs: Any) -> Any:
        every = [*inputs, *tensors]
        pointers = [t.untyped_storage().data_ptr() for t in every]
        return [[a == b for b in pointers] for a in pointers], [
            (t.storage_offset(), t._is_view()) for t in every
        ]

    with torch.no_grad():
        pair = Pair(lambda: f, lambda: (torch.arange(4.0), torch.arange(4.0)))
        assert pair.call() == "mh"
        mine, theirs = pair.arguments(), pair.arguments()
        got, expected = pair.fast(*mine), pair.eager(*theirs)
        assert aliases(got, mine) == aliases(expected, theirs)
        got[1].add_(1)
        expected[1].add_(1)
        torch.testing.assert_close(mine, theirs)
        got[4].zero_()
        expected[4].zero_()
        torch.testing.assert_close(list(got), list(expected))


def test_in_place_on_inputs_and_views() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        x[0] = 7
        x[1:].mul_(2)
        y.t().add_(x[0])
        return y.sum(0)

    pair = Pair(lambda: f, lambda: (torch.arange(4.0), torch.ones(2, 2)))
    with torch.no_grad():
        assert pair.call(3) == "mhh"


class Wrapped(torch.Tensor):
    pass


def test_tensors_of_other_kinds_fall_back() -> None:
    def f(x: Any) -> Any:
        return (x * 2,) if x.layout is torch.strided else (x.to_dense() * 2,)

    for make in (
        lambda: torch.ones(2).as_subclass(Wrapped),
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.eye(2).to_sparse_csr(),
        lambda: torch.eye(2).to_sparse_csc(),
        lambda: torch.eye(2).to_sparse_bsr((1, 1)),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: torch.imag(torch.ones(2, dtype=torch.complex64).conj()),
    ):
        with torch.no_grad():
            pair = Pair(lambda: f)
            fast = pair.fast
            for _ in range(2):
                got, expected = fast(make())[0], f(make())[0]
                assert type(got) is type(expected)
                torch.testing.assert_close(got, expected)
            assert fast.stats()["fallbacks"] == 2


def test_class_of_a_tensor() -> None:
    """A trace's own kind of tensor does not show."""
    handlers = {torch.Tensor: 2.0, nn.Parameter: 3.0}

    def f(x: Any) -> Any:
        y = x * handlers.get(type(x), 7.0)
        plain = type(y) is torch.Tensor and y.__class__ is torch.Tensor
        made = type("Made", (list,), {"k": 1})
        return y + plain, type(x).__name__, x.__class__.__name__, isinstance(made, type), made.k

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return f(x), type(self).__name__, type(self.weight) is nn.Parameter, f(self.weight)

    with torch.no_grad():
        for make in (lambda: f, M):
            pair = Pair(make)
            assert pair.call() == "mh"
            assert pair.call(2, lambda: nn.Parameter(torch.ones(4), requires_grad=False)) == "mh"
    assert "type" not in globals()


def test_meta_tensors_fall_back() -> None:
    with torch.no_grad():
        fast = Pair(lambda: lambda x: x * 2).fast
        assert fast(torch.ones(2, device="meta")).device.type == "meta"
        assert fast.stats()["fallbacks"] == 1
