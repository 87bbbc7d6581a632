"""Builtins that would make a plain number of a symbolic one: in a trace they compute with it.

`float`, `int`, the functions of `math` and `torch.tensor` are written in C and ask a SymInt for its
value, which fixes it. While a trace over symbols runs they are diverted natively, so that it does
not matter under which name the code imported them.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from trident import _C
from trident.capture.disguise import called_by_machinery
from trident.capture.reals import compute, reals_of
from trident.errors import UnsupportedError

_SYMBOLIC = (torch.SymInt, torch.SymFloat)

# Of one argument; `math.floor`, `ceil` and `trunc` ask PyTorch's classes by themselves.
_FUNCTIONS = (
    *("sqrt", "exp", "expm1", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "isnan", "isinf", "isfinite", "isqrt"),
)

# Methods of SymInt and SymFloat that raise where Python does for the values of the call.
_MAY_RAISE = ("truediv", "floordiv", "mod", "pow", "lshift", "rshift")

_FLOATING = (None, torch.float32, torch.float64, torch.bfloat16, torch.float16)
_INTEGRAL = (*_FLOATING, torch.int64)


@contextlib.contextmanager
def symbolic_arithmetic() -> Iterator[list[Exception]]:
    """While active, numbers computed of symbolic ones are symbolic.

    Yields:
        A list that receives what was refused, for the case that the user's code catches it.
    """
    problems: list[Exception] = []
    diversion = _C.Diversion()
    with contextlib.ExitStack() as stack:
        stack.callback(diversion.end)
        for name in _FUNCTIONS:
            _divert_function(diversion, name)
        _divert_log_and_pow(diversion)
        diversion.divert(float, _SYMBOLIC, _conversion(float, "real", torch.SymFloat))
        diversion.divert(int, _SYMBOLIC, _conversion(int, "trunc", torch.SymInt))
        _divert_tensor(diversion)
        if sys.version_info >= (3, 12):
            stack.callback(setattr, builtins, "sum", builtins.sum)
            builtins.sum = _sum_of_varying(problems)
        for cls in _SYMBOLIC:
            for name, method in _methods(cls, problems).items():
                stack.callback(_put_back, cls, name, vars(cls).get(name))
                setattr(cls, name, method)
        yield problems


def _put_back(cls: type, name: str, method: Any) -> None:
    if method is None:
        delattr(cls, name)
    else:
        setattr(cls, name, method)


def _divert_function(diversion: _C.Diversion, name: str) -> None:
    def answer(number: Any) -> Any:
        result = compute(name, number)
        return original(number) if result is NotImplemented else result

    original = diversion.divert(getattr(math, name), _SYMBOLIC, answer)


def _divert_log_and_pow(diversion: _C.Diversion) -> None:
    def log(number: Any, *base: Any) -> Any:
        logarithms = [_logarithm(each) for each in (number, *base)]
        if len(base) > 1 or NotImplemented in logarithms:
            return original_log(number, *base)
        return logarithms[0] / logarithms[1] if base else logarithms[0]

    def _logarithm(number: Any) -> Any:
        if type(number) in _SYMBOLIC:
            return compute("log", number)
        return original_log(number)

    def power(base: Any, exponent: Any) -> Any:
        result = compute("pow", base, exponent)
        return original_pow(base, exponent) if result is NotImplemented else result

    original_log = diversion.divert(math.log, _SYMBOLIC, log)
    original_pow = diversion.divert(math.pow, _SYMBOLIC, power)


def _conversion(builtin: type, operation: str, cls: type) -> Callable[[Any], Any]:
    """What `int` or `float` makes of a symbolic number in the user's code."""
    name = f"__{builtin.__name__}__"

    def answer(number: Any) -> Any:
        if called_by_machinery() or reals_of((number,)) is None:
            return getattr(number, name)()
        if isinstance(number, cls):
            return number
        result = compute(operation, number)
        return getattr(number, name)() if result is NotImplemented else result

    return answer


