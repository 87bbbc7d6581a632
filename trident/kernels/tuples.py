"""Tuples and NamedTuples as arguments of kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def with_members(value: tuple[Any, ...], members: Iterable[Any]) -> Any:
    """A tuple of the type of `value`, which may be a NamedTuple, with other members."""
    return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
