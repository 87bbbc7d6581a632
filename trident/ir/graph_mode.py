"""What a program says about being captured into a CUDA graph."""

from __future__ import annotations

import torch

from trident.ir import schema as schemas
from trident.ir.program import Operation, Program, Value, tensors_in

# Operators that wait for the device to look at a tensor's values, which a capture does not allow.
_READS_VALUES = {"aten::_linalg_check_errors"}


def written_inputs(program: Program) -> list[int]:
    """Inputs whose memory an operator or a launch may write, by position."""
    written: set[int] = set()
    for operation in program.operations:
        written.update(value.storage for value in _written(operation))
    return [index for index, value in enumerate(program.inputs) if value.storage in written]


def graph_obstacle(program: Program) -> str | None:
    """Why the program has to run kernel by kernel, or None."""
    for operation in program.operations:
        if _draws_random_numbers(operation):
            return f"{operation.name} draws random numbers (at {operation.line})"
        if operation.name in _READS_VALUES:
            return f"{operation.name} reads values on the host (at {operation.line})"
        if any(value.device != str(program.device) for value in operation.outputs()):
            return f"{operation.name} computes on another device (at {operation.line})"
        if any(value.input_index is not None for value in operation.outputs()):
            return f"{operation.name} changes the shape of an input (at {operation.line})"
    if any(value.device != str(program.device) for value in program.inputs):
        return "an input is on another device"
    storages = [value.resolve().storage for value in program.outputs]
    if len(set(storages)) != len(storages):
        return "two outputs share memory"
    if any(program.storages[storage].owner is None for storage in storages):
        return "an output shares memory with an input"
    return None


def _draws_random_numbers(operation: Operation) -> bool:
    """Whether it takes numbers from a generator; attention does so for its dropout alone."""
    if torch.Tag.nondeterministic_seeded not in schemas.tags(operation.name):
        return False
    return not any(
        parameter.name == "dropout_p" and argument == 0.0
        for parameter, argument in zip(
            operation.schema.parameters, operation.arguments, strict=True
        )
    )


def _written(operation: Operation) -> list[Value]:
    if operation.launch is not None:
        return list(operation.inputs())
    return [
        value
        for parameter, argument in zip(
            operation.schema.parameters, operation.arguments, strict=True
        )
        if parameter.writes
        for value in tensors_in(argument)
    ]
