"""Each pass on small graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_helpers import capture_function, torch_typed_table
from step_interpreter import compile_steps

from trident.errors import UnsupportedError
from trident.ir.importer import import_capture
from trident.ir.passes import dead_code, liveness, memory_plan, storages
from trident.ir.program import Layout, Program, Storage, Value, read_program
from trident.ir.registry import out_overload, scalar_twin
from trident.ir.steps import Allocate, Call, GiveReference, GiveView, HostProgram, Launch, MakeView


def program_of(function: Any, *inputs: torch.Tensor) -> Program:
    capture = capture_function(function, inputs)
    return read_program(import_capture(capture).module, capture.name, capture.device)


def steps_of(function: Any, *inputs: torch.Tensor) -> HostProgram:
    return compile_steps(capture_function(function, inputs), torch_typed_table())[1]


def calls(host: HostProgram) -> list[str]:
    return [step.schema.key for step in host.steps if isinstance(step, Call)]


def fill_with_kernel(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.ops.trident.launch([x, y], 0)
    return y


# Dead code


def test_unused_pure_operators_go_with_their_constants() -> None:
    program = program_of(lambda x: (x.exp().sum(dim=[0, 1]), x + 1)[1], torch.ones(2, 2))
    dead_code.run(program)
    assert [each.name for each in program.operations] == ["aten::add.Tensor"]
    assert "exp" not in str(program.module)
    assert "ListConstruct" not in str(program.module)
    assert program.module.operation.verify()


def test_unused_list_results_go() -> None:
    program = program_of(lambda x: (x.split(1), x + 1)[1], torch.ones(2, 2))
    dead_code.run(program)
    assert [each.name for each in program.operations] == ["aten::add.Tensor"]


def test_unused_random_numbers_stay() -> None:
    program = program_of(lambda x: (torch.rand(3), x + 1)[1], torch.ones(2))
    dead_code.run(program)
    assert "aten::rand" in [each.name for each in program.operations]


def test_writes_and_launches_stay() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        fill_with_kernel(x)
        return x.sum()

    program = program_of(function, torch.ones(2))
    dead_code.run(program)
    names = [each.name for each in program.operations]
    assert names == ["aten::add_.Tensor", "aten::empty_like", "trident::launch", "aten::sum"]


# Storages


def test_in_place_result_is_the_argument() -> None:
    program = program_of(lambda x: x.mul_(2), torch.ones(2))
    storages.run(program)
    assert program.outputs[0].resolve() is program.inputs[0]


def test_view_chain_leads_to_its_source() -> None:
    program = program_of(lambda x: x.t()[1:], torch.ones(3, 3))
    storages.run(program)
    view = program.outputs[0]
    assert view.source is not None and view.source.source is program.inputs[0]
    assert view.tracked_view


@pytest.mark.parametrize("change", [torch.Tensor.t_, lambda x: x.unsqueeze_(0)])
def test_temporary_of_changed_shape_is_a_view(change: Any) -> None:
    program = program_of(lambda x: change(x + 1) * 2, torch.ones(2, 3))
    storages.run(program)
    (changed,) = program.operations[1].outputs()
    assert changed.source is not None and not changed.tracked_view
    assert not program.reshaped


def test_input_of_changed_shape_is_still_the_input() -> None:
    program = program_of(lambda x: x.t_() * 2, torch.ones(2, 3))
    storages.run(program)
    (changed,) = program.operations[0].outputs()
    assert changed.input_index == 0 and program.reshaped == {program.inputs[0]}


def test_view_of_input_that_moves_is_refused() -> None:
    program = program_of(lambda x: x.as_strided_((2,), (1,), 1) * 2, torch.ones(2, 3))
    with pytest.raises(UnsupportedError, match="in place"):
        storages.run(program)


def test_view_that_is_none_is_refused() -> None:
    program = program_of(lambda x: x.t() + 1, torch.ones(2, 3))
    program.operations[0].results[0].storage = 99  # type: ignore[union-attr]
    with pytest.raises(UnsupportedError, match="should have returned a view"):
        storages.run(program)


def test_undeclared_sharing_is_refused() -> None:
    program = program_of(lambda x: x.exp() + 1, torch.ones(2, 3))
    program.operations[0].results[0].storage = program.inputs[0].storage  # type: ignore[union-attr]
    with pytest.raises(UnsupportedError, match="its schema does not state"):
        storages.run(program)


# Liveness and memory plan


def analyzed(function: Any, *inputs: torch.Tensor) -> Program:
    program = program_of(function, *inputs)
    dead_code.run(program)
    storages.run(program)
    liveness.run(program)
    return program


def test_empty_storage_lives_from_its_first_launch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        z = x * x
        torch.ops.trident.launch([z, y], 0)
        return y.sum()

    program = analyzed(function, torch.ones(2))
    names = [each.node for each in program.operations]
    (y,) = program.operations[names.index("empty_like")].outputs()
    storage = program.storage(y)
    assert (storage.first, storage.last) == (names.index("launch"), names.index("sum_1"))


def test_later_write_through_a_view_extends_the_lifetime() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        row = y[0]
        z = x.exp().sum()
        row.add_(z)
        return y.sum()

    program = analyzed(function, torch.ones(2, 2))
    y = program.storage(next(program.operations[0].outputs()))
    assert y.last == len(program.operations) - 1


def _storage(number: int, first: int, last: int, elements: int) -> Storage:
    layout = Layout(torch.uint8, (elements,), (1,), 0)
    value = Value(f"v{number}", layout, number, "cpu")
    return Storage(number, [value], None, "cpu", first=first, last=last)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 5000)), max_size=40)
)
def test_living_storages_never_overlap(lifetimes: list[tuple[int, int, int]]) -> None:
    arena = memory_plan._Arena()
    placed = []
    for first, length, nbytes in sorted(lifetimes, key=lambda each: -each[2]):
        offset = arena.place(first, first + length, nbytes)
        assert offset % memory_plan.ALIGNMENT == 0
        assert offset + nbytes <= arena.size
        placed.append((first, first + length, offset, offset + max(nbytes, 1)))
    for i, (first, last, begin, end) in enumerate(placed):
        for other_first, other_last, other_begin, other_end in placed[:i]:
            if first <= other_last and other_first <= last:
                assert end <= other_begin or other_end <= begin


def test_dead_memory_is_used_again() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x.exp()
        return x.sum()

    program, _ = compile_steps(capture_function(function, [torch.ones(64)]), torch_typed_table())
    assert program.arena_bytes == 2 * 256


def test_storage_size_covers_its_views() -> None:
    assert _storage(0, 0, 0, 10).nbytes == 10
    strided = Layout(torch.float32, (2, 3), (10, 1), 4)
    assert strided.end_bytes == (4 + 10 + 2 + 1) * 4


# Operator choice


def test_temporaries_use_the_out_overload_and_outputs_do_not() -> None:
    host = steps_of(lambda x, w: (x @ w).exp(), torch.ones(2, 3), torch.ones(3, 4))
    assert calls(host) == ["mm.out", "exp"]


def test_empty_and_views_of_planned_memory_cost_nothing() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(4, 3)
        torch.ops.trident.launch([x, y], 0)
        return y.t().view(3, 2, 2)[1:].sum()

    host = steps_of(function, torch.ones(4, 3))
    assert [type(step).__name__ for step in host.steps] == ["Launch", "Call", "GiveOwned"]


def test_clone_becomes_a_copy_into_planned_memory() -> None:
    host = steps_of(lambda x: (x.clone().add_(1)).sum(), torch.ones(4))
    assert calls(host) == ["copy_", "add_.Tensor", "sum"]


def test_cast_becomes_a_copy_into_planned_memory() -> None:
    host = steps_of(lambda x: x.double().exp(), torch.ones(4))
    assert calls(host) == ["copy_", "exp"]


def test_fills_write_planned_memory() -> None:
    host = steps_of(lambda x: x + torch.zeros(4) + torch.full((4,), 2.5), torch.ones(4))
    assert calls(host) == ["zero_", "add.out", "fill_.Scalar", "add.Tensor"]


def test_number_in_place_of_a_tensor_takes_the_same_forms_as_a_tensor() -> None:
    host = steps_of(lambda x: 2.0 * (x * 2.0 - 1), torch.ones(4))
    assert calls(host) == ["mul.out", "sub.out", "mul.Tensor"]
    assert [step.arguments[1] for step in host.steps if isinstance(step, Call)] == [2.0, 1, 2.0]


def test_view_chain_of_an_input_is_one_view() -> None:
    host = steps_of(lambda x: x.t()[1:].unsqueeze(0) + 1, torch.ones(3, 3))
    views = [step for step in host.steps if isinstance(step, MakeView)]
    assert len(views) == 1
    assert views[0].layout == Layout(torch.float32, (1, 2, 3), (2, 1, 3), 1)


def test_equal_views_are_made_once() -> None:
    host = steps_of(lambda x: x.t() @ x.t() + x.t(), torch.ones(3, 3))
    assert sum(isinstance(step, MakeView) for step in host.steps) == 1


def test_launch_takes_addresses_instead_of_views() -> None:
    def function(x: torch.Tensor) -> None:
        torch.ops.trident.launch([x[2:]], 0)
        return x

    host = steps_of(function, torch.ones(4, 3))
    assert not any(isinstance(step, MakeView) for step in host.steps)
    (launch,) = [step for step in host.steps if isinstance(step, Launch)]
    assert launch.tensors[0][1] == 2 * 3 * 4  # bytes


def test_output_of_empty_is_allocated() -> None:
    host = steps_of(fill_with_kernel, torch.ones(4))
    assert [type(step).__name__ for step in host.steps] == ["Allocate", "Launch", "GiveOwned"]


def test_returned_input_is_a_reference() -> None:
    host = steps_of(lambda x: x.add_(1), torch.ones(4))
    assert [type(step).__name__ for step in host.steps] == ["Call", "GiveReference"]


def test_returned_view_has_eagers_base() -> None:
    host = steps_of(lambda x: (x.t()[1:], x.detach()), torch.ones(4, 3))
    tracked = [step.tracked for step in host.steps if isinstance(step, GiveView)]
    assert tracked == [True, False]


def test_sole_view_of_fresh_memory_is_a_plain_tensor() -> None:
    host = steps_of(lambda x: (x + 1).t(), torch.ones(4, 3))
    assert [step.tracked for step in host.steps if isinstance(step, GiveView)] == [False]


def test_tensor_returned_twice_is_one_object() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.t()
        return y, y

    host = steps_of(function, torch.ones(4, 3))
    assert [type(step) for step in host.steps] == [GiveView, GiveReference]


def test_unknown_operators_are_called_boxed() -> None:
    capture = capture_function(lambda x: x.exp().sin(), [torch.ones(4)])
    _, host = compile_steps(capture, {})
    assert [step.typed for step in host.steps if isinstance(step, Call)] == [False, False]


def test_out_overload_serves_an_output_without_functional_shim() -> None:
    table = {"exp.out": torch_typed_table()["exp.out"]}
    _, host = compile_steps(capture_function(lambda x: x.exp(), [torch.ones(4)]), table)
    assert calls(host) == ["exp.out"]
    assert any(isinstance(step, Allocate) for step in host.steps)


def test_shim_for_another_schema_is_not_called() -> None:
    table = {"exp": ("exp(Tensor self, int mode) -> Tensor", True, False)}
    _, host = compile_steps(capture_function(lambda x: x.exp(), [torch.ones(4)]), table)
    assert [step.typed for step in host.steps if isinstance(step, Call)] == [False]


def test_absolute_offset_into_an_input_is_left_to_the_operator() -> None:
    host = steps_of(lambda x: x.as_strided((2,), (1,), 1) + 1, torch.ones(4))
    assert calls(host) == ["as_strided", "add.Tensor"]


@pytest.mark.parametrize(
    ("functional", "expected"),
    [
        ("aten::mm", "aten::mm.out"),
        ("aten::where.self", "aten::where.self_out"),
        ("aten::topk", "aten::topk.values"),
        ("aten::mean.dim", "aten::mean.out"),
        ("aten::rand", "aten::rand.out"),
        ("aten::t", None),
        ("aten::add_.Tensor", None),
    ],
)
def test_out_overloads(functional: str, expected: str | None) -> None:
    found = out_overload(functional)
    assert (found.qualified if found else None) == expected


def test_scalar_twins() -> None:
    twin = scalar_twin("aten::add_.Tensor", frozenset({1}))
    assert twin is not None and twin.qualified == "aten::add_.Scalar"
    assert scalar_twin("aten::maximum", frozenset({1})) is None
