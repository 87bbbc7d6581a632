"""Sizes that are known only at run time: integer expressions over the symbols of a program.

An expression has one spelling, which the MLIR module, the generated C++ and the reports share. It
is C++ and, but for the conditions of guards, Python too: ``s0 * 8 + floor_div(s1 + 15, 16)``.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import sympy
from torch.utils._sympy import functions as torch_functions

from trident.errors import UnsupportedError

Size: TypeAlias = "int | sympy.Expr"
"""A size, a stride, an offset or an integer: known, or an expression over symbols."""

SYMBOL = re.compile(r"[nsfdr]\d+")
"""How symbols and the numbers computed of them are spelled; no other name in a program is."""


@dataclasses.dataclass(frozen=True)
class Real:
    """A float that is known only at run time, by its name: ``f0`` or ``r1``."""

    text: str


_FUNCTIONS: dict[str, Callable[..., sympy.Expr]] = {
    "floor_div": torch_functions.FloorDiv,
    "floor_mod": torch_functions.PythonMod,
    "largest": torch_functions.Max,
    "smallest": torch_functions.Min,
    "shift_left": torch_functions.LShift,
    "shift_right": torch_functions.RShift,
    "bits_and": torch_functions.BitwiseFn_bitwise_and,
    "bits_or": torch_functions.BitwiseFn_bitwise_or,
}

# What they are in Python, for evaluating a condition where it is reported.
PYTHON: dict[str, Callable[..., Any]] = {
    "floor_div": operator.floordiv,
    "floor_mod": operator.mod,
    "largest": max,
    "smallest": min,
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
    "bits_and": operator.and_,
    "bits_or": operator.or_,
    "magnitude": lambda number: abs(float(number)),
}

# What generated code needs to have defined, for each function by itself.
HELPERS = {
    "floor_div": """\
static inline int64_t floor_div(int64_t number, int64_t divisor) {
  const int64_t quotient = number / divisor;
  return quotient - (number % divisor != 0 && (number < 0) != (divisor < 0));
}
""",
    "floor_mod": """\
static inline int64_t floor_mod(int64_t number, int64_t divisor) {
  const int64_t rest = number % divisor;
  return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
}
""",
    "largest": """\
static inline int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }
""",
    "smallest": """\
static inline int64_t smallest(int64_t a, int64_t b) { return a < b ? a : b; }
""",
    "shift_left": """\
static inline int64_t shift_left(int64_t number, int64_t by) { return number << by; }
""",
    "shift_right": """\
static inline int64_t shift_right(int64_t number, int64_t by) { return number >> by; }
""",
    "bits_and": """\
static inline int64_t bits_and(int64_t a, int64_t b) { return a & b; }
""",
    "magnitude": """\
static inline double magnitude(int64_t number) {
  return number < 0 ? -static_cast<double>(number) : static_cast<double>(number);
}
""",
    "float_symbol": """\
static inline double float_symbol(int64_t bits) {
  double number;
  __builtin_memcpy(&number, &bits, sizeof number);
  return number;
}
""",
    "float_bits": """\
static inline uint64_t float_bits(float number) {
  uint32_t bits;
  __builtin_memcpy(&bits, &number, sizeof bits);
  return bits;
}
""",
    "double_bits": """\
static inline uint64_t double_bits(double number) {
  uint64_t bits;
  __builtin_memcpy(&bits, &number, sizeof bits);
  return bits;
}
""",
    "bits_or": """\
