"""Finds which values share memory, and checks that schemas and the trace agree on it."""

from __future__ import annotations

from trident.errors import UnsupportedError
from trident.ir.forms import is_restride
from trident.ir.program import Operation, Program, Storage, Value
from trident.ir.schema import Result

# Operators that return a view although their schema says nothing of it: autograd must not know.
_UNDECLARED_VIEWS = frozenset(
    {
        "aten::_unsafe_view",
        "aten::unsafe_chunk",
        "aten::unsafe_split.Tensor",
        "aten::unsafe_split_with_sizes",
    }
)

# Views that eager gives out as tensors of their own, without a base. A trace below autograd shows
# `detach` as `alias`, which has hardly another source.
_UNTRACKED_VIEWS = _UNDECLARED_VIEWS | {"aten::detach", "aten::alias"}


def run(program: Program) -> None:
    """Fills ``program.storages`` and each value's ``same``, ``source`` and ``tracked_view``.

    Raises:
        UnsupportedError: for an operator that changes a tensor's geometry in place in a way that
            cannot be followed, or whose results share memory in a way that its schema does not
            state.
    """
    for value in program.inputs:
        storage = program.storages.get(value.storage)
        if storage is None:
            program.storages[value.storage] = Storage(value.storage, [value], None, value.device)
        else:
            storage.values.append(value)
    for operation in program.operations:
        _classify_results(program, operation)
    for value in program.outputs:
        program.storage(value).escapes = True


def _classify_results(program: Program, operation: Operation) -> None:
    results = operation.schema.results
    for index, value in enumerate(operation.results):
        if value is None:
            continue
        declared = results[0] if len(results) == 1 else results[index]
        if declared.writes:
            argument = _written_argument(operation, declared)
            if argument.storage != value.storage:
                raise _changes_shape(operation)
            if argument.layout == value.layout:
                value.same = argument
            else:
                _classify_reshaped(program, operation, argument.resolve(), value)
        elif declared.aliases or operation.name in _UNDECLARED_VIEWS:
            _classify_view(program, operation, value, declared.aliases)
        else:
            _classify_fresh(program, operation, value)
        program.storage(value).values.append(value)


def _written_argument(operation: Operation, declared: Result) -> Value:
    for parameter, argument in zip(operation.schema.parameters, operation.arguments, strict=True):
        if (
            parameter.writes
            and parameter.alias_set == declared.alias_set
            and isinstance(argument, Value)
        ):
            return argument
    raise UnsupportedError(
        f"{operation.name} returns a tensor it wrote that is none of its arguments", operation.line
    )


def _classify_reshaped(
    program: Program, operation: Operation, argument: Value, value: Value
) -> None:
    """A tensor object gets another layout: from here on ``value`` stands for it.

    What the program made itself is as good as a view; only the new one is used from here on. An
    input, and a tensor whose memory may grow, are changed by the operator at run time. Views that
    were taken before stay right: they depend on the storage and on where the tensor starts.
    """
    if is_restride(operation) and argument.input_index is None:
        value.source = argument
        value.tracked_view = argument.tracked_view
        return
    own = argument.input_index is not None or argument.source is None
    if not own or argument.layout.offset != value.layout.offset:
        raise _changes_shape(operation)
    program.reshaped.add(argument)
    if argument.input_index is not None:
        value.input_index = argument.input_index
    else:
        value.object = argument
        program.storage(argument).resized = True


def _changes_shape(operation: Operation) -> UnsupportedError:
    return UnsupportedError(
        f"{operation.name} changes the shape of a tensor in place", operation.line
    )


def _classify_view(program: Program, operation: Operation, value: Value, must_alias: bool) -> None:
    for parameter, argument in zip(operation.schema.parameters, operation.arguments, strict=True):
        if (
            isinstance(argument, Value)
            and argument.storage == value.storage
            and (parameter.aliases or not must_alias)
        ):
            if operation.name == "aten::lift_fresh":
                value.same = argument  # hands out its very argument
                return
            value.source = argument
            value.tracked_view = operation.name not in _UNTRACKED_VIEWS
            return
    if must_alias:
        raise UnsupportedError(
            f"{operation.name} should have returned a view but returned new memory", operation.line
        )
    _classify_fresh(program, operation, value)


def _classify_fresh(program: Program, operation: Operation, value: Value) -> None:
    known = program.storages.get(value.storage)
    if known is None:
        program.storages[value.storage] = Storage(value.storage, [], operation, value.device)
    elif known.owner is not operation:
        raise UnsupportedError(
            f"{operation.name} returned memory that other tensors use, which its schema does not "
            "state",
            operation.line,
        )
