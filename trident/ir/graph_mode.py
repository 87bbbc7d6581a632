"""What a program says about being captured into a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from trident.ir import schema as schemas
from trident.ir.launch import LaunchVariant
from trident.ir.program import Operation, Program, Value, tensors_in

# Operators that wait for the device to look at a tensor's values, which a capture does not allow.
_READS_VALUES = {"aten::_linalg_check_errors"}


def written_inputs(program: Program, launches: Sequence[LaunchVariant]) -> list[int]:
    """Inputs whose memory an operator or a launch may write, by position.

    Args:
        launches: one per launch of the capture.
    """
    return _inputs_sharing(
        program, (_written(operation, launches) for operation in program.operations)
    )


def launched_inputs(program: Program) -> list[int]:
    """Inputs whose memory a launch takes, by position."""
    return _inputs_sharing(
        program, (each.inputs() for each in program.operations if each.launch is not None)
    )


def _inputs_sharing(program: Program, tensors: Iterable[Iterable[Value]]) -> list[int]:
    storages = {value.storage for values in tensors for value in values}
    return [index for index, value in enumerate(program.inputs) if value.storage in storages]


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


def _written(operation: Operation, launches: Sequence[LaunchVariant]) -> list[Value]:
    if operation.launch is not None:
        only_read = launches[operation.launch].only_read
        return [each for at, each in enumerate(operation.inputs()) if at not in only_read]
    return [
        value
        for parameter, argument in zip(
            operation.schema.parameters, operation.arguments, strict=True
        )
        if parameter.writes
        for value in tensors_in(argument)
    ]
