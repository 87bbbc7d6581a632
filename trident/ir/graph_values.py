"""What the nodes of a captured graph take and hold, checked for what a program can represent."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from trident.errors import UnsupportedError
from trident.ir import attributes
from trident.ir.schema import Schema


def bind_arguments(node: torch.fx.Node, schema: Schema) -> list[Any]:
    """The node's arguments in schema order, defaults filled in."""
    unknown = set(node.kwargs) - {parameter.name for parameter in schema.parameters}
    if unknown or len(node.args) > len(schema.parameters):
        raise UnsupportedError(f"arguments do not fit the schema {schema.text}")
    arguments: list[Any] = []
    for position, parameter in enumerate(schema.parameters):
        if position < len(node.args):
            arguments.append(node.args[position])
        elif parameter.name in node.kwargs:
            arguments.append(node.kwargs[parameter.name])
        elif parameter.has_default:
            arguments.append(parameter.default)
        else:
            raise UnsupportedError(f"argument '{parameter.name}' is missing")
    return arguments


def result_values(node: torch.fx.Node, schema: Schema) -> list[Any]:
    """The fake results of a node, flattened."""
    value = node.meta.get("val")
    if not schema.results:
        return []
    if len(schema.results) == 1 and not schema.results[0].type.is_list:
        return [_checked(value)]
    if not isinstance(value, (list, tuple)):
        raise UnsupportedError("its results were not recorded")
    return [_checked(each) for each in value]


def _checked(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        raise UnsupportedError("lists among several results are not supported")
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise UnsupportedError("sparse and quantized tensors are not supported")
        if value.is_conj() or value.is_neg():
            raise UnsupportedError("lazily conjugated or negated tensors are not supported")
        geometry = (*value.shape, *value.stride(), value.storage_offset())
        if not all(type(each) is int or isinstance(each, torch.SymInt) for each in geometry):
            raise UnsupportedError("a tensor whose size is only known at run time is not supported")
    return value


def tensor_value(node: torch.fx.Node) -> torch.Tensor:
    """The fake tensor of a node. Raises UnsupportedError if its value is none, or not supported."""
    value = _checked(node.meta.get("val"))
    if not isinstance(value, torch.Tensor):
        raise UnsupportedError(f"{node.name} is not a tensor", attributes.line(node))
    return value


def constant_value(node: torch.fx.Node, constants: dict[str, torch.Tensor]) -> torch.Tensor:
    """The fake tensor of a constant's node, or the constant itself where the trace made none."""
    value = node.meta.get("val")
    if isinstance(value, FakeTensor):
        return tensor_value(node)
    if node.target not in constants:
        raise UnsupportedError(f"the constant {node.target} is no tensor", attributes.line(node))
    constant: torch.Tensor = _checked(constants[str(node.target)])
    return constant


def is_number(node: torch.fx.Node) -> bool:
    """Whether a node's value is a number."""
    numbers = (int, bool, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    return isinstance(node.meta.get("val"), numbers)


def only_computes_size(node: torch.fx.Node) -> bool:
    """Whether a node is arithmetic on sizes, which has no representation of its own: what takes the
    number says its value."""
    if not is_number(node):
        return False
    return not isinstance(node.target, OpOverload) or node.target._schema.name.startswith(
        "aten::sym_"
    )


def output_nodes(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes that the graph returns, which must be tensors."""
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    returned = output.args[0]
    nodes = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    if not all(isinstance(node, torch.fx.Node) for node in nodes):
        raise UnsupportedError("an output that is no tensor reached the program")
    return nodes
