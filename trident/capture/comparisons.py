"""Comparisons of symbolic numbers are bools in the user's code, as those of ints and floats are.

PyTorch's are SymBools, and become conditions of the specialization once something asks for their
truth. Operators, whose parameters are bools, ask nothing: they refuse a SymBool.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trident.capture.disguise import called_by_machinery

_COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")


@contextlib.contextmanager
def comparisons_are_bools() -> Iterator[None]:
    """While active, comparing a SymInt or SymFloat outside of PyTorch and Triton gives a bool."""
    with contextlib.ExitStack() as stack:
        for cls in (torch.SymInt, torch.SymFloat):
            for name in _COMPARISONS:
                original = getattr(cls, name)
                stack.callback(setattr, cls, name, original)
                setattr(cls, name, _settled(original))
        yield


def _settled(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        answer = original(self, other)
        if type(answer) is not torch.SymBool or called_by_machinery():
            return answer
        return bool(answer)

    return compare
