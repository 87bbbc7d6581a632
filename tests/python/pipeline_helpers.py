"""Small captures for tests of the middle of the pipeline, made without ``trident.capture``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import trident.ir.launch_op  # noqa: F401  (defines torch.ops.trident.launch)
from trident.capture.result import Capture, Input
from trident.ir.registry import TypedTable


def capture_function(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], name: str = "function"
) -> Capture:
    """Traces ``function``, which returns tensors, over fake copies of ``inputs``."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def flat(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = function(*tensors)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    with torch.no_grad(), mode:
        fakes = [mode.from_tensor(each, static_shapes=True) for each in inputs]
        module = make_fx(
            flat, tracing_mode="real", pre_dispatch=False, _allow_non_fake_inputs=True
        )(*fakes)
    graph = module.graph
    constants = {
        str(node.target): getattr(module, str(node.target))
        for node in graph.nodes
        if node.op == "get_attr"
    }
    for node in graph.nodes:
        if node.op == "call_function":
            node.meta["where"] = ("model.layers.0.mlp", "model.py:12")
    described = [Input(f"input_{index}", index, 0) for index in range(len(inputs))]
    return Capture(name, graph, described, constants, [], torch.device("cpu"))


@functools.cache
def torch_typed_table() -> TypedTable:
    """What ``trident._C.typed_ops()`` would say if every CPU kernel had a shim.

    ``out=`` overloads that PyTorch derives from the functional form (it runs that, then copies) are
    left out, as the runtime does.
    """
    table: dict[str, tuple[str, bool, bool]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        suffix = f".{schema.overload_name}" if schema.overload_name else ""
        qualified = schema.name + suffix
        try:
            cpu = torch._C._dispatch_has_kernel_for_dispatch_key(qualified, "CPU")
            composite = torch._C._dispatch_has_kernel_for_dispatch_key(
                qualified, "CompositeExplicitAutograd"
            )
        except RuntimeError:
            continue  # an operator of TorchScript only
        derived = composite and any(argument.is_out for argument in schema.arguments)
        if (cpu or composite) and not derived:
            table[qualified.removeprefix("aten::")] = (str(schema), True, False)
    return table


def constants_of(capture: Capture) -> list[torch.Tensor]:
    """The capture's constants as the program's further inputs."""
    names = dict.fromkeys(str(n.target) for n in capture.graph.nodes if n.op == "get_attr")
    return [capture.constants[name] for name in names]
