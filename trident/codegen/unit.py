"""The whole translation unit: tables, functions and the program's entry."""

from __future__ import annotations

import re
from collections.abc import Collection

import torch

from trident.codegen import names
from trident.codegen.boxed_calls import HELPERS, BoxedCalls
from trident.codegen.constants import device_literal
from trident.codegen.launches import ADDRESS_HELPER, Launches
from trident.codegen.run_function import RunFunction, layout_literal
from trident.codegen.scope import Scope
from trident.codegen.symbols import SymbolTable
from trident.codegen.typed_calls import TypedCalls
from trident.ir import expressions, real_arithmetic
from trident.ir.program import Program
from trident.ir.steps import Call, HostProgram

_FLOAT_SCALAR = """\
static inline trident_scalar float_scalar(double number) {
  trident_scalar scalar = {TRIDENT_SCALAR_FLOAT, {0}};
  scalar.value.f = number;
  return scalar;
}
"""


def write_unit(
    program: Program,
    host: HostProgram,
    scope: Scope,
    typed: TypedCalls,
    boxed: BoxedCalls,
    launches: Launches,
    symbols: SymbolTable,
    python_operators: Collection[str] = (),
) -> str:
    """The source text. It includes nothing but ``trident/abi.h``.

    Args:
        python_operators: ATen's operators whose results are checked, as other libraries' are.
    """
    run = RunFunction(scope, typed, boxed, launches, python_operators)
    run_text = run.text(host)
    planned_rows = []
    for slot in host.planned:
        assert slot.layout is not None
        planned_rows.append(layout_literal(scope, slot.layout))

    parts = [
        f"// The host program of {names.comment(program.name)}: what one specialization does on\n"
        "// the host, written by Trident. Device kernels are the user's and PyTorch's own.\n"
        "#include <trident/abi.h>\n",
        "static const trident_api* api;\n",
    ]
    if boxed.operators:
        parts.append(HELPERS)
    if launches.records and any("address(" in line for line in run_text.splitlines()):
        parts.append(ADDRESS_HELPER)
    symbol_text = symbols.guard() + launches.choices() + symbols.compute()
    parts += _helpers(run_text + symbol_text)
    if any("float_scalar(" in line for line in (*scope.constants.definitions, run_text)):
        parts.append(_FLOAT_SCALAR)
    parts += [
        _enumeration("input", scope.input_names),
        _enumeration("slot", scope.slot_names()),
        _enumeration("launch", launches.enumerators),
        _enumeration("boxed", list(boxed.operators.values())),
        _enumeration("number", scope.constants.number_enumerators()),
    ]
    if scope.constants.definitions:
        parts.append("\n".join(scope.constants.definitions) + "\n")
    if run.layouts():
        parts.append("\n".join(run.layouts()) + "\n")
    if typed.imports:
        parts.append("\n".join(each.declaration() for each in typed.imports) + "\n")
    parts += launches.tables
    parts += [symbols.guard(), launches.choices(), symbols.compute(), run_text]
    parts += [
        _table("trident_layout", "kPlanned", planned_rows),
        _table("trident_launch_record", "kLaunches", launches.records),
        _table("trident_import", "kImports", [each.entry() for each in typed.imports]),
        _table("char* const", "kBoxed", [names.string(each) for each in boxed.operators]),
        _table("trident_scalar", "kNumberTensors", scope.constants.numbers),
        _entry(program, host, scope, launches, typed, boxed, symbols, run),
    ]
    return "\n".join(part for part in parts if part)


def _helpers(text: str) -> list[str]:
    """The helpers that code uses, and those that these use, which come before them."""
    used: list[str] = []
    for name, helper in reversed({**expressions.HELPERS, **real_arithmetic.HELPERS}.items()):
        if re.search(rf"\b{name}\(", "".join([text, *used])):
            used.insert(0, helper)
    return used


def count_calls(host: HostProgram, typed: bool) -> int:
    """How many operator calls of one kind a run makes."""
    return sum(1 for step in host.steps if isinstance(step, Call) and step.typed is typed)


def _enumeration(namespace: str, enumerators: list[str]) -> str:
    if not enumerators:
        return ""
    body = "".join(f"  {each},\n" for each in enumerators)
    return f"namespace {namespace} {{\nenum : uint32_t {{\n{body}}};\n}}\n"


def _table(type_: str, name: str, rows: list[str]) -> str:
    if not rows:
        return ""
    body = "".join(f"    {row},\n" for row in rows)
    return f"static const {type_} {name}[] = {{\n{body}}};\n"


def _entry(
    program: Program,
    host: HostProgram,
    scope: Scope,
    launches: Launches,
    typed: TypedCalls,
    boxed: BoxedCalls,
    symbols: SymbolTable,
    run: RunFunction,
) -> str:
    def table(name: str, rows: object) -> str:
        return name if rows else "nullptr"

    fields = [
        ("TRIDENT_ABI_VERSION", "abi_version"),
        (names.string(program.name), "name"),
        (device_literal(torch.device(program.device)), "device"),
        (len(program.inputs), "num_inputs"),
        (len(program.outputs), "num_outputs"),
        (len(host.planned), "num_planned"),
        (len(host.planned) + len(host.transient), "num_slots"),
        (len(symbols.descriptions), "num_symbols"),
        (program.arena_bytes, "arena_bytes"),
        (table("kPlanned", host.planned), "planned"),
        (len(launches.records), "num_launches"),
        (table("kLaunches", launches.records), "launches"),
        (len(typed.imports), "num_imports"),
        (table("kImports", typed.imports), "imports"),
        (len(boxed.operators), "num_boxed"),
        (table("kBoxed", boxed.operators), "boxed"),
        (len(scope.constants.numbers), "num_number_tensors"),
        (table("kNumberTensors", scope.constants.numbers), "number_tensors"),
        (count_calls(host, typed=True), "calls_typed"),
        (count_calls(host, typed=False), "calls_boxed"),
        ("guard" if symbols.descriptions else "nullptr", "guard"),
        ("choose" if launches.choices() else "nullptr", "choose"),
        (len(symbols.numbers), "num_numbers"),
        ("compute" if symbols.numbers else "nullptr", "compute"),
        ("run", "run"),
        ("give" if run.has_stages else "nullptr", "give"),
    ]
    rows = "".join(f"    {value},  // {field}\n" for value, field in fields)
    return (
        f"static const trident_program kProgram = {{\n{rows}}};\n\n"
        'extern "C" __attribute__((visibility("default"))) const trident_program* '
        "trident_program_entry(\n    const trident_api* runtime) {\n"
        "  api = runtime;\n  return &kProgram;\n}\n"
    )
