"""Operator schemas, reduced to what the passes and the emitters ask."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any

import torch


class Kind(enum.Enum):
    """What a parameter or result holds, without optionality and lists."""

    TENSOR = "Tensor"
    INT = "int"  # also SymInt, and the enums dtype, layout and memory format
    BOOL = "bool"
    FLOAT = "float"
    SCALAR = "Scalar"
    STRING = "str"
    DEVICE = "Device"
    GENERATOR = "Generator"
    OTHER = "other"


_KINDS = {
    "Tensor": Kind.TENSOR,
    "int": Kind.INT,
    "SymInt": Kind.INT,
    "ScalarType": Kind.INT,
    "Layout": Kind.INT,
    "MemoryFormat": Kind.INT,
    "bool": Kind.BOOL,
    "float": Kind.FLOAT,
    "number": Kind.SCALAR,
    "Scalar": Kind.SCALAR,
    "str": Kind.STRING,
    "Device": Kind.DEVICE,
    "Generator": Kind.GENERATOR,
}


@dataclasses.dataclass(frozen=True)
class Type:
    """A schema type: ``Optional[List[Optional[Tensor]]]`` is all three flags and TENSOR."""

    kind: Kind
    is_list: bool = False
    optional: bool = False
    optional_elements: bool = False


def _parse_type(text: str) -> Type:
    optional = text.startswith("Optional[")
    if optional:
        text = text[len("Optional[") : -1]
    is_list = text.startswith("List[")
    optional_elements = False
    if is_list:
        text = text[len("List[") : -1]
        optional_elements = text.startswith("Optional[")
        if optional_elements:
            text = text[len("Optional[") : -1]
    return Type(_KINDS.get(text, Kind.OTHER), is_list, optional, optional_elements)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of an operator.

    Attributes:
        aliases: the schema says that a result may share this tensor's storage.
        writes: the operator writes into this tensor.
        is_out: an ``out=`` destination.
        length: of a fixed-length list, to which a single value expands.
    """

    name: str
    type: Type
    aliases: bool
    writes: bool
    is_out: bool
    alias_set: frozenset[str]
    has_default: bool
    default: Any = dataclasses.field(compare=False, default=None)
    length: int | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """One result. ``writes``: it is the tensor of the parameter with the same ``alias_set``."""

    type: Type
    aliases: bool
    writes: bool
    alias_set: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Schema:
    """An operator overload.

    Attributes:
        namespace: such as ``aten``.
        name: such as ``mm``.
        overload: such as ``out``; empty for the default overload.
        text: the whole schema as PyTorch writes it.
    """

    namespace: str
    name: str
    overload: str
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    text: str

    @property
    def key(self) -> str:
        """The name without namespace: ``mm.out``, ``relu``."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def qualified(self) -> str:
        """The full name: ``aten::mm.out``."""
        return f"{self.namespace}::{self.key}"

    @property
    def mutates(self) -> bool:
        """Whether the operator writes into one of its arguments."""
        return any(parameter.writes for parameter in self.parameters)

    @property
    def fresh_results(self) -> tuple[int, ...]:
        """Indices of the results that a call hands out, rather than written arguments."""
        return tuple(i for i, result in enumerate(self.results) if not result.writes)


def _convert(raw: torch.FunctionSchema) -> Schema:
    namespace, _, name = raw.name.partition("::")
    parameters = []
    for argument in raw.arguments:
        alias = argument.alias_info
        parameters.append(
            Parameter(
                name=argument.name,
                type=_parse_type(str(argument.real_type)),
                aliases=alias is not None,
                writes=alias is not None and alias.is_write,
                is_out=bool(argument.is_out),
                alias_set=frozenset(alias.before_set) if alias is not None else frozenset(),
                has_default=argument.has_default_value(),
                default=argument.default_value if argument.has_default_value() else None,
                length=argument.N,  # type: ignore[attr-defined]
            )
        )
    results = []
    for returned in raw.returns:
        alias = returned.alias_info
        results.append(
            Result(
                type=_parse_type(str(returned.real_type)),
                aliases=alias is not None,
                writes=alias is not None and alias.is_write,
                alias_set=frozenset(alias.before_set) if alias is not None else frozenset(),
            )
        )
    return Schema(namespace, name, raw.overload_name, tuple(parameters), tuple(results), str(raw))


@functools.cache
def lookup(qualified: str) -> Schema:
    """The schema of a registered operator, ``aten::mm.out``. Raises RuntimeError if unknown."""
    name, _, overload = qualified.partition(".")
    return _convert(torch._C._get_schema(name, overload))


def of(operator: torch._ops.OpOverload) -> Schema:
    """The schema of an operator of PyTorch's."""
    name, overload = operator._schema.name, operator._schema.overload_name
    return lookup(f"{name}.{overload}" if overload else name)


@functools.cache
def parse(text: str) -> Schema:
    """The schema that ``text`` spells, with or without a namespace. Raises RuntimeError."""
    return _convert(torch._C.parse_schema(text))


@functools.cache
def tags(qualified: str) -> frozenset[torch.Tag]:
    """PyTorch's tags of a registered operator."""
    namespace, _, rest = qualified.partition("::")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    return frozenset(getattr(packet, overload or "default").tags)


@functools.cache
def overloads(namespace: str, name: str) -> tuple[Schema, ...]:
    """All overloads that share a base name."""
    packet = getattr(getattr(torch.ops, namespace), name)
    return tuple(
        lookup(f"{namespace}::{name}" + ("" if each == "default" else f".{each}"))
        for each in packet.overloads()
    )
