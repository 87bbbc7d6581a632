"""Tensors of the state that change in place: each fact of each tensor is compared at every look.

A change is made so that nothing but the fact in question differs; what undoes it brings the first
state's number back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards_helpers import State
from torch import nn

RANK = 5  # the most that lies in a tensor itself
COUNT = 16  # more than are read ahead


def geometry(tensor: torch.Tensor, sizes: Any, strides: Any, offset: int = 0) -> None:
    with torch.no_grad():
        tensor.as_strided_(sizes, strides, offset)


def threes(rank: int = RANK) -> nn.Parameter:
    """Overlapping elements: no flag of the tensor says anything about sizes and strides."""
    return nn.Parameter(torch.zeros(64).as_strided((3,) * rank, (1,) * rank))


def other(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(2 if i == axis else 3 for i in range(rank))


def other_stride(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(2 if i == axis else 1 for i in range(rank))


def at_remainder(remainder: int) -> torch.Tensor:
    """Four floats at an address of this remainder modulo 16, from their storage's beginning on."""
    memory = bytearray(64)
    skipped = (remainder - torch.frombuffer(memory, dtype=torch.uint8).data_ptr()) % 16
    return torch.frombuffer(memory, dtype=torch.float32, offset=skipped, count=4)


def as_integers(tensor: torch.Tensor) -> None:
    tensor.data = torch.zeros(4, dtype=torch.int32)


def history(buffer: torch.Tensor) -> None:
    with torch.enable_grad():
        buffer.mul_(nn.Parameter(torch.ones(4)))


def thawed_and_frozen() -> torch.Tensor:
    return torch.zeros(4).requires_grad_().requires_grad_(False)


def storage_of_other_size(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.set_(torch.zeros(6).untyped_storage(), 0, (6,), (1,))


def swap(tensor: torch.Tensor) -> None:
    torch.utils.swap_tensors(tensor, nn.Parameter(torch.zeros(2, 2)))


def become(cls: type) -> Callable[[Any], None]:
    def change(tensor: Any) -> None:
        tensor.__class__ = cls

    return change


def grad_of(tensor: Any, value: bool) -> None:
    tensor.requires_grad_(value)


Case = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any] | None]

# How to make a tensor, to change it, and to change it back, where that is possible.
CHANGES: dict[str, Case] = {
    **{
        f"size {axis} of {rank}": (
            lambda rank=rank: threes(rank),
            lambda t, rank=rank, axis=axis: geometry(t, other(rank, axis), (1,) * rank),
            lambda t, rank=rank: geometry(t, (3,) * rank, (1,) * rank),
        )
        for rank in (1, 2, RANK, RANK + 1)
        for axis in range(rank)
    },
    **{
        f"stride {axis} of {rank}": (
            lambda rank=rank: threes(rank),
            lambda t, rank=rank, axis=axis: geometry(t, (3,) * rank, other_stride(rank, axis)),
            lambda t, rank=rank: geometry(t, (3,) * rank, (1,) * rank),
        )
        for rank in (2, RANK, RANK + 1)
        for axis in range(rank)
    },
    "rank": (
        lambda: nn.Parameter(torch.zeros(3, 1)),
        lambda t: geometry(t, (3,), (1,)),
        lambda t: geometry(t, (3, 1), (1, 1)),
    ),
    "offset": (
        threes,
        lambda t: geometry(t, (3,) * RANK, (1,) * RANK, 1),
        lambda t: geometry(t, (3,) * RANK, (1,) * RANK, 0),
    ),
    "transposed": (
        lambda: nn.Parameter(torch.zeros(2, 3)),
        lambda t: t.detach().t_() is None or geometry(t, (3, 2), (1, 3)),
        lambda t: geometry(t, (2, 3), (3, 1)),
    ),
    "t_ of a buffer": (lambda: torch.zeros(2, 3), lambda t: t.t_(), lambda t: t.t_()),
    "resized": (lambda: torch.zeros(4), lambda t: t.resize_(2), lambda t: t.resize_(4)),
    "address of the storage": (
        lambda: nn.Parameter(at_remainder(0)),
        lambda t: setattr(t, "data", at_remainder(4)),
        lambda t: setattr(t, "data", at_remainder(0)),
    ),
    "memory of the storage": (
        lambda: torch.zeros(4)[1:],
        lambda t: t.untyped_storage().resize_(0),
        lambda t: t.untyped_storage().resize_(16),
    ),
    "another storage": (lambda: nn.Parameter(torch.zeros(4)), storage_of_other_size, None),
    "dtype of the same size": (
        lambda: torch.zeros(4),
        as_integers,
        lambda t: setattr(t, "data", torch.zeros(4)),
    ),
    "another tensor's place": (lambda: nn.Parameter(torch.zeros(4)), swap, None),
    "requires_grad": (
        lambda: nn.Parameter(torch.zeros(4)),
        lambda t: t.requires_grad_(False),
        lambda t: t.requires_grad_(True),
    ),
    "requires_grad of a buffer": (
        lambda: torch.zeros(4),
        lambda t: t.requires_grad_(True),
        lambda t: t.requires_grad_(False),
    ),
    "gradient's function": (thawed_and_frozen, history, lambda t: t.detach_()),
    "gradient's function of the base": (
        lambda: thawed_and_frozen().view(2, 2),
        lambda t: history(t._base),
        None,
    ),
    "class": (
        lambda: nn.Parameter(torch.zeros(4)),
        become(torch.Tensor),
        become(nn.Parameter),
    ),
    "first attribute": (
        lambda: nn.Parameter(torch.zeros(4)),
        lambda t: setattr(t, "scale", 2),
        lambda t: delattr(t, "scale"),
    ),
    "conjugate": (
        lambda: torch.zeros(4, dtype=torch.complex64),
        lambda t: torch._C._set_conj(t, True),
        lambda t: torch._C._set_conj(t, False),
    ),
}


