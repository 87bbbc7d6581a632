"""Calls of typed operators: C function pointers, resolved when the program is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sympy

from trident.codegen import names
from trident.codegen.scope import Scope
from trident.errors import UnsupportedError
from trident.ir import expressions
from trident.ir.expressions import Real, Size
from trident.ir.schema import Kind, Parameter, Schema
from trident.ir.steps import Call, InputRef, Operand, Slot


@dataclasses.dataclass(frozen=True)
class Import:
    """A typed operator that the unit calls. ``name`` is the function pointer's."""

    schema: Schema
    device: str
    name: str

    def declaration(self) -> str:
        """The pointer's type and definition, with the schema in a comment."""
        types = [each for p in self.schema.parameters for each in parameter_types(p)]
        types += [each for index in self.schema.fresh_results for each in self._result(index)]
        pointer = f"using {self.name}_fn = trident_status (*)({', '.join(types)});"
        return (
            f"// {names.comment(self.schema.text)}\n"
            f"{names.wrap(pointer, 0)}\n"
            f"static {self.name}_fn {self.name};"
        )

    def _result(self, index: int) -> list[str]:
        result = self.schema.results[index].type
        if result.is_list:
            return ["trident_tensor*", "int64_t"]
        return ["trident_tensor*" if result.kind is Kind.TENSOR else "int64_t*"]

    def entry(self) -> str:
        """The row of the table of imports."""
        return (
            f'{{{names.string(self.schema.key)}, "{self.device}", '
            f"reinterpret_cast<void**>(&{self.name})}}"
        )


def parameter_types(parameter: Parameter) -> list[str]:
    """The C types of one parameter, as docs/design.md, section 8, lays down."""
    type_ = parameter.type
    if type_.is_list:
        element = {Kind.TENSOR: "trident_tensor", Kind.FLOAT: "double"}.get(type_.kind, "int64_t")
        return [f"const {element}*", "int64_t"]
    if type_.kind is Kind.TENSOR:
        return ["trident_tensor"]
    if type_.kind is Kind.GENERATOR:
        return []
    if type_.kind is Kind.STRING:
        return ["const char*"]
    if type_.kind is Kind.DEVICE:
        return ["const trident_device*"]
    plain = {Kind.FLOAT: "double", Kind.SCALAR: "trident_scalar"}.get(type_.kind, "int64_t")
    return [f"const {plain}*" if type_.optional else plain]


