"""Captured functions, compiled and run by the native runtime, against eager."""

from __future__ import annotations

import weakref

import pytest
import torch
from pipeline_cases import CASES, Case
from pipeline_helpers import capture_function, constants_of

from trident import _C
from trident.build import build
from trident.codegen import generate


def flat(result: object) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]  # type: ignore[list-item]


def aliasing(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """Pairs of positions whose tensors share storage."""
    pointers = [each.untyped_storage().data_ptr() for each in tensors]
    return [
        (i, j)
        for i in range(len(tensors))
        for j in range(i)
        if pointers[i] == pointers[j] and tensors[i].numel() and tensors[j].numel()
    ]


class Compiled:
    """A function that went through the whole middle of the pipeline."""

    def __init__(self, case: Case, typed: bool) -> None:
        capture = capture_function(case.function, case.make(), case.name)
        self.generated = generate(capture, [], _C.typed_ops() if typed else {})
        self.constants = constants_of(capture)
        self.program = _C.Program.load(str(build(self.generated.source, case.name)), [])

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            return self.program.run([*inputs, *self.constants])


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "boxed"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_program_gives_what_eager_gives(case: Case, typed: bool) -> None:
    compiled = Compiled(case, typed)
    mine, theirs = case.make(), case.make()
    for _ in range(3):
        got = compiled(*mine)
        with torch.no_grad():
            expected = flat(case.function(*theirs))
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        assert [t.stride() for t in got] == [t.stride() for t in expected]
        assert [t.dtype for t in got] == [t.dtype for t in expected]
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        assert [t._version for t in mine] == [t._version for t in theirs]
        shared = aliasing([*theirs, *expected])
        assert aliasing([*mine, *got]) == shared
        for position in {each - len(mine) for pair in shared for each in pair if each >= len(mine)}:
            assert got[position]._is_view() == expected[position]._is_view()
        assert [[a is b for a in [*mine, *got]] for b in got] == [
            [a is b for a in [*theirs, *expected]] for b in expected
        ]


def find(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_outputs_belong_to_the_caller() -> None:
    case = find("repeated_buffers")
    compiled = Compiled(case, typed=True)
    first = compiled(*case.make())
    kept = [each.clone() for each in first]
    compiled(*[each + 1 for each in case.make()])
    torch.testing.assert_close(first, kept, rtol=0, atol=0)


def test_nothing_keeps_the_inputs_alive() -> None:
    case = find("writes_through_a_view_of_its_input")
    compiled = Compiled(case, typed=True)
    inputs = case.make()
    watched = [weakref.ref(each) for each in inputs]
    compiled(*inputs)
    del inputs
    assert [each() for each in watched] == [None, None]


def test_operator_errors_surface_and_the_program_stays_usable() -> None:
    case = find("embedding_and_index")
    compiled = Compiled(case, typed=True)
    ids, table = case.make()
    with pytest.raises(IndexError, match="out of range"):
        compiled(ids + 100, table)
    torch.testing.assert_close(compiled(ids, table)[0], case.function(ids, table)[0])


def test_temporaries_are_planned_and_calls_are_typed() -> None:
    compiled = Compiled(find("repeated_buffers"), typed=True)
    assert compiled.generated.calls_boxed == 0
    assert compiled.generated.arena_bytes > 0
    assert compiled.program.calls_typed == compiled.generated.calls_typed