static inline int64_t bits_or(int64_t a, int64_t b) { return a | b; }
""",
}

_DIVISIONS = (torch_functions.FloorDiv, torch_functions.CleanDiv)
_REMAINDERS = (torch_functions.PythonMod, torch_functions.Mod)

_COMPARISONS = {
    sympy.Eq: "==",
    sympy.Ne: "!=",
    sympy.Lt: "<",
    sympy.Le: "<=",
    sympy.Gt: ">",
    sympy.Ge: ">=",
}


@functools.cache
def size_symbol(index: int) -> sympy.Symbol:
    """Symbol ``index`` of a program where it is at least 2: a size, a stride or a count."""
    return sympy.Symbol(f"s{index}", integer=True, positive=True)


@functools.cache
def number_symbol(index: int) -> sympy.Symbol:
    """Symbol ``index`` of a program where it is an integer of any value."""
    return sympy.Symbol(f"n{index}", integer=True)


@functools.cache
def derived_symbol(index: int) -> sympy.Symbol:
    """An int that a program computes of its symbols by what is no integer arithmetic."""
    return sympy.Symbol(f"d{index}", integer=True)


def is_number_symbol(symbol: sympy.Symbol) -> bool:
    """Whether a symbol of a program may be any integer."""
    return not symbol.is_positive


def symbol_index(symbol: sympy.Symbol) -> int:
    """The position of a symbol among those of its program."""
    return int(symbol.name[1:])


def known(size: Size) -> Size:
    """The size as an int if it is a number."""
    return int(size) if isinstance(size, sympy.Integer) else size


def is_static(size: Size) -> bool:
    """Whether the size is a number."""
    return isinstance(size, int)


def text(size: Size) -> str:
    """The spelling of a size. Raises UnsupportedError for what integers cannot express."""
    return str(size) if isinstance(size, int) else _Speller().sum(size)


def divisors(expression: sympy.Basic) -> set[sympy.Expr]:
    """What an expression divides by and that may be zero or negative for some symbols."""
    return {each for each in all_divisors(expression) if not each.is_positive}


def all_divisors(expression: sympy.Basic) -> set[sympy.Expr]:
    """All that an expression divides by."""
    return {each.args[1] for each in expression.atoms(*_DIVISIONS, *_REMAINDERS)}


def condition(expression: sympy.Basic) -> str:
    """The spelling of a guard, as a C++ condition. Raises UnsupportedError as `text` does."""
    if expression in (sympy.true, sympy.false):
        return "true" if expression == sympy.true else "false"
    if isinstance(expression, sympy.Not):
        return f"!({condition(expression.args[0])})"
    if isinstance(expression, (sympy.And, sympy.Or)):
        word = " && " if isinstance(expression, sympy.And) else " || "
        ordered = sorted(expression.args, key=sympy.default_sort_key)
        return word.join(f"({condition(each)})" for each in ordered)
    for kind, word in _COMPARISONS.items():
        if isinstance(expression, kind):
            left, right = expression.args
            return f"{text(known(left))} {word} {text(known(right))}"
    raise UnsupportedError(f"the condition {expression} on sizes is not supported")


class _Speller:
    """Writes expressions; `sum`, `product` and `atom` bind ever more tightly."""

    def sum(self, expression: sympy.Expr) -> str:
        if not isinstance(expression, sympy.Add):
            return self.product(expression)
        written = ""
        for term in expression.as_ordered_terms():
            coefficient, rest = term.as_coeff_Mul()
            if written and coefficient.is_negative:
                written += f" - {self.product(-coefficient * rest)}"
            else:
                written += f" + {self.product(term)}" if written else self.product(term)
        return written

    def product(self, expression: sympy.Expr) -> str:
        if not isinstance(expression, sympy.Mul):
            return self.atom(expression)
        coefficient, factors = expression.as_coeff_mul()
        written = [self.atom(each) for each in sorted(factors, key=sympy.default_sort_key)]
        if coefficient != 1:
            written.append(self.atom(coefficient))
        return " * ".join(written)

    def atom(self, expression: sympy.Expr) -> str:
        if isinstance(expression, sympy.Symbol):
            return str(expression.name)
        if isinstance(expression, sympy.Integer):
            number = int(expression)
            if not -(2**63) < number < 2**63:
                raise UnsupportedError(f"the number {number} does not fit 64 bits")
            return f"({number})" if number < 0 else str(number)
        if isinstance(expression, (sympy.Add, sympy.Mul)):
            return f"({self.sum(expression)})"
        if isinstance(expression, (sympy.Pow, torch_functions.PowByNatural)):
            base, exponent = expression.args
            if isinstance(exponent, sympy.Integer) and 0 < int(exponent) <= 8:
                return f"({' * '.join([self.atom(base)] * int(exponent))})"
        return self._function(expression)

    def _function(self, expression: sympy.Expr) -> str:
        arguments = expression.args
        for name, kinds in (("floor_div", _DIVISIONS), ("floor_mod", _REMAINDERS)):
            if isinstance(expression, kinds):
                return f"{name}({self.sum(arguments[0])}, {self.sum(arguments[1])})"
        if isinstance(expression, sympy.Abs):
            return self._function(torch_functions.Max(arguments[0], -arguments[0]))
        if isinstance(expression, (torch_functions.Max, torch_functions.Min)):
            name = "largest" if isinstance(expression, torch_functions.Max) else "smallest"
            written = [self.sum(each) for each in sorted(arguments, key=sympy.default_sort_key)]
            return functools.reduce(lambda a, b: f"{name}({a}, {b})", written)
        if isinstance(expression, (torch_functions.LShift, torch_functions.RShift)):
            left = isinstance(expression, torch_functions.LShift)
            by = arguments[1]
            if isinstance(by, sympy.Integer) and 0 <= int(by) < 64:
                return f"shift_{'left' if left else 'right'}({self.sum(arguments[0])}, {by})"
        for name, kind in (
            ("bits_and", torch_functions.BitwiseFn_bitwise_and),
            ("bits_or", torch_functions.BitwiseFn_bitwise_or),
        ):
            if isinstance(expression, kind):
                return f"{name}({self.sum(arguments[0])}, {self.sum(arguments[1])})"
        raise UnsupportedError(f"the size {expression} is not supported")


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


@functools.cache
def parse(spelling: str) -> Size:
    """Reads what `text` wrote."""
    return known(sympy.sympify(_evaluate(ast.parse(spelling, mode="eval").body)))


def _evaluate(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int(value)):
            return sympy.Integer(value)
        case ast.Name(id=name):
            make = {"s": size_symbol, "n": number_symbol, "d": derived_symbol}[name[0]]
            return make(int(name[1:]))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left), _evaluate(right))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_evaluate(each) for each in arguments))
    raise ValueError(f"not the spelling of a size: {ast.dump(node)}")
