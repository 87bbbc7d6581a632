"""Indexing of a tensor by numbers that vary, which PyTorch does by their values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trident.capture.disguise import called_by_machinery

_BASIC = (int, torch.SymInt, slice, type(None), type(Ellipsis))


@contextlib.contextmanager
def indices_vary() -> Iterator[None]:
    """While active, ``x[i]`` with a SymInt selects as with an int, and does not fix it.

    So in the user's code, where all indices are numbers, slices, None or one Ellipsis.
    """
    original = torch.Tensor.__getitem__

    def get_item(self: torch.Tensor, index: Any) -> Any:
        items = index if type(index) is tuple else (index,)
        kinds = [type(item) for item in items]
        if (
            torch.SymInt not in kinds
            or not set(kinds) <= set(_BASIC)
            or kinds.count(type(Ellipsis)) > 1
            or called_by_machinery()
        ):
            return original(self, index)
        return _select(self, items)

    def _select(tensor: torch.Tensor, items: tuple[Any, ...]) -> torch.Tensor:
        given = [item for item in items if item is not None and item is not Ellipsis]
        axis, left_out = 0, tensor.dim() - len(given)
        for item in items:
            if item is Ellipsis:
                axis += left_out
            elif item is None:
                tensor = tensor.unsqueeze(axis)
                axis += 1
            elif isinstance(item, slice):
                tensor = original(tensor, (*[slice(None)] * axis, item))
                axis += 1
            else:
                tensor = tensor.select(axis, item)
        return tensor

    FakeTensor.__getitem__ = get_item  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del FakeTensor.__getitem__
