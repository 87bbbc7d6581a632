"""Chooses how each operator runs, and turns the program into steps."""

from __future__ import annotations

from trident.errors import UnsupportedError
from trident.ir import forms
from trident.ir.passes.outputs import give_outputs
from trident.ir.passes.placement import Placement
from trident.ir.program import Argument, Operation, Program, Value
from trident.ir.registry import TypedOperators
from trident.ir.schema import Kind, Schema
from trident.ir.steps import (
    Allocate,
    Call,
    HostProgram,
    Launch,
    Operand,
    Release,
    Slot,
)


def run(program: Program, typed: TypedOperators) -> HostProgram:
    """Steps for a program whose storages have been planned.

    Into planned memory an operator runs in its typed ``out=`` form. Other results come from the
    typed functional form, else from a typed ``out=`` form into fresh memory, else from a boxed
    call.

    Raises:
        UnsupportedError: for an operator that cannot be called with its arguments.
    """
    return _Chooser(program, typed).choose()


class _Chooser:
    def __init__(self, program: Program, typed: TypedOperators) -> None:
        self._program = program
        self._typed = typed
        self._placement = Placement(program)
        self._steps = self._placement.steps

    def choose(self) -> HostProgram:
        for position, operation in enumerate(self._program.operations):
            self._lower(operation)
            self._steps.extend(Release(slot) for slot in self._placement.expired(position))
        give_outputs(self._program, self._placement)
        return HostProgram(
            self._steps,
            self._placement.planned_slots,
            self._placement.transient_slots,
            self._placement.shared_slots,
        )

    def _lower(self, operation: Operation) -> None:
        if operation.launch is not None:
            pointers = [self._placement.address(value) for value in operation.inputs()]
            self._steps.append(Launch(operation.launch, pointers, operation))
        elif forms.is_pure_view(operation):
            if not all(self._placement.folds(value) for value in operation.outputs()):
                self._call_for_results(operation)
        elif forms.is_uninitialized(operation) and self._can_allocate(operation):
            for value in operation.outputs():
                if not self._program.storage(value).planned:
                    self._allocate(operation, value)
        elif any(self._program.storage(value).planned for value in _fresh(operation)):
            form = forms.out_form(operation, self._typed)
            assert form is not None, "the memory plan asks for the same form"
            self._call_into_memory(operation, form)
        else:
            self._call_for_results(operation)

    def _can_allocate(self, operation: Operation) -> bool:
        return all(
            value.layout.offset == 0 and (value.on_cpu or self._program.on_device(value.device))
            for value in operation.outputs()
        )

    def _allocate(self, operation: Operation, value: Value) -> None:
        slot = self._placement.own(value)
        self._steps.append(Allocate(slot, value.layout, value.on_cpu, operation))

    def _call_into_memory(self, operation: Operation, form: forms.Call) -> None:
        for value in _fresh(operation):
            if not self._program.storage(value).planned:
                self._allocate(operation, value)
        self._append_call(operation, form.schema, form.arguments, [], typed=True)

    def _call_for_results(self, operation: Operation) -> None:
        form = forms.functional_form(operation)
        # Typed ``out=`` forms are for memory of the program's own: they count no version.
        into_users = any(parameter.is_out for parameter in form.schema.parameters)
        typed = not into_users and self._typed.has(form.schema, forms.backend(operation))
        all_fresh = len(_fresh(operation)) == len(operation.results) > 0
        if not typed and all_fresh and self._can_allocate(operation):
            into = forms.out_form(operation, self._typed)
            if into is not None:
                self._call_into_memory(operation, into)
                return
        arguments = [self._operand(each) for each in form.arguments]
        results = self._result_slots(operation)
        self._append_call(operation, form.schema, arguments, results, typed)
        for value in operation.outputs():
            if value.object is not None:
                self._placement.rename(value)

    def _result_slots(self, operation: Operation) -> list[Slot | None]:
        schema = operation.schema
        if len(schema.results) == 1 and schema.results[0].type.is_list:
            return [self._placement.own(value) for value in operation.outputs()]
        slots: list[Slot | None] = []
        for index in schema.fresh_results:
            value = operation.results[index]
            if value is not None:
                slots.append(self._placement.own(value))
            elif schema.results[index].type.kind is Kind.TENSOR:
                slots.append(self._placement.scratch(f"{operation.node}_{index}"))
            else:
                slots.append(None)
        return slots

    def _append_call(
        self,
        operation: Operation,
        schema: Schema,
        arguments: list[Argument] | list[Operand],
        results: list[Slot | None],
        typed: bool,
    ) -> None:
        operands = [self._operand(each) for each in arguments]
        if not typed:
            _check_boxed(operation, schema)
        device = forms.backend(operation)
        self._steps.append(Call(schema, typed, device, operands, results, operation))

    def _operand(self, argument: Argument | Operand) -> Operand:
        if isinstance(argument, Value):
            return self._placement.place(argument)
        if isinstance(argument, list):
            return [self._operand(each) for each in argument]
        return argument


def _fresh(operation: Operation) -> list[Value]:
    return [value for value in operation.outputs() if value.is_fresh]


def _check_boxed(operation: Operation, schema: Schema) -> None:
    for parameter in schema.parameters:
        kind = parameter.type.kind
        in_list = (Kind.TENSOR, Kind.INT, Kind.FLOAT, Kind.BOOL)
        if kind is Kind.OTHER or (parameter.type.is_list and kind not in in_list):
            raise UnsupportedError(
                f"{schema.qualified} has a parameter of unsupported type, '{parameter.name}'",
                operation.line,
            )
