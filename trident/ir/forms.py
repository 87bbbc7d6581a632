"""In which forms an operator can run: into given memory, as a fill, as a copy, or not at all."""

from __future__ import annotations

import dataclasses
import functools

import sympy
import torch

from trident.errors import UnsupportedError
from trident.ir import registry
from trident.ir import schema as schemas
from trident.ir.expressions import Real
from trident.ir.program import Argument, Operation, Program, Value
from trident.ir.registry import TypedOperators
from trident.ir.schema import Kind, Schema

_EMPTY = frozenset(
    {
        "aten::empty.memory_format",
        "aten::empty_strided",
        "aten::empty_permuted",
        "aten::empty_like",
        "aten::new_empty",
        "aten::new_empty_strided",
    }
)

# Operator -> the value it fills with, or the name of the parameter that holds it.
_FILLS: dict[str, int | str] = {
    "aten::zeros": 0,
    "aten::zeros_like": 0,
    "aten::new_zeros": 0,
    "aten::ones": 1,
    "aten::ones_like": 1,
    "aten::new_ones": 1,
    "aten::full": "fill_value",
    "aten::full_like": "fill_value",
    "aten::new_full": "fill_value",
    "aten::scalar_tensor": "s",
}

# In-place operators that only change sizes and strides.
_RESTRIDES = frozenset(
    {
        *("aten::squeeze_", "aten::squeeze_.dim", "aten::squeeze_.dims", "aten::unsqueeze_"),
        *("aten::t_", "aten::transpose_", "aten::swapaxes_", "aten::swapdims_"),
        "aten::as_strided_",
    }
)

_COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::lift_fresh_copy"})


@dataclasses.dataclass
class Call:
    """An overload and the arguments to call it with, in schema order.

    ``destinations``: parameters that receive the operation's results, by position.
    """

    schema: Schema
    arguments: list[Argument]
    destinations: tuple[int, ...] = ()


def is_uninitialized(operation: Operation) -> bool:
    """Whether the operator only makes memory. Pinned memory counts as made by a real operator, and
    so does what deterministic algorithms fill; whether they do is guarded."""
    return (
        operation.name in _EMPTY
        and not argument_named(operation, "pin_memory")
        and not _fills_empty_memory()
    )


def _fills_empty_memory() -> bool:
    return (
        torch.are_deterministic_algorithms_enabled()
        and torch._C._get_deterministic_fill_uninitialized_memory()
    )


@functools.cache
def _is_view_schema(qualified: str) -> bool:
    schema = schemas.lookup(qualified)
    return (
        bool(schema.results)
        and not schema.mutates
        and all(result.aliases for result in schema.results)
    )


def is_restride(operation: Operation) -> bool:
    """Whether the operator changes a tensor's sizes and strides in place and nothing else."""
    return operation.name in _RESTRIDES


def is_pure_view(operation: Operation) -> bool:
    """Whether all that the operator does is to hand out views (or its very argument)."""
    if is_restride(operation):
        return all(v is not None and v.input_index is None for v in operation.results)
    return _is_view_schema(operation.name) or (
        bool(operation.results)
        and not operation.schema.mutates
        and all(v is not None and v.source is not None for v in operation.results)
    )


def argument_named(operation: Operation, name: str) -> Argument:
    """The argument for a parameter, or None where the schema has no such parameter."""
    for parameter, argument in zip(operation.schema.parameters, operation.arguments, strict=True):
        if parameter.name == name:
            return argument
    return None


def backend(operation: Operation) -> str:
    """The backend whose kernel eager runs: "cuda" if any tensor is there, else "cpu"."""
    devices = [value.device for value in (*operation.inputs(), *operation.outputs())]
    for device in devices:
        if device.startswith("cuda"):
            return "cuda"
    others = {device for device in devices if device != "cpu"}
    if others:
        raise UnsupportedError(f"tensors on {sorted(others)[0]} are not supported", operation.line)
    return "cpu"


