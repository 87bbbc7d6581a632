"""Computes what depends on nothing once, when the call is compiled: positions, masks, their parts.

Each folded operator runs as it stands, on its own device, so the constant has the bits that every
call would compute. What a call may write or hands out is left alone: eager makes that anew each
time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload

from trident.capture.result import Capture
from trident.ir import graph_values
from trident.ir import schema as schemas
from trident.ir.launch_op import LAUNCH
from trident.ir.schema import Schema

logger = logging.getLogger("trident")

# Constants are kept with the specialization, so only small ones are made.
MAX_BYTES = 64 * 1024
MAX_TOTAL_BYTES = 1024 * 1024

# Operators that give the same bits for the same arguments, on every device.
_REPEATABLE = frozenset(
    """arange full full_like zeros zeros_like ones ones_like linspace eye scalar_tensor
    add sub rsub mul div neg abs pow sqrt rsqrt reciprocal exp log sin cos floor_divide remainder
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not
    bitwise_and bitwise_or bitwise_xor bitwise_not maximum minimum clamp where masked_fill
    tril triu cat stack repeat flip clone _to_copy lift_fresh_copy""".split()
)


def fold_constants(capture: Capture) -> None:
    """Replaces operators whose results never vary by constants, in ``capture.graph``.

    The constants are added to ``capture.constants`` under the names of the nodes.
    """
    fixed = _Fixed(capture)
    values: dict[torch.fx.Node, torch.Tensor] = {}
    first: dict[Any, torch.fx.Node] = {}  # layers compute the same tables: one serves all
    same: dict[torch.fx.Node, torch.fx.Node] = {}
    with torch.inference_mode(False), torch.no_grad(), _without_autocast():
        for node in capture.graph.nodes:
            if node.op == "get_attr" and node.target in capture.constants:
                values[node] = capture.constants[node.target]  # a literal, torch.tensor([1, 2])
            if not fixed.can_be(node, values):
                continue
            key = (node.target, _frozen(node.args, same), _frozen(node.kwargs, same))
            same[node] = first.setdefault(key, node)
            if same[node] is not node:
                values[node] = values[same[node]]
                continue
            assert isinstance(node.target, OpOverload)
            value = node.target(*_given(node.args, values), **_given(node.kwargs, values))
            if _same_geometry(value, node.meta["val"]):
                values[node] = value
            else:
                del first[key]
    kept: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node, original in same.items():
        if node in values and not all(user in values for user in node.users):
            kept.setdefault(original, []).append(node)
    if sum(values[node].untyped_storage().nbytes() for node in kept) > MAX_TOTAL_BYTES:
        return
    for original, nodes in kept.items():
        _replace(capture, original, nodes, values)
    folded = 0
    for node in reversed(list(values)):
        if not node.users:
            capture.graph.erase_node(node)
            folded += 1
    if kept:
        logger.info("%s: %d operators folded into %d constants", capture.name, folded, len(kept))


class _Fixed:
    """Which nodes may be constants, as far as that does not depend on other nodes."""

    def __init__(self, capture: Capture) -> None:
        self._devices = {"cpu", capture.device.type}
        # Storages that the call may write or hands out.
        self._open = {
            _storage(value)
            for node in capture.graph.nodes
            for value in _exposed(node)
            if isinstance(value, torch.Tensor)
        }

    def can_be(self, node: torch.fx.Node, values: dict[torch.fx.Node, torch.Tensor]) -> bool:
        """Whether the node is a constant, given that those in ``values`` are."""
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            return False
        if not all(each in values for each in node.all_input_nodes):
            return False
        result = node.meta.get("val")
        if not isinstance(result, torch.Tensor) or result.layout is not torch.strided:
            return False
        if _storage(result) in self._open or result.device.type not in self._devices:
            return False
        sizes = (*result.shape, *result.stride(), result.storage_offset())
        if not all(type(each) is int for each in sizes):
            return False
        schema = schemas.of(node.target)
        if schema.namespace != "aten" or schema.mutates or not _is_repeatable(schema):
            return False
        return result.untyped_storage().nbytes() <= MAX_BYTES and not node.kwargs.get("pin_memory")


def _is_repeatable(schema: Schema) -> bool:
    is_view = bool(schema.results) and all(result.aliases for result in schema.results)
    return is_view or schema.name in _REPEATABLE


def _exposed(node: torch.fx.Node) -> Iterator[Any]:
    """The tensors that a node may write, or hands out of the graph."""
    if node.op == "output" or node.target is LAUNCH:
        yield from (each.meta.get("val") for each in node.all_input_nodes)
    elif node.op == "call_function" and isinstance(node.target, OpOverload):
        schema = schemas.of(node.target)
        given = graph_values.bind_arguments(node, schema)
        for parameter, argument in zip(schema.parameters, given, strict=True):
            if parameter.writes or schema.namespace != "aten":
                for each in argument if isinstance(argument, (list, tuple)) else [argument]:
                    yield each.meta.get("val") if isinstance(each, torch.fx.Node) else None
    elif node.op == "call_function":
        # `getitem` of an operator's results hands on what the operator made.
        yield node.meta.get("val")


def _storage(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _given(arguments: Any, values: dict[torch.fx.Node, torch.Tensor]) -> Any:
    return torch.fx.node.map_arg(arguments, lambda node: values[node])


def _same_geometry(value: Any, expected: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and (
        value.dtype,
        value.device.type,
        value.shape,
        value.stride(),
        value.storage_offset(),
    ) == (
        expected.dtype,
        expected.device.type,
        expected.shape,
        expected.stride(),
        expected.storage_offset(),
    )


def _frozen(argument: Any, same: dict[torch.fx.Node, torch.fx.Node]) -> Any:
    """An argument as a key: equal only for what an operator cannot tell apart."""
    if isinstance(argument, torch.fx.Node):
        return same.get(argument, argument)
    if isinstance(argument, (list, tuple)):
        return tuple(_frozen(each, same) for each in argument)
    if isinstance(argument, dict):
        return tuple((name, _frozen(each, same)) for name, each in argument.items())
    return type(argument), repr(argument)


def _replace(
    capture: Capture,
    original: torch.fx.Node,
    nodes: list[torch.fx.Node],
    values: dict[torch.fx.Node, torch.Tensor],
) -> None:
    """Lets all users of equal nodes that are no constants themselves read one constant."""
    name = f"constant_{original.name}"
    with capture.graph.inserting_before(original):
        constant = capture.graph.create_node("get_attr", name)
    constant.meta.update(original.meta)
    capture.constants[name] = values[original]
    for node in nodes:
        for user in list(node.users):
            if user not in values:
                user.replace_input_with(node, constant)


def _without_autocast() -> Any:
    """The casts that autocast makes are operators of the graph already."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    keys = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    return torch._C._ExcludeDispatchKeyGuard(keys)
