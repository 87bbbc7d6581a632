"""Removes operators whose results nobody uses, from the program and its MLIR module."""

from __future__ import annotations

import torch
from torch_mlir import ir

from trident.ir import attributes
from trident.ir import schema as schemas
from trident.ir.program import Operation, Program, Value

# What the importer writes for an operator's own arguments; of no use without it.
_STRUCTURE = ("torch.constant.", "torch.prim.ListConstruct")


def run(program: Program) -> None:
    """Drops dead pure operators.

    Operators that write, draw random numbers, return nothing (checks), may raise because of what
    their tensors hold, are not ATen's, or launch kernels stay, whether or not their results are
    used.
    """
    used: set[Value] = set(program.outputs)
    kept: list[Operation] = []
    for operation in reversed(program.operations):
        if _is_pure(operation) and not any(value in used for value in operation.outputs()):
            _erase(operation.mlir)
            continue
        kept.append(operation)
        used.update(operation.inputs())
    program.operations = kept[::-1]


def _is_pure(operation: Operation) -> bool:
    schema = operation.schema
    return (
        schema.namespace == "aten"
        and bool(schema.results)
        and not schema.mutates
        and operation.stage is None
        and torch.Tag.nondeterministic_seeded not in schemas.tags(schema.qualified)
    )


def _erase(operation: ir.Operation) -> None:
    for result in operation.results:
        for use in list(result.uses):
            # Only a list's unpacking can be left: users among operators were erased before.
            use.owner.erase()
    operands = dict.fromkeys(operation.operands)  # a list may hold one value several times
    operation.erase()
    for operand in operands:
        owner = operand.owner
        if isinstance(owner, ir.Block):
            continue
        if _is_structure(owner.operation) and not any(True for _ in operand.uses):
            _erase(owner.operation)


def _is_structure(operation: ir.Operation) -> bool:
    return operation.name.startswith(_STRUCTURE) or attributes.VALUE in operation.attributes
