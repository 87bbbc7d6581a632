"""Which operators have a typed shim in the runtime, and which overloads replace another."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from trident.ir import schema as schemas
from trident.ir.schema import Kind, Parameter, Schema, Type

# name without namespace -> (schema text, has a CPU shim, has a CUDA shim)
TypedTable = Mapping[str, tuple[str, bool, bool]]

# Keyword parameters of factories and copies that only say what the result looks like: an `out=`
# overload takes them from its destination.
_DESCRIBING = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format"})


@dataclasses.dataclass(frozen=True)
class TypedOperators:
    """The runtime's typed operators, ``trident._C.typed_ops()``."""

    table: TypedTable

    def has(self, schema: Schema, device: str) -> bool:
        """Whether this very overload has a shim on ``device`` ("cpu" or "cuda")."""
        entry = self.table.get(schema.key)
        if entry is None or schema.namespace != "aten" or not _representable(schema):
            return False
        text, cpu, cuda = entry
        return (cpu if device == "cpu" else cuda if device == "cuda" else False) and _agrees(
            text, schema.qualified
        )


@functools.cache
def _agrees(text: str, qualified: str) -> bool:
    # The calling convention follows the schema; a shim built for another one must not be called.
    built, installed = schemas.parse(text), schemas.lookup(qualified)
    return [p.type for p in built.parameters] == [p.type for p in installed.parameters] and [
        r.type for r in built.results
    ] == [r.type for r in installed.results]


def _representable(schema: Schema) -> bool:
    return all(
        result.type.kind in (Kind.TENSOR, Kind.INT, Kind.BOOL) and not result.type.is_list
        for result in schema.results
    ) and not any(parameter.type.kind is Kind.OTHER for parameter in schema.parameters)


@functools.cache
def out_overload(qualified: str) -> Schema | None:
    """The overload that computes the same into given tensors, or None.

    It has the functional overload's parameters, less those that only describe the result, and one
    destination per result.
    """
    functional = schemas.lookup(qualified)
    if functional.mutates or any(result.aliases for result in functional.results):
        return None
    for candidate in schemas.overloads(functional.namespace, functional.name):
        destinations = [p for p in candidate.parameters if p.is_out]
        if not destinations or len(destinations) != len(functional.results):
            continue
        if any(p.type.is_list or p.type.optional for p in destinations):
            continue
        taken = [(p.name, p.type) for p in candidate.parameters if not p.is_out]
        names = {name for name, _ in taken}
        given = [
            (p.name, p.type)
            for p in functional.parameters
            if p.name in names or p.name not in _DESCRIBING
        ]
        if taken == given:
            return candidate
    return None


@functools.cache
def scalar_twin(qualified: str, positions: frozenset[int]) -> Schema | None:
    """The overload that takes numbers where ``qualified`` has tensors at ``positions``, or None."""
    original = schemas.lookup(qualified)
    for candidate in schemas.overloads(original.namespace, original.name):
        if len(candidate.parameters) < len(original.parameters):
            continue
        pairs = list(zip(original.parameters, candidate.parameters, strict=False))
        if any(not p.has_default for p in candidate.parameters[len(pairs) :]):
            continue
        if any(p.is_out for p in candidate.parameters[len(pairs) :]):
            continue
        if len(candidate.results) == len(original.results) and all(
            twin.type == schemas.Type(Kind.SCALAR)
            if index in positions
            else _role(twin) == _role(mine)
            for index, (mine, twin) in enumerate(pairs)
        ):
            return candidate
    return None


def _role(parameter: Parameter) -> tuple[Type, bool, bool, str]:
    return parameter.type, parameter.writes, parameter.is_out, parameter.name
