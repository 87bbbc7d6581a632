"""Finds values whose strides the trace may not have told right.

Of an axis of size 1 any stride will do. What an operator makes of an unusual one depends on
shortcuts that PyTorch's kernels and the fake tensors of a trace do not take alike: for a tensor and
a number, kernels give ``(1, 1)`` for ``(1, 1)`` where the trace says ``(5, 1)``.
"""

from __future__ import annotations

from trident.ir.expressions import Size
from trident.ir.program import Layout, Program


def run(program: Program) -> None:
    """Sets ``loose_strides`` of all values."""
    for value in program.inputs:
        value.loose_strides = _is_loose(value.layout)
    for operation in program.operations:
        inherited = any(value.loose_strides for value in operation.inputs())
        for value in operation.outputs():
            value.loose_strides = _is_loose(value.layout) or (inherited and 1 in value.layout.sizes)


def _is_loose(layout: Layout) -> bool:
    """Whether an axis of size 1 has another stride than in a contiguous tensor."""
    usual: Size = 1
    for size, stride in zip(reversed(layout.sizes), reversed(layout.strides), strict=True):
        if size == 1 and stride != usual:
            return True
        usual = usual * size
    return False
