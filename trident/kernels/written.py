"""Which pointers a compiled kernel may write through, read off its Triton IR.

A pointer counts as written unless each use of each value made from it is known to do no more than
read through it. A use that shows the address counts as well: what is only read may be a copy.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Sequence
from typing import Any

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget

from trident.kernels.descriptors import TENSOR_MAP
from trident.kernels.target import backend_for

logger = logging.getLogger("trident")

# Their results point where their operands do.
_DERIVING = {
    *("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"),
    *("tt.bitcast", "tt.make_tensor_ptr", "tt.advance", "tt.make_tensor_descriptor"),
    "arith.select",
}
# They read through their first operand.
_READING = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather"}
# They hand values on, by position.
_CONTROL = {"scf.for", "scf.while", "scf.if"}
_ENDS = {"scf.yield", "scf.condition"}
# They may do anything, with addresses that they get as integers, unless they are said to be pure.
_FOREIGN = {"tt.elementwise_inline_asm", "tt.extern_elementwise"}

_POINTER_TYPES = ("!tt.ptr", "!tt.tensordesc")
# A load that asks memory anew each time waits for what others write where the pointer points.
_NEVER_CACHED = "cacheModifier = cv"


class _UnclearError(Exception):
    """Nothing can be said about the pointers of a kernel."""


@dataclasses.dataclass(frozen=True)
class _Operation:
    """One operation; values and regions by their identity.

    Attributes:
        region: that it lies in.
        pointers: whether a result is or holds a pointer.
        volatile, pure: attributes of loads and of foreign code.
    """

    name: str
    operands: list[int]
    results: list[int]
    region: int | None
    regions: list[int]
    pointers: bool
    volatile: bool
    pure: bool
    symbol: str | None


@dataclasses.dataclass(frozen=True)
class _Module:
    """All operations, regions behind what is in them, and the arguments of each region's start."""

    operations: list[_Operation]
    arguments: dict[int, list[Any]]


def written_parameters(
    ttir: str | None, name: str, types: Sequence[str], target: GPUTarget
) -> frozenset[int]:
    """The pointer parameters that a kernel may write through, by position.

    Args:
        ttir: the text that the kernel's binary was made from; None where that is not known.
        name: of the kernel in it.
        types: of the run-time parameters, tensor maps among the pointers.
        target: what it was compiled for.
    """
    pointers = {
        index for index, kind in enumerate(types) if kind.startswith("*") or kind == TENSOR_MAP
    }
    try:
        if ttir is None:
            raise _UnclearError("its Triton IR is not at hand")
        return frozenset(pointers & _written(ttir, name, pointers, len(types), target))
    # RuntimeError is what parsing raises.
    except (_UnclearError, RuntimeError) as error:
        logger.info("all tensors of kernel %s count as written: %s", name, error)
        return frozenset(pointers)


def _written(ttir: str, name: str, pointers: set[int], count: int, target: GPUTarget) -> set[int]:
    if _NEVER_CACHED in ttir:
        raise _UnclearError("it loads past the caches")
    context = ir.context()
    ir.load_dialects(context)
    backend_for(target).load_dialects(context)
    with tempfile.NamedTemporaryFile("w", suffix=".ttir") as file:
        file.write(ttir)
        file.flush()
        parsed = ir.parse_mlir_module(file.name, context)
    module = _read(parsed)
    entry = next(
        (each for each in module.operations if each.name == "tt.func" and each.symbol == name), None
    )
    if entry is None:
        raise _UnclearError("its Triton IR has no such function")
    parameters = module.arguments[entry.regions[0]]
    found = {index for index, each in enumerate(parameters) if _is_pointer(each.get_type())}
    if len(parameters) != count or found != pointers:
        raise _UnclearError("its Triton IR has other parameters")
    edges, escaping = _uses(module)
    return {
        index
        for index in pointers
        if not escaping.isdisjoint(_reach(parameters[index].id(), edges))
    }


def _is_pointer(kind: Any) -> bool:
    return any(each in str(kind) for each in _POINTER_TYPES)


