"""Arithmetic that a program does on numbers that vary, as Python does it, bit for bit.

Each operation has one spelling, which is C++ and, for reports, Python too. Where Python would raise
or answer with another type, a condition of the operation does not hold, and the program is not run.
"""

from __future__ import annotations

import builtins
import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Definition:
    """A number that a program computes of others.

    Attributes:
        name: ``r<i>`` for a float, ``d<i>`` for an int.
        text: its value, over the program's symbols and the names defined before it.
        before: what must hold for the value to be computed.
        after: what must hold of the value.
    """

    name: str
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def is_real(self) -> bool:
        return self.name.startswith("r")

    @property
    def conditions(self) -> tuple[str, ...]:
        return (*self.before, *self.after)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation on floats or ints.

    Attributes:
        python: what Python does.
        text: its spelling, with ``{0}`` and ``{1}`` for the operands.
        before: conditions on the operands.
        after: conditions on the result, ``{r}``.
        takes_ints: operands are ints; else they are floats.
    """

    python: Callable[..., Any]
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    takes_ints: bool = False


def _libm(function: Callable[[float], float], *, before: str = "", after: str = "") -> Operation:
    name = function.__name__
    return Operation(
        function, f"libm_{name}({{0}})", (before,) if before else (), (after,) if after else ()
    )


def _to_int(function: Callable[[float], int], name: str) -> Operation:
    return Operation(function, f"{name}_to_int({{0}})", ("fits_int({0})",))


def _power(base: float, exponent: float) -> Any:
    return base**exponent


# Python raises where the result is no number though the operand is one, or is too large.
_SOUND = "is_nan({r}) == is_nan({0})"
_IN_RANGE = "is_finite({r}) >= is_finite({0})"
_POSITIVE = "{0} > 0"
_NONZERO = "{1} != 0"

OPERATIONS: dict[str, Operation] = {
    "add": Operation(operator.add, "({0} + {1})"),
    "sub": Operation(operator.sub, "({0} - {1})"),
    "mul": Operation(operator.mul, "({0} * {1})"),
    "truediv": Operation(operator.truediv, "({0} / {1})", (_NONZERO,)),
    "floordiv": Operation(operator.floordiv, "real_floor_div({0}, {1})", (_NONZERO,)),
    "mod": Operation(operator.mod, "real_mod({0}, {1})", (_NONZERO,)),
    "neg": Operation(operator.neg, "(-{0})"),
    "abs": Operation(operator.abs, "real_abs({0})"),
    # Of a negative base Python may make a complex number; results close to zero or too large are
    # its own affair, too.
    "pow": Operation(
        _power,
        "real_pow({0}, {1})",
        (
            "is_finite({0})",
            "is_finite({1})",
            "({0} > 0) + is_whole({1}) > 0",
            "({0} != 0) + ({1} > 0) > 0",
        ),
        ("is_finite({r})", "({0} == 0) + (real_abs({r}) > 1e-300) > 0"),
    ),
    "sqrt": _libm(math.sqrt, before="({0} < 0) == 0"),
    "exp": _libm(math.exp, after=_IN_RANGE),
    "expm1": _libm(math.expm1, after=_IN_RANGE),
    "log": _libm(math.log, before=_POSITIVE),
    "log2": _libm(math.log2, before=_POSITIVE),
    "log10": _libm(math.log10, before=_POSITIVE),
    "log1p": _libm(math.log1p, before="{0} > -1"),
    "tanh": _libm(math.tanh),
    "atan": _libm(math.atan),
    **{
        function.__name__: _libm(function, after=_SOUND)
        for function in (math.sin, math.cos, math.tan, math.asin, math.acos)
    },
    "sinh": _libm(math.sinh, after=_IN_RANGE),
    "cosh": _libm(math.cosh, after=_IN_RANGE),
    "floor": _to_int(math.floor, "floor"),
    "ceil": _to_int(math.ceil, "ceil"),
    "trunc": _to_int(math.trunc, "trunc"),
    "round": _to_int(builtins.round, "round"),
    "real": Operation(float, "real({0})", takes_ints=True),
    "int_truediv": Operation(
        operator.truediv, "(real({0}) / real({1}))", (_NONZERO,), takes_ints=True
    ),
    # Larger ones have roots that a float rounds.
    "isqrt": Operation(
        math.isqrt,
        "floor_to_int(libm_sqrt(real({0})))",
        ("{0} >= 0", "{0} < 1125899906842624"),
        takes_ints=True,
    ),
    "bit_length": Operation(int.bit_length, "bit_length({0})", takes_ints=True),
    "lshift": Operation(
        operator.lshift,
        "shift_left({0}, {1})",
        ("{1} >= 0", "{1} < 62", "magnitude({0}) * libm_exp2({1}) < 4e18"),
        takes_ints=True,
    ),
    "rshift": Operation(
        operator.rshift, "shift_right({0}, {1})", ("{1} >= 0", "{1} < 64"), takes_ints=True
    ),
}

# Questions, which a trace answers for the call that it is made from: the answer is guarded.
QUESTIONS: dict[str, Operation] = {
    "lt": Operation(operator.lt, "({0} < {1})"),
    "le": Operation(operator.le, "({0} <= {1})"),
    "gt": Operation(operator.gt, "({0} > {1})"),
    "ge": Operation(operator.ge, "({0} >= {1})"),
    "eq": Operation(operator.eq, "({0} == {1})"),
    "ne": Operation(operator.ne, "({0} != {1})"),
    "isnan": Operation(math.isnan, "is_nan({0})"),
    "isfinite": Operation(math.isfinite, "is_finite({0})"),
    "isinf": Operation(math.isinf, "(is_finite({0}) + is_nan({0}) == 0)"),
}


def literal(number: float) -> str | None:
    """The spelling of a float; None for a NaN."""
    if number != number:
        return None
    if math.isinf(number):
        return "infinity()" if number > 0 else "(-infinity())"
    text = repr(number)
    return f"({text})" if text.startswith("-") else text


_LIBM = (
    *("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "exp2"),
)

HELPERS: dict[str, str] = {
    # Under a name of its own, since the compiler replaces calls of functions that it knows.
    **{
        f"libm_{name}": f'extern "C" double libm_{name}(double) __asm__("{name}");\n'
        for name in _LIBM
    },
    "libm_pow": 'extern "C" double libm_pow(double, double) __asm__("pow");\n',
    "is_odd": """\
