"""How a schema's types appear in a typed shim: C parameters, and the ATen arguments made of them.

The table that this follows is in docs/design.md, section 8.
"""

from __future__ import annotations

import dataclasses

from torchgen.model import (
    Argument,
    BaseTy,
    BaseType,
    FunctionSchema,
    ListType,
    OptionalType,
    Return,
    Type,
)

ENUMS = {
    BaseTy.ScalarType: "at::ScalarType",
    BaseTy.Layout: "at::Layout",
    BaseTy.MemoryFormat: "at::MemoryFormat",
}


class UnsupportedType(Exception):
    """A schema type for which the calling convention has no place."""


@dataclasses.dataclass(frozen=True)
class Lowered:
    """One argument of a schema.

    Attributes:
        parameters: C declarations, in order; none for a generator.
        direct: the C++ expression for a backend's own function (plain integers).
        dispatched: the C++ expression for ``at::_ops::X::call`` (symbolic integers).
    """

    parameters: tuple[str, ...]
    direct: str
    dispatched: str


def lower_argument(argument: Argument) -> Lowered:
    """Lowers one argument; raises UnsupportedType for types outside of the calling convention."""
    return _lower(argument.name, argument.type)


def _lower(name: str, type_: Type) -> Lowered:
    if isinstance(type_, OptionalType):
        return _lower_optional(name, type_.elem)
    if isinstance(type_, ListType):
        return _lower_list(name, type_, optional=False)
    if not isinstance(type_, BaseType):
        raise UnsupportedType(str(type_))
    match type_.name:
        case BaseTy.Tensor:
            return _same(f"trident_tensor {name}", f"*Borrowed({name})")
        case BaseTy.int:
            return _same(f"int64_t {name}", name)
        case BaseTy.SymInt:
            return Lowered((f"int64_t {name}",), name, f"c10::SymInt({name})")
        case BaseTy.bool:
            return _same(f"int64_t {name}", f"{name} != 0")
        case BaseTy.float:
            return _same(f"double {name}", name)
        case BaseTy.Scalar:
            return _same(f"trident_scalar {name}", f"arg::scalar({name})")
        case BaseTy.Device:
            return _same(f"const trident_device* {name}", f"arg::device({name})")
        case BaseTy.str:
            return _same(f"const char* {name}", f"std::string_view({name})")
        case enum if enum in ENUMS:
            return _same(f"int64_t {name}", f"static_cast<{ENUMS[enum]}>({name})")
    raise UnsupportedType(str(type_))


def _lower_optional(name: str, element: Type) -> Lowered:
    if isinstance(element, ListType):
        return _lower_list(name, element, optional=True)
    if not isinstance(element, BaseType):
        raise UnsupportedType(f"{element}?")
    match element.name:
        case BaseTy.Tensor:
            return _same(f"trident_tensor {name}", f"*BorrowedOptional({name})")
        case BaseTy.Generator:
            return Lowered((), "std::optional<at::Generator>()", "std::optional<at::Generator>()")
        case BaseTy.int:
            return _same(f"const int64_t* {name}", f"arg::optional<int64_t>({name})")
        case BaseTy.SymInt:
            return Lowered(
                (f"const int64_t* {name}",),
                f"arg::optional<int64_t>({name})",
                f"arg::optional<c10::SymInt>({name})",
            )
        case BaseTy.bool:
            return _same(f"const int64_t* {name}", f"arg::optional<bool>({name})")
        case BaseTy.float:
            return _same(f"const double* {name}", f"arg::optional<double>({name})")
        case BaseTy.Scalar:
            return _same(f"const trident_scalar* {name}", f"arg::optional_scalar({name})")
        case BaseTy.Device:
            return _same(f"const trident_device* {name}", f"arg::optional_device({name})")
        case BaseTy.str:
            return _same(f"const char* {name}", f"arg::optional_string({name})")
        case enum if enum in ENUMS:
            return _same(f"const int64_t* {name}", f"arg::optional<{ENUMS[enum]}>({name})")
    raise UnsupportedType(f"{element}?")


def _lower_list(name: str, type_: ListType, optional: bool) -> Lowered:
    element = type_.elem
    count = f"{name}_count"
    prefix = "arg::optional_" if optional else "arg::"
    if isinstance(element, BaseType):
        match element.name:
            case BaseTy.int:
                return _list(f"const int64_t* {name}", name, f"{prefix}ints({name}, {count})")
            case BaseTy.SymInt:
                return _list(
                    f"const int64_t* {name}",
                    name,
                    f"{prefix}ints({name}, {count})",
                    f"{prefix}symints({name}, {count})",
                )
            case BaseTy.float:
                return _list(f"const double* {name}", name, f"{prefix}floats({name}, {count})")
            case BaseTy.bool if type_.size is not None and not optional:
                return _list(
                    f"const int64_t* {name}", name, f"arg::bools<{type_.size}>({name}, {count})"
                )
            case BaseTy.Tensor if not optional:
                return _list(
                    f"const trident_tensor* {name}", name, f"*BorrowedList({name}, {count})"
                )
    if element == OptionalType(BaseType(BaseTy.Tensor)) and not optional:
        return _list(
            f"const trident_tensor* {name}", name, f"arg::optional_tensors({name}, {count})"
        )
    raise UnsupportedType(str(type_) + ("?" if optional else ""))


def _same(parameter: str, expression: str) -> Lowered:
    return Lowered((parameter,), expression, expression)


def _list(parameter: str, name: str, direct: str, dispatched: str | None = None) -> Lowered:
    return Lowered((parameter, f"int64_t {name}_count"), direct, dispatched or direct)


def result_parameters(func: FunctionSchema) -> tuple[str, ...]:
    """The C declarations that receive an overload's results; none for in-place and out= overloads.

    A tensor needs a ``trident_tensor*``, an integer or bool an ``int64_t*``, a list of tensors an
    array and the length that the caller expects. Raises UnsupportedType for anything else.
    """
    returns = [r for r in func.returns if not r.is_write]
    if len(returns) == 1 and str(returns[0].type) == "Tensor[]":
        return ("trident_tensor* results", "int64_t results_count")
    taken = {argument.name for argument in func.arguments.flat_all}
    return tuple(
        f"{_result_type(r)} {_result_name(r, i, len(returns), taken)}"
        for i, r in enumerate(returns)
    )


def _result_type(result: Return) -> str:
    match str(result.type):
        case "Tensor":
            return "trident_tensor*"
        case "int" | "SymInt" | "bool":
            return "int64_t*"
    raise UnsupportedType(f"a result of type {result.type}")


def _result_name(result: Return, index: int, total: int, taken: set[str]) -> str:
    name = result.name or ("result" if total == 1 else f"result{index}")
    return f"{name}_result" if name in taken else name
