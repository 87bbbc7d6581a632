"""From one call's facts to a published specialization."""

from __future__ import annotations

import dataclasses
import logging
import time
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from trident import _C
from trident.build import build
from trident.capture.autocast import check_casts_come_first
from trident.capture.folding import fold_constants
from trident.capture.reads import Read
from trident.capture.result import Capture
from trident.capture.soft_words import NeedsValueError, SymbolicWords
from trident.capture.trace import capture_call
from trident.codegen import GeneratedProgram, generate
from trident.collection import no_garbage_collection
from trident.errors import ChangedError, TridentError
from trident.ir.real_arithmetic import Definition
from trident.ir.registry import TypedTable
from trident.kernel_choice import ChosenKernels
from trident.kernels import Variant

logger = logging.getLogger("trident")

CHANGED = "the state that the call depends on changed while it was compiled"


@dataclasses.dataclass
class SpecializationRecord:
    """What Python keeps of a specialization, for `explain`.

    Attributes:
        index: position in the order of publication.
        arguments: the call's arguments, in words.
        kernels: label and compiled signature of each launch.
        seconds: time from capture to publication.
        codes: the user's code that ran during the capture.
        reads: what that read besides arguments and state.
        reason: why the call is not supported; None for a compiled one.
        where: the user's line for the reason.
        source: path of the loaded library; its C++ text lies beside it.
        symbols: what varies between the calls that the specialization serves; empty for none.
        guards: what must hold of the symbols.
        definitions: of the numbers that guards name besides symbols.
        guard_places: the user's line that asked for it, by guard, where it is known.
        limited: whether it is one of those for calls that differ in numbers alone, which have to be
            fixed and of which no more than a limit are compiled.
        fixed: why numbers that vary between calls of its kind stay fixed; None where none do.
        operators: operator calls per run.
        arena_bytes: planned memory.
        argument_inputs: inputs of the program that may lie elsewhere in each call, by position:
            arguments, and casts that autocast keeps.
        written_inputs: inputs that the program may write, with the kernels compiled so far.
        launched_inputs: inputs that Triton launches take.
        graph_obstacle: why the program cannot become a CUDA graph, or None.
        python_operators: operators that run Python code at each hit, each with the reason.
        graph: what became of capturing it, in words.
    """

    index: int
    arguments: str
    kernels: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    reason: str | None = None
    where: str | None = None
    source: str = ""
    codes: tuple[types.CodeType, ...] = ()
    reads: list[Read] = dataclasses.field(default_factory=list)
    operators: int = 0
    arena_bytes: int = 0
    symbols: list[str] = dataclasses.field(default_factory=list)
    guards: list[str] = dataclasses.field(default_factory=list)
    definitions: list[Definition] = dataclasses.field(default_factory=list)
    guard_places: dict[str, str] = dataclasses.field(default_factory=dict)
    limited: bool = False
    fixed: str | None = None
    argument_inputs: frozenset[int] = frozenset()
    written_inputs: frozenset[int] = frozenset()
    launched_inputs: frozenset[int] = frozenset()
    graph_obstacle: str | None = None
    python_operators: dict[str, str] = dataclasses.field(default_factory=dict)
    graph: str | None = None

    def count_launched_as_written(self) -> None:
        """Takes all inputs of launches for written, in captures from now on."""
        self.written_inputs |= self.launched_inputs


class Published(NamedTuple):
    """What became of a call that was compiled.

    Attributes:
        evicted: the record of the specialization that had to make room, or None.
        positions: the words that the new one leaves open.
    """

    evicted: SpecializationRecord | None
    positions: tuple[int, ...]


