"""Runs a host program's steps with PyTorch's own operators: what generated C++ must do, in Python.

Slots, arena and ownership behave as in the runtime, so that a wrong lifetime, overlap or view shows
as a wrong result without compiling anything.
"""

from __future__ import annotations

from typing import Any

import torch

from trident.ir.importer import import_capture
from trident.ir.passes import run_all
from trident.ir.program import Layout, Program, read_program
from trident.ir.registry import TypedOperators, TypedTable
from trident.ir.steps import (
    Allocate,
    Call,
    GiveOwned,
    GiveReference,
    GiveView,
    HostProgram,
    InputRef,
    Launch,
    MakeView,
    OutputRef,
    Release,
    Slot,
)


def compile_steps(capture: Any, typed: TypedTable) -> tuple[Program, HostProgram]:
    """Imports a capture and runs all passes."""
    program = read_program(import_capture(capture).module, capture.name, capture.device)
    return program, run_all(program, TypedOperators(typed))


class StepInterpreter:
    """One frame of a program. Fresh memory and the arena start out as noise."""

    def __init__(self, program: Program, host: HostProgram) -> None:
        self.program = program
        self.host = host
        self.slots: dict[Slot, torch.Tensor] = {}
        self.arena = torch.randint(0, 255, (program.arena_bytes + 256,), dtype=torch.uint8)
        for slot in (*host.planned, *host.names):
            assert slot.layout is not None
            self.slots[slot] = self._over_arena(slot.layout)

    def _over_arena(self, layout: Layout) -> torch.Tensor:
        assert layout.offset + 0 <= self.program.arena_bytes
        made = torch.empty(0, dtype=layout.dtype)
        made.set_(
            self.arena.untyped_storage(),
            layout.offset // layout.dtype.itemsize,
            layout.sizes,
            layout.strides,
        )
        return made

    def run(self, inputs: list[torch.Tensor], launch: Any = None) -> list[torch.Tensor]:
        """Runs all steps; ``launch(index, tensors)`` stands for the kernels."""
        self.inputs = inputs
        self.outputs: dict[int, torch.Tensor] = {}
        with torch.no_grad():
            for step in self.host.steps:
                self._step(step, launch)
        left = [slot for slot in self.host.transient if slot in self.slots]
        for slot in left:
            del self.slots[slot]
        return [self.outputs[index] for index in range(len(self.program.outputs))]

    def _place(self, place: Any) -> torch.Tensor:
        if isinstance(place, InputRef):
            return self.inputs[place.index]
        if isinstance(place, OutputRef):
            return self.outputs[place.index]
        return self.slots[place]

    def _view(self, base: torch.Tensor, layout: Layout) -> torch.Tensor:
        assert base.dtype == layout.dtype
        return base.as_strided(layout.sizes, layout.strides, base.storage_offset() + layout.offset)

    def _argument(self, operand: Any) -> Any:
        if isinstance(operand, (Slot, InputRef)):
            return self._place(operand)
        if isinstance(operand, list):
            return [self._argument(each) for each in operand]
        return operand

    def _step(self, step: Any, launch: Any) -> None:
        match step:
            case Call():
                self._call(step)
            case Launch(index, tensors):
                given = []
                for place, distance in tensors:
                    base = self._place(place)
                    given.append(base.data_ptr() + distance)
                launch(index, given)
            case Allocate(slot, layout):
                made = torch.empty_strided(layout.sizes, layout.strides, dtype=layout.dtype)
                if made.numel():
                    made.untyped_storage().fill_(0x5A)
                self._store(slot, made)
            case MakeView(slot, base, layout):
                self._store(slot, self._view(self._place(base), layout))
            case Release(slot):
                del self.slots[slot]
            case GiveView(output, base, layout):
                self.outputs[output] = self._view(self._place(base), layout)
            case GiveReference(output, place):
                self.outputs[output] = self._place(place)
            case GiveOwned(output, slot):
                self.outputs[output] = self.slots.pop(slot)

    def _store(self, slot: Slot, tensor: torch.Tensor) -> None:
        assert not slot.planned and slot not in self.slots, f"{slot.name} is stored twice"
        self.slots[slot] = tensor

    def _call(self, call: Call) -> None:
        schema = call.schema
        packet = getattr(getattr(torch.ops, schema.namespace), schema.name)
        overload = getattr(packet, schema.overload or "default")
        positional, named = [], {}
        for argument, operand in zip(overload._schema.arguments, call.arguments, strict=True):
            if argument.kwarg_only:
                named[argument.name] = self._argument(operand)
            else:
                positional.append(self._argument(operand))
        results = overload(*positional, **named)
        if not isinstance(results, (tuple, list)):
            results = (results,)
        if schema.results and schema.results[0].type.is_list and len(schema.results) == 1:
            fresh = list(results)
        else:
            fresh = [results[index] for index in schema.fresh_results]
        for slot, result in zip(call.results, fresh, strict=bool(call.results)):
            if slot is not None:
                self._store(slot, result)