def _divert_tensor(diversion: _C.Diversion) -> None:
    """`torch.tensor` of symbolic numbers, or of lists with such, is made of its elements."""

    def tensor(data: Any, *args: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        numbers = list(_elements(data))
        found = {type(each) for each in numbers}
        allowed = _FLOATING if found & {float, torch.SymFloat} else _INTEGRAL
        if (
            args
            or options
            or found.isdisjoint(_SYMBOLIC)
            or not found.issubset({int, float, *_SYMBOLIC})
            or dtype not in allowed
        ):
            return original(data, *args, dtype=dtype, device=device, **options)
        if dtype is None:
            dtype = torch.int64 if allowed is _INTEGRAL else torch.get_default_dtype()
        return _tensor_of(data, dtype, device)

    original = diversion.divert(torch.tensor, (*_SYMBOLIC, list, tuple), tensor)


def _elements(data: Any) -> Iterator[Any]:
    if type(data) in (list, tuple):
        for each in data:
            yield from _elements(each)
    else:
        yield data


def _tensor_of(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if type(data) in (list, tuple):
        return torch.stack([_tensor_of(each, dtype, device) for each in data])
    if type(data) in (int, torch.SymInt):
        return torch.full((), data, dtype=dtype, device=device)
    # `full` refuses what is too large for the type, of which `tensor` makes infinity.
    return torch.full((), data, dtype=torch.float64, device=device).to(dtype)


def _sum_of_varying(problems: list[Exception]) -> Callable[..., Any]:
    """From CPython 3.12 on, a sum of floats is more exact than its additions."""

    def total(items: Iterable[Any], /, *args: Any, **kwargs: Any) -> Any:
        items = list(items)
        if any(type(each) is torch.SymFloat for each in items):
            problems.append(UnsupportedError("the call sums floats that vary"))
            raise problems[-1]
        return original(items, *args, **kwargs)

    original = builtins.sum
    return total


def _methods(cls: Any, problems: list[Exception]) -> dict[str, Any]:
    """Methods of a class of symbolic numbers, as they are in a trace."""
    made: dict[str, Any] = {
        "__divmod__": lambda self, other: (self // other, self % other),
        "__rdivmod__": lambda self, other: (other // self, other % self),
    }
    for name in (*_MAY_RAISE, *(f"r{each}" for each in _MAY_RAISE)):
        original = getattr(cls, f"__{name}__", None)
        if original is not None:
            made[f"__{name}__"] = _noting_errors(original, problems)
    for name, reflected in (("floordiv", False), ("rfloordiv", True)):
        made[f"__{name}__"] = _float_operation("floordiv", made[f"__{name}__"], reflected)
    if cls is torch.SymInt:
        made["bit_length"] = _bit_length(cls.bit_length)
    else:
        made["__bool__"] = _truth(cls.__bool__)
        for name, reflected in (("pow", False), ("rpow", True)):
            made[f"__{name}__"] = _float_operation("pow", made[f"__{name}__"], reflected)
    return made


def _noting_errors(original: Callable[[Any, Any], Any], problems: list[Exception]) -> Any:
    def method(self: Any, other: Any) -> Any:
        try:
            return original(self, other)
        except (ArithmeticError, ValueError) as error:
            if reals_of((self, other)) is not None:  # with other values it may not be raised
                problems.append(UnsupportedError(f"arithmetic on a number that varies: {error}"))
            raise

    return method


def _float_operation(name: str, original: Callable[[Any, Any], Any], reflected: bool) -> Any:
    """A method that PyTorch makes of several operations, some of them other than Python's."""

    def method(self: Any, other: Any) -> Any:
        floats = [type(each) in (float, torch.SymFloat) for each in (self, other)]
        if any(floats) and type(other) in (int, float, *_SYMBOLIC):
            operands = (other, self) if reflected else (self, other)
            result = compute(name, *operands)
            if result is not NotImplemented:
                return result
        return original(self, other)

    return method


def _bit_length(original: Callable[[Any], Any]) -> Any:
    def bit_length(self: Any) -> Any:
        result = compute("bit_length", self)
        return original(self) if result is NotImplemented else result

    return bit_length


def _truth(original: Callable[[Any], Any]) -> Any:
    def truth(self: Any) -> Any:
        result = compute("ne", self, 0.0)
        return original(self) if result is NotImplemented else result

    return truth
