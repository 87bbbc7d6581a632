"""Hands the outputs to the caller: as fresh tensors, as views, or as what the caller gave."""

from __future__ import annotations

from trident.ir.passes.placement import Placement, eager_base, relative
from trident.ir.program import Program, Value
from trident.ir.steps import GiveOwned, GiveReference, GiveView, InputRef, OutputRef


def give_outputs(program: Program, placement: Placement) -> None:
    """Appends the steps that store the outputs.

    A tensor that is returned twice is one object. Moves come last, when no view needs the slot.
    """
    moves = []
    sole = _sole_outputs(program)
    stored: dict[Value, int] = {}
    for index, output in enumerate(program.outputs):
        value = output.resolve()
        slot = placement.owned(value)
        if value.input_index is not None:
            placement.steps.append(GiveReference(index, InputRef(value.input_index)))
        elif value in stored and slot is not None:
            placement.steps.append(GiveReference(index, slot))
        elif value in stored:
            placement.steps.append(GiveReference(index, OutputRef(stored[value])))
        elif slot is not None:
            moves.append(GiveOwned(index, slot))
        else:
            _give_view(placement, index, value, value.tracked_view and value not in sole)
        stored.setdefault(value, index)
    placement.steps.extend(moves)


def _sole_outputs(program: Program) -> set[Value]:
    """Outputs whose memory the caller sees through nothing else.

    These need no base. The trace is below autograd and shows views that eager makes out of its
    sight, inside `stack` for one: giving out such a tensor as a view would forbid in-place
    operators that eager allows.
    """
    seen: dict[int, set[Value]] = {}
    for output in program.outputs:
        if program.storage(output).owner is not None:
            seen.setdefault(output.storage, set()).add(output.resolve())
    return {value for values in seen.values() if len(values) == 1 for value in values}


def _give_view(placement: Placement, index: int, value: Value, tracked: bool) -> None:
    base = placement.nearest(value)
    if tracked:
        base = eager_base(value, base)
    place = placement.place(base, shared=not tracked)
    placement.steps.append(GiveView(index, place, relative(value, base), tracked))
