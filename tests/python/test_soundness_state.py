"""Changes to a module between two calls: attributes, weights, submodules, hooks, methods, classes."""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, check
from torch import nn


class Mode(enum.Enum):
    DOUBLE = 2.0
    TRIPLE = 3.0


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    names: list[str] = dataclasses.field(default_factory=lambda: ["a"])
    inner: Config | None = None


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def module(forward: Callable[..., Any], **attributes: Any) -> Callable[[], nn.Module]:
    """A factory of modules of a fresh class; callables given as attributes make the values."""

    def make() -> nn.Module:
        cls = type("Made", (nn.Module,), {"forward": forward, "__module__": __name__})
        made = cls()
        for name, value in attributes.items():
            setattr(made, name, value() if callable(value) else value)
        return made

    return make


def times_value(self: Any, x: torch.Tensor) -> Any:
    value = self.value
    while not isinstance(value, (int, float, complex)):
        if isinstance(value, (Plain, Slotted)):
            value = value.value
        elif isinstance(value, Mode):
            value = value.value
        elif isinstance(value, (list, tuple)):
            value = value[0]
        elif isinstance(value, dict):
            value = value["key"]
        elif isinstance(value, str):
            value = float(len(value))
        elif value is None:
            value = 7.0
        else:
            raise TypeError(type(value))
    return x * value


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (2, 3),
        (2.0, 3.0),
        (0.0, -0.0),
        (1, 1.0),
        (True, 1),
        (False, None),
        ("ab", "abc"),
        ("ab", "äb"),
        (2.0, float("nan")),
        (2.0, float("inf")),
        (Mode.DOUBLE, Mode.TRIPLE),
        ([2.0], [3.0]),
        ([2.0], (2.0,)),
        ({"key": 2.0}, {"key": 2.0, "other": 1}),
        ({"key": 2.0}, collections.OrderedDict(key=2.0)),
        (Plain(2.0), Slotted(2.0)),
        (Plain(2.0), Plain(3.0)),
    ],
    ids=repr,
)
def test_attribute_is_assigned(first: Any, second: Any) -> None:
    pair = check(module(times_value, value=lambda: first), lambda m: setattr(m, "value", second))
    with torch.no_grad():
        pair.change(lambda m: setattr(m, "value", first))
        assert pair.call() == "hh"  # an earlier state is known
        pair.change(lambda m: setattr(m, "unrelated_later", 1))
        pair.change(lambda m: delattr(m, "unrelated_later"))
        assert pair.call() == "hh"


@pytest.mark.parametrize(("first", "second"), [(2**70, 2**71), (1j, 2j), (1, 2**63)], ids=repr)
def test_attribute_is_an_unusual_number(first: Any, second: Any) -> None:
    with torch.no_grad():
        pair = Pair(module(times_value, value=lambda: first))
        pair.call()
        pair.change(lambda m: setattr(m, "value", second))
        pair.call()


IN_PLACE = {
    "list item": (lambda: [2.0], lambda v: v.__setitem__(0, 3.0)),
    "list of lists": (lambda: [[2.0]], lambda v: v[0].__setitem__(0, 3.0)),
    "dict item": (lambda: {"key": 2.0}, lambda v: v.update(key=3.0)),
    "dict in dict": (lambda: {"key": {"key": 2.0}}, lambda v: v["key"].update(key=3.0)),
    "object": (lambda: Plain(2.0), lambda v: setattr(v, "value", 3.0)),
    "object in object": (lambda: Plain(Plain(2.0)), lambda v: setattr(v.value, "value", 3.0)),
    "slot": (lambda: Slotted(2.0), lambda v: setattr(v, "value", 3.0)),
    "object in tuple": (lambda: (Plain(2.0),), lambda v: setattr(v[0], "value", 3.0)),
    "instance dictionary": (lambda: Plain(2.0), lambda v: setattr(v, "__dict__", {"value": 3.0})),
    "dictionary of the instance": (lambda: Plain(2.0), lambda v: vars(v).update(value=3.0)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_attribute_is_changed_in_place(name: str) -> None:
    make, change = IN_PLACE[name]
    check(module(times_value, value=make), lambda m: change(m.value))


def test_config_objects() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.config.scale + len(self.config.names) + (self.config.inner is None)

    make = module(forward, config=Config)
    pair = check(make, lambda m: setattr(m.config, "scale", 3.0))
    with torch.no_grad():
        pair.change(lambda m: m.config.names.append("b"))
        assert pair.call() == "mh"
        pair.change(lambda m: setattr(m.config, "inner", Config()))
        assert pair.call() == "mh"
        pair.change(lambda m: setattr(m, "config", dataclasses.replace(m.config)))
        assert pair.call() == "hh"  # another object of the same contents


def test_class_of_an_attribute_is_exchanged() -> None:
    class Other(Plain):
        pass

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * (2.0 if isinstance(self.value, Other) else 3.0)

    check(module(forward, value=lambda: Plain(1)), lambda m: setattr(m.value, "__class__", Other))


def test_order_of_an_ordered_dictionary() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for value in self.table.values():
            x = x * value + value
        return x

    make = module(forward, table=lambda: collections.OrderedDict(a=2.0, b=3.0))
    pair = check(make, lambda m: m.table.move_to_end("a"))
    with torch.no_grad():
        pair.change(lambda m: m.table.move_to_end("b"))
        assert pair.call() == "hh"


def test_order_of_a_dictionary() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for value in self.table.values():
            x = x * value + value
        return x

    make = module(forward, table=lambda: {"a": 2.0, "b": 3.0})
    check(make, lambda m: m.table.update(a=m.table.pop("a")))


def test_default_factory_of_a_dictionary() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.table.default_factory()

    make = module(forward, table=lambda: collections.defaultdict(lambda: 2.0))
    check(make, lambda m: setattr(m.table, "default_factory", lambda: 3.0))


def test_elements_of_a_set() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for value in self.values:
            x = x * value + value
        return x

    check(module(forward, values=lambda: {2, 3}), lambda m: m.values.add(5))
    # Equal sets whose order of iteration differs.
    pair = check(
        module(forward, values=lambda: {0, 8}), lambda m: setattr(m, "values", {8, 0}), after="mh"
    )
    assert pair.target.values == {0, 8}


def test_objects_in_a_set_fall_back() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * next(iter(self.values)).value

    make = module(forward, values=lambda: {Plain(2.0)})
    change: Any = lambda m: setattr(next(iter(m.values)), "value", 3.0)  # noqa: E731
    check(make, change, before="ff", after="ff")


def test_weak_reference() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.reference().value

    def make() -> nn.Module:
        made = module(forward, owner=lambda: Plain(2.0))()
        made.reference = weakref.ref(made.owner)
        return made

    check(make, lambda m: setattr(m.owner, "value", 3.0))


def test_weak_reference_to_something_else_falls_back() -> None:
    kept = []

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        target = self.reference()
        return x * (5.0 if target is None else target.value)

    def make() -> nn.Module:
        kept.append(Plain(2.0))
        made = module(forward)()
        made.reference = weakref.ref(kept[-1])
        return made

    check(make, lambda _: kept.clear(), before="ff")


def test_bound_method_of_a_builtin_object_falls_back() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * self.get("key")

    make = module(forward, get=lambda: {"key": 2.0}.get)
    change: Any = lambda m: m.get.__self__.update(key=3.0)  # noqa: E731
    check(make, change, before="ff", after="ff")


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


def linear() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


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
