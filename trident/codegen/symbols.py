"""Symbols in generated code: their guard, the numbers computed from them, their values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import sympy

from trident.codegen import names
from trident.ir import expressions, magnitudes
from trident.ir.expressions import Real, Size

_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_SYMBOL = re.compile(r"(?<![\w:.>])[nsf]\d+\b(?!\s*\()")


@dataclasses.dataclass(frozen=True)
class SymbolTable:
    """The symbols of a program; empty where every size is fixed.

    Attributes:
        descriptions: what each symbol is, in words.
        guards: conditions, all of which hold whenever `run` is called; checked in this order.
        limits: how large expressions, and all their parts, may get.
        numbers: what the call's result and effects hold.
    """

    descriptions: Sequence[str] = ()
    guards: Sequence[sympy.Basic] = ()
    limits: Mapping[sympy.Basic, float] = dataclasses.field(default_factory=dict)
    numbers: Sequence[Size | Real] = ()

    def guard(self) -> str:
        """The function that tells whether the program serves these symbols."""
        if not self.descriptions:
            return ""
        described = "".join(
            f"// symbols[{i}]: {names.comment(text)}\n" for i, text in enumerate(self.descriptions)
        )
        lines = [
            f"{magnitudes.magnitude(each)} < {limit:.1f}" for each, limit in self.limits.items()
        ]
        lines += [expressions.condition(each) for each in self.guards]
        body = "".join(f"  if (!({each})) return 0;\n" for each in lines)
        defined = symbols_in(body, "symbols") or "  (void)symbols;\n"
        return (
            f"{described}static int32_t guard(const int64_t* symbols) {{\n{defined}{body}"
            "  return 1;\n}\n"
        )

    def compute(self) -> str:
        """The function that computes the numbers, or nothing."""
        if not self.numbers:
            return ""
        body = "".join(f"  numbers[{i}] = {_bits(each)};\n" for i, each in enumerate(self.numbers))
        return (
            "// The numbers in the call's result and in what it assigns.\n"
            "static void compute(const int64_t* symbols, int64_t* numbers) {\n"
            f"{symbols_in(body, 'symbols')}{body}}}\n"
        )


def _bits(number: Size | Real) -> str:
    if isinstance(number, Real):
        return f"static_cast<int64_t>(double_bits({number.text}))"
    return expressions.text(number)


def symbols_in(text: str, array: str) -> str:
    """Definitions of the symbols that statements use."""
    return "".join(
        f"  const double {name} = float_symbol({array}[{name[1:]}]);\n"
        if name.startswith("f")
        else f"  const int64_t {name} = {array}[{name[1:]}];\n"
        for name in _names_in(text)
    )


def used_symbols(text: str) -> list[sympy.Symbol]:
    """The integers among the symbols that code uses."""
    return [expressions.parse(name) for name in _names_in(text) if not name.startswith("f")]


def _names_in(text: str) -> list[str]:
    code = "\n".join(_STRING.sub("", line).split("//")[0] for line in text.splitlines())
    return sorted(set(_SYMBOL.findall(code)), key=lambda name: int(name[1:]))
