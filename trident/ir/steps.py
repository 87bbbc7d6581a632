"""What a host program does, one step after the other: the result of the passes, read by codegen."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import sympy
import torch

from trident.ir.expressions import Real, Size
from trident.ir.program import Layout, Operation
from trident.ir.schema import Schema


@dataclasses.dataclass(eq=False)
class Slot:
    """A tensor of the frame.

    Attributes:
        name: of the value that first needed it.
        layout: of a planned slot; its offset counts bytes from the arena's base. None for a
            transient slot, which owns whatever `run` puts there.
        shares: the slot that is really meant: values that never live at once and look alike have
            one tensor object, under a name for each.
    """

    name: str
    layout: Layout | None = None
    shares: Slot | None = None

    @property
    def planned(self) -> bool:
        return self.layout is not None


@dataclasses.dataclass(frozen=True)
class InputRef:
    """An input of the program."""

    index: int


@dataclasses.dataclass(frozen=True)
class OutputRef:
    """An output that was stored before."""

    index: int


Place: TypeAlias = Slot | InputRef
Operand: TypeAlias = (
    Slot
    | InputRef
    | None
    | bool
    | int
    | float
    | str
    | torch.device
    | sympy.Expr
    | Real
    | list["Operand"]
)


@dataclasses.dataclass
class Call:
    """An operator call.

    Attributes:
        typed: through a typed shim of ``device``; else through the dispatcher.
        arguments: in schema order.
        results: one slot per result that the call hands out, list results flattened; None for a
            result that is no tensor.
    """

    schema: Schema
    typed: bool
    device: str
    arguments: list[Operand]
    results: list[Slot | None]
    operation: Operation


@dataclasses.dataclass
class Launch:
    """A Triton launch.

    Attributes:
        index: into the capture's launches.
        tensors: where the launch's tensors are. A tensor that is no tensor object of the program is
            given as one that shares its storage and the distance of the first elements in bytes.
    """

    index: int
    tensors: list[tuple[Place, Size]]
    operation: Operation


@dataclasses.dataclass
class Allocate:
    """Fresh memory in a transient slot."""

    slot: Slot
    layout: Layout
    on_cpu: bool
    operation: Operation


@dataclasses.dataclass
class MakeView:
    """A view of ``base`` in a transient slot.

    The layout's offset counts from ``base``'s first element.
    """

    slot: Slot
    base: Place
    layout: Layout


@dataclasses.dataclass
class Release:
    """Empties a transient slot."""

    slot: Slot


@dataclasses.dataclass
class GiveView:
    """Stores a view as an output; ``tracked`` where eager records a base."""

    output: int
    base: Place
    layout: Layout
    tracked: bool


@dataclasses.dataclass
class GiveReference:
    """Stores another reference to a tensor as an output."""

    output: int
    place: Slot | InputRef | OutputRef


@dataclasses.dataclass
class GiveOwned:
    """Moves a transient slot's tensor into an output."""

    output: int
    slot: Slot


Step: TypeAlias = (
    Call | Launch | Allocate | MakeView | Release | GiveView | GiveReference | GiveOwned
)


@dataclasses.dataclass
class HostProgram:
    """Steps and the slots they use; planned slots come first in the frame.

    ``names`` are the slots that share a planned one.
    """

    steps: list[Step]
    planned: list[Slot]
    transient: list[Slot]
    names: list[Slot]
