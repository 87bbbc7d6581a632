"""Passes over a program, in the order of docs/design.md, section 6."""

from __future__ import annotations

from trident.ir.passes import dead_code, liveness, memory_plan, operator_choice, storages
from trident.ir.program import Program
from trident.ir.registry import TypedOperators
from trident.ir.steps import HostProgram


def run_all(program: Program, typed: TypedOperators) -> HostProgram:
    """Runs every pass; raises UnsupportedError for what cannot be compiled."""
    dead_code.run(program)
    storages.run(program)
    liveness.run(program)
    memory_plan.run(program, typed)
    return operator_choice.run(program, typed)