def compile_call(
    scm: _C.Scm,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    facts: _C.Facts,
    record: SpecializationRecord,
    symbolic: SymbolicWords | None = None,
) -> Published:
    """Captures, compiles and publishes one call.

    Args:
        scm: native side of the optimized callable.
        name: of the optimized callable, for messages.
        function: the original module or function.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        facts: of the call.
        record: filled in, published with the specialization.
        symbolic: the words that the specialization leaves open; None for none.

    Raises:
        UnsupportedError: if the call uses something that Trident cannot compile.
        Exception: whatever the user's code or a compiler raises.
    """
    started = time.perf_counter()
    capture = capture_call(name, function, args, kwargs, facts, symbolic)
    logger.info("%s: capture took %.0f ms", name, 1e3 * (time.perf_counter() - started))
    reads = capture.recorded
    assert reads is not None  # of a capture of a call, as opposed to one made by hand
    # Other threads may run while a call is traced.
    if not facts.agree(_C.collect(scm, args, kwargs)):
        raise ChangedError(CHANGED)
    fold_constants(capture)
    if capture.symbols is not None and capture.symbols.assumes_unused:
        capture.fix_unused_strides()
    try:
        chosen, generated = _generate(capture)
    except NeedsValueError:
        if not capture.fix_unused_strides():
            raise
        chosen, generated = _generate(capture)
    library = build(generated.source, name)
    program = _C.Program.load(str(library), chosen.kernels)
    check_casts_come_first(capture.inputs, generated.written_inputs, facts.tensors)
    record.written_inputs = frozenset(generated.written_inputs)
    record.launched_inputs = frozenset(generated.launched_inputs)
    chosen.serve(program, generated.launch_order, record.count_launched_as_written)
    positions: tuple[int, ...] = ()
    if symbolic is not None and capture.symbols is not None:
        positions = capture.symbols.positions
        values = [symbolic.values[position] for position in positions]
        if program.num_symbols and not program.guard(values):
            raise TridentError("a specialization does not serve the call it was made from")
    record.symbols, record.guards = generated.symbols, generated.guards
    record.definitions = generated.definitions
    record.guard_places = {} if capture.symbols is None else capture.symbols.places()
    record.kernels = [_describe(variant) for variant in chosen.variants]
    record.source = str(library)
    record.codes, record.reads = capture.codes, capture.reads
    record.operators = generated.calls_typed + generated.calls_boxed
    record.arena_bytes = generated.arena_bytes
    record.argument_inputs = frozenset(
        position
        for position, entry in enumerate(capture.inputs)
        if entry.index < facts.num_argument_tensors or entry.cast is not None
    )
    record.graph_obstacle = generated.graph_obstacle
    record.python_operators = capture.python_operators
    if capture.python_operators:
        record.graph_obstacle = f"{next(iter(capture.python_operators))} runs Python code"
    record.seconds = time.perf_counter() - started
    if not reads.unchanged():
        raise ChangedError(CHANGED)
    evicted = _C.publish(
        scm,
        facts,
        program,
        [entry.index for entry in capture.inputs],
        _constants(capture, generated),
        capture.nodes,
        capture.result_node,
        capture.effects,
        reads,
        record,
        positions,
        capture.inference,
        capture.stages,
        [
            (position, entry.cast, entry.cast_has_grad)
            for position, entry in enumerate(capture.inputs)
            if entry.cast is not None
        ],
    )
    logger.info("%s: specialization %d published after %.2f s", name, record.index, record.seconds)
    return Published(evicted, positions)


def _generate(capture: Capture) -> tuple[ChosenKernels, GeneratedProgram]:
    chosen = ChosenKernels(capture)
    with no_garbage_collection():
        return chosen, generate(capture, chosen.launches, _typed_operators(capture))


def _typed_operators(capture: Capture) -> TypedTable:
    """The operators with typed shims, which call PyTorch's own kernels past the dispatcher."""
    typed: TypedTable = _C.typed_ops()
    if not capture.python_operators:
        return typed
    names = {each.removeprefix("aten::").partition(".")[0] for each in capture.python_operators}
    return {key: entry for key, entry in typed.items() if key.partition(".")[0] not in names}


def _constants(capture: Capture, generated: GeneratedProgram) -> list[torch.Tensor]:
    return [capture.constants[name] for name in generated.constants]


def _describe(variant: Variant) -> str:
    signature = ", ".join(f"{param.name}: {param.type}" for param in variant.params)
    return f"{variant.label}({signature})"
