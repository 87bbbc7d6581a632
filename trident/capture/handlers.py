"""Which of the user's exception handlers run if what is running now raises.

Read off the exception tables of the code on the stack: a trace sees no error that only values
cause, so the code behind ``except`` and ``finally`` would be missing from what was captured.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from trident.capture.places import runs_machinery


class Handler(NamedTuple):
    """A handler around the present instruction of a frame.

    Attributes:
        line: ``file.py:12``, where the protected code is.
        types: what its clauses catch; empty for ``finally`` and most of ``with``; None where that
            is not known before it runs, and for a clause without a type.
        is_with: whether it belongs to a ``with`` statement.
    """

    line: str
    types: tuple[type, ...] | None
    is_with: bool = False

    @property
    def file(self) -> str:
        """Of the protected code."""
        return self.line.rpartition(":")[0]

    def catches(self, errors: tuple[type, ...]) -> bool:
        """Whether a clause takes one of these errors, or one derived from it."""
        return self.types is None or any(issubclass(error, self.types) for error in errors)


def handlers_around(stop: types.CodeType) -> Iterator[Handler]:
    """Handlers of the code that is running, innermost first, but for that of the machinery.

    Args:
        stop: code of the frame where the user's code was entered.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not stop:
        code = frame.f_code
        if code.co_exceptiontable and not runs_machinery(frame):
            for target in _targets(code, frame.f_lasti):
                yield _read(frame, target)
        frame = frame.f_back


class _Range(NamedTuple):
    start: int
    end: int
    target: int


@functools.lru_cache(maxsize=1024)
def _ranges(code: types.CodeType) -> tuple[_Range, ...]:
    """The exception table of CPython 3.11 and 3.12, four numbers per entry: of 6 bits per byte, the
    most significant ones first, of which bit 6 says that more follow and bit 7 that one starts."""
    numbers: list[int] = []
    more = False
    for byte in code.co_exceptiontable:
        if more:
            numbers[-1] = numbers[-1] << 6 | byte & 63
        else:
            numbers.append(byte & 63)
        more = bool(byte & 64)
    return tuple(
        _Range(2 * start, 2 * (start + length), 2 * target)
        for start, length, target, _ in zip(*[iter(numbers)] * 4, strict=True)
    )


@functools.lru_cache(maxsize=1024)
def _instructions(code: types.CodeType) -> dict[int, tuple[dis.Instruction, int]]:
    """By offset, each instruction and the offset of the next one."""
    found = list(dis.get_instructions(code))
    ends = [each.offset for each in found[1:]] + [len(code.co_code)]
    return {each.offset: (each, end) for each, end in zip(found, ends, strict=True)}


def _targets(code: types.CodeType, offset: int) -> Iterator[int]:
    """Where an exception at an offset goes, first to last, but for handlers that only clean up."""
    passed: set[int] = set()
    while True:
        inner = [each for each in _ranges(code) if each.start <= offset < each.end]
        if not inner or inner[-1].target in passed:
            return
        offset = inner[-1].target
        passed.add(offset)
        if _instructions(code)[offset][0].opname == "PUSH_EXC_INFO":
            yield offset


def _read(frame: types.FrameType, target: int) -> Handler:
    code = frame.f_code
    line = f"{code.co_filename}:{frame.f_lineno}"
    instructions = _instructions(code)
    caught: list[type] = []
    offset = instructions[target][1]
    while True:
        clause = list(_until_match(instructions, offset))
        if clause[0].opname == "WITH_EXCEPT_START":
            return Handler(line, None if _suppresses(frame) else (), is_with=True)
        if clause[-1].opname == "POP_TOP" and len(clause) == 1:
            return Handler(line, None)
        if clause[-1].opname != "CHECK_EXC_MATCH":  # `finally`, or no clause is left
            return Handler(line, tuple(caught))
        found = _classes(clause[:-1], frame)
        if found is None:
            return Handler(line, None)
        caught += found
        jump = instructions[instructions[clause[-1].offset][1]][0]
        if not isinstance(jump.argval, int):
            return Handler(line, None)
        offset = jump.argval


def _suppresses(frame: types.FrameType) -> bool:
    """Whether code names `contextlib.suppress`; what a ``with`` has entered lies out of reach."""
    names = frame.f_code.co_names
    return "suppress" in names or any(
        frame.f_globals.get(name) is contextlib.suppress for name in names
    )


def _until_match(
    instructions: dict[int, tuple[dis.Instruction, int]], offset: int
) -> Iterator[dis.Instruction]:
    """What is computed from an offset on until a clause is compared with the error, if it is."""
    while offset in instructions:
        instruction, offset = instructions[offset]
        yield instruction
        if not (instruction.opname.startswith("LOAD_") or instruction.opname == "BUILD_TUPLE"):
            return


def _classes(clause: list[dis.Instruction], frame: types.FrameType) -> list[type] | None:
    """The classes that a clause names; None where they are not read off plain names."""
    found: list[Any] = []
    for each in clause:
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            name = each.argval
            found.append(frame.f_globals.get(name, vars(builtins).get(name)))
        elif each.opname == "LOAD_ATTR" and found:
            found[-1] = getattr(found[-1], each.argval, None)
        elif each.opname != "BUILD_TUPLE":
            return None
    flat = [part for each in found for part in (each if isinstance(each, tuple) else (each,))]
    return flat if all(isinstance(each, type) for each in flat) else None