static inline int is_odd(double number) { return __builtin_fabs(__builtin_fmod(number, 2.0)) == 1; }
""",
    "is_whole": """\
static inline int is_whole(double number) { return __builtin_floor(number) == number; }
""",
    "real_pow": """\
static inline double real_pow(double base, double exponent) {
  const double power = libm_pow(__builtin_fabs(base), exponent);
  return __builtin_signbit(base) && is_odd(exponent) ? -power : power;
}
""",
    "real": "static inline double real(int64_t number) { return static_cast<double>(number); }\n",
    "infinity": "static inline double infinity() { return __builtin_inf(); }\n",
    "is_nan": "static inline int is_nan(double number) { return number != number; }\n",
    "is_finite": "static inline int is_finite(double number) { return number - number == 0; }\n",
    "real_abs": "static inline double real_abs(double number) { return __builtin_fabs(number); }\n",
    "fits_int": """\
static inline int fits_int(double number) { return number > -4e18 && number < 4e18; }
""",
    **{
        f"{name}_to_int": f"""\
static inline int64_t {name}_to_int(double number) {{
  return static_cast<int64_t>({function}(number));
}}
"""
        for name, function in (
            ("floor", "__builtin_floor"),
            ("ceil", "__builtin_ceil"),
            ("trunc", "__builtin_trunc"),
            ("round", "__builtin_nearbyint"),  # halves to even, as Python's
        )
    },
    # As CPython's float_rem and float_floor_div do it.
    "real_mod": """\
static inline double real_mod(double number, double divisor) {
  double rest = __builtin_fmod(number, divisor);
  if (rest == 0) return __builtin_copysign(0.0, divisor);
  if ((divisor < 0) != (rest < 0)) rest += divisor;
  return rest;
}
""",
    "real_floor_div": """\
static inline double real_floor_div(double number, double divisor) {
  const double rest = __builtin_fmod(number, divisor);
  double quotient = (number - rest) / divisor;
  if (rest != 0 && (divisor < 0) != (rest < 0)) quotient -= 1.0;
  if (quotient == 0) return __builtin_copysign(0.0, number / divisor);
  const double whole = __builtin_floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}
""",
    "bit_length": """\
static inline int64_t bit_length(int64_t number) {
  const uint64_t bits = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  return bits == 0 ? 0 : 64 - __builtin_clzll(bits);
}
""",
}


def _or_nan(function: Callable[..., Any]) -> Callable[..., Any]:
    def answer(*operands: Any) -> Any:
        try:
            return function(*operands)
        except (ArithmeticError, ValueError):
            return math.nan

    return answer


# What the helpers are in Python, for evaluating a condition where it is reported.
PYTHON: dict[str, Callable[..., Any]] = {
    **{f"libm_{name}": _or_nan(getattr(math, name)) for name in _LIBM if hasattr(math, name)},
    "libm_exp2": lambda number: 2.0**number,
    "real_pow": _or_nan(math.pow),
    "is_whole": lambda number: math.floor(number) == number,
    "real": float,
    "infinity": lambda: math.inf,
    "is_nan": math.isnan,
    "is_finite": math.isfinite,
    "real_abs": abs,
    "fits_int": lambda number: -4e18 < number < 4e18,
    "floor_to_int": _or_nan(math.floor),
    "ceil_to_int": _or_nan(math.ceil),
    "trunc_to_int": _or_nan(math.trunc),
    "round_to_int": _or_nan(builtins.round),
    "real_mod": _or_nan(operator.mod),
    "real_floor_div": _or_nan(operator.floordiv),
    "bit_length": lambda number: number.bit_length(),
}