class TypedCalls:
    """Writes typed calls and collects what they import."""

    def __init__(self, scope: Scope, home_device: str) -> None:
        self._scope = scope
        self._home_device = home_device
        self._imports: dict[tuple[str, str], Import] = {}

    @property
    def imports(self) -> list[Import]:
        """In order of first use."""
        return list(self._imports.values())

    def statements(self, call: Call) -> list[str]:
        """The statements of one call; each fits a block of its own."""
        function = self._import(call.schema, call.device)
        before: list[str] = []
        written: list[str] = []
        for parameter, operand in zip(call.schema.parameters, call.arguments, strict=True):
            written += self._argument(parameter, operand, before)
        written += self._results(call, before)
        call_text = f"TRIDENT_TRY({function.name}({', '.join(written)}));"
        after = []
        if call.schema.results and call.schema.results[0].type.is_list and call.results:
            after = [
                f"{self._scope.tensor(slot)} = results[{index}];"
                for index, slot in enumerate(call.results)
                if slot is not None
            ]
        return [*before, call_text, *after]

    def _import(self, schema: Schema, device: str) -> Import:
        key = (schema.key, device)
        if key not in self._imports:
            suffix = "" if device == self._home_device else f"_{device}"
            name = self._scope.functions.unique(f"{readable(schema)}{suffix}")
            self._imports[key] = Import(schema, device, name)
        return self._imports[key]

    def _argument(self, parameter: Parameter, operand: Operand, before: list[str]) -> list[str]:
        type_ = parameter.type
        constants = self._scope.constants
        if type_.is_list:
            return self._list(parameter, operand, before)
        if type_.kind is Kind.GENERATOR:
            return []
        if operand is None:
            return ["nullptr"]
        if isinstance(operand, (Slot, InputRef)):
            return [self._scope.tensor(operand)]
        if isinstance(operand, (sympy.Expr, Real)):
            return [self._varying(parameter, operand, before)]
        if type_.kind is Kind.TENSOR:
            assert isinstance(operand, (bool, int, float))
            return [constants.number(operand)]
        if type_.kind is Kind.SCALAR:
            assert isinstance(operand, (bool, int, float))
            scalar = constants.scalar(operand)
            return [f"&{scalar}" if type_.optional else scalar]
        if type_.kind is Kind.DEVICE:
            return [f"&{constants.device(operand)}"]  # type: ignore[arg-type]
        if type_.kind is Kind.STRING:
            return [names.string(str(operand))]
        if type_.kind is Kind.FLOAT:
            assert isinstance(operand, (int, float))
            number = float(operand)
            return [f"&{constants.double(number)}" if type_.optional else names.floating(number)]
        assert isinstance(operand, int), f"{parameter.name} is {operand!r}"
        whole = int(operand)
        return [f"&{constants.integer(whole)}" if type_.optional else names.integer(whole)]

    def _varying(self, parameter: Parameter, operand: sympy.Expr | Real, before: list[str]) -> str:
        """A number that varies; where the parameter takes an address, that of a local."""
        type_ = parameter.type
        real = isinstance(operand, Real)
        written = operand.text if isinstance(operand, Real) else expressions.text(operand)
        name = local_name(parameter)
        if type_.kind is Kind.SCALAR:
            value = f"float_scalar({written})" if real else f"{{TRIDENT_SCALAR_INT, {{{written}}}}}"
            before.append(f"const trident_scalar {name} = {value};")
            return f"&{name}" if type_.optional else name
        if type_.kind is Kind.FLOAT and real:
            pass
        elif type_.kind is Kind.FLOAT:
            written = f"static_cast<double>({written})"
        elif type_.kind is not Kind.INT or real:
            raise UnsupportedError(f"parameter {parameter.name} is given a number that varies")
        if type_.optional:
            kind = "double" if type_.kind is Kind.FLOAT else "int64_t"
            before.append(f"const {kind} {name} = {written};")
            return f"&{name}"
        return written

    def _list(self, parameter: Parameter, operand: Operand, before: list[str]) -> list[str]:
        if operand is None:
            return ["nullptr", "0"]
        assert isinstance(operand, list)
        count = str(len(operand))
        if parameter.type.kind is Kind.TENSOR:
            before.append(tensor_array(self._scope, local_name(parameter), operand))
            return [local_name(parameter), count]
        if any(isinstance(each, (sympy.Expr, Real)) for each in operand):
            before.append(varying_array(local_name(parameter), parameter, operand))
            return [local_name(parameter), count]
        if parameter.type.kind is Kind.FLOAT:
            return [self._scope.constants.doubles(operand), count]
        return [self._scope.constants.ints(operand), count]

    def _results(self, call: Call, before: list[str]) -> list[str]:
        schema = call.schema
        if schema.fresh_results and schema.results[0].type.is_list:
            before.append(f"trident_tensor results[{max(len(call.results), 1)}] = {{}};")
            return ["results", str(len(call.results))]
        written = []
        for index, slot in zip(schema.fresh_results, call.results, strict=True):
            if slot is not None:
                written.append(f"&{self._scope.tensor(slot)}")
            else:
                before.append(f"int64_t number_{index};  // a size that the capture knows already")
                written.append(f"&number_{index}")
        return written


def local_name(parameter: Parameter) -> str:
    """The name of a local that holds a parameter's value; none of the unit's other names."""
    return f"the_{parameter.name}"


def varying_array(name: str, parameter: Parameter, operands: list[Operand]) -> str:
    """A local array of integers of which some vary."""
    if parameter.type.kind is not Kind.INT or any(isinstance(each, Real) for each in operands):
        raise UnsupportedError(f"parameter {parameter.name} is given numbers that vary")
    return integer_array(name, operands)


def integer_array(name: str, values: Sequence[Size]) -> str:
    """A local array of int64_t."""
    written = [names.integer(v) if isinstance(v, int) else expressions.text(v) for v in values]
    return f"const int64_t {name}[] = {{{', '.join(written) or '0'}}};"


def tensor_array(scope: Scope, name: str, operands: list[Operand]) -> str:
    """A local array of tensors; NULL for None."""
    elements = []
    for each in operands:
        assert each is None or isinstance(each, (Slot, InputRef))
        elements.append("nullptr" if each is None else scope.tensor(each))
    return f"const trident_tensor {name}[] = {{{', '.join(elements) or 'nullptr'}}};"


def readable(schema: Schema) -> str:
    """``mm_out`` for ``mm.out``; in-place operators keep their underscore's meaning."""
    base = schema.name
    if base.endswith("_"):
        base = f"{base.rstrip('_')}_inplace"
    return f"{base}_{schema.overload}" if schema.overload else base
