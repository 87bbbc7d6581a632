"""Checks that strides behind no element leave the geometry of all that a call computes alone.

Of the stride of an axis of size 1 some operators make a stride of their result, some compare it
with other strides, and not all do on symbols what they do on numbers. So where such strides were
symbols of a trace, its operators are asked again, about numbers of every rank among the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

from trident.ir.launch_op import LAUNCH


def geometry_depends(graph: torch.fx.Graph, unused: Sequence[sympy.Symbol]) -> bool:
    """Whether the shape or strides of a node's value may not be what the trace recorded.

    Args:
        graph: of a trace; its nodes have ``meta["val"]``.
        unused: the ShapeEnv's symbols of the strides.
    """
    placeholders = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    strides = sorted(
        {
            stride
            for value in placeholders
            if isinstance(value, torch.Tensor)
            for stride in value.stride()
            if type(stride) is int
        }
    )
    largest = max(strides, default=1)
    middle = strides[len(strides) // 2] if strides else 1
    for number in (None, 0, 1, middle, middle + 1, 97 * largest + 13):
        if not _agrees(graph, unused, number):
            return True
    return False


def _agrees(graph: torch.fx.Graph, unused: Sequence[sympy.Symbol], number: int | None) -> bool:
    """Whether operators give the recorded geometry if all these strides are a number.

    None stands for what they are in the call itself.
    """
    replaced = {} if number is None else dict.fromkeys(unused, sympy.Integer(number))

    def known(value: Any) -> Any:
        if not isinstance(value, torch.SymInt):
            return value
        found = value.node.expr.xreplace(replaced)
        return int(found) if found.is_number else value.node.hint

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    values: dict[torch.fx.Node, Any] = {}
    try:
        with mode:
            for node in graph.nodes:
                if node.op == "output":
                    return True
                values[node] = _evaluate(node, values, known, mode)
                if node.op == "call_function" and not _same(
                    values[node], node.meta.get("val"), known
                ):
                    return False
    except Exception:
        return False
    return True


def _evaluate(
    node: torch.fx.Node,
    values: dict[torch.fx.Node, Any],
    known: Callable[[Any], Any],
    mode: FakeTensorMode,
) -> Any:
    recorded = node.meta.get("val")
    if node.op != "call_function":
        return _concrete(recorded, known) if isinstance(recorded, torch.Tensor) else known(recorded)
    if node.target is LAUNCH or not isinstance(recorded, (torch.Tensor, list, tuple)):
        return known(recorded)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: values[each])
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _concrete(value: torch.Tensor, known: Callable[[Any], Any]) -> torch.Tensor:
    """A fake tensor of the recorded geometry, in numbers."""
    sizes, strides = [*map(known, value.shape)], [*map(known, value.stride())]
    offset = known(value.storage_offset())
    extent = 1 + sum(map(operator.mul, (size - 1 for size in sizes), strides)) if all(sizes) else 0
    memory = torch.empty(extent + offset, dtype=value.dtype, device=value.device)
    return torch.as_strided(memory, sizes, strides, offset)


def _same(value: Any, recorded: Any, known: Callable[[Any], Any]) -> bool:
    mine, theirs = _pytree.tree_leaves(value), _pytree.tree_leaves(recorded)
    return len(mine) == len(theirs) and all(
        [*a.shape, *a.stride()] == [known(size) for size in (*b.shape, *b.stride())]
        for a, b in zip(mine, theirs, strict=True)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    )
