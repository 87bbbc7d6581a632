"""Floats that vary between calls: their arithmetic is computed at run time as Python computes it.

A trace runs on SymFloats. Their sympy expressions are rearranged, which rounds differently, so what
counts are the nodes of the graph: one operation each, in the order of the code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from trident.errors import UnsupportedError
from trident.ir import expressions
from trident.ir.expressions import Real, Size

_OPERATORS: dict[Any, str] = {operator.add: "+", operator.sub: "-", operator.mul: "*"}


class FloatNeededError(UnsupportedError):
    """The trace used the value of a float."""


class Reals:
    """Spells the floats of one trace.

    Args:
        symbols: the program's symbol for each of the ShapeEnv's floats.
        size: an int or SymInt of the trace over the program's symbols, as it is used for a float.
    """

    def __init__(self, symbols: dict[sympy.Symbol, int], size: Callable[[Any], Size]) -> None:
        self._symbols = symbols
        self._size = size
        self._computed: dict[torch.fx.Node, tuple[Any, ...]] = {}

    def note(self, node: torch.fx.Node) -> None:
        """Keeps what a new node of the graph computes a float of; the graph may drop the node."""
        if not isinstance(node.target, torch._ops.OpOverload) and any(
            isinstance(each, torch.fx.Node) and isinstance(each.meta.get("val"), torch.SymFloat)
            for each in node.args
        ):
            self._computed[node] = node.args

    def simplified(self) -> bool:
        """Whether the trace took a float for a constant or another float that is almost the same.

        Such may differ by rounding, for infinity and for NaNs.
        """
        known: dict[sympy.Basic, str] = {
            symbol: f"f{number}" for symbol, number in self._symbols.items()
        }
        for node in self._computed:
            value = node.meta.get("val")
            if isinstance(value, (torch.SymBool, bool)):
                continue  # a condition: what was decided by it is guarded
            if not isinstance(value, torch.SymFloat) or not value.node.expr.free_symbols:
                return True
            text = self._text(node)
            if known.setdefault(value.node.expr, text) != text:
                return True
        return False

    def real(self, node: torch.fx.Node) -> Real:
        """The float that a node of the graph stands for.

        Raises:
            UnsupportedError: for arithmetic that C++ may do differently from Python.
        """
        return Real(self._text(node))

    def real_of(self, value: torch.SymFloat) -> Real:
        """The same of a float of the active trace."""
        return self.real(node_of(value))

    def _text(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            known = value.meta.get("val")
            if isinstance(known, (int, torch.SymInt)) and not isinstance(known, bool):
                return f"static_cast<double>({expressions.text(self._size(known))})"
            if isinstance(known, torch.SymFloat):
                return self._float(value, known)
            value = known
        if type(value) in (int, float):
            number = float(value)
            if number != number or number in (float("inf"), float("-inf")):
                raise UnsupportedError("a float that varies meets infinity or a NaN")
            return f"({number!r})" if number < 0 or str(number)[0] == "-" else repr(number)
        raise UnsupportedError(f"a float that varies meets a {type(value).__name__}")

    def _float(self, node: torch.fx.Node, value: torch.SymFloat) -> str:
        if node.op == "placeholder":
            return f"f{self._symbols[value.node._expr]}"
        arguments = self._computed.get(node, node.args)
        if not value.node.expr.free_symbols:
            raise FloatNeededError("arithmetic on a float that varies was simplified")
        if node.target is operator.neg:
            return f"(-{self._text(arguments[0])})"
        if node.target is operator.truediv and self._is_nonzero(arguments[1]):
            return f"({self._text(arguments[0])} / {self._text(arguments[1])})"
        if node.target in _OPERATORS:
            left, right = map(self._text, arguments)
            return f"({left} {_OPERATORS[node.target]} {right})"
        if node.target is torch.sym_float:
            return self._text(arguments[0])
        raise UnsupportedError(f"{node.name} of a float that varies")

    def _is_nonzero(self, value: Any) -> bool:
        """Whether Python does not raise when it divides by a number."""
        if isinstance(value, torch.fx.Node):
            known = value.meta.get("val")
            if not isinstance(known, (int, torch.SymInt)):
                return False
            size = self._size(known)
            return size != 0 if isinstance(size, int) else bool(size.is_positive)
        return type(value) in (int, float) and value != 0


def node_of(value: torch.SymFloat) -> torch.fx.Node:
    """The node of the active trace that computes a float."""
    mode = get_proxy_mode()
    proxy = None if mode is None else mode.tracer.symnode_tracker.get(value)
    if proxy is None:
        raise UnsupportedError("a float that varies has no place in the trace")
    node: torch.fx.Node = proxy.force().node
    return node
