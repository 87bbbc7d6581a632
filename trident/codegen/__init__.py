"""Writes the C++ host program of a capture."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from trident.codegen.boxed_calls import BoxedCalls
from trident.codegen.launches import Launches
from trident.codegen.scope import Scope
from trident.codegen.symbols import SymbolTable, used_symbols
from trident.codegen.typed_calls import TypedCalls
from trident.codegen.unit import count_calls, write_unit
from trident.errors import TridentError
from trident.ir import graph_mode, passes
from trident.ir.importer import import_capture
from trident.ir.launch import LaunchVariant
from trident.ir.only_launched import only_launched
from trident.ir.program import read_program
from trident.ir.real_arithmetic import Definition
from trident.ir.registry import TypedOperators, TypedTable
from trident.ir.steps import Launch

if TYPE_CHECKING:
    from trident.capture.result import Capture

logger = logging.getLogger("trident")


@dataclasses.dataclass
class GeneratedProgram:
    """A host program as text.

    Attributes:
        source: one C++ translation unit.
        num_inputs: the capture's inputs and, after them, its constants.
        constants: names in ``capture.constants`` of the inputs that follow the capture's own.
        calls_typed, calls_boxed: operator calls per run.
        launch_order: the launch of the capture that each launch of the program is.
        arena_bytes: planned memory.
        written_inputs: inputs that an operator or a launch may write, by position; where a launch
            has several variants, with those at hand.
        launched_inputs: inputs that a launch takes.
        graph_obstacle: why the program cannot be captured into a CUDA graph, or None.
        mlir: the module after dead code elimination, for debugging.
        symbols: what each symbol is, in words.
        guards: the conditions on the symbols, as in the source.
        definitions: of the numbers that conditions name besides symbols.
    """

    name: str
    source: str
    num_inputs: int
    constants: list[str]
    num_outputs: int
    calls_typed: int
    calls_boxed: int
    num_launches: int
    launch_order: list[int]
    arena_bytes: int
    written_inputs: list[int]
    launched_inputs: list[int]
    graph_obstacle: str | None
    mlir: str
    symbols: list[str] = dataclasses.field(default_factory=list)
    guards: list[str] = dataclasses.field(default_factory=list)
    definitions: list[Definition] = dataclasses.field(default_factory=list)


def generate(
    capture: Capture, variants: Sequence[LaunchVariant], typed_ops: TypedTable
) -> GeneratedProgram:
    """Imports a capture into Torch-MLIR, runs the passes and writes the program.

    Args:
        capture: the traced call.
        variants: one per entry of ``capture.launches``.
        typed_ops: the runtime's typed operators, ``trident._C.typed_ops()``: by name without
            namespace, the schema and whether there is a shim for CPU and for CUDA.

    Raises:
        UnsupportedError: for what Trident cannot compile, with the reason and the user's line.
    """
    with _timed(capture.name, "import into Torch-MLIR"):
        imported = import_capture(capture)
        program = read_program(imported.module, capture.name, torch.device(capture.device))
    with _timed(capture.name, "passes"):
        host = passes.run_all(program, TypedOperators(typed_ops))
    for step in host.steps:
        if isinstance(step, Launch) and step.index >= len(variants):
            raise TridentError(f"launch {step.index} of the graph has no compiled kernel")
    with _timed(capture.name, "C++"):
        definitions = [] if capture.symbols is None else capture.symbols.reals.definitions
        scope = Scope(host, [each.name for each in program.inputs], definitions)
        typed = TypedCalls(scope, program.device.type)
        boxed = BoxedCalls(scope)
        launches = Launches(scope, variants, only_launched(host, variants))
        symbols = _symbol_table(capture, variants)
        source = write_unit(
            program, host, scope, typed, boxed, launches, symbols, capture.python_operators
        )
        if capture.symbols is not None:
            used = used_symbols(source)
            if capture.symbols.sizes_are_fixed:
                capture.symbols.need(set(used) - capture.symbols.addresses())
            capture.symbols.need_no_unknown(used)
    return GeneratedProgram(
        name=capture.name,
        source=source,
        num_inputs=len(program.inputs),
        constants=imported.constants,
        num_outputs=len(program.outputs),
        calls_typed=count_calls(host, typed=True),
        calls_boxed=count_calls(host, typed=False),
        num_launches=len(launches.records),
        launch_order=launches.order,
        arena_bytes=program.arena_bytes,
        written_inputs=graph_mode.written_inputs(program, variants),
        launched_inputs=graph_mode.launched_inputs(program),
        graph_obstacle=graph_mode.graph_obstacle(program),
        mlir=str(imported.module),
        symbols=list(symbols.descriptions),
        guards=symbols.conditions(),
        definitions=list(symbols.definitions),
    )


def _symbol_table(capture: Capture, variants: Sequence[LaunchVariant]) -> SymbolTable:
    """The symbols that the program takes: none where sizes are fixed, and no address chooses a
    kernel."""
    if capture.symbols is None:
        return SymbolTable()
    guards = capture.symbols.guards()
    reals = capture.symbols.reals
    if capture.symbols.sizes_are_fixed:
        named = [*guards, *(each for each in capture.numbers if isinstance(each, sympy.Basic))]
        capture.symbols.need({symbol for each in named for symbol in each.free_symbols})
        capture.symbols.need(used_symbols(" ".join(each.text for each in reals.definitions)))
        conditions = " ".join(fact.condition for launch in variants for fact in launch.facts)
        if capture.symbols.addresses().isdisjoint(used_symbols(conditions)):
            return SymbolTable()
    return SymbolTable(
        capture.symbols.describe(),
        guards,
        capture.symbols.limits(),
        capture.numbers,
        reals.definitions,
        list(reals.answers),
    )


@contextlib.contextmanager
def _timed(name: str, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    logger.info("%s: %s took %.0f ms", name, stage, 1e3 * (time.perf_counter() - start))
