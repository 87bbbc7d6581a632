"""Submodules, weights, hooks and tensors of a module that change between two calls."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, check
from state_cases import linear, module
from torch import nn


def _replace_weight(m: nn.Module) -> None:
    m[0].weight = nn.Parameter(torch.full((4, 4), 0.5))  # type: ignore[index,union-attr]


SUBMODULES = {
    "replaced": lambda m: m.__setitem__(1, nn.Sigmoid()),
    "added": lambda m: m.append(nn.Tanh()),
    "removed": lambda m: m.__delitem__(1),
    "other weights": lambda m: m.__setitem__(0, nn.Linear(4, 4, bias=False).double().float()),
    "no bias": lambda m: setattr(m[0], "bias", None),
    "shared": lambda m: m.__setitem__(2, m[0]),
    "wrapped": lambda m: m.__setitem__(0, nn.Sequential(m[0], nn.ReLU())),
}


@pytest.mark.parametrize("name", SUBMODULES)
def test_submodules(name: str) -> None:
    def change(m: nn.Module) -> None:
        torch.manual_seed(5)
        SUBMODULES[name](m)

    check(linear, change, arguments=lambda: torch.arange(8.0).reshape(2, 4))


def _transpose(m: Any) -> None:
    m[0].weight.data = m[0].weight.data.t()


def _load(m: Any, **options: Any) -> None:
    m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}, **options)


def _exchange(m: Any) -> None:
    """Another TensorImpl over the same memory; the one before is freed."""
    gc.collect()  # a capture leaves weak references until then, with which nothing can be swapped
    torch.utils.swap_tensors(m[0].weight, nn.Parameter(m[0].weight.data))


# What changes in the weights, and what the next two calls are.
WEIGHTS = {
    "in place": (lambda m: m[0].weight.add_(1), "hh"),
    "data": (lambda m: setattr(m[0].weight, "data", torch.ones(4, 4)), "hh"),
    "data of other strides": (_transpose, "mh"),
    "replaced": (_replace_weight, "hh"),
    "load_state_dict": (_load, "hh"),
    "assigned by load_state_dict": (lambda m: _load(m, assign=True), "hh"),
    "requires_grad": (lambda m: m.requires_grad_(False), "mh"),
    "shared": (lambda m: setattr(m[0], "weight", m[2].weight), "mh"),
    "exchanged": (_exchange, "hh"),
    "misaligned": (
        lambda m: setattr(m[0].weight, "data", torch.ones(17)[1:].view(4, 4)),
        "mh",
    ),
    "buffer instead": (
        lambda m: (delattr(m[0], "bias"), m[0].register_buffer("bias", torch.ones(4))),
        "mh",
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(name: str) -> None:
    change, after = WEIGHTS[name]
    check(linear, change, after=after, arguments=lambda: torch.arange(8.0).reshape(2, 4))


def test_dtype_of_the_weights() -> None:
    with torch.no_grad():
        pair = Pair(linear, lambda: torch.arange(8.0).reshape(2, 4))
        assert pair.call() == "mh"
        pair.change(lambda m: m.double())
        assert pair.call(1) in ("e", "f")  # eager refuses float input, so does Trident
        pair.arguments = lambda: torch.arange(8.0).reshape(2, 4).double()
        assert pair.call() == "mh"
        pair.change(lambda m: m.float())
        pair.arguments = lambda: torch.arange(8.0).reshape(2, 4)
        assert pair.call() == "hh"


def test_attribute_of_a_tensor() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * getattr(self.weight, "scale", 1.0)

    make = module(forward, weight=lambda: nn.Parameter(torch.ones(4)))
    pair = check(make, lambda m: setattr(m.weight, "scale", 3.0))
    with torch.no_grad():
        pair.change(lambda m: setattr(m.weight, "scale", 4.0))
        assert pair.call() == "mh"
        pair.change(lambda m: delattr(m.weight, "scale"))
        assert pair.call() == "hh"


def test_deleted_weight_is_eagers_error() -> None:
    with torch.no_grad():
        pair = Pair(linear, lambda: torch.arange(8.0).reshape(2, 4))
        assert pair.call() == "mh"
        pair.change(lambda m: delattr(m[0], "weight"))
        assert pair.call() == "ee"
        pair.change(_replace_weight)
        assert pair.call()[-1] == "h"


def test_hooks_added_and_removed() -> None:
    handles: list[Any] = []
    pair = check(
        linear,
        lambda m: handles.append(m[1].register_forward_hook(lambda m, a, out: out + 1)),
        arguments=lambda: torch.arange(8.0).reshape(2, 4),
    )
    with torch.no_grad():
        for handle in handles:
            handle.remove()
        assert pair.call()[-1] == "h"
        pair.change(lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] * 2,)))
        assert pair.call() == "mh"


def test_global_hooks() -> None:
    with torch.no_grad():
        pair = Pair(linear, lambda: torch.arange(8.0).reshape(2, 4))
        assert pair.call() == "mh"
        handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1)
        try:
            assert pair.call() == "mh"
        finally:
            handle.remove()
        assert pair.call() == "hh"


def test_tensors_in_plain_attributes() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.table["t"][0] + self.cache

    make = module(
        forward, table=lambda: {"t": [torch.ones(4)]}, cache=lambda: torch.full((4,), 2.0)
    )
    pair = check(make, lambda m: m.table["t"].__setitem__(0, torch.zeros(4)), after="hh")
    with torch.no_grad():
        pair.change(lambda m: setattr(m, "cache", torch.tensor(5.0)))
        assert pair.call() == "mh"


def test_recurrent_weights() -> None:
    def make() -> nn.Module:
        torch.manual_seed(2)
        return nn.LSTM(4, 4)

    pair = Pair(make, lambda: torch.arange(8.0).reshape(2, 1, 4))
    with torch.no_grad():
        pair.call()
        pair.change(lambda m: m.weight_ih_l0.mul_(2))
        pair.call()
