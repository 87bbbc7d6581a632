"""The optimized object as an object: copies, nesting, methods, and what it keeps alive."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import types
import weakref
from typing import Any

import pytest
import torch
from soundness_helpers import Pair
from torch import nn

import trident


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.scale = 2.0
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return self.layer(x) * self.scale


def rows() -> torch.Tensor:
    return torch.arange(8.0).reshape(2, 4)


def test_behaves_as_the_original() -> None:
    net = Net()
    fast = trident.optimize(net)
    assert isinstance(fast, Net) and type(fast).__name__ == "Net"
    assert list(fast.state_dict()) == list(net.state_dict())
    assert fast.layer is net.layer and [*fast.parameters()][0] is [*net.parameters()][0]
    with torch.no_grad():
        fast(rows())
        fast.scale = 3.0
        assert net.scale == 3.0
        torch.testing.assert_close(fast(rows()), net(rows()))
        assert fast.eval() is fast and not net.training
        fast.to(torch.float64)
        assert net.layer.weight.dtype == torch.float64
        torch.testing.assert_close(fast(rows().double()), net(rows().double()))
    assert net.seen.item() == 5


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent_specializations(how: Any) -> None:
    net = Net()
    fast = trident.optimize(net)
    with torch.no_grad():
        fast(rows())
        twin = how(fast)
        assert isinstance(twin, Net) and twin.stats()["calls"] == 0
        twin.scale = 5.0
        expected = net.layer(rows())
        torch.testing.assert_close(twin(rows()), expected * 5.0)
        torch.testing.assert_close(twin(rows()), expected * 5.0)
        torch.testing.assert_close(fast(rows()), expected * 2.0)
        assert twin.stats()["hits"] == 1 and fast.stats()["hits"] == 1


def test_nested_optimized_modules_and_functions() -> None:
    class Outer(nn.Module):
        def __init__(self, optimized: bool) -> None:
            super().__init__()
            inner = Net()
            self.inner = trident.optimize(inner) if optimized else inner
            self.shift = {"k": 1.0}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return helper_fast(self.inner(x)) + self.shift["k"]

    plain, nested = Outer(False), Outer(True)
    fast = trident.optimize(nested)
    with torch.no_grad():
        for change in (None, "shift", "inner", "weight"):
            for module in (plain, nested):
                if change == "shift":
                    module.shift["k"] = 2.0
                elif change == "inner":
                    module.inner.scale = 7.0
                elif change == "weight":
                    module.inner.layer.weight.mul_(2)
            for _ in range(2):
                torch.testing.assert_close(fast(rows()), plain(rows()))
    stats = fast.stats()
    assert stats["fallbacks"] == 0 and stats["misses"] == 3 and stats["hits"] == 5
    assert nested.inner.seen.item() == plain.inner.seen.item() == 8


FACTOR = [3.0]


@trident.jit
def helper_fast(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR[0]


def test_decorated_method() -> None:
    class Owner:
        def __init__(self) -> None:
            self.scale = 2.0
            self.log: list[Any] = []

        @trident.jit
        def run(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
            self.log.append(x.shape[0])
            del self.log[:-1]
            return x * self.scale + shift

    first, second = Owner(), Owner()
    with torch.no_grad():
        assert first.run(torch.ones(2)).tolist() == [2.0, 2.0]
        assert first.run(torch.ones(2)).tolist() == [2.0, 2.0]
        second.scale = 3.0
        assert second.run(torch.ones(2), shift=1.0).tolist() == [4.0, 4.0]
        assert first.log == second.log == [2]
    assert Owner.run.stats()["fallbacks"] == 0


def test_bound_decorated_method_in_the_state_of_another() -> None:
    class Owner:
        def __init__(self) -> None:
            self.scale = 2.0

        @trident.jit
        def run(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
            return x * self.scale + shift

    def through(x: torch.Tensor, run: Any) -> torch.Tensor:
        return run(x, shift=1.0) + run(x)

    owner = Owner()
    pair = Pair(lambda: through, lambda: (torch.ones(2), owner.run))
    with torch.no_grad():
        assert pair.call() == "mh"
        owner.scale = 3.0
        assert pair.call() == "mh"
    assert Owner.run.stats()["calls"] == 8  # of the eager arm alone


def test_the_forward_of_a_module_is_replaced() -> None:
    def reads_signature(forward: Any) -> Any:
        signature = inspect.signature(forward)

        @functools.wraps(forward)
        def wrapper(self: Any, *args: Any) -> Any:
            assert len(signature.parameters) == 3
            return forward(self, *args)

        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        return wrapper

    class Annotated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        @reads_signature
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
            return x * self.scale if mask is None else x * mask

    # Annotations are evaluated here, unlike those of this file.
    Annotated.forward.__annotations__["mask"] = torch.Tensor | None
    module = Annotated()
    module.forward = fast = trident.optimize(module.forward)  # type: ignore[method-assign]
    x = torch.randn(4)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(module(x), x)
        module.scale.fill_(2.0)
        assert torch.equal(module(x), x * 2) and torch.equal(module(x, x), x * x)
    stats = fast.stats()
    assert (stats["misses"], stats["hits"], stats["fallbacks"]) == (2, 2, 0)


def test_read_only_view_of_a_dictionary() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table: dict[str, Any] = {"scale": 2.0, "weight": torch.ones(4), "seen": []}
            self.view = types.MappingProxyType(self.table)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.view["seen"].append(len(self.view["seen"]))
            del self.view["seen"][:-1]
            return x * self.view["scale"] + self.view["weight"] + self.view["seen"][0]

    def replace(module: Any) -> None:
        module.table["weight"] = torch.full((4,), 3.0)

    with torch.no_grad():
        pair = Pair(Holder)
        assert pair.call(4) == "mmmh"
        pair.change(lambda m: m.table.update(scale=3.0))
        assert pair.call() == "mh"
        pair.change(replace)
        pair.call()
    assert pair.target.table["seen"] == pair.eager.table["seen"]
    assert pair.fast.stats()["fallbacks"] == 0


def test_optimized_bound_method() -> None:
    class Owner:
        def __init__(self) -> None:
            self.scale = 2.0
            self.fast = trident.jit(self.run)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    owner = Owner()
    with torch.no_grad():
        assert owner.fast(torch.ones(2)).tolist() == [2.0, 2.0]
        owner.scale = 3.0
        assert owner.fast(torch.ones(2)).tolist() == [3.0, 3.0]
        assert owner.fast(torch.ones(2)).tolist() == [3.0, 3.0]
    assert owner.fast.stats()["hits"] == 1


def test_nothing_keeps_inputs_outputs_or_old_weights_alive() -> None:
    net = Net()
    fast = trident.optimize(net)
    with torch.no_grad():
        watched = []
        for _ in range(3):
            x, log = rows(), [rows()]
            watched += [weakref.ref(x), weakref.ref(log[0])]
            y = fast(x)
            watched.append(weakref.ref(y))
            del x, log, y
        weight = weakref.ref(net.layer.weight)
        net.layer.weight = nn.Parameter(torch.ones(4, 4))
        fast(rows())
    gc.collect()
    assert [reference() for reference in watched] == [None] * 9
    assert weight() is None


def test_tensors_in_replaced_attributes_die() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[Any] = [torch.ones(4)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.kept[0]

    module = Cache()
    fast = trident.optimize(module)
    with torch.no_grad():
        fast(torch.ones(4))
        old = weakref.ref(module.kept[0])
        module.kept[0] = torch.zeros(4)
        fast(torch.ones(4))
    gc.collect()
    assert old() is None


def test_optimized_objects_are_collected() -> None:
    def make() -> list[weakref.ref[Any]]:
        net = Net()
        fast = trident.optimize(net)
        with torch.no_grad():
            fast(rows())
            fast(rows())
        return [
            weakref.ref(net),
            weakref.ref(fast),
            weakref.ref(net.layer),
            weakref.ref(type(fast)),
        ]

    watched = make()
    gc.collect()
    gc.collect()
    assert [reference() for reference in watched] == [None] * 4


def test_object_that_holds_its_own_optimized_method_is_collected() -> None:
    class Owner:
        def __init__(self) -> None:
            self.table = {"k": [2.0]}
            self.fast = trident.jit(self.run)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.table["k"][0]

    owner = Owner()
    with torch.no_grad():
        owner.fast(torch.ones(2))
    watched = weakref.ref(owner)
    del owner
    gc.collect()
    gc.collect()
    assert watched() is None


def test_classes_of_collected_modules_are_collected() -> None:
    def make() -> weakref.ref[Any]:
        class Local(nn.Module):
            table = [2.0]

            @property
            def scale(self) -> float:
                return self.table[0]

            def __init__(self) -> None:
                super().__init__()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.scale

        fast = trident.optimize(Local())
        with torch.no_grad():
            fast(torch.ones(2))
        return weakref.ref(Local)

    watched = make()
    gc.collect()
    gc.collect()
    assert watched() is None


def test_returned_tensors_belong_to_the_caller() -> None:
    pair = Pair(lambda: lambda x: (x * 2, x + 1))
    with torch.no_grad():
        first = pair.fast(torch.ones(4))
        kept = [t.clone() for t in first]
        for value in (5.0, 6.0):
            pair.fast(torch.full((4,), value))
        torch.testing.assert_close(list(first), kept)
        first[0].zero_()
        assert pair.call() == "hh"


def test_eviction_keeps_results_right() -> None:
    with torch.no_grad():
        pair = Pair(lambda: lambda x, k: x * k, max_specializations=2)
        for value in (1, 2, 3, 1, 3, 2, 1):
            pair.call(2, lambda value=value: (torch.ones(4), value))
        assert pair.fast.stats()["specializations"] == 2


def test_a_trace_leaves_no_text_behind() -> None:
    """PyTorch keeps the Python text of every traced graph, for tracebacks that nobody will see."""
    import linecache

    def texts() -> set[str]:
        return {name for name in linecache.cache if name.startswith("<eval_with_key>")}

    before = texts()
    fast = trident.optimize(lambda x: x * 3 - 1)
    with torch.no_grad():
        fast(torch.ones(4))
    assert fast.stats()["misses"] == 1
    assert texts() == before
