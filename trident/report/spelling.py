"""Expressions over symbols as the user would write them: Python's operators, and names for symbols.

It is for reading only. What generated code computes is spelled by `trident.ir.expressions`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

from trident.ir import expressions
from trident.ir.real_arithmetic import Definition

_MAX_LENGTH = 200
_MAX_DEFINITION = 80  # of a number computed of others, where a condition names it
_ELLIPSIS = "..."

_POWER = "next_power_of_2"
# By how much `triton.next_power_of_2` shifts, the last one first.
_SHIFTS = (32, 16, 8, 4, 2, 1)

_OPERATORS: dict[str, type[ast.operator]] = {
    "floor_div": ast.FloorDiv,
    "floor_mod": ast.Mod,
    "shift_left": ast.LShift,
    "shift_right": ast.RShift,
    "bits_and": ast.BitAnd,
    "bits_or": ast.BitOr,
    "real_floor_div": ast.FloorDiv,
    "real_mod": ast.Mod,
    "real_pow": ast.Pow,
}
_FUNCTIONS = {
    "largest": "max",
    "smallest": "min",
    "magnitude": "abs",
    "real": "float",
    "real_abs": "abs",
}


def as_python(condition: str) -> str:
    """A condition of a guard, which is C++, as a Python expression of the same value."""
    text = condition.replace("&&", " and ").replace("||", " or ")
    return re.sub(r"!(?!=)", " not ", text).strip()


def spell(condition: str, names: Mapping[str, str], definitions: Iterable[Definition]) -> str:
    """A condition in the user's words, shortened in its middle where it is long.

    Args:
        condition: of a guard.
        names: what the symbols ``s0``, ``n0`` and ``f0`` are.
        definitions: of the numbers that conditions name besides symbols.
    """
    rewriter = _Rewriter(names, {each.name: each.text for each in definitions})
    text = ast.unparse(rewriter.visit(_parse(as_python(condition))))
    if len(text) <= _MAX_LENGTH:
        return text
    tail = _MAX_LENGTH // 3
    return f"{text[: _MAX_LENGTH - tail - 5]} {_ELLIPSIS} {text[-tail:]}"


class _Rewriter(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str], definitions: Mapping[str, str]) -> None:
        self._names = names
        self._definitions = definitions
        self._defined: dict[str, ast.expr] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._definitions:
            return ast.Name(self._names.get(node.id, node.id))
        if node.id not in self._defined:
            made = self.visit(_parse(self._definitions[node.id]))
            long = len(ast.unparse(made)) > _MAX_DEFINITION
            self._defined[node.id] = ast.Name(_ELLIPSIS) if long else made
        return self._defined[node.id]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        operand = _rounded_up(node)
        if operand is not None:
            terms, constant = _terms(operand)
            inner = self.visit(_sum(terms, constant + 1))
            return _sum([(1, _call(_POWER, [inner]))], -1)
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        arguments = [self.visit(each) for each in node.args]
        if name == "floor_div":
            dividend = _divided_up(*arguments)
            if dividend is not None:
                return _call("cdiv", [dividend, arguments[1]])
        if name in _OPERATORS:
            return ast.BinOp(arguments[0], _OPERATORS[name](), arguments[1])
        short = name.removeprefix("libm_").removesuffix("_to_int")
        return _call(_FUNCTIONS.get(name, short), arguments)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        made = self.generic_visit(node)
        assert isinstance(made, ast.BinOp)
        terms, constant = _terms(made)
        return _sum(terms, constant) if _has_power(terms) else made

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        made = self.generic_visit(node)
        assert isinstance(made, ast.Compare)
        (right,) = made.comparators
        if isinstance(made.left, ast.Compare) and isinstance(made.ops[0], ast.Eq):
            if isinstance(right, ast.Constant) and right.value == 0:  # C++ compares answers
                return ast.UnaryOp(ast.Not(), made.left)
        terms, constant = _terms(made.left)
        if _has_power(terms) and isinstance(right, ast.Constant) and type(right.value) is int:
            return ast.Compare(_sum(terms, 0), made.ops, [ast.Constant(right.value - constant)])
        return made


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _call(name: str, arguments: Sequence[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name), list(arguments), [])


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


_Terms = list[tuple[int, ast.expr]]
"""Terms of a sum with their signs."""


def _terms(node: ast.expr, sign: int = 1) -> tuple[_Terms, int]:
    """The terms of a sum that are no numbers, and the sum of those that are."""
    match node:
        case ast.Constant(value=int(value)):
            return [], sign * value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _terms(operand, -sign)
        case ast.BinOp(left=left, op=(ast.Add() | ast.Sub()) as op, right=right):
            terms, constant = _terms(left, sign)
            more, further = _terms(right, sign if isinstance(op, ast.Add) else -sign)
            return terms + more, constant + further
    return [(sign, node)], 0


def _sum(terms: _Terms, constant: int) -> ast.expr:
    signed = list(terms)
    if constant or not terms:
        signed.append((1 if constant >= 0 else -1, ast.Constant(abs(constant))))
    sign, total = signed[0]
    if sign < 0:
        total = ast.UnaryOp(ast.USub(), total)
    for sign, term in signed[1:]:
        total = ast.BinOp(total, ast.Add() if sign > 0 else ast.Sub(), term)
    return total


def _has_power(terms: _Terms) -> bool:
    """Whether a sum is one of ints, made with `next_power_of_2`: its numbers can be added up."""
    return any(_is_call(each, _POWER) for _, each in terms)


def _rounded_up(node: ast.expr) -> ast.expr | None:
    """The ``n`` where a node is ``next_power_of_2(n + 1) - 1`` as Triton computes it."""
    for shift in _SHIFTS:
        if not (isinstance(node, ast.Call) and _is_call(node, "bits_or")):
            return None
        found = [
            one for one, other in (node.args, node.args[::-1]) if _is_shifted(other, one, shift)
        ]
        if not found:
            return None
        node = found[0]
    return node


def _is_shifted(node: ast.expr, number: ast.expr, shift: int) -> bool:
    """Whether a node is a number shifted to the right."""
    shifted = _call("floor_div", [number, ast.Constant(2**shift)])
    if _equal(node, shifted):
        return True
    if shift > 1:
        return False
    try:  # of a multiple SymPy divides each term
        return expressions.parse(ast.unparse(node)) == expressions.parse(ast.unparse(shifted))
    except (KeyError, ValueError):  # it is no expression of sizes
        return False


def _divided_up(number: ast.expr, divisor: ast.expr) -> ast.expr | None:
    """The ``n`` where ``number // divisor`` is ``cdiv(n, divisor)``."""
    terms, constant = _terms(number)
    if isinstance(divisor, ast.Constant):
        _, by = _terms(divisor)
        return _sum(terms, 0) if terms and constant == by - 1 > 0 else None
    same = next(
        (i for i, (sign, each) in enumerate(terms) if sign > 0 and _equal(each, divisor)), None
    )
    if same is None or constant != -1 or len(terms) == 1:
        return None
    return _sum(terms[:same] + terms[same + 1 :], 0)


def _equal(one: ast.expr, other: ast.expr) -> bool:
    return ast.unparse(one) == ast.unparse(other)
