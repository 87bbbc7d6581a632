"""How large integers can get: generated code computes in 64 bits, Python without limit."""

from __future__ import annotations

import functools

import sympy
from torch.utils._sympy import functions as torch_functions

from trident.ir.expressions import is_number_symbol

# An expression below it can be computed in 64 bits, with every intermediate result.
LIMIT = 2.0**62
# Below it every integer is a float.
EXACT = 2.0**53


def needs_check(expression: sympy.Basic) -> bool:
    """Whether an expression could leave 64 bits: sizes of tensors alone fit memory."""
    return not expression.is_Atom and any(map(is_number_symbol, expression.free_symbols))


def magnitude(expression: sympy.Basic) -> str:
    """A bound of the absolute values of an expression and all its parts, as C++ on doubles."""
    if isinstance(expression, sympy.Symbol):
        return f"magnitude({expression.name})"
    if isinstance(expression, sympy.Number):
        return repr(abs(float(expression)))
    if isinstance(expression, (sympy.Pow, torch_functions.PowByNatural)):
        base, exponent = expression.args
        return " * ".join([f"({magnitude(base)})"] * max(int(exponent), 1))
    parts = [magnitude(each) for each in sorted(expression.args, key=sympy.default_sort_key)]
    if isinstance(expression, sympy.Mul):
        return " * ".join(f"({part})" for part in parts)
    if isinstance(expression, torch_functions.LShift):
        value, by = expression.args
        return f"({magnitude(value)}) * {2.0 ** int(by)!r}"
    # Sums; and quotients, remainders and the like are no larger than what they are made of.
    return functools.reduce(lambda a, b: f"{a} + {b}", parts)
