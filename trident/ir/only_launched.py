"""Which inputs and outputs of a program nothing but Triton launches touches.

It is known which parameters of a launch hold an address, so a captured graph can be given other
memory in place of these tensors; what operators' kernels do with an address is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trident.ir.launch import LaunchVariant
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
    Operand,
    OutputRef,
    Place,
    Slot,
)


def only_launched(
    host: HostProgram, variants: Sequence[LaunchVariant]
) -> Mapping[Place, InputRef | OutputRef]:
    """The places of a host program whose memory only launches touch.

    Args:
        variants: one per launch of the capture.

    Returns:
        For each such place the input that it lies in, or the output, which is fresh memory or a
        view of it.
    """
    bases: dict[Place, Place] = {}
    launched: set[Place] = set()
    touched: set[Place] = set()
    fresh: set[Place] = set()
    outputs: dict[Place, OutputRef] = {}

    def base(place: Place) -> Place:
        return bases.get(place, place)

    def give(place: Place, output: int) -> None:
        if place in outputs:  # two results lie in it
            touched.add(place)
        outputs[place] = OutputRef(output)

    for step in host.steps:
        if isinstance(step, MakeView):
            bases[step.slot] = base(step.base)
        elif isinstance(step, Launch):
            launched.update(base(place) for place, _ in step.tensors)
            touched.update(base(place) for place in _described(step, variants[step.index]))
        elif isinstance(step, Call):
            touched.update(base(place) for place in _places([step.arguments, step.results]))
        elif isinstance(step, GiveView):
            if base(step.base) not in fresh:
                touched.add(base(step.base))
            give(base(step.base), step.output)
        elif isinstance(step, GiveReference) and not isinstance(step.place, OutputRef):
            touched.add(base(step.place))
        elif isinstance(step, Allocate):
            fresh.add(step.slot)
        elif isinstance(step, GiveOwned):
            give(step.slot, step.output)

    found: dict[Place, InputRef | OutputRef] = {}
    for place in launched - touched:
        if isinstance(place, InputRef):
            found[place] = place
        elif place in fresh and place in outputs:
            found[place] = outputs[place]
    return found | {view: found[each] for view, each in bases.items() if each in found}


def _described(launch: Launch, variant: LaunchVariant) -> Iterator[Place]:
    """The tensors that a launch takes as something else than an address: tensor descriptors."""
    for parameter in variant.params:
        if parameter.tensor is not None and not parameter.type.startswith("*"):
            yield launch.tensors[parameter.tensor][0]


def _places(operands: Sequence[Operand | list[Slot | None]]) -> Iterator[Place]:
    for operand in operands:
        if isinstance(operand, list):
            yield from _places(operand)
        elif isinstance(operand, Slot | InputRef):
            yield operand
