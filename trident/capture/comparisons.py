"""Comparisons of symbolic numbers are bools in the user's code, as those of ints and floats are.

PyTorch's are SymBools, and become conditions of the specialization once something asks for their
truth. Operators, whose parameters are bools, ask nothing: they refuse a SymBool.
`other_numbers.py` has what a number is compared with where that is no plain int or float.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trident.capture.disguise import called_by_machinery
from trident.capture.other_numbers import COMPARISONS, operand


@contextlib.contextmanager
def comparisons_are_bools() -> Iterator[None]:
    """While active, comparing a SymInt or SymFloat outside of PyTorch and Triton gives a bool."""
    with contextlib.ExitStack() as stack:
        for cls in (torch.SymInt, torch.SymFloat):
            for name in COMPARISONS:
                original = getattr(cls, name)
                stack.callback(setattr, cls, name, original)
                setattr(cls, name, _settled(original, name))
        yield


def _settled(original: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        in_user_code = not called_by_machinery()
        answer = original(self, operand(self, other, name, in_user_code))
        return bool(answer) if type(answer) is torch.SymBool and in_user_code else answer

    return compare
