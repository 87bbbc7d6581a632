"""Where each value lives at run time: an input, a planned slot, or a transient slot."""

from __future__ import annotations

import dataclasses

from trident.ir.expressions import Size, known
from trident.ir.forms import argument_named
from trident.ir.program import Layout, Program, Value
from trident.ir.steps import InputRef, MakeView, Place, Slot, Step


class Placement:
    """Hands out places in program order.

    A view of planned memory is another planned slot. A view of anything else is made when first
    needed, straight from the nearest tensor that exists; equal views share one slot.

    Attributes:
        steps: the program so far; views are appended to it.
    """

    def __init__(self, program: Program) -> None:
        self.steps: list[Step] = []
        self.planned_slots: list[Slot] = []
        self.transient_slots: list[Slot] = []
        self._program = program
        self.shared_slots: list[Slot] = []
        self._planned: dict[Layout, Slot] = {}
        self._planned_names: dict[tuple[int, Layout], Slot] = {}
        self._owned: dict[Value, Slot] = {}
        self._views: dict[tuple[Value, Layout], Slot] = {}
        self._by_storage: dict[int, list[Slot]] = {}
        self._last = {
            storage.number: storage.last
            for storage in program.storages.values()
            if storage.owner is not None and not storage.planned and not storage.escapes
        }
        self._scratch: list[Slot] = []

    def place(self, value: Value, *, shared: bool = True) -> Place:
        """Where the tensor is; makes the view if it does not exist yet.

        ``shared``: a tensor that looks like the view will do, such as a weight for what `detach`
        makes of it. The two differ in what autograd knows of them.
        """
        value = value.resolve()
        if value.input_index is not None:
            return InputRef(value.input_index)
        if self._program.storage(value).planned:
            return self._planned_slot(value)
        if value in self._owned:
            return self._owned[value]
        base = self.nearest(value)
        if shared and base.layout == value.layout and base not in self._program.reshaped:
            return self.place(base)
        key = (base, value.layout)
        if key not in self._views:
            slot = self._transient(value)
            self.steps.append(MakeView(slot, self.place(base), relative(value, base)))
            self._views[key] = slot
        return self._views[key]

    def address(self, value: Value) -> tuple[Place, Size]:
        """A tensor with the value's storage, and the distance of its first element in bytes."""
        value = value.resolve()
        if value.input_index is not None or self._program.storage(value).planned:
            return self.place(value), 0
        base = self.nearest(value)
        distance = value.layout.offset - base.layout.offset
        return self.place(base), known(distance * value.layout.dtype.itemsize)

    def own(self, value: Value) -> Slot:
        """A transient slot for a tensor that an operator hands out."""
        slot = self._transient(value)
        self._owned[value] = slot
        return slot

    def owned(self, value: Value) -> Slot | None:
        """The slot that ``own`` gave, if any."""
        return self._owned.get(value)

    def rename(self, value: Value) -> None:
        """Gives a value the slot of the tensor object that it stands for."""
        assert value.object is not None
        self._owned[value] = self._owned[value.object]

    def scratch(self, name: str) -> Slot:
        """A transient slot for a result that nothing uses; it expires at once."""
        slot = Slot(name)
        self.transient_slots.append(slot)
        self._scratch.append(slot)
        return slot

    def nearest(self, value: Value) -> Value:
        """The closest value up the chain of views that exists as a tensor."""
        while value.input_index is None and value not in self._owned:
            assert value.source is not None, f"{value.name} is used before it is made"
            value = value.source.resolve()
        return value

    def folds(self, value: Value) -> bool:
        """Whether the view needs no operator call: its layout and a base say it all."""
        if value.same is not None or self._program.storage(value).planned:
            return True
        source = value.source
        if source is None or source.layout.dtype != value.layout.dtype:
            return False
        operation = value.producer
        assert operation is not None
        # An explicit offset counts from the storage's begin, where an input need not start.
        absolute = argument_named(operation, "storage_offset") is not None
        return not (absolute and self._program.storage(value).owner is None)

    def expired(self, position: int) -> list[Slot]:
        """Transient slots whose contents nobody needs after the operation at ``position``."""
        slots, self._scratch = self._scratch, []
        for storage in list(self._by_storage):
            if storage in self._last and self._last[storage] <= position:
                slots += self._by_storage.pop(storage)
        return slots

    def _planned_slot(self, value: Value) -> Slot:
        start = self._program.storage(value).arena_offset
        assert start is not None
        size = value.layout.dtype.itemsize
        layout = dataclasses.replace(value.layout, offset=start + value.layout.offset * size)
        key = (value.storage, layout)
        if key not in self._planned_names:
            made = Slot(value.name, layout, shares=self._planned.get(layout))
            self._planned_names[key] = made
            if made.shares is None:
                self._planned[layout] = made
                self.planned_slots.append(made)
            else:
                self.shared_slots.append(made)
        return self._planned_names[key]

    def _transient(self, value: Value) -> Slot:
        slot = Slot(value.name)
        self.transient_slots.append(slot)
        self._by_storage.setdefault(value.storage, []).append(slot)
        return slot


def relative(value: Value, base: Value) -> Layout:
    """The value's layout with its offset counted from the base's first element."""
    return dataclasses.replace(value.layout, offset=known(value.layout.offset - base.layout.offset))


def eager_base(value: Value, nearest: Value) -> Value:
    """The tensor that eager records as the base of a view: the start of its chain of tracked views.

    ``nearest`` where the chain changes the dtype, which a layout cannot express.
    """
    start = value
    while start.tracked_view and start.source is not None:
        start = start.source.resolve()
    return start if start.layout.dtype == value.layout.dtype else nearest
