"""Python numbers, strings, devices and lists as Torch-MLIR constants."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch_mlir import ir

from trident.errors import UnsupportedError
from trident.ir import attributes, dtypes, expressions
from trident.ir.expressions import Real
from trident.ir.schema import Kind, Type

_LIST_ELEMENTS = {
    Kind.TENSOR: "tensor",
    Kind.INT: "int",
    Kind.BOOL: "bool",
    Kind.FLOAT: "float",
    Kind.SCALAR: "number",
    Kind.STRING: "str",
}


class LiteralImporter:
    """Makes constants in one MLIR context, at the current insertion point."""

    def __init__(self, context: ir.Context) -> None:
        with context:
            self._types = {
                name: ir.Type.parse(f"!torch.{name}")
                for name in ("none", "bool", "int", "float", "str", "Device")
            }
            self._i64 = ir.IntegerType.get_signless(64)
            self._i1 = ir.IntegerType.get_signless(1)
            self._lists: dict[str, ir.Type] = {}

    def scalar(self, value: Any, kind: Kind, loc: ir.Location) -> ir.Value:
        """A constant of the parameter's kind.

        Raises:
            UnsupportedError: for complex numbers, tensors and other objects.
        """
        if value is None:
            return self._constant("none", None, loc)
        if isinstance(value, torch.dtype):
            return self._int(dtypes.code(value), loc)
        if isinstance(value, torch.memory_format):
            return self._int(dtypes.MEMORY_FORMAT_CODES[value], loc)
        if isinstance(value, torch.layout):
            if value not in dtypes.LAYOUT_CODES:
                raise UnsupportedError("sparse tensors are not supported")
            return self._int(dtypes.LAYOUT_CODES[value], loc)
        if isinstance(value, torch.device):
            return self._constant("Device", ir.StringAttr.get(str(value)), loc)
        if isinstance(value, str):
            name = "Device" if kind is Kind.DEVICE else "str"
            return self._constant(name, ir.StringAttr.get(value), loc)
        if kind is Kind.FLOAT and type(value) in (bool, int, float):
            return self._float(float(value), loc)
        if kind is Kind.INT and type(value) in (bool, int):
            return self._int(int(value), loc)
        if type(value) is bool:
            return self._constant("bool", ir.IntegerAttr.get(self._i1, int(value)), loc)
        if type(value) is int:
            return self._int(value, loc)
        if type(value) is float:
            return self._float(value, loc)
        raise UnsupportedError(f"an argument of type {type(value).__name__} is not supported")

    def size(self, value: sympy.Expr, loc: ir.Location) -> ir.Value:
        """An integer that is an expression over the program's symbols."""
        return self._computed("int", attributes.SIZE_OPERATOR, expressions.text(value), loc)

    def real(self, value: Real, loc: ir.Location) -> ir.Value:
        """A float that is computed from the program's symbols."""
        return self._computed("float", attributes.REAL_OPERATOR, value.text, loc)

    def _computed(self, type_: str, name: str, spelling: str, loc: ir.Location) -> ir.Value:
        return ir.Operation.create(
            "torch.operator",
            results=[self._types[type_]],
            attributes={
                "name": ir.StringAttr.get(name),
                attributes.VALUE: ir.StringAttr.get(spelling),
            },
            loc=loc,
        ).result

    def make_list(self, elements: list[ir.Value], type_: Type, loc: ir.Location) -> ir.Value:
        """A ``torch.prim.ListConstruct`` of the parameter's list type."""
        if type_.kind not in _LIST_ELEMENTS:
            raise UnsupportedError(f"a list of {type_.kind.value} is not supported")
        element = _LIST_ELEMENTS[type_.kind]
        if type_.optional_elements:
            element = f"optional<{element}>"
        if element not in self._lists:
            self._lists[element] = ir.Type.parse(f"!torch.list<{element}>", context=loc.context)
        return ir.Operation.create(
            "torch.prim.ListConstruct", operands=elements, results=[self._lists[element]], loc=loc
        ).result

    def _int(self, value: int, loc: ir.Location) -> ir.Value:
        if not -(2**63) <= value < 2**63:
            raise UnsupportedError(f"the number {value} does not fit 64 bits")
        return self._constant("int", ir.IntegerAttr.get(self._i64, value), loc)

    def _float(self, value: float, loc: ir.Location) -> ir.Value:
        return self._constant("float", ir.FloatAttr.get_f64(value), loc)

    def _constant(self, name: str, value: ir.Attribute | None, loc: ir.Location) -> ir.Value:
        return ir.Operation.create(
            f"torch.constant.{name if name != 'Device' else 'device'}",
            results=[self._types[name]],
            attributes={} if value is None else {"value": value},
            loc=loc,
        ).result
