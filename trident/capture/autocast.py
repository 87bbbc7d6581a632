"""Casts of weights that autocast keeps beyond the call, in its own cache.

Eager casts a float32 leaf that requires grad once per autocast region, and takes that cast for as
long as the outermost region lasts, even where the weight changes meanwhile. A program gets such
casts as inputs, which the runtime takes from the same cache (``csrc/python/autocast_input.h``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_slot

from trident import _C
from trident.capture.reads import Read
from trident.capture.result import Input
from trident.errors import UnsupportedError

_CAST = torch.ops.aten._to_copy.default
_MARK = "autocast"  # in the metadata of nodes


class _Mark(NamedTuple):
    position: int  # of the tensor that is cast
    grad: bool


@contextlib.contextmanager
def autocast_cache(enabled: bool) -> Iterator[None]:
    """With autocast's cache as the call has it, which `make_fx` turns off."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(enabled)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def mark_kept_casts(
    tracer: Any, fakes: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> list[Read]:
    """Marks the nodes whose results autocast's cache holds now that the call has been traced.

    Args:
        tracer: of the trace.
        fakes: what the trace took for the tensors of arguments and state.
        outputs: of the call; what they share memory with is not marked.

    Returns:
        What that depends on.
    """
    inside = _C.in_autocast_region()
    # Outside of regions and while autocast is off, regions of the call's own keep nothing.
    keeps = inside or any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    found = False
    indices = {_node_of(tracer, fake): index for index, fake in enumerate(fakes)}
    given_out = {tensor.untyped_storage()._cdata for tensor in outputs}
    for node in [each for each in tracer.graph.nodes if each.target is _CAST]:
        index = indices.get(node.args[0])
        if index is None or not _may_be_kept(fakes[index]):
            continue
        found = True
        if not keeps:
            continue
        kept = _C.autocast_cast(fakes[index], node.kwargs.get("dtype"))
        if _node_of(tracer, kept) is node and kept.untyped_storage()._cdata not in given_out:
            node.meta[_MARK] = _Mark(index, kept.requires_grad)
    return [(None, inside, None)] if found else []


def _may_be_kept(tensor: torch.Tensor) -> bool:
    leaf = tensor.is_leaf and tensor.requires_grad and not tensor._is_view()
    return leaf and tensor.dtype is torch.float32


def _node_of(tracer: Any, tensor: torch.Tensor) -> torch.fx.Node:
    node: torch.fx.Node = get_proxy_slot(tensor, tracer).proxy.node
    return node


def casts_as_placeholders(graph: torch.fx.Graph, names: Sequence[str]) -> list[Input]:
    """Puts placeholders, behind the others, in the place of marked nodes.

    Args:
        graph: traced.
        names: of the call's tensors, for messages.

    Returns:
        The inputs that the new placeholders stand for.
    """
    inputs: list[Input] = []
    marked = [node for node in graph.nodes if _MARK in node.meta]
    for node in marked:
        mark: _Mark = node.meta[_MARK]
        last = [each for each in graph.nodes if each.op == "placeholder"][-1]
        with graph.inserting_after(last):
            placeholder = graph.placeholder(f"autocast_{len(inputs)}")
        placeholder.meta.update(node.meta)
        node.replace_all_uses_with(placeholder)
        graph.erase_node(node)
        dtype: torch.dtype = node.meta["val"].dtype
        name = f"{names[mark.position]} as {str(dtype).removeprefix('torch.')}"
        inputs.append(Input(name, mark.position, 0, dtype, mark.grad))
    return inputs


def check_casts_come_first(
    inputs: Sequence[Input], written: Sequence[int], tensors: Sequence[torch.Tensor]
) -> None:
    """Refuses programs that write weights whose casts are made before they run.

    Args:
        inputs: of the program.
        written: positions of those that it may write.
        tensors: of the call.

    Raises:
        UnsupportedError: a kernel of the program writes such a weight.
    """
    storages = {tensors[inputs[each].index].untyped_storage()._cdata for each in written}
    for each in inputs:
        if each.cast is not None and tensors[each.index].untyped_storage()._cdata in storages:
            raise UnsupportedError(f"the call changes a weight that autocast casts ({each.name})")