@pytest.mark.parametrize("place", [0, COUNT // 2, COUNT - 1])
@pytest.mark.parametrize("name", CHANGES)
def test_change_of_one_of_many(name: str, place: int) -> None:
    make, change, undo = CHANGES[name]
    tensors = [make() for _ in range(COUNT)]
    state = State(tensors)
    first = state.id()
    for looks in (1, 2):  # tensors are looked through in both directions
        for _ in range(looks):
            assert state.id() == first
        change(tensors[place])
        second = state.id()
        assert second != first
        assert state.id() == second
        if undo is None:
            return
        undo(tensors[place])
        assert state.id() == first


def test_version_and_values_are_no_facts() -> None:
    tensors = [nn.Parameter(torch.zeros(4)) for _ in range(COUNT)]
    state = State(tensors)
    first = state.id()
    with torch.no_grad():
        for tensor in tensors:
            tensor.add_(1)
    assert state.id() == first


@pytest.mark.parametrize("make", [lambda: torch.zeros(4), lambda: nn.Parameter(torch.zeros(4))])
def test_attributes_come_and_go(make: Callable[[], torch.Tensor]) -> None:
    weight: Any = make()
    state = State([weight])
    bare = state.id()
    vars(weight)  # makes an empty dictionary
    assert state.id() == bare and state.id() == bare
    weight.scale = 2
    scaled = state.id()
    assert scaled != bare
    weight.scale = 3
    assert state.id() not in (bare, scaled)
    weight.scale = 2
    assert state.id() == scaled
    del weight.scale
    assert state.id() == bare  # an empty dictionary is left
    weight.shift = 1
    assert state.id() not in (bare, scaled)
    weight.__dict__ = {"scale": 2}
    assert state.id() == scaled
    weight.__dict__ = {"scale": 4}
    assert state.id() not in (bare, scaled)
    weight.__dict__ = {}
    assert state.id() == bare
    weight.__dict__["scale"] = 2
    assert state.id() == scaled


def test_attributes_of_a_copied_model() -> None:
    module = copy.deepcopy(nn.Linear(4, 4))
    state = State(module)
    first = state.id()
    weight: Any = module.weight
    weight.scale = 2
    assert state.id() != first


def test_tensors_that_move_keep_their_own_facts() -> None:
    memory = torch.zeros(64 * COUNT)
    tensors = [nn.Parameter(torch.zeros(4)) for _ in range(COUNT)]
    state = State(tensors)
    first = state.id()
    for turn in range(1, 4):  # all facts hold, but offsets differ from turn to turn
        for i, tensor in enumerate(tensors):
            tensor.data = memory[64 * i + 4 * turn :][:4]
            assert state.id() == first
    for tensor in tensors:
        kept = tensor.data
        tensor.data = memory[:2]
        assert state.id() != first
        tensor.data = kept
        assert state.id() == first
