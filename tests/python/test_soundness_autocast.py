"""Casts of weights that autocast keeps for as long as a region lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair
from torch import nn
from torch.nn import functional as F

import trident


def region(device: torch.device, **options: Any) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, **options)


@pytest.fixture(autouse=True)
def no_grad() -> Any:
    with torch.no_grad():
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))) + self.second(x)


def pair_of(make: Callable[[], nn.Module], device: torch.device, **options: Any) -> Pair:
    return Pair(
        lambda: make().to(device),
        lambda: torch.linspace(-1, 1, 16, device=device).view(2, 8),
        **options,
    )


def double(net: nn.Module) -> None:
    for weight in net.parameters():
        weight.mul_(2.0)


def renew(net: nn.Module) -> None:
    for weight in net.parameters():
        weight.data = weight.data * 3.0


@pytest.mark.parametrize("change", [double, renew])
def test_a_weight_that_changes_in_a_region(
    change: Callable[[Any], None], device: torch.device
) -> None:
    pair = pair_of(Net, device)
    with region(device):
        assert pair.call() == "mh"
        pair.change(change)
        assert pair.call() == "hh"  # of the casts that were made before
    with region(device):
        assert pair.call() == "hh"
        pair.change(change)
        assert pair.call() == "hh"
        with region(device):
            assert pair.call() == "hh"
        with region(device, enabled=False):
            assert pair.call() == "mh"
        assert pair.call() == "hh"
    assert pair.call() == "hh"
    with region(device, cache_enabled=False):
        assert pair.call() == "mh"
        pair.change(change)
        assert pair.call() == "hh"


def test_casts_are_shared_with_eager(device: torch.device) -> None:
    net = Net().to(device)
    fast = trident.optimize(net)
    x = torch.linspace(-1, 1, 16, device=device).view(2, 8)
    with region(device):
        fast(x)
    with region(device):
        before = fast(x)
        assert fast.stats()["hits"] == 1
        double(net)
        assert torch.equal(net(x), before)
    with region(device):
        before = net(x)
        double(net)
        assert torch.equal(fast(x), before)
    assert not torch.equal(fast(x).bfloat16(), before)


def test_a_weight_is_cast_once_per_region(device: torch.device) -> None:
    net = Net().to(device)
    fast = trident.optimize(net, graphs=False)
    x = torch.linspace(-1, 1, 16, device=device).view(2, 8)
    with region(device):
        fast(x)
    with region(device):
        for casts in (3, 0):
            with torch.profiler.profile() as profile:
                fast(x)
            assert [event.name for event in profile.events()].count("aten::to") == casts


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.second.requires_grad_(False)


class Explicit(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.bfloat16(), self.second.weight.bfloat16()) + self.first(x)


class InnerRegion(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with region(x.device):
            return self.second(x) + self.second(x)


class TwoInnerRegions(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with region(x.device):
            y = self.second(x)
        with region(x.device, cache_enabled=False):
            return y + self.second(x)


class View(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.second.weight.t() + x @ self.first.weight


class GradInside(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = self.second(x).detach()
        return y + self.first(x)


@pytest.mark.parametrize("make", [Frozen, Explicit, InnerRegion, TwoInnerRegions, View, GradInside])
@pytest.mark.parametrize("outside", ["on", "off", "none"])
def test_which_casts_are_kept(
    make: Callable[[], nn.Module], outside: str, device: torch.device
) -> None:
    pair = pair_of(make, device)

    def enter() -> contextlib.AbstractContextManager[Any]:
        return (
            contextlib.nullcontext()
            if outside == "none"
            else region(device, enabled=outside == "on")
        )

    first = None
    for _ in range(3):
        with enter():
            for _ in range(2):
                said = pair.call()
                assert said == (first or said)
                first = "hh"
                pair.change(double)
            with region(device, enabled=False):
                pair.call()
    assert pair.fast.stats()["fallbacks"] == 0


def test_gradients_through_a_cast_of_a_hit(device: torch.device) -> None:
    def gradients(call: Callable[[torch.Tensor], torch.Tensor], net: nn.Module) -> Any:
        with region(device):
            with torch.no_grad():
                call(x)
            with torch.enable_grad():
                try:
                    net(x).sum().backward()
                except RuntimeError:
                    return "raised"
        return [
            None if weight.grad is None else weight.grad.tolist() for weight in net.parameters()
        ]

    x = torch.linspace(-1, 1, 16, device=device).view(2, 8)
    net, plain = Net().to(device), Net().to(device)
    fast = trident.optimize(net)
    with region(device):
        fast(x)
    assert gradients(fast, net) == gradients(plain, plain)
    assert fast.stats()["hits"] == 1


class Written(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.second.weight.add_(1.0)
        return self.second(x)


def test_a_weight_that_the_call_itself_changes(device: torch.device) -> None:
    pair = pair_of(Written, device)
    with region(device):
        assert pair.call() == "ff"
        assert pair.call() == "ff"
    assert "a weight that autocast casts" in trident.explain(pair.fast)
    assert pair.call() == "mh"


def test_a_call_inside_and_outside_of_regions_is_told_apart(device: torch.device) -> None:
    net = InnerRegion().to(device)
    fast = trident.optimize(net)
    x = torch.linspace(-1, 1, 16, device=device).view(2, 8)
    fast(x)
    with region(device, enabled=False):
        fast(x)
    text = trident.explain(fast)
    assert "inside of a torch.autocast context: False -> True" in text


def test_weights_of_several_sizes_of_input(device: torch.device) -> None:
    net, plain = Net().to(device), Net().to(device)
    fast = trident.optimize(net)
    with region(device):
        for rows in (2, 3, 4, 5):
            x = torch.linspace(-1, 1, 8 * rows, device=device).view(rows, 8)
            assert torch.equal(fast(x), plain(x))
            for each in (net, plain):
                double(each)
    assert fast.stats()["misses"] == 2