def functional_form(operation: Operation) -> Call:
    """The operator as it stands. A number in place of a tensor stays: the program makes a tensor of
    it, once, as PyTorch does in each call. One that varies selects the overload for numbers.

    Raises:
        UnsupportedError: where a number that varies stands for a tensor and no overload takes it.
    """
    schema = operation.schema
    pairs = list(zip(schema.parameters, operation.arguments, strict=True))
    numbers = frozenset(
        position
        for position, (parameter, argument) in enumerate(pairs)
        if parameter.type.kind is Kind.TENSOR
        and isinstance(argument, (bool, int, float, sympy.Expr, Real))
    )
    varying = (sympy.Expr, Real)
    if not any(isinstance(operation.arguments[position], varying) for position in numbers):
        return Call(schema, list(operation.arguments))
    twin = registry.scalar_twin(schema.qualified, numbers)
    if twin is None:
        raise UnsupportedError(
            f"{operation.name} got a number that varies where it expects a tensor", operation.line
        )
    extra = [parameter.default for parameter in twin.parameters[len(operation.arguments) :]]
    return Call(twin, [*operation.arguments, *extra])


def out_form(operation: Operation, typed: TypedOperators) -> Call | None:
    """A typed form that computes all results into given memory, or None."""
    device = backend(operation)
    forms = (_fill(operation, typed, device), _copy(operation), _relu(operation), _out(operation))
    for made in forms:
        if made is not None and typed.has(made.schema, device):
            return made
    return None


def writes_into_given_memory(program: Program, operation: Operation, typed: TypedOperators) -> bool:
    """Whether the operator's results can be planned."""
    if is_uninitialized(operation):
        return True
    if any(value is None for value in operation.results):
        return False
    if any(v.same is not None or v.source is not None for v in operation.outputs()):
        return False
    if not all(value.on_cpu or program.on_device(value.device) for value in operation.outputs()):
        return False
    return out_form(operation, typed) is not None


def _fill(operation: Operation, typed: TypedOperators, device: str) -> Call | None:
    if operation.name not in _FILLS or argument_named(operation, "pin_memory"):
        return None
    source = _FILLS[operation.name]
    value = argument_named(operation, source) if isinstance(source, str) else source
    destination = _result(operation)
    zero = schemas.lookup("aten::zero_")
    if type(value) is int and value == 0 and typed.has(zero, device):
        return Call(zero, [destination], (0,))
    return Call(schemas.lookup("aten::fill_.Scalar"), [destination, value], (0,))


def _copy(operation: Operation) -> Call | None:
    if operation.name not in _COPIES or argument_named(operation, "pin_memory"):
        return None
    non_blocking = bool(argument_named(operation, "non_blocking"))
    arguments: list[Argument] = [_result(operation), operation.arguments[0], non_blocking]
    return Call(schemas.lookup("aten::copy_"), arguments, (0,))


def _relu(operation: Operation) -> Call | None:
    """``relu`` runs ``clamp_min`` with 0, which can write into given memory; not for bools."""
    if operation.name != "aten::relu":
        return None
    result = _result(operation)
    if result.layout.dtype == torch.bool:
        return None
    overload = schemas.lookup("aten::clamp_min.out")
    return Call(overload, [operation.arguments[0], 0, result], (2,))


def _out(operation: Operation) -> Call | None:
    if operation.schema.namespace != "aten" or operation.schema.mutates:
        return None
    call = functional_form(operation)
    if call.schema.name == "arange":
        return _arange(call, operation)
    overload = registry.out_overload(call.schema.qualified)
    if overload is None:
        return None
    given = _named(call)
    results = iter(operation.results)
    arguments: list[Argument] = []
    destinations = []
    for position, parameter in enumerate(overload.parameters):
        if parameter.is_out:
            destinations.append(position)
            arguments.append(next(results))
        else:
            arguments.append(given[parameter.name])
    return Call(overload, arguments, tuple(destinations))


def _named(call: Call) -> dict[str, Argument]:
    names = (parameter.name for parameter in call.schema.parameters)
    return dict(zip(names, call.arguments, strict=True))


def _arange(call: Call, operation: Operation) -> Call | None:
    given = _named(call)
    bounds: list[Argument] = [given.get("start", 0), given["end"], given.get("step", 1)]
    overload = schemas.lookup("aten::arange.start_out")
    return Call(overload, [*bounds, _result(operation)], (3,))


def _result(operation: Operation) -> Value:
    (result,) = operation.results
    assert result is not None
    return result