def _read(parsed: Any) -> _Module:
    module = _Module([], {})

    def read(operation: Any) -> None:
        block = operation.get_block()
        region = None if block is None else block.get_parent().id()
        if region is not None and region not in module.arguments:
            # Of the blocks of a region the first is met first.
            module.arguments[region] = [
                block.get_argument(i) for i in range(block.get_num_arguments())
            ]
        results = [operation.get_result(i) for i in range(operation.get_num_results())]
        module.operations.append(
            _Operation(
                operation.get_name(),
                [operation.get_operand(i).id() for i in range(operation.get_num_operands())],
                [each.id() for each in results],
                region,
                [operation.get_region(i).id() for i in range(operation.get_num_regions())],
                any(_is_pointer(each.get_type()) for each in results),
                bool(operation.get_bool_attr("isVolatile")),
                bool(operation.get_bool_attr("pure")),
                operation.get_str_attr("sym_name"),
            )
        )

    parsed.walk(read)
    return module


def _uses(module: _Module) -> tuple[dict[int, list[int]], set[int]]:
    """From each value to those made of it, and the values whose use may be any."""
    owners = {region: each for each in module.operations for region in each.regions}
    edges: dict[int, list[int]] = {}
    escaping: set[int] = set()
    for each in module.operations:
        if each.name in _FOREIGN and not each.pure:
            raise _UnclearError(f"it has {each.name} with effects")
        owner = None if each.region is None else owners[each.region]
        if each.name in _DERIVING:
            pairs = [(a, b) for a in each.operands for b in each.results]
        elif each.name in _READING and not each.volatile and not each.pointers:
            pairs = []
            escaping.update(each.operands[1:])
        elif each.name in _CONTROL:
            pairs = _entered(each, module.arguments)
        elif each.name in _ENDS and owner is not None and owner.name in _CONTROL:
            pairs = _left(each, owner, module.arguments)
        elif each.pointers:
            raise _UnclearError(f"{each.name} makes a pointer")
        else:
            pairs = []
            escaping.update(each.operands)
        for source, made in pairs:
            edges.setdefault(source, []).append(made)
    return edges, escaping


def _entered(control: _Operation, arguments: dict[int, list[Any]]) -> list[tuple[int, int]]:
    """(value, what it becomes) where a loop or a branch starts."""
    if control.name == "scf.if":
        return []
    carried = [each.id() for each in arguments[control.regions[0]]]
    if control.name == "scf.while":
        return _pairs(control.operands, carried)
    # A loop has two bounds, a step and a counter; without a turn it gives what it was given.
    given = control.operands[3:]
    return _pairs(given, carried[1:]) + _pairs(given, control.results)


def _left(
    end: _Operation, control: _Operation, arguments: dict[int, list[Any]]
) -> list[tuple[int, int]]:
    """(value, what it becomes) where a region of a loop or a branch ends."""
    regions = [[each.id() for each in arguments.get(region, [])] for region in control.regions]
    match end.name, control.name:
        case "scf.yield", "scf.if":
            return _pairs(end.operands, control.results)
        case "scf.yield", "scf.for":
            return _pairs(end.operands, control.results) + _pairs(end.operands, regions[0][1:])
        case "scf.yield", "scf.while":
            return _pairs(end.operands, regions[0])
        case "scf.condition", "scf.while":
            given = end.operands[1:]
            return _pairs(given, control.results) + _pairs(given, regions[1])
    raise _UnclearError(f"{end.name} ends {control.name}")


def _pairs(given: list[int], made: list[int]) -> list[tuple[int, int]]:
    if len(given) != len(made):
        raise _UnclearError("control flow hands on an unknown number of values")
    return list(zip(given, made, strict=True))


def _reach(value: int, edges: dict[int, list[int]]) -> set[int]:
    reached = {value}
    ahead = [value]
    while ahead:
        for made in edges.get(ahead.pop(), ()):
            if made not in reached:
                reached.add(made)
                ahead.append(made)
    return reached
