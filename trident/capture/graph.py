"""What a traced graph needs from outside: constants, inputs, a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trident.capture.addresses import real_address_mod_16
from trident.capture.outside import OUTSIDE
from trident.capture.places import place_of
from trident.capture.result import Input
from trident.errors import UnsupportedError

# What wraps a constant that the trace makes.
LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)


_OWN_GENERATOR = "the call draws random numbers from a generator of its own"


def explained(error: BaseException) -> BaseException:
    """What a trace raised, or in plain words what PyTorch 2.11 cannot trace: generators."""
    if isinstance(error, NotImplementedError) and "torch._C.Generator" in str(error):
        return UnsupportedError(_OWN_GENERATOR, place_of(error))
    return error


def constants_of(graph_module: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors that the traced code made of literals, by the target of their `get_attr` nodes.

    Raises:
        UnsupportedError: the code reads a tensor that came from elsewhere, or a generator.
    """
    constants = {}
    for node in graph_module.graph.nodes:
        if node.op != "get_attr":
            continue
        value = getattr(graph_module, node.target)
        if isinstance(value, torch.Generator):
            raise UnsupportedError(_OWN_GENERATOR, _line(node))
        fresh = all(user.target in LIFTS for user in node.users)
        if isinstance(value, FakeTensor) or not fresh:
            raise UnsupportedError(OUTSIDE, _line(node))
        constants[node.target] = value
    return constants


def drop_profiler_ranges(graph: torch.fx.Graph) -> None:
    """Drops what `torch.profiler.record_function` leaves in a graph: names for a profiler alone."""
    for node in reversed(graph.nodes):
        if getattr(node.target, "namespace", None) == "profiler":
            graph.erase_node(node)


def _line(constant: torch.fx.Node) -> str | None:
    """The user's line that uses a constant."""
    return next((user.meta["where"][1] for user in constant.users if "where" in user.meta), None)


def take_inputs(
    graph: torch.fx.Graph, tensors: Sequence[torch.Tensor], names: Sequence[str]
) -> list[Input]:
    """Drops the placeholders of tensors that the call never reads; returns the others in order.

    Args:
        graph: its first placeholders are the tensors, those behind them symbols.
        tensors: of arguments and state.
        names: of the tensors, for messages.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    inputs = []
    for index, (node, tensor) in enumerate(zip(placeholders, tensors, strict=False)):
        if not node.users:
            graph.erase_node(node)
            continue
        inputs.append(Input(names[index], index, real_address_mod_16(tensor)))
    return inputs


def device_of(graph: torch.fx.Graph) -> torch.device:
    """Where the call's work happens: the one CUDA device that its values are on, or the CPU.

    Raises:
        UnsupportedError: it happens on several.
    """
    devices = {
        node.meta["val"].device
        for node in graph.nodes
        if isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].device.type == "cuda"
    }
    if len(devices) > 1:
        listed = ", ".join(sorted(str(device) for device in devices))
        raise UnsupportedError(f"the call computes on several devices ({listed})")
    return devices.pop() if devices else torch.device("cpu")
