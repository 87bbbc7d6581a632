"""Keeps a symbolic size from being noticed by code that asks whether it has an int.

User code runs on SymInts during a symbolic capture. Arithmetic and comparisons on them are recorded
or guarded by PyTorch, but two things would silently take another way than with an int: type checks,
and text. The first are answered as for an int; what cannot be answered makes the call unsupported.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import os
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
_DISGUISED = {torch.SymInt: 0, torch.SymFloat: 0.0}
_STANDARD_LIBRARY = os.path.dirname(dis.__file__) + os.sep


def _is_instance(number: Any, classes: Any) -> bool:
    """The answer for a number that is a symbol."""
    return _isinstance(number if called_by_machinery() else _DISGUISED[type(number)], classes)


def _length(tensor: torch.Tensor) -> Any:
    """The length of a tensor, which the builtin would make an int."""
    return _len(tensor) if called_by_machinery() or not tensor.dim() else tensor.shape[0]


def called_by_machinery() -> bool:
    """Whether PyTorch or Triton called the function that asks; builtins in between do not count."""
    return _knows_symbolic_ints(sys._getframe(2).f_globals)


def _knows_symbolic_ints(namespace: dict[str, Any]) -> bool:
    name = namespace.get("__name__")
    if type(name) is not str:
        return False
    return name == "torch" or name.startswith("torch.") or is_machinery(namespace)


@contextlib.contextmanager
def symbolic_numbers_pass_for_numbers() -> Iterator[list[Exception]]:
    """While active, `isinstance` takes a SymInt for an int outside of PyTorch and Triton.

    There, `len` of a tensor is its first size, and turning a SymInt into text raises
    UnsupportedError.

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

    builtins.isinstance = _C.builtin_but_for(_isinstance, tuple(_DISGUISED), _is_instance)
    builtins.len = _C.builtin_but_for(_len, (FakeTensor,), _length)
    torch.SymInt.__repr__ = refuse  # type: ignore[method-assign]
    torch.SymFloat.__repr__ = refuse  # type: ignore[method-assign]
    try:
        yield problems
    finally:
        builtins.isinstance = _isinstance
        builtins.len = _len
        torch.SymInt.__repr__ = represent  # type: ignore[method-assign]
        torch.SymFloat.__repr__ = represent_float  # type: ignore[method-assign]


def _is_standard_library(path: str) -> bool:
    return path.startswith("<frozen") or (
        path.startswith(_STANDARD_LIBRARY) and "-packages" not in path[len(_STANDARD_LIBRARY) :]
    )


@functools.cache
def _compares_types(code: types.CodeType) -> bool:
    named = set()
    for each in dis.get_instructions(code):
        if each.opname == "MATCH_CLASS":
            return True
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME") or each.argval == "__class__":
            named.add(each.argval)
    return not named.isdisjoint(("int", "float")) and not named.isdisjoint(("type", "__class__"))


def check_type_tests(executed: Iterable[tuple[types.CodeType, dict[str, Any]]]) -> None:
    """Refuses code that may have compared the type of a symbolic int in a way that goes unseen.

    Raises:
        UnsupportedError: the code names both `int` and `type`, or matches classes.
    """
    for code, namespace in executed:
        if not {"int", "float"} & {*code.co_names} or _knows_symbolic_ints(namespace):
            continue
        if _is_standard_library(code.co_filename):
            continue  # asks for the types of its own arguments, such as an enumeration's members
        if _compares_types(code):
            raise UnsupportedError(
                f"{code.co_qualname} may ask for the type of a size that varies",
                f"{code.co_filename}:{code.co_firstlineno}",
            )
