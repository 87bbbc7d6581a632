"""Numbers of other classes that meet numbers that vary: of the user's classes, NumPy's, complex.

Their classes ask in C whether they met an int or a float, and a symbol is neither: the two would
be unequal whatever their values, or the result would lose its class.
"""

from __future__ import annotations

import contextlib
import functools
import numbers
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

from trident.capture.disguise import called_by_machinery
from trident.capture.reals import fix

COMPARISONS = {
    **{"__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__"},
    **{"__eq__": "__eq__", "__ne__": "__ne__"},
}
_ARITHMETIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow"),
    *("lshift", "rshift", "and", "or", "xor"),
)
_REFLECTED = {
    **COMPARISONS,
    **{f"__{name}__": f"__r{name}__" for name in _ARITHMETIC},
    **{f"__r{name}__": f"__{name}__" for name in _ARITHMETIC},
}

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_PLAIN = (int, float, torch.SymInt, torch.SymFloat)
_EXACT = 2**53  # floats tell ints up to it apart


def operand(number: Any, other: Any, name: str, in_user_code: bool) -> Any:
    """What an operation takes for ``other``, which met a number that varies.

    Args:
        number: a SymInt or SymFloat.
        other: the other operand.
        name: of the method of ``number`` that does the operation.
        in_user_code: whether PyTorch or Triton do not do it.

    Returns:
        An int or a float instead of a bool or of an instance of a subclass that leaves the
        operation to these; everything else as it is.

    Raises:
        NeedsValueError: for another number, whose class only knows what to do with a value.
    """
    kind = type(other)
    if kind is int and name in COMPARISONS and in_user_code:
        if isinstance(number, torch.SymFloat) and abs(other) > _EXACT:
            fix(number)
        return other
    if kind in _PLAIN:
        return other
    if kind is bool:
        return int(other) if in_user_code else other
    if isinstance(other, int) and _is_left_to(int, kind, name):
        return int.__index__(other)
    if isinstance(other, float) and _is_left_to(float, kind, name):
        return float.__float__(other)
    if in_user_code and isinstance(other, numbers.Number):
        fix(number)
    return other


def _is_left_to(base: type, kind: type, name: str) -> bool:
    """Whether a subclass's instances do as those of ``base``, on either side of an operation."""
    return all(
        getattr(kind, each, None) is getattr(base, each, None) for each in (name, _REFLECTED[name])
    )


@contextlib.contextmanager
def other_numbers_keep_their_classes() -> Iterator[None]:
    """While active, arithmetic of a SymInt or SymFloat and another number is as that of a value.

    Comparisons are not: `comparisons.py` has them.
    """
    with contextlib.ExitStack() as stack:
        for cls in _SYMBOLIC:
            for name in _REFLECTED.keys() - COMPARISONS.keys():
                original = getattr(cls, name, None)
                if original is not None:
                    _put(stack, cls, name, _with_operand(original, name))
            # NumPy asks for these before it takes a number for an object.
            _put(stack, cls, "__array_ufunc__", _array_ufunc)
            _put(stack, cls, "__array__", _array)
        _put(stack, torch.SymInt, "__round__", _round)
        yield


def _put(stack: contextlib.ExitStack, cls: type, name: str, method: Any) -> None:
    if name in vars(cls):
        stack.callback(setattr, cls, name, vars(cls)[name])
    else:
        stack.callback(delattr, cls, name)
    setattr(cls, name, method)


def _with_operand(original: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def method(self: Any, other: Any) -> Any:
        return original(self, operand(self, other, name, not called_by_machinery()))

    return method


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    values = [fix(each) if isinstance(each, _SYMBOLIC) else each for each in inputs]
    return getattr(ufunc, method)(*values, **kwargs)


def _array(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    return numpy.asarray(fix(self), dtype)


def _round(self: Any, ndigits: Any = None) -> Any:
    """To tens and hundreds, too, which PyTorch leaves out."""
    if ndigits is None or operator.index(ndigits) >= 0:
        return self
    return round(fix(self), operator.index(ndigits))
