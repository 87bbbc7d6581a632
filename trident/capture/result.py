"""What a capture hands to the later stages."""

from __future__ import annotations

import dataclasses
import types
from typing import TYPE_CHECKING, Any

import sympy

if TYPE_CHECKING:
    import torch

    from trident import _C
    from trident.capture.failures import Stage
    from trident.capture.reads import Read
    from trident.capture.symbols import Symbols
    from trident.capture.template import Node
    from trident.ir.expressions import Real, Size
    from trident.kernels import LaunchRequest


@dataclasses.dataclass
class Input:
    """One tensor input of the graph.

    Attributes:
        name: a readable name, such as ``model.layers.0.mlp.gate_proj.weight`` or ``input_ids``.
        index: position in the walk's list of tensors (arguments first, then state).
        alignment: the address of the first element modulo 16 at capture; a guarded fact.
        cast: what autocast casts the tensor to, if the input is that cast.
        cast_has_grad: whether it is cast where grad mode is on.
    """

    name: str
    index: int
    alignment: int
    cast: torch.dtype | None = None
    cast_has_grad: bool = False


@dataclasses.dataclass
class Capture:
    """A traced call.

    Attributes:
        name: of the optimized callable.
        graph: placeholders in the order of ``inputs``, then operators in program order; the output
            node holds a flat tuple of tensor nodes. Tensor nodes carry ``meta["val"]`` (a
            FakeTensor) and ``meta["where"]``, a pair of module path and ``file.py:line``.
        inputs: one entry per placeholder.
        constants: real tensors that ``get_attr`` nodes name.
        launches: what ``torch.ops.trident.launch(tensors, index)`` nodes point to.
        device: where launches run and intermediates live.
        nodes: the template of the result and of the effects' values (`trident.capture.template`).
        result_node: the template node of the call's result.
        effects: ``(kind, container, key, node)``, replayed after the host program.
        stages: by number, counted from 1, what is replayed if an operator raises whose
            ``meta["stage"]`` says so.
        numbers: expressions that ``nodes`` name by position.
        reads: what the code that ran read from outside of its arguments and attributes.
        recorded: the values of these reads when the trace ended.
        codes: the user's code that ran.
        symbols: of a symbolic capture. Sizes, strides, offsets and integer arguments in ``graph``
            may be SymInts, and nodes that compute them have no other meaning; grids and integer
            arguments of ``launches`` may be, too.
        python_operators: operators in ``graph`` that run Python kernels each time, and are to be
            called through the dispatcher; each with why its kernel was not traced.
        inference: the code turned inference mode on for all that it returns.
    """

    name: str
    graph: torch.fx.Graph
    inputs: list[Input]
    constants: dict[str, torch.Tensor]
    launches: list[LaunchRequest]
    device: torch.device
    nodes: list[Node] = dataclasses.field(default_factory=list)
    result_node: int = 0
    effects: list[tuple[int, int, Any, int]] = dataclasses.field(default_factory=list)
    stages: list[Stage] = dataclasses.field(default_factory=list)
    numbers: list[Size | Real] = dataclasses.field(default_factory=list)
    reads: list[Read] = dataclasses.field(default_factory=list)
    recorded: _C.Reads | None = None
    codes: tuple[types.CodeType, ...] = ()
    symbols: Symbols | None = None
    python_operators: dict[str, str] = dataclasses.field(default_factory=dict)
    inference: bool = False

    def fix_unused_strides(self) -> bool:
        """Gives up that strides of axes of size 1 are symbols, if nothing else is one.

        Returns:
            Whether the capture is one of fixed words now.
        """
        if self.symbols is None or any(isinstance(each, sympy.Basic) for each in self.numbers):
            return False
        return self.symbols.fix_unused()

    def size(self, value: Any) -> Size:
        """A size, stride or integer of the trace, over the program's symbols."""
        return (
            value if type(value) is int or self.symbols is None else self.symbols.expression(value)
        )

    def real(self, node: torch.fx.Node) -> Real:
        """The float that a node of the graph stands for, over the program's symbols."""
        assert self.symbols is not None, "only a symbolic capture has floats that vary"
        return self.symbols.reals.real(node)
