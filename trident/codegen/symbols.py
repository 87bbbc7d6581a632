"""Symbols in generated code: their guard, the numbers computed from them, their values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import sympy

from trident.codegen import names
from trident.ir import expressions, magnitudes
from trident.ir.expressions import Real, Size
from trident.ir.real_arithmetic import Definition

_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_SYMBOL = re.compile(rf"\b{expressions.SYMBOL.pattern}\b")


@dataclasses.dataclass(frozen=True)
class SymbolTable:
    """The symbols of a program; empty where every size is fixed.

    Attributes:
        descriptions: what each symbol is, in words.
        guards: conditions, all of which hold whenever `run` is called; checked in this order.
        limits: how large expressions, and all their parts, may get.
        numbers: what the call's result and effects hold.
        definitions: of the numbers that the program computes, in order.
        answers: conditions on floats, in words of C++.
    """

    descriptions: Sequence[str] = ()
    guards: Sequence[sympy.Basic] = ()
    limits: Mapping[sympy.Basic, float] = dataclasses.field(default_factory=dict)
    numbers: Sequence[Size | Real] = ()
    definitions: Sequence[Definition] = ()
    answers: Sequence[str] = ()

    def guard(self) -> str:
        """The function that tells whether the program serves these symbols."""
        if not self.descriptions:
            return ""
        described = "".join(
            f"// symbols[{i}]: {names.comment(text)}\n" for i, text in enumerate(self.descriptions)
        )
        limits = [
            f"{magnitudes.magnitude(each)} < {limit:.1f}" for each, limit in self.limits.items()
        ]
        # Those of symbols alone come first: what is computed of them relies on them.
        limits.sort(key=lambda each: any(name[0] in "dr" for name in _names_in(each)))
        conditions = [*limits, *map(expressions.condition, self.guards), *self.answers]
        checked = Checked(self.definitions)
        body = "".join(checked.statements(each) for each in conditions) + checked.others()
        defined = symbols_in(body, "symbols") or "  (void)symbols;\n"
        return (
            f"{described}static int32_t guard(const int64_t* symbols) {{\n{defined}{body}"
            "  return 1;\n}\n"
        )

    def conditions(self) -> list[str]:
        """What the guard checks of values, as text; without limits."""
        found = [each for definition in self.definitions for each in definition.conditions]
        return [*found, *map(expressions.condition, self.guards), *self.answers]

    def compute(self) -> str:
        """The function that computes the numbers, or nothing."""
        if not self.numbers:
            return ""
        body = "".join(f"  numbers[{i}] = {_bits(each)};\n" for i, each in enumerate(self.numbers))
        return (
            "// The numbers in the call's result and in what it assigns.\n"
            "static void compute(const int64_t* symbols, int64_t* numbers) {\n"
            f"{symbols_in(body, 'symbols', self.definitions)}{body}}}\n"
        )


class Checked:
    """Statements of a guard: each condition behind the numbers that it names."""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._missing = {each.name: each for each in definitions}

    def statements(self, condition: str) -> str:
        """Checks a condition."""
        return f"{self._defined(condition)}  if (!({condition})) return 0;\n"

    def others(self) -> str:
        """Checks what has to hold of numbers that no condition names."""
        names = [name for name, each in self._missing.items() if each.conditions]
        return "".join(map(self._defined, names))

    def _defined(self, text: str) -> str:
        written = ""
        for name in _names_in(text):
            definition = self._missing.pop(name, None)
            if definition is None:
                continue
            written += self._defined(definition.text)
            written += "".join(map(self.statements, definition.before))
            written += declaration(definition)
            written += "".join(map(self.statements, definition.after))
        return written


def declaration(definition: Definition) -> str:
    """The statement that computes a number."""
    type_ = "double" if definition.is_real else "int64_t"
    return f"  const {type_} {definition.name} = {definition.text};\n"


def _bits(number: Size | Real) -> str:
    if isinstance(number, Real):
        return f"static_cast<int64_t>(double_bits({number.text}))"
    return expressions.text(number)


def symbols_in(text: str, array: str, definitions: Sequence[Definition] = ()) -> str:
    """Definitions of the symbols that statements use, and of the numbers computed of them."""
    used = ""
    for each in reversed(definitions):
        if each.name in _names_in(text + used):
            used = declaration(each) + used
    symbols = "".join(
        f"  const double {name} = float_symbol({array}[{name[1:]}]);\n"
        if name.startswith("f")
        else f"  const int64_t {name} = {array}[{name[1:]}];\n"
        for name in _names_in(text + used)
        if name[0] not in "dr"
    )
    return symbols + used


def used_symbols(text: str) -> list[sympy.Symbol]:
    """The integers among the symbols that code uses."""
    return [expressions.parse(name) for name in _names_in(text) if name[0] in "sn"]


def _names_in(text: str) -> list[str]:
    code = "\n".join(_STRING.sub("", line).split("//")[0] for line in text.splitlines())
    return sorted(set(_SYMBOL.findall(code)), key=lambda name: int(name[1:]))
