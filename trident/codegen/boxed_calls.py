"""Calls of operators without a typed shim, through the dispatcher."""

from __future__ import annotations

import sympy
import torch

from trident.codegen import names
from trident.codegen.constants import device_literal
from trident.codegen.scope import Scope
from trident.codegen.typed_calls import local_name, readable, tensor_array, varying_array
from trident.errors import UnsupportedError
from trident.ir import expressions
from trident.ir.expressions import Real
from trident.ir.schema import Kind, Parameter
from trident.ir.steps import Call, InputRef, Operand, Slot

# What the calls are written with: a union can only be initialized through its first member.
HELPERS = """\
static inline trident_value none_value() {
  trident_value value = {};
  return value;
}

static inline trident_value tensor_value(trident_tensor tensor) {
  trident_value value = {};
  value.kind = TRIDENT_VALUE_TENSOR;
  value.as.tensor = tensor;
  return value;
}

static inline trident_value number_value(uint32_t kind, int64_t number) {
  trident_value value = {};
  value.kind = kind;
  value.as.i = number;
  return value;
}

static inline trident_value float_value(double number) {
  trident_value value = {};
  value.kind = TRIDENT_VALUE_FLOAT;
  value.as.f = number;
  return value;
}

static inline trident_value string_value(const char* string) {
  trident_value value = {};
  value.kind = TRIDENT_VALUE_STRING;
  value.as.string = string;
  return value;
}

static inline trident_value device_value(trident_device device) {
  trident_value value = {};
  value.kind = TRIDENT_VALUE_DEVICE;
  value.as.device = device;
  return value;
}

static inline trident_value numbers_value(uint32_t kind, const int64_t* numbers, uint32_t length) {
  trident_value value = {};
  value.kind = kind;
  value.length = length;
  value.as.ints = numbers;
  return value;
}

static inline trident_value floats_value(const double* numbers, uint32_t length) {
  trident_value value = {};
  value.kind = TRIDENT_VALUE_FLOAT_LIST;
  value.length = length;
  value.as.floats = numbers;
  return value;
}

static inline trident_value tensors_value(const trident_tensor* tensors, uint32_t length) {
  trident_value value = {};
  value.kind = TRIDENT_VALUE_TENSOR_LIST;
  value.length = length;
  value.as.tensors = tensors;
  return value;
}
"""


class BoxedCalls:
    """Writes boxed calls and collects the operators they need."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._operators: dict[str, str] = {}
        self._enumerators = names.Names()

    @property
    def operators(self) -> dict[str, str]:
        """Enumerators by qualified name, in the order of the program's boxed list."""
        return self._operators

    def statements(self, call: Call) -> list[str]:
        """The statements of one call; they need a block of their own."""
        qualified = call.schema.qualified
        if qualified not in self._operators:
            self._operators[qualified] = self._enumerators.unique(readable(call.schema))
        statements: list[str] = []
        values = [
            self._value(parameter, operand, statements)
            for parameter, operand in zip(call.schema.parameters, call.arguments, strict=True)
        ]
        arguments = "nullptr"
        if values:
            statements.append("const trident_value args[] = {")
            statements += [f"    {value}," for value in values]
            statements.append("};")
            arguments = "args"
        # Results that are no tensors are not returned.
        slots = [slot for slot in call.results if slot is not None]
        results = "nullptr"
        if len(slots) == 1:
            results = f"&{self._scope.tensor(slots[0])}"
        elif slots:
            statements.append(f"trident_tensor results[{len(slots)}] = {{}};")
            results = "results"
        statements.append(
            f"TRIDENT_TRY(api->call_boxed(frame, boxed::{self._operators[qualified]}, "
            f"{arguments}, {len(values)}, {results}, {len(slots)}));"
        )
        if len(slots) > 1:
            statements += [
                f"{self._scope.tensor(slot)} = results[{position}];"
                for position, slot in enumerate(slots)
            ]
        return statements

    def _value(self, parameter: Parameter, operand: Operand, before: list[str]) -> str:
        if operand is None:
            return "none_value()"
        if isinstance(operand, (Slot, InputRef)):
            return f"tensor_value({self._scope.tensor(operand)})"
        if isinstance(operand, Real):
            if parameter.type.kind not in (Kind.FLOAT, Kind.SCALAR):
                raise UnsupportedError(f"parameter {parameter.name} is given a float that varies")
            return f"float_value({operand.text})"
        if isinstance(operand, sympy.Expr):
            written = expressions.text(operand)
            if parameter.type.kind is Kind.FLOAT:
                return f"float_value(static_cast<double>({written}))"
            if parameter.type.kind not in (Kind.INT, Kind.SCALAR):
                raise UnsupportedError(
                    f"parameter {parameter.name} is given an integer that varies"
                )
            return f"number_value(TRIDENT_VALUE_INT, {written})"
        if isinstance(operand, list):
            return self._list(parameter, operand, before)
        if parameter.type.kind is Kind.TENSOR:
            assert isinstance(operand, (bool, int, float))
            return f"tensor_value({self._scope.constants.number(operand)})"
        if isinstance(operand, torch.device) or parameter.type.kind is Kind.DEVICE:
            assert isinstance(operand, (torch.device, str))
            return f"device_value(trident_device{device_literal(torch.device(operand))})"
        if isinstance(operand, str):
            return f"string_value({names.string(operand)})"
        if isinstance(operand, bool):
            return f"number_value(TRIDENT_VALUE_BOOL, {int(operand)})"
        if isinstance(operand, int):
            return f"number_value(TRIDENT_VALUE_INT, {names.integer(operand)})"
        return f"float_value({names.floating(operand)})"

    def _list(self, parameter: Parameter, operands: list[Operand], before: list[str]) -> str:
        length = len(operands)
        kind = parameter.type.kind
        name = local_name(parameter)
        if kind is Kind.TENSOR:
            before.append(tensor_array(self._scope, name, operands))
            return f"tensors_value({name}, {length})"
        if any(isinstance(each, (sympy.Expr, Real)) for each in operands):
            before.append(varying_array(name, parameter, operands))
            return f"numbers_value(TRIDENT_VALUE_INT_LIST, {name}, {length})"
        if kind is Kind.FLOAT:
            array = self._scope.constants.doubles(operands)  # type: ignore[arg-type]
            return f"floats_value({array}, {length})"
        array = self._scope.constants.ints(operands)  # type: ignore[arg-type]
        list_kind = "BOOL_LIST" if kind is Kind.BOOL else "INT_LIST"
        return f"numbers_value(TRIDENT_VALUE_{list_kind}, {array}, {length})"
