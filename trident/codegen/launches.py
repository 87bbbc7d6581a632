"""Triton launches: their records, and the statements that run them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trident.codegen import names
from trident.codegen.scope import Scope
from trident.codegen.symbols import symbols_in
from trident.errors import TridentError, UnsupportedError
from trident.ir import expressions
from trident.ir.expressions import Real, Size
from trident.ir.launch import LaunchVariant
from trident.ir.steps import InputRef, Launch, OutputRef, Place, Slot

ADDRESS_HELPER = """\
static inline uint64_t address(trident_tensor tensor, int64_t bytes) {
  return reinterpret_cast<uint64_t>(api->data(tensor)) + static_cast<uint64_t>(bytes);
}
"""


class Launches:
    """Writes launches and collects their records.

    Attributes:
        order: the launch of the capture that each launch of the program is.
    """

    def __init__(
        self,
        scope: Scope,
        variants: Sequence[LaunchVariant],
        only_launched: Mapping[Place, InputRef | OutputRef],
    ) -> None:
        self._scope = scope
        self._variants = variants
        self._only_launched = only_launched
        self._names = names.Names()
        self.enumerators: list[str] = []
        self.records: list[str] = []
        self.tables: list[str] = []
        self.order: list[int] = []
        self._choices: list[str] = []

    def statements(self, launch: Launch) -> list[str]:
        """Writes the addresses that change between calls, then launches."""
        variant = self._variants[launch.index]
        name = self._names.unique(launch.operation.module or launch.operation.node)
        statements = []
        rows = []
        for position, parameter in enumerate(variant.params):
            note = f"  // {names.comment(f'{parameter.name}: {parameter.type}')}"
            varying = getattr(parameter, "value", None)
            if varying is not None and not isinstance(varying, int):
                rows.append(f"    {{TRIDENT_PARAM_RUNTIME, 0}},{note}")
                statements.append(
                    f"frame->launches[launch::{name}].values[{position}] = "
                    f"{_varying(parameter.type, varying)};"
                )
                continue
            if parameter.tensor is None:
                bits = parameter.bits & (2**64 - 1)
                rows.append(f"    {{TRIDENT_PARAM_CONSTANT, {_bits(bits)}}},{note}")
                continue
            place, distance = launch.tensors[parameter.tensor]
            if isinstance(place, Slot) and place.planned:
                rows.append(f"    {{TRIDENT_PARAM_PLANNED, {self._scope.slot(place)}}},{note}")
                continue
            rows.append(f"    {{{self._source(place)}}},{note}")
            statements.append(
                f"frame->launches[launch::{name}].values[{position}] = "
                f"address({self._scope.tensor(place)}, {expressions.text(distance)});"
            )
        for axis, extent in enumerate(variant.grid):
            if not isinstance(extent, int):
                statements.append(
                    f"frame->launches[launch::{name}].grid[{axis}] = "
                    f"static_cast<uint32_t>({expressions.text(extent)});"
                )
        statements.append(f"TRIDENT_TRY(api->launch(frame, launch::{name}));")
        self._record(name, variant, rows)
        self.order.append(launch.index)
        self._add_choice(name, variant)
        return statements

    def choices(self) -> str:
        """The function that tells which facts hold of each launch, or nothing."""
        if not self._choices:
            return ""
        body = "".join(f"{names.wrap(line, 2)}\n" for line in self._choices)
        return (
            "// Which variant of each kernel a call needs: one bit for each thing that Triton\n"
            "// compiles it for and that varies.\n"
            "static void choose(const int64_t* symbols, uint64_t* choices) {\n"
            f"{symbols_in(body, 'symbols', self._scope.definitions)}{body}}}\n"
        )

    def _source(self, place: Place) -> str:
        """Of an address that is written before the launch."""
        within = self._only_launched.get(place)
        if isinstance(within, InputRef):
            return f"TRIDENT_PARAM_INPUT, input::{self._scope.input_names[within.index]}"
        if isinstance(within, OutputRef):
            return f"TRIDENT_PARAM_OUTPUT, {within.index}"
        return "TRIDENT_PARAM_RUNTIME, 0"

    def _add_choice(self, name: str, variant: LaunchVariant) -> None:
        if not variant.facts:
            return
        self._choices.append(f"choices[launch::{name}] = 0;")
        for bit, fact in enumerate(variant.facts):
            self._choices.append(f"// {names.comment(fact.note)}")
            self._choices.append(
                f"choices[launch::{name}] |= static_cast<uint64_t>({fact.condition}) << {bit};"
            )

    def _record(self, name: str, variant: LaunchVariant, rows: list[str]) -> None:
        table = "nullptr"
        if rows:
            table = f"k_{name}_params"
            body = "\n".join(rows)
            self.tables.append(f"static const trident_param {table}[] = {{\n{body}\n}};\n")
        # An extent that varies is written before each launch.
        extents = [extent if isinstance(extent, int) else 0 for extent in variant.grid]
        grid = ", ".join(str(extent) for extent in extents)
        if len(extents) != 3 or min(extents) < 0 or math.prod(extents) >= 2**63:
            raise TridentError(f"a grid of ({grid}) cannot be launched")
        self.enumerators.append(name)
        self.records.append(
            f"{{{variant.kernel}, {len(rows)}, {table}, {{{grid}}}, {len(variant.facts)}}}"
        )


def _varying(type_: str, value: Size | Real) -> str:
    """The bits of a parameter that varies."""
    if not isinstance(value, Real):
        return f"static_cast<uint64_t>({expressions.text(value)})"
    if type_ == "fp64":
        return f"double_bits({value.text})"
    if type_ not in ("fp32", "f32"):
        raise UnsupportedError(f"a kernel's parameter of type {type_} is given a float that varies")
    return f"float_bits(static_cast<float>({value.text}))"


def _bits(value: int) -> str:
    return str(value) if value < 2**31 else f"UINT64_C(0x{value:x})"
