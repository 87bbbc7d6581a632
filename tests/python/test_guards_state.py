"""State ids: the same while nothing changed, another for each new state, the old one on return."""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards_helpers import State
from torch import nn


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("later", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


def _set_dict(obj: Any, value: Any) -> None:
    obj.__dict__ = {"value": value}


# How to build a value, to change it in place, and to change it back.
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list item": (lambda: [1], lambda v: v.__setitem__(0, 2), lambda v: v.__setitem__(0, 1)),
    "list length": (lambda: [1], lambda v: v.append(2), lambda v: v.pop()),
    "list order": (lambda: [1, 2], lambda v: v.reverse(), lambda v: v.reverse()),
    "dict item": (lambda: {"a": 1}, lambda v: v.update(a=2), lambda v: v.update(a=1)),
    "dict key": (lambda: {"a": 1}, lambda v: v.update(b=2), lambda v: v.pop("b")),
    "nested": (
        lambda: {"a": [Plain((1, {"b": [1]}))]},
        lambda v: v["a"][0].value[1]["b"].append(2),
        lambda v: v["a"][0].value[1]["b"].pop(),
    ),
    "ordered": (
        lambda: collections.OrderedDict(a=1, b=2),
        lambda v: v.move_to_end("a"),
        lambda v: v.move_to_end("b"),
    ),
    "set": (lambda: {1}, lambda v: v.add(2), lambda v: v.discard(2)),
    "attribute": (
        lambda: Plain(1),
        lambda v: setattr(v, "value", 2),
        lambda v: setattr(v, "value", 1),
    ),
    "new attribute": (
        lambda: Plain(1),
        lambda v: setattr(v, "other", 2),
        lambda v: delattr(v, "other"),
    ),
    "instance dictionary": (lambda: Plain(1), lambda v: _set_dict(v, 2), lambda v: _set_dict(v, 1)),
    "slot": (
        lambda: Slotted(1),
        lambda v: setattr(v, "value", 2),
        lambda v: setattr(v, "value", 1),
    ),
    "unset slot": (
        lambda: Slotted(1),
        lambda v: setattr(v, "later", 2),
        lambda v: delattr(v, "later"),
    ),
    "factory": (
        lambda: collections.defaultdict(list),
        lambda v: setattr(v, "default_factory", dict),
        lambda v: setattr(v, "default_factory", list),
    ),
    "tensor geometry": (
        lambda: torch.ones(4),
        lambda v: v.resize_(2),
        lambda v: v.resize_(4),
    ),
    "tensor data": (
        lambda: torch.ones(4),
        lambda v: setattr(v, "data", torch.ones(2, 2)),
        lambda v: setattr(v, "data", torch.ones(4)),
    ),
    "strides of six dimensions": (
        lambda: torch.ones(1, 1, 1, 1, 3, 3),
        lambda v: setattr(v, "data", torch.ones(1, 1, 1, 1, 3, 3).transpose(4, 5)),
        lambda v: setattr(v, "data", torch.ones(1, 1, 1, 1, 3, 3)),
    ),
    "tensor dtype": (
        lambda: torch.ones(4),
        lambda v: setattr(v, "data", torch.ones(4).int()),
        lambda v: setattr(v, "data", torch.ones(4)),
    ),
    "tensor alignment": (
        lambda: torch.ones(4),
        lambda v: setattr(v, "data", torch.ones(5)[1:]),
        lambda v: setattr(v, "data", torch.ones(4)),
    ),
    "tensor behind the object": (
        lambda: torch.ones(4),
        lambda v: torch.utils.swap_tensors(v, torch.ones(4).double()),
        lambda v: torch.utils.swap_tensors(v, torch.ones(4)),
    ),
    "lazy conjugate": (
        lambda: torch.ones(4, dtype=torch.complex64),
        lambda v: torch.utils.swap_tensors(v, torch.ones(4, dtype=torch.complex64).conj()),
        lambda v: torch.utils.swap_tensors(v, torch.ones(4, dtype=torch.complex64)),
    ),
    "tensor class": (
        lambda: torch.ones(4),
        lambda v: setattr(v, "__class__", nn.Parameter),
        lambda v: setattr(v, "__class__", torch.Tensor),
    ),
    "tensor flag": (
        lambda: torch.ones(4),
        lambda v: v.requires_grad_(True),
        lambda v: v.requires_grad_(False),
    ),
    "tensor attribute": (
        lambda: torch.ones(4),
        lambda v: setattr(v, "note", 1),
        lambda v: delattr(v, "note"),
    ),
    "class": (
        lambda: Plain(1),
        lambda v: setattr(v, "__class__", Other),
        lambda v: setattr(v, "__class__", Plain),
    ),
}


