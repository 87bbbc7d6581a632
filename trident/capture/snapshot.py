"""Objects that a trace reaches but does not clone: what they held before, and whether that changed.

Globals, closure variables and class attributes are the user's own objects, also during a trace.
Code that changes them cannot be captured; what it changed is put back, so that eager starts there.
"""

from __future__ import annotations

import collections
import functools
import gc
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trident import _C
from trident.capture.leaves import LEAF_TYPES
from trident.capture.library import is_library_globals, is_library_module, note_users_function
from trident.capture.objects import (
    attributes_of,
    can_hold_attributes,
    copy_set,
    dict_base,
    slot_values,
)
from trident.errors import UnsupportedError

_LEAVES = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_LIMIT = 1_000_000


class Snapshot:
    """The contents of objects at the time they were added.

    Args:
        is_clone: tells which objects belong to the trace and may change.
        meet: is called with each leaf of `LEAF_TYPES` that is reached, and each class of an object,
            at least once.
        reach: is called with each object that is saved, and its path.
    """

    def __init__(
        self,
        is_clone: Callable[[Any], bool],
        meet: Callable[[Any], None],
        reach: Callable[[Any, str], None],
    ) -> None:
        self._is_clone = is_clone
        self._meet = meet
        self._reach = reach
        self._classes: set[type] = set()
        self._saved: dict[int, tuple[Any, str, Any]] = {}

    def __contains__(self, obj: Any) -> bool:
        return id(obj) in self._saved

    def add(self, value: Any, path: str) -> None:
        """Saves everything that can be reached from `value`; `path` names it in messages."""
        pending = [value]
        while pending:
            current = pending.pop()
            if isinstance(current, torch.Tensor) or id(current) in self._saved:
                continue
            if isinstance(current, _LEAVES) and not can_hold_attributes(current):
                continue
            if self._is_clone(current):
                continue
            contents = _contents(current)
            if contents is None:
                if isinstance(current, LEAF_TYPES):
                    self._meet(current)
                continue
            if type(current) not in self._classes:
                self._classes.add(type(current))
                self._meet(type(current))
            if len(self._saved) > _LIMIT:
                raise UnsupportedError(f"{path} reaches more than a million objects")
            self._saved[id(current)] = (current, path, contents[0])
            self._reach(current, path)
            pending.extend(contents[1])

    def changed(self) -> str | None:
        """The path to an object that changed, or None."""
        for obj, path, before in self._saved.values():
            contents = _contents(obj)
            if contents is not None and not _same(contents[0], before):
                return path
        return None

    def restore(self) -> str | None:
        """Puts back what changed; returns the path to a changed object, or None."""
        changed = None
        for obj, path, before in self._saved.values():
            contents = _contents(obj)
            if contents is not None and not _same(contents[0], before):
                changed = changed or path
                _put_back(obj, before)
        return changed


