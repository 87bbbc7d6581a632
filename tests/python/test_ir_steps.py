"""The passes together: their steps, run by the interpreter, give what eager gives."""

from __future__ import annotations

import pytest
import torch
from pipeline_cases import CASES, Case
from pipeline_helpers import capture_function, constants_of, torch_typed_table
from step_interpreter import StepInterpreter, compile_steps


def aliasing(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """Pairs of positions whose tensors share storage."""
    pointers = [each.untyped_storage().data_ptr() for each in tensors]
    return [
        (i, j)
        for i in range(len(tensors))
        for j in range(i)
        if pointers[i] == pointers[j] and tensors[i].numel() and tensors[j].numel()
    ]


def flat(result: object) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]  # type: ignore[list-item]


@pytest.mark.parametrize("with_typed", [True, False], ids=["typed", "boxed"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_steps_give_what_eager_gives(case: Case, with_typed: bool) -> None:
    capture = capture_function(case.function, case.make())
    program, host = compile_steps(capture, torch_typed_table() if with_typed else {})
    interpreter = StepInterpreter(program, host)
    mine, theirs = case.make(), case.make()
    for _ in range(2):  # a frame is used again
        got = interpreter.run([*mine, *constants_of(capture)])
        with torch.no_grad():
            expected = flat(case.function(*theirs))
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        assert [t.stride() for t in got] == [t.stride() for t in expected]
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        assert aliasing([*mine, *got]) == aliasing([*theirs, *expected])
