"""Methods, class attributes and classes that change between two calls."""

from __future__ import annotations

import abc
import collections.abc
import types
from collections.abc import Callable
from typing import Any, Protocol

import pytest
import torch
from soundness_helpers import Pair, check
from state_cases import Plain, linear, module, times_value
from torch import nn


def test_class_of_an_attribute_is_exchanged() -> None:
    class Other(Plain):
        pass

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * (2.0 if isinstance(self.value, Other) else 3.0)

    check(module(forward, value=lambda: Plain(1)), lambda m: setattr(m.value, "__class__", Other))


def test_train_and_eval() -> None:
    make = lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()  # noqa: E731

    def seeded() -> nn.Module:
        torch.manual_seed(3)
        return make()

    pair = check(seeded, lambda m: m.eval(), arguments=lambda: torch.arange(8.0).reshape(2, 4))
    with torch.no_grad():
        pair.change(lambda m: m.train())
        assert pair.call() == "hh"
    for name, buffer in pair.eager.named_buffers():
        torch.testing.assert_close(pair.target.get_buffer(name), buffer)


def plus_one(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + 1


METHODS: dict[str, Callable[[Any], object]] = {
    "instance": lambda m: setattr(m, "forward", types.MethodType(plus_one, m)),
    "class": lambda m: setattr(type(m), "forward", plus_one),
    "code": lambda m: setattr(type(m).forward, "__code__", plus_one.__code__),
}


@pytest.mark.parametrize("name", METHODS)
def test_patched_forward(name: str) -> None:
    def make() -> nn.Module:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        return module(forward)()

    check(make, METHODS[name])


def test_patched_method_of_a_library_class(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        pair = Pair(linear, lambda: torch.arange(8.0).reshape(2, 4))
        assert pair.call() == "mh"
        with monkeypatch.context() as patch:
            patch.setattr(nn.ReLU, "forward", lambda self, x: x + 10)
            assert pair.call() == "mh"
        assert pair.call()[-1] == "h"


CLASS_ATTRIBUTES = {
    "number": (2.0, lambda cls: setattr(cls, "value", 3.0)),
    "list": ([2.0], lambda cls: cls.value.__setitem__(0, 3.0)),
    "dict": ({"key": 2.0}, lambda cls: cls.value.update(key=3.0)),
    "object": (Plain(2.0), lambda cls: setattr(cls.value, "value", 3.0)),
}


@pytest.mark.parametrize("name", CLASS_ATTRIBUTES)
@pytest.mark.parametrize("inherited", [False, True])
def test_class_attributes(name: str, inherited: bool) -> None:
    import copy

    value, change = CLASS_ATTRIBUTES[name]

    def make() -> nn.Module:
        namespace = {"forward": times_value, "value": copy.deepcopy(value), "__module__": __name__}
        cls = type("Base", (nn.Module,), namespace)
        return type("Derived", (cls,), {"__module__": __name__})() if inherited else cls()

    check(make, lambda m: change(type(m).__mro__[inherited]))


def test_properties_and_computed_attributes() -> None:
    def make() -> nn.Module:
        class Computed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = {"scale": 2.0}

            @property
            def scale(self) -> float:
                return self.table["scale"]

            def __getattr__(self, name: str) -> Any:
                if name == "shift":
                    return self.table["scale"] + 1
                return super().__getattr__(name)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.scale + self.shift

        return Computed()

    pair = check(make, lambda m: m.table.update(scale=3.0))
    with torch.no_grad():
        pair.change(lambda m: setattr(type(m), "scale", property(lambda self: 5.0)))
        assert pair.call() == "mh"


class Operation(abc.ABC):
    def __init__(self, by: float) -> None:
        self.by = by

    @abc.abstractmethod
    def run(self, x: torch.Tensor) -> torch.Tensor: ...


class Scale(Operation):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


class Rows(collections.abc.Sequence[torch.Tensor]):
    def __init__(self, rows: list[torch.Tensor]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]


class Runs(Protocol):
    def run(self, x: torch.Tensor) -> torch.Tensor: ...


class Shift(Runs):
    def __init__(self, by: float) -> None:
        self.by = by

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.by


class Layer(nn.Module, abc.ABC):
    @abc.abstractmethod
    def run(self, x: torch.Tensor) -> torch.Tensor: ...

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x)


class Halve(Layer):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def test_objects_of_abstract_classes() -> None:
    with torch.no_grad():
        for cls in (Scale, Shift):
            pair = Pair(lambda: lambda operation, x: operation.run(x))
            assert pair.call(2, lambda cls=cls: (cls(2.0), torch.ones(3))) == "mh"
            assert pair.call(2, lambda cls=cls: (cls(3.0), torch.ones(3))) == "mh"
        pair = Pair(lambda: lambda rows: rows[0] + len(rows))
        assert pair.call(2, lambda: (Rows([torch.ones(2), torch.ones(2)]),)) == "mh"
        assert Pair(Halve).call(2) == "mh"


def test_virtual_subclass_is_noticed() -> None:
    class Marker(abc.ABC):  # noqa: B024
        pass

    def function(x: torch.Tensor, value: Any) -> torch.Tensor:
        return x * (2.0 if isinstance(value, Marker) else 3.0)

    with torch.no_grad():
        pair = Pair(lambda: function, lambda: (torch.ones(3), Plain(1)))
        assert pair.call() == "mh"
        Marker.register(Plain)
        assert pair.call() == "mh"