class Other:
    pass


@pytest.mark.parametrize("name", CHANGES)
def test_change_and_return(name: str) -> None:
    make, change, back = CHANGES[name]
    value = make()
    state = State(value)
    first = state.id()
    assert state.id() == first
    change(value)
    second = state.id()
    assert second != first and state.id() == second
    back(value)
    assert state.id() == first
    change(value)
    assert state.id() == second


def test_attribute_of_a_set_element_is_refused_not_missed() -> None:
    assert "set of objects" in State({Plain(1)}).id()


def test_closure_and_function() -> None:
    def make() -> Any:
        value = 1

        def read(step: Any = (1,)) -> Any:
            return value, step

        def write(new: Any) -> None:
            nonlocal value
            value = new

        return read, write

    read, write = make()
    state = State(read)
    ids = [state.id()]
    write(2)
    ids.append(state.id())
    read.__defaults__ = ((2,),)
    ids.append(state.id())
    read.note = 1
    ids.append(state.id())
    read.note = 2
    ids.append(state.id())
    read.__code__ = (lambda value: lambda step=None: value)(1).__code__
    ids.append(state.id())
    assert len(set(ids)) == len(ids)


def test_class_state_and_patches() -> None:
    class Local:
        table = {"a": [1]}
        limit = 1

        class Inner:
            depth = [1]

    state = State(Local())
    first = state.id()
    Local.table["a"][0] = 2
    second = state.id()
    Local.table["a"][0] = 1
    assert second != first and state.id() == first
    Local.Inner.depth.append(2)
    third = state.id()
    assert third not in (first, second)
    Local.Inner.depth.pop()
    assert state.id() == first
    Local.limit = 2
    assert state.id() not in (first, second, third)


def test_weak_references() -> None:
    owner = Plain(1)
    value = [owner, weakref.ref(owner)]
    state = State(value)
    first = state.id()
    owner.value = 2
    assert state.id() != first
    owner.value = 1
    assert state.id() == first
    watched = weakref.ref(owner)
    del owner
    value[0] = None
    state.id()
    assert watched() is None and state.id() != first


def test_equal_contents_are_one_state() -> None:
    state = State([Plain({"a": 1})])
    first = state.id()
    state.root.value = [Plain({"a": 1})]
    assert state.id() == first
    state.root.value[0].value["a"] = 2  # the new object is watched, too
    assert state.id() != first


def test_tensor_values_are_no_state() -> None:
    weight = torch.ones(4)
    state = State(weight)
    first = state.id()
    weight.add_(1)
    assert state.id() == first
    state.root.value = torch.zeros(4)
    assert state.id() == first
    state.root.value = torch.zeros(5)
    assert state.id() != first


def test_memory_of_a_tensor_may_move_in_place() -> None:
    weight = torch.ones(4)
    state = State([weight, torch.ones(4)])
    first = state.id()
    kept = []
    for _ in range(3):
        kept.append(torch.ones(4))
        weight.data = kept[-1]
        assert state.id() == first and state.id() == first
    weight.data = torch.ones(2, 2)  # noticed although the tensor was seen at other places since
    assert state.id() != first


def test_shared_tensors_are_another_state() -> None:
    a, b = torch.ones(2), torch.ones(2)
    state = State([a, b])
    first = state.id()
    state.root.value[1] = a
    assert state.id() != first
    state.root.value[1] = b
    assert state.id() == first


def test_many_states_stay_apart() -> None:
    state = State([0])
    ids = set()
    for value in range(600):  # more than are remembered
        state.root.value[0] = value
        ids.add(state.id())
    assert len(ids) == 600
    state.root.value[0] = 599
    assert state.id() in ids


def test_words_do_not_depend_on_when_they_were_taken() -> None:
    state = State([Plain(1), {"a": torch.ones(2)}])
    words = state.words()
    state.root.value.append(1)
    assert state.words() != words
    state.root.value.pop()
    assert state.words() == words


def test_unsupported_state_recovers() -> None:
    state = State([1])
    first = state.id()
    state.root.value.append(iter([1]))
    assert "list_iterator" in state.id()
    state.root.value.pop()
    assert state.id() == first


def test_locks_and_threads_are_leaves() -> None:
    state = State([threading.Lock()])
    first = state.id()
    state.root.value[0].acquire()
    assert state.id() == first


def test_old_objects_are_let_go() -> None:
    state = State([Plain(1)])
    state.id()
    old = weakref.ref(state.root.value[0])
    state.root.value[0] = Plain(2)
    state.id()
    assert old() is None
