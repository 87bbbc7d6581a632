"""The ``trident.*`` attributes: what each operation says beyond Torch-MLIR's types.

An operation with several results carries one entry per result, list results flattened. Results that
are no tensors have storage -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch_mlir import ir

from trident.ir import expressions
from trident.ir.expressions import Size

OP = "trident.op"  # the exact overload: "aten::mul.Tensor"
NODE = "trident.node"  # the FX node's name
NAME = "trident.name"  # of a function argument: the input's name
INDEX = "trident.index"  # of a launch: its position in the capture's launches
SIZES = "trident.sizes"  # in elements, where the type does not say them
STRIDES = "trident.strides"  # in elements
OFFSET = "trident.offset"  # of the first element in the storage, in elements
STORAGE = "trident.storage"  # a number per storage
DEVICE = "trident.device"
MODULE = "trident.module"  # path of the nn.Module that ran the operator
LINE = "trident.line"  # "file.py:12"
STAGE = "trident.stage"  # of an operator that may raise: what the call's code changed before
VALUE = "trident.value"  # of a size that an operator takes: the expression

SIZE_OPERATOR = "trident.size"  # a `torch.operator` that stands for an integer expression
REAL_OPERATOR = "trident.real"  # the same of a float that is computed at run time


class StorageNumbers:
    """Small stable numbers for the storages of a graph, in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, tensor: torch.Tensor) -> int:
        """The number of the tensor's storage. The graph keeps all its tensors alive."""
        return self._numbers.setdefault(tensor.untyped_storage()._cdata, len(self._numbers))


def sizes(values: Sequence[Size]) -> ir.Attribute:
    """Numbers; or, where one is an expression, the spelling of each."""
    if all(isinstance(value, int) for value in values):
        return ir.DenseI64ArrayAttr.get(list(values))
    return ir.ArrayAttr.get([ir.StringAttr.get(expressions.text(value)) for value in values])


def read_sizes(attribute: ir.Attribute) -> tuple[Size, ...]:
    """What `sizes` wrote."""
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(ir.DenseI64ArrayAttr(attribute))
    return tuple(expressions.parse(ir.StringAttr(each).value) for each in ir.ArrayAttr(attribute))


def geometry(
    values: Sequence[Any], storages: StorageNumbers, size: Callable[[Any], Size] = int
) -> dict[str, ir.Attribute]:
    """Strides, offset, storage and device of each value, and its sizes where one is an expression.
    Needs a current MLIR context. ``size`` reads a size of a fake tensor."""
    tensors = [value if isinstance(value, torch.Tensor) else None for value in values]
    shapes = [() if t is None else tuple(size(each) for each in t.shape) for t in tensors]
    strides = [() if t is None else tuple(size(each) for each in t.stride()) for t in tensors]
    offsets = [0 if t is None else size(t.storage_offset()) for t in tensors]
    numbers = [-1 if t is None else storages.of(t) for t in tensors]
    devices = ["" if t is None else str(t.device) for t in tensors]
    dynamic = any(not isinstance(each, int) for shape in shapes for each in shape)
    return {
        **({SIZES: ir.ArrayAttr.get([sizes(each) for each in shapes])} if dynamic else {}),
        STRIDES: ir.ArrayAttr.get([sizes(each) for each in strides]),
        OFFSET: sizes(offsets),
        STORAGE: ir.DenseI64ArrayAttr.get(numbers),
        DEVICE: ir.ArrayAttr.get([ir.StringAttr.get(each) for each in devices]),
    }


def where(node: torch.fx.Node) -> dict[str, ir.Attribute]:
    """The module path, the Python line and the stage of a node, as far as they are known."""
    module, text = node.meta.get("where") or (None, None)
    found: dict[str, ir.Attribute] = {}
    if "stage" in node.meta:
        found[STAGE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), node.meta["stage"])
    if module:
        found[MODULE] = ir.StringAttr.get(module)
    if text:
        found[LINE] = ir.StringAttr.get(text)
    return found


def line(node: torch.fx.Node) -> str | None:
    """``file.py:line`` of a node, or None."""
    return (node.meta.get("where") or (None, None))[1]


def location(node: torch.fx.Node, context: ir.Context) -> ir.Location:
    """The same as an MLIR location: the line, named after the module."""
    module, text = node.meta.get("where") or (None, None)
    place = ir.Location.unknown(context)
    if text:
        file, _, number = text.rpartition(":")
        if number.isdigit():
            place = ir.Location.file(file, int(number), 0, context=context)
    return ir.Location.name(module, place, context=context) if module else place
