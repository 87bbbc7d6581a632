"""What Triton compiles a kernel for besides types and constants, where it varies between calls."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from trident.kernels.functions import as_jit_function
from trident.kernels.launch import LaunchRequest, SymbolicFloat, SymbolicInt, TensorArg
from trident.kernels.tuples import with_members

# A parameter's name and, in tuples, the positions of members.
Path = tuple[Any, ...]


class Question(enum.Enum):
    """What `triton.runtime.jit` asks of an argument; the values complete "its argument ..."."""

    ONE = "is 1"
    DIVISIBLE = "is a multiple of 16"
    WIDE = "needs more than 32 bits"
    ALIGNED = "lies at a multiple of 16"


@dataclasses.dataclass(frozen=True)
class LaunchFact:
    """One question about one argument, whose answer may differ between calls.

    Attributes:
        path: of the argument.
        question: what is asked.
        value: the integer, or the address modulo 16.
        holds: the answer in the call being captured.
    """

    path: Path
    question: Question
    value: int | torch.SymInt
    holds: bool

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))} {self.question.value}"


# By path and question.
Answers = Mapping[tuple[Path, Question], bool]


def launch_facts(request: LaunchRequest) -> list[LaunchFact]:
    """The questions about all arguments that vary, in parameter order."""
    return [
        fact
        for parameter in as_jit_function(request.kernel).params
        for fact in _facts((parameter.name,), request.arguments[parameter.name], parameter)
    ]


def _facts(path: Path, value: Any, parameter: Any) -> Iterator[LaunchFact]:
    if isinstance(value, tuple):
        for position, member in enumerate(value):
            yield from _facts((*path, position), member, parameter)
    elif isinstance(value, TensorArg):
        if value.address is not None and not parameter.do_not_specialize:
            if not parameter.do_not_specialize_on_alignment:
                aligned = value.address_mod_16 == 0
                yield LaunchFact(path, Question.ALIGNED, value.address, aligned)
    elif isinstance(value, SymbolicInt):
        if not parameter.do_not_specialize:
            yield LaunchFact(path, Question.ONE, value.value, value.hint == 1)
            if not parameter.do_not_specialize_on_alignment:
                yield LaunchFact(path, Question.DIVISIBLE, value.value, value.hint % 16 == 0)
        if not parameter.annotation_type:
            wide = not -(2**31) <= value.hint < 2**31
            yield LaunchFact(path, Question.WIDE, value.value, wide)


def with_known_integers(request: LaunchRequest, size: Callable[[Any], Any]) -> LaunchRequest:
    """The launch with plain integers where conditions of the trace leave one value.

    Args:
        size: gives the expression of an integer, or the value that it has in all calls.
    """
    arguments = {name: _with_known(value, size) for name, value in request.arguments.items()}
    return dataclasses.replace(request, arguments=arguments)


def _with_known(value: Any, size: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        return with_members(value, [_with_known(member, size) for member in value])
    if isinstance(value, SymbolicInt):
        known = size(value.value)
        return known if isinstance(known, int) else value
    return value


def without_symbols(request: LaunchRequest) -> LaunchRequest:
    """The same launch for use after the trace, which it does not keep alive."""
    arguments = {name: _released(value) for name, value in request.arguments.items()}
    return dataclasses.replace(request, arguments=arguments, grid=(1, 1, 1))


def _released(value: Any) -> Any:
    if isinstance(value, tuple):
        return with_members(value, [_released(member) for member in value])
    if isinstance(value, TensorArg) and value.address is not None:
        return dataclasses.replace(value, address=value.address_mod_16)
    if isinstance(value, SymbolicInt):
        return dataclasses.replace(value, value=value.hint)
    if isinstance(value, SymbolicFloat):
        return value.hint  # no kernel is compiled for the value of a float
    return value


def with_answers(request: LaunchRequest, answers: Answers) -> LaunchRequest:
    """The launch with arguments of which the answers hold, in place of the captured call's own.

    A question that is left out keeps its answer.
    """
    arguments = {
        name: _replaced((name,), value, answers) for name, value in request.arguments.items()
    }
    return dataclasses.replace(request, arguments=arguments)


def _replaced(path: Path, value: Any, answers: Answers) -> Any:
    if isinstance(value, tuple):
        return with_members(
            value, [_replaced((*path, i), member, answers) for i, member in enumerate(value)]
        )
    if isinstance(value, TensorArg) and value.address is not None:
        aligned = answers.get((path, Question.ALIGNED), value.address_mod_16 == 0)
        return dataclasses.replace(value, address_mod_16=0 if aligned else 1)
    if isinstance(value, SymbolicInt):
        hint = value.hint
        one = answers.get((path, Question.ONE), hint == 1)
        divisible = answers.get((path, Question.DIVISIBLE), hint % 16 == 0)
        wide = answers.get((path, Question.WIDE), not -(2**31) <= hint < 2**31)
        return dataclasses.replace(value, hint=_example(one, divisible, wide))
    return value


def _example(one: bool, divisible: bool, wide: bool) -> int:
    """An integer of these properties."""
    if one:
        return 1
    multiple = 2**32 if wide else 16
    return multiple if divisible else multiple + 3