def _contents(obj: Any) -> tuple[Any, list[Any]] | None:
    """What an object holds, as something that can be compared, and its parts; None for leaves."""
    if isinstance(obj, LEAF_TYPES):
        return None
    if isinstance(obj, type):
        if is_library_module(obj.__module__):
            return None
        members = {
            name: value
            for name, value in vars(obj).items()
            if not (name.startswith("__") and name.endswith("__")) and name != "_abc_impl"
        }
        return members, [
            value for value in members.values() if not isinstance(value, types.FunctionType)
        ]
    if isinstance(obj, types.FunctionType):
        note_users_function(obj)
        if is_library_globals(obj.__globals__):
            return None
        cells = [cell_value(cell) for cell in obj.__closure__ or ()]
        held = [obj.__code__, obj.__defaults__, obj.__kwdefaults__, dict(obj.__dict__), *cells]
        parts = [*(obj.__defaults__ or ()), *(obj.__kwdefaults__ or {}).values(), *cells]
        return held, [*parts, *obj.__dict__.values()]
    if isinstance(obj, types.MethodType):
        return (), [obj.__func__, obj.__self__]
    fixed: list[Any] = []
    if isinstance(obj, functools.partial):
        fixed = [obj.func, *obj.args, obj.keywords]
    elif isinstance(obj, (tuple, frozenset)):
        fixed = list(obj)
        if not can_hold_attributes(obj):
            return (), fixed
    if isinstance(obj, types.MappingProxyType):
        return (), gc.get_referents(obj)
    attributes = attributes_of(obj)
    slots = slot_values(obj)
    inner: Any = None
    parts = [*fixed, *attributes.values(), *slots.values()]
    if isinstance(obj, list):
        inner = list(list.__iter__(obj))
        parts += inner
    elif isinstance(obj, collections.deque):
        inner = list(collections.deque.__iter__(obj))
        parts += inner
    elif isinstance(obj, dict):
        inner = [_Pair(item) for item in _dict_items(obj)]
        parts += [part for pair in inner for part in pair]
    elif isinstance(obj, set):
        inner = copy_set(obj)
    elif not (attributes or slots or can_hold_attributes(obj) or hasattr(type(obj), "__slots__")):
        return None
    if not is_library_module(type(obj).__module__):
        parts.append(type(obj))
    return (inner, dict(attributes), slots, type(obj)), parts


def _dict_items(obj: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(dict_base(type(obj)).items(obj))


def cell_value(cell: types.CellType) -> Any:
    """The contents of a closure cell, or the cell itself where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _same(now: Any, before: Any) -> bool:
    """Whether two contents hold the same objects, in the same order."""
    inner = now[0] if isinstance(now, tuple) and now else None
    if isinstance(inner, set) and not _C.same_sets(inner, before[0]):
        return False
    first, second = list(_flat(now)), list(_flat(before))
    return len(first) == len(second) and all(map(operator.is_, first, second))


def _flat(contents: Any) -> Iterator[Any]:
    """The objects of what `_contents` made, in order."""
    if isinstance(contents, dict):
        yield from contents.values()
        yield from contents
        return
    if isinstance(contents, list):  # of a function
        for position, part in enumerate(contents):
            yield from part.values() if position == 3 else (part,)
        return
    if not contents:
        return
    inner, attributes, slots, cls = contents
    if isinstance(inner, list):
        for item in inner:
            yield from item if isinstance(item, _Pair) else (item,)
    yield from attributes
    yield from attributes.values()
    yield from slots.values()
    yield cls


class _Pair(tuple[Any, Any]):
    """A dictionary's key and value."""


def _put_back(obj: Any, before: Any) -> None:
    if isinstance(obj, type):
        for name in [*vars(obj)]:
            if name not in before and not (name.startswith("__") and name.endswith("__")):
                delattr(obj, name)
        for name, value in before.items():
            if vars(obj).get(name) is not value:
                setattr(obj, name, value)
        return
    if isinstance(obj, types.FunctionType):
        obj.__code__, obj.__defaults__, obj.__kwdefaults__ = before[:3]
        obj.__dict__.clear()
        obj.__dict__.update(before[3])
        for cell, value in zip(obj.__closure__ or (), before[4:], strict=True):
            if value is cell:
                del cell.cell_contents
            else:
                cell.cell_contents = value
        return
    inner, attributes, slots, _ = before
    if isinstance(obj, list):
        list.__setitem__(obj, slice(None), inner)
    elif isinstance(obj, collections.deque):
        collections.deque.clear(obj)
        collections.deque.extend(obj, inner)
    elif isinstance(obj, dict):
        base = dict_base(type(obj))
        base.clear(obj)
        for key, value in inner:
            base.__setitem__(obj, key, value)
    elif isinstance(obj, set):
        set.clear(obj)
        _C.copy_set(inner, obj)
    held = attributes_of(obj)
    if held != attributes or attributes:
        held.clear()
        held.update(attributes)
    for member, value in slots.items():
        member.__set__(obj, value)
