"""The names that the emitters of one translation unit share."""

from __future__ import annotations

from collections.abc import Sequence

from trident.codegen.constants import Constants
from trident.codegen.names import Names
from trident.ir import expressions, real_arithmetic
from trident.ir.real_arithmetic import Definition
from trident.ir.steps import HostProgram, InputRef, OutputRef, Slot

# What every unit, or the body of a function, calls something else. PyTorch has an operator `t`.
_RESERVED = (
    *("address", "api", "args", "choices", "choose", "compute", "float_scalar", "frame", "guard"),
    *("in", "layout", "num", "numbers", "out", "results", "run", "sizes", "strides", "symbols"),
    "t",
    *expressions.HELPERS,
    *real_arithmetic.HELPERS,
)


class Scope:
    """Inputs, slots and constants of a unit, and the numbers that it computes."""

    def __init__(
        self,
        host: HostProgram,
        input_names: Sequence[str],
        definitions: Sequence[Definition] = (),
    ) -> None:
        self.definitions = definitions
        self.constants = Constants()
        self.functions = Names(_RESERVED)
        inputs = Names()
        self.input_names = [inputs.unique(name) for name in input_names]
        slots = Names()
        self._slots = {
            slot: slots.unique(slot.name) for slot in (*host.planned, *host.transient, *host.names)
        }

    def tensor(self, place: Slot | InputRef | OutputRef) -> str:
        """An expression of type trident_tensor."""
        if isinstance(place, InputRef):
            return f"in[input::{self.input_names[place.index]}]"
        if isinstance(place, OutputRef):
            return f"out[{place.index}]"
        return f"t[{self.slot(place)}]"

    def slot(self, slot: Slot) -> str:
        """The slot's enumerator."""
        return f"slot::{self._slots[slot]}"

    def slot_names(self) -> list[str]:
        """All enumerators, in the frame's order; then the further names of planned slots."""
        return [
            name if slot.shares is None else f"{name} = {self._slots[slot.shares]}"
            for slot, name in self._slots.items()
        ]
