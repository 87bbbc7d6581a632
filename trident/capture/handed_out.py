"""What a call returns or stores that is no tensor, no clone, and not built by native code."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trident.capture.objects import held_by_function
from trident.capture.past_clones import PastClones
from trident.capture.snapshot import Snapshot
from trident.errors import UnsupportedError

_OF_TRACE = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
# What is as good as the same object: it cannot be changed.
_VALUES = (bool, int, float, complex, str, bytes, enum.Enum)


class HandedOut:
    """Tells objects of the user's from those that the trace made.

    Args:
        past_clones: containers of the call's facts.
        snapshot: what was there before, but for clones.
        is_made_by_trace: tells whether the call made a function.
        codes: the user's code that has run.
    """

    def __init__(
        self,
        past_clones: PastClones,
        snapshot: Snapshot,
        is_made_by_trace: Callable[[types.FunctionType], bool],
        codes: Collection[types.CodeType],
    ) -> None:
        self._past_clones = past_clones
        self._snapshot = snapshot
        self._is_made_by_trace = is_made_by_trace
        self._codes = codes

    def container_of(self, value: Any, path: str) -> int | None:
        """The index among the call's containers of an object that code got past the clones; None
        for what the call made of plain classes, and for what stands for itself.

        Raises:
            UnsupportedError: where it is no container of the call, or a function or class that the
                call made: one of these would serve all calls, and hold what the trace held.
        """
        if isinstance(value, types.FunctionType):
            if self._is_made_by_trace(value) or any(
                map(self._is_of_trace, held_by_function(value))
            ):
                raise UnsupportedError(f"{path} is a function that the call creates")
            return None
        if isinstance(value, type):
            if self._ran_body_of(value):
                raise UnsupportedError(f"{path} is a class that the call creates")
            return None
        if value not in self._snapshot or isinstance(value, types.ModuleType):
            return None
        if type(value) in (tuple, frozenset) or isinstance(value, _VALUES):
            return None
        index = self._past_clones.index_of(value)
        if index is None:
            raise UnsupportedError(f"{path} is an object that neither arguments nor state hold")
        return index

    def _ran_body_of(self, cls: type) -> bool:
        """Whether the call has run a class statement that made this class."""
        return any(
            code.co_qualname == cls.__qualname__ and not code.co_flags & inspect.CO_OPTIMIZED
            for code in self._codes
        )

    def _is_of_trace(self, value: Any) -> bool:
        shadow = self._past_clones.shadow
        return isinstance(value, _OF_TRACE) or (shadow is not None and shadow.is_clone(value))
