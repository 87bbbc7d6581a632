"""Floats of a trace over symbols, and ints made of them: computed at run time as Python does it.

A trace runs on SymFloats. PyTorch's sympy expressions of them are rearranged, which rounds
differently, and sympy knows no NaNs. So each operation on a float makes a symbol of its own here,
of which PyTorch knows no more than what it is in the call; the program defines it by the operation.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch
import torch.fx
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.proxy_tensor import get_proxy_mode, handle_sym_dispatch
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from trident.capture.places import current_line
from trident.capture.soft_words import NeedsValueError
from trident.errors import UnsupportedError
from trident.ir import expressions, real_arithmetic
from trident.ir.expressions import Real, Size, derived_symbol
from trident.ir.real_arithmetic import OPERATIONS, QUESTIONS, Definition

_SYMBOLIC = (torch.SymInt, torch.SymFloat)

# PyTorch's names of operations on floats.
_OF_FLOATS: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "truediv",
    operator.mod: "mod",
    operator.pow: "pow",
    operator.neg: "neg",
    operator.abs: "abs",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.eq: "eq",
    operator.ne: "ne",
    math.floor: "floor",
    math.ceil: "ceil",
    math.trunc: "trunc",
    **{
        getattr(torch, f"_sym_{name}"): name
        for name in OPERATIONS
        if hasattr(torch, f"_sym_{name}")
    },
}


class Reals:
    """The floats of one trace.

    Args:
        environment: of the trace.
        symbols: the ShapeEnv's symbol of each float among the symbolic words, and its number.
        names: the ShapeEnv's symbols of ints, and the program's.
        size: an int or SymInt of the trace over the program's symbols, below a limit.
        need: raises for words, by number, whose values are needed.

    Attributes:
        definitions: what the program computes, in order.
        answers: conditions that were decided by floats, each with the user's line.
        problems: what was refused, for the case that the user's code catches it.
    """

    def __init__(
        self,
        environment: ShapeEnv,
        symbols: dict[sympy.Symbol, int],
        names: dict[sympy.Symbol, sympy.Symbol],
        size: Callable[[Any, bool], Size],
        need: Callable[[Iterable[int]], None],
    ) -> None:
        self._environment = environment
        self._words = symbols
        self._names = names
        self._size = size
        self._need = need
        self._spelling: dict[sympy.Symbol, str] = {}  # of the floats that the trace made
        self._roots: dict[str, frozenset[int]] = {}  # the words that a definition depends on
        self._known: dict[str, Any] = {}  # results by spelling
        self.definitions: list[Definition] = []
        self.answers: dict[str, str | None] = {}
        self.problems: list[Exception] = []

    def intercept(self, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        """What records an operation on symbolic numbers instead of a trace's ``dispatch``."""

        def record(func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            name = _operation(func, args)
            if name is None:
                return dispatch(func, types, args, kwargs)
            return dispatch(_computed, types, (name, *args[: _num_operands(name)]), kwargs)

        return record

    def compute(self, name: str, operands: tuple[Any, ...]) -> Any:
        """The result of an operation: a SymFloat, a SymInt, or the answer to a question.

        Raises:
            NeedsValueError: where the program cannot do it for other values.
            Exception: what Python raises for the values of the call.
        """
        try:
            if not (OPERATIONS.get(name) or QUESTIONS[name]).takes_ints:
                operands = tuple(map(self._float, operands))
            return self._compute(name, operands)
        except Exception as problem:
            self.problems.append(problem)
            raise

    def fix(self, value: Any) -> None:
        """Gives up the words that a number depends on, where there are any.

        Raises:
            NeedsValueError: for these.
            UnsupportedError: for a stride that only a kernel knows.
        """
        try:
            self._need(self.roots_of(value))
        except NeedsValueError as problem:
            self.problems.append(NeedsValueError(problem.positions, where=current_line()))
            raise self.problems[-1] from None
        except UnsupportedError as problem:
            self.problems.append(problem)
            raise

    def _float(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return self._compute("real", (value,))
        return value if isinstance(value, torch.SymFloat) else float(value)

    def _compute(self, name: str, operands: tuple[Any, ...]) -> Any:
        operation = OPERATIONS.get(name) or QUESTIONS[name]
        roots = frozenset().union(*map(self.roots_of, operands))
        exact = operation.takes_ints and "real(" in operation.text
        spelled = [self._spell(each, exact, roots) for each in operands]
        text = operation.text.format(*spelled)
        if text in self._known:
            return self._known[text]
        hints = [each.node.hint if isinstance(each, _SYMBOLIC) else each for each in operands]
        try:
            result = operation.python(*hints)
        except (ArithmeticError, ValueError):
            self._need(roots)  # other values may not raise
            raise
        if name in QUESTIONS:
            self.answers.setdefault(text if result else f"{text} == 0", current_line())
            self._known[text] = result
            return result
        real = isinstance(result, float)
        label = f"{'r' if real else 'd'}{len(self.definitions)}"
        divisors = {
            f"{expressions.text(expressions.known(each))} > 0"
            for operand in operands
            if isinstance(operand, torch.SymInt)
            for each in expressions.all_divisors(sympy.sympify(self._size(operand, exact)))
        }
        before = [
            *sorted(divisors),
            *(each.format(*spelled) for each in operation.before if _names_symbol(each, operands)),
        ]
        after = [each.format(*spelled, r=label) for each in operation.after]
        definition = Definition(label, text, tuple(before), tuple(after))
        if isinstance(result, complex) or not self._holds(operation, hints, result):
            self._need(roots)
        self.definitions.append(definition)
        self._roots[label] = roots
        self._known[text] = self._symbol(label, result)
        return self._known[text]

    def _holds(self, operation: real_arithmetic.Operation, hints: list[Any], result: Any) -> bool:
        """Whether an operation's conditions hold in the call."""
        operands = [
            real_arithmetic.literal(each) or "nan" if isinstance(each, float) else f"({each})"
            for each in (*hints, result)
        ]
        scope = {**expressions.PYTHON, **real_arithmetic.PYTHON, "nan": math.nan}
        return all(
            eval(each.format(*operands, r=operands[-1]), {"__builtins__": {}}, scope)
            for each in (*operation.before, *operation.after)
        )

    def _symbol(self, label: str, value: float | int) -> Any:
        """What stands for a computed number from here on."""
        source = ConstantSource(f"computed_{label}")
        symbol = self._environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        if isinstance(value, float):
            self._spelling[symbol] = label
            return self._environment.create_symfloatnode(symbol, hint=value, source=source)
        if not -(2**62) < value < 2**62:
            raise UnsupportedError(f"the number {value} does not fit 64 bits")
        self._names[symbol] = derived_symbol(int(label[1:]))
        return self._environment.create_symintnode(symbol, hint=value, source=source)

    def _spell(self, value: Any, exact: bool, roots: frozenset[int]) -> str:
        if isinstance(value, (int, torch.SymInt)):
            return f"({expressions.text(self._size(value, exact))})"
        spelled = (
            self.spelling(value.node._expr)
            if isinstance(value, torch.SymFloat)
            else real_arithmetic.literal(value)
        )
        if spelled is None:  # a NaN, or what PyTorch computed by itself
            self._need(roots)
            raise UnsupportedError(f"arithmetic on a float that varies meets {value}")
        return spelled

    def spelling(self, symbol: sympy.Basic) -> str | None:
        """The name of a float; None for what is no float of the trace."""
        if symbol in self._words:
            return f"f{self._words[symbol]}"
        return self._spelling.get(symbol)

    def roots_of(self, value: Any) -> frozenset[int]:
        """The words that a number depends on, by number."""
        if not isinstance(value, _SYMBOLIC):
            return frozenset()
        expression: Any = value.node._expr
        return frozenset().union(*map(self.roots, expression.free_symbols))

    def roots(self, symbol: sympy.Symbol) -> frozenset[int]:
        """The words that one of the ShapeEnv's symbols depends on."""
        if symbol in self._words:
            return frozenset([self._words[symbol]])
        if symbol in self._spelling:
            return self._roots[self._spelling[symbol]]
        return self.roots_of_name(self._names[symbol]) if symbol in self._names else frozenset()

    def roots_of_name(self, symbol: sympy.Symbol) -> frozenset[int]:
        """The same of one of the program's symbols."""
        if symbol.name in self._roots:
            return self._roots[symbol.name]
        return frozenset([expressions.symbol_index(symbol)])

    def covers(self, symbol: sympy.Symbol) -> bool:
        """Whether one of the ShapeEnv's symbols is a float."""
        return self.spelling(symbol) is not None

    def real(self, node: torch.fx.Node) -> Real:
        """The float that a node of the graph stands for."""
        return self.real_of(node.meta["val"])

    def real_of(self, value: torch.SymFloat) -> Real:
        """The same of a float of the trace."""
        return Real(self._spell(value, False, self.roots_of(value)))


def _operation(func: Any, args: tuple[Any, ...]) -> str | None:
    """The name of an operation that makes a symbol of its own; None for one on ints alone."""
    if func is torch.sym_float:
        return "real"
    if any(isinstance(each, torch.SymFloat) for each in args):
        if func is builtins.round and args[1:] in ((), (None,)):
            return "round"
        return _OF_FLOATS.get(func)
    if func is operator.truediv:
        return "int_truediv"
    if func in (operator.lshift, operator.rshift) and isinstance(args[1], torch.SymInt):
        return func.__name__
    return None


def _names_symbol(condition: str, operands: tuple[Any, ...]) -> bool:
    """Whether a condition on operands is on one that varies."""
    return any(
        f"{{{index}}}" in condition
        for index, each in enumerate(operands)
        if isinstance(each, _SYMBOLIC)
    )


def _num_operands(name: str) -> int:
    return 2 if "{1}" in (OPERATIONS.get(name) or QUESTIONS[name]).text else 1


def _computed(name: str, *operands: Any) -> Any:
    """A node of the graph: an operation that the program computes."""
    reals = reals_of(operands)
    assert reals is not None  # only a trace over symbols makes such nodes
    return reals.compute(name, operands)


def reals_of(operands: Iterable[Any]) -> Reals | None:
    """The floats of the trace that numbers belong to; None where none does."""
    for each in operands:
        if isinstance(each, _SYMBOLIC):
            reference = getattr(each.node.shape_env, "reals", None)
            return None if reference is None else reference()
    return None


def compute(name: str, *operands: Any) -> Any:
    """Does an operation in the active trace.

    Returns:
        NotImplemented where there is no such trace.
    """
    if get_proxy_mode() is None or reals_of(operands) is None:
        return NotImplemented
    return handle_sym_dispatch(_computed, (name, *operands), {})


def fix(number: Any) -> Any:
    """The value of a SymInt or SymFloat, where that is one for all calls.

    Raises:
        NeedsValueError: for the words that it depends on in the active trace.
    """
    reals = reals_of((number,))
    if reals is not None:
        reals.fix(number)
    return int(number) if isinstance(number, torch.SymInt) else float(number)
