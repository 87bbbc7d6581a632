"""Keeps a symbolic size from being noticed by code that asks whether it has an int.

User code runs on SymInts during a symbolic capture. Arithmetic and comparisons on them are recorded
or guarded by PyTorch, but two things would silently take another way than with an int: type checks,
and text. The first are answered as for an int; what cannot be answered makes the call unsupported.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trident import _C
from trident.capture.reads import is_machinery
from trident.errors import UnsupportedError

_isinstance = builtins.isinstance
_len = builtins.len
_DISGUISED: dict[type, Any] = {torch.SymInt: 0, torch.SymFloat: 0.0}


def _is_instance(number: Any, classes: Any) -> bool:
    """The answer for a number that is a symbol."""
    return _isinstance(number if called_by_machinery() else _DISGUISED[type(number)], classes)


def _class(number: Any) -> type:
    """What a number that is a symbol says that its class is."""
    return type(number) if called_by_machinery() else shown_class(number)


def shown_class(number: Any) -> type:
    """The class of a number, of one that is a symbol what it stands for."""
    return type(_DISGUISED.get(type(number), number))


def _length(tensor: torch.Tensor) -> Any:
    """The length of a tensor, which the builtin would make an int."""
    return _len(tensor) if called_by_machinery() or not tensor.dim() else tensor.shape[0]


def called_by_machinery() -> bool:
    """Whether PyTorch or Triton called the function that asks; builtins in between do not count."""
    return knows_symbolic_ints(sys._getframe(2).f_globals)


def knows_symbolic_ints(namespace: dict[str, Any]) -> bool:
    """Whether code with these globals is PyTorch's, or a trace's machinery."""
    name = namespace.get("__name__")
    if type(name) is not str:
        return False
    return name == "torch" or name.startswith("torch.") or is_machinery(namespace)


@contextlib.contextmanager
def symbolic_numbers_pass_for_numbers() -> Iterator[list[Exception]]:
    """While active, a SymInt is an int for `isinstance` and `__class__` outside of PyTorch.

    There, and outside of Triton, `len` of a tensor is its first size, and turning a SymInt into
    text raises UnsupportedError.

    Yields:
        A list that receives what was refused, for the case that the user's code catches it.
    """
    represent, represent_float = torch.SymInt.__repr__, torch.SymFloat.__repr__
    problems: list[Exception] = []

    def refuse(self: torch.SymInt | torch.SymFloat) -> str:
        if not called_by_machinery():
            problems.append(UnsupportedError("the call turns a number that varies into text"))
            raise problems[-1]
        return represent(self) if isinstance(self, torch.SymInt) else represent_float(self)

    diversion = _C.Diversion()
    for each in _DISGUISED:
        diversion.disguise(each, property(_class))
    builtins.isinstance = _C.builtin_but_for(_isinstance, tuple(_DISGUISED), _is_instance)
    builtins.len = _C.builtin_but_for(_len, (FakeTensor,), _length)
    torch.SymInt.__repr__ = refuse  # type: ignore[method-assign]
    torch.SymFloat.__repr__ = refuse  # type: ignore[method-assign]
    try:
        yield problems
    finally:
        diversion.end()
        builtins.isinstance = _isinstance
        builtins.len = _len
        torch.SymInt.__repr__ = represent  # type: ignore[method-assign]
        torch.SymFloat.__repr__ = represent_float  # type: ignore[method-assign]


# What a SymInt has and an int has not; the last two in a trace, for NumPy.
_TELLING = frozenset((*dir(torch.SymInt), "node", "__array__", "__array_ufunc__")) - {*dir(int)}


@functools.cache
def _asks_for_attributes(code: types.CodeType) -> bool:
    asks = not {"hasattr", "getattr", "vars"}.isdisjoint(code.co_names)
    return asks and any(_isinstance(each, str) and each in _TELLING for each in code.co_consts)


def check_attribute_tests(executed: Iterable[tuple[types.CodeType, dict[str, Any]]]) -> None:
    """Refuses code that may have told a symbolic int from an int in a way that goes unseen.

    Raises:
        UnsupportedError: the code asks for an attribute that only a symbolic int has.
    """
    for code, namespace in executed:
        if not knows_symbolic_ints(namespace) and _asks_for_attributes(code):
            raise UnsupportedError(
                f"{code.co_qualname} may ask for an attribute of a size that varies",
                f"{code.co_filename}:{code.co_firstlineno}",
            )
