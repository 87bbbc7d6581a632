"""Which line of the user's code reads a name."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")


class Lines:
    """The first line, in the order of execution, that names each global variable and attribute.

    Args:
        codes: the user's code that ran.
    """

    def __init__(self, codes: Iterable[types.CodeType]) -> None:
        self.globals: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        for code in codes:
            for instruction in dis.get_instructions(code):
                if instruction.opname in _GLOBALS:
                    found = self.globals
                elif instruction.opname in _ATTRIBUTES:
                    found = self.attributes
                else:
                    continue
                line = instruction.positions.lineno if instruction.positions else None
                found.setdefault(
                    instruction.argval, f"{code.co_filename}:{line or code.co_firstlineno}"
                )
