"""Tensors that a call uses and that neither its arguments nor the optimized object hold.

They are in globals, closures, defaults and classes of the functions that run, or in functions'
caches. A trace that meets one ends; what leads to the tensor becomes a further root of the state,
which makes the tensor an input like any weight, and the call is captured again.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from trident import _C
from trident.capture.leaves import LEAF_TYPES
from trident.errors import UnsupportedError

OUTSIDE = (
    "the call reads a tensor that is neither an argument nor reachable from the optimized object, "
    "nor from the functions that it runs"
)

# A function's cache, say, may get another tensor with each call.
_MAX_ROOTS = 64


class OutsideTensorError(UnsupportedError):
    """The call uses a tensor that becomes a fact of it once its state has further roots.

    Attributes:
        roots: objects that a walk of the state reaches such tensors from, best first.
        tensors: the tensors that the trace met.
    """

    def __init__(self, roots: list[Any], tensors: list[torch.Tensor], where: str | None) -> None:
        self.roots = roots
        self.tensors = tensors
        super().__init__(OUTSIDE, where)


def root_of_global(namespace: dict[str, Any], name: str) -> types.FunctionType:
    """A function that a walk takes for one that reads this global variable, and nothing else."""
    return types.FunctionType(_nothing.__code__.replace(co_names=(name,)), namespace)


def root_of_cell(
    function: types.FunctionType, name: str, cell: types.CellType
) -> types.FunctionType:
    """A function whose closure is this variable of another one."""
    code = _nothing.__code__.replace(co_freevars=(name,), co_qualname=function.__qualname__)
    return types.FunctionType(code, globals(), closure=(cell,))


def _nothing() -> None:
    """Never runs."""


class OutsideRoots:
    """The further roots of one optimized callable's state.

    Args:
        scm: its native side.
    """

    def __init__(self, scm: _C.Scm) -> None:
        self._scm = scm
        self._count = 0

    def add(self, problem: OutsideTensorError) -> bool:
        """Adds what leads to the tensors; whether another capture would see one of them."""
        missing = {id(tensor) for tensor in problem.tensors}
        added = False
        for root in problem.roots:
            reached = _tensors_of(root) & missing
            if not reached or self._count >= _MAX_ROOTS:
                continue
            _C.add_root(self._scm, root)
            self._count += 1
            missing -= reached
            added = True
        return added


def _tensors_of(root: Any) -> set[int]:
    """Identities of the tensors that a walk reaches; empty where it cannot be described."""
    probe = _C.Scm(lambda args, kwargs: None, _nothing, 1)  # never called
    _C.add_root(probe, root)
    facts = _C.collect(probe, (), {})
    return set() if facts.unsupported is not None else {id(tensor) for tensor in facts.tensors}


def leading_to(
    tensors: Iterable[torch.Tensor], candidates: Iterable[tuple[Any, Any]]
) -> Iterator[Any]:
    """Those of `candidates`, pairs of a value and its root, whose value may hold a tensor.

    What holds it directly comes first: that takes the least into the state.
    """
    wanted = {id(tensor) for tensor in tensors}
    later = []
    for value, root in candidates:
        if isinstance(value, torch.Tensor):
            if id(value) in wanted:
                yield root
        elif not isinstance(value, (_LEAVES, LEAF_TYPES)):
            later.append(root)
    yield from later


_LEAVES = (type(None), bool, int, float, complex, str, bytes, types.ModuleType)
