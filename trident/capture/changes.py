"""How a trace changed the clones that it ran over, as effects that native code can replay."""

from __future__ import annotations

import collections
import dataclasses
import enum
import operator
import types
from collections.abc import Iterable
from typing import Any

import torch

from trident import _C
from trident.capture.closed_lists import ClosedList
from trident.capture.objects import (
    ABSENT,
    attributes_of,
    dict_base,
    function_parts,
    slot_values,
    user_attributes,
)
from trident.errors import UnsupportedError


class ChangeKind(enum.IntEnum):
    """How a container changed; the values are those of csrc/python/template.h."""

    SET_ITEM = 0
    DELETE_ITEM = 1
    SET_ATTRIBUTE = 2
    DELETE_ATTRIBUTE = 3
    REPLACE_LIST = 4
    EXTEND_LIST = 5


@dataclasses.dataclass
class Change:
    """One difference between a clone and what it was cloned from.

    Attributes:
        kind: what changed.
        container: index of the original container in the call's facts.
        key: dictionary key or attribute name; None for a list or deque.
        value: the new value, made of shadow objects.
    """

    kind: ChangeKind
    container: int
    key: Any
    value: Any


@dataclasses.dataclass(eq=False)
class Cloned:
    """A clone and what it held before the trace.

    Attributes:
        container: index of the original in the call's facts.
        original: what was cloned.
        clone: the clone.
        items: of a dictionary, list, deque, set (a copy) or function (`function_parts`); None for
            others.
        attributes: of its instance dictionary.
        slots: of its `__slots__`.
        factory: the clone of a defaultdict's `default_factory`.
    """

    container: int
    original: Any
    clone: Any
    items: Any
    attributes: dict[str, Any]
    slots: dict[types.MemberDescriptorType, Any]
    factory: Any = None


def find_changes(clones: Iterable[Cloned]) -> list[Change]:
    """What a trace changed in clones, in their order.

    Raises:
        UnsupportedError: for a change that cannot be replayed natively.
    """
    found: list[Change] = []
    for each in clones:
        _compare_contents(each, found)
        if isinstance(each.clone, types.FunctionType) or type(each.clone) is ClosedList:
            continue
        _compare_class(each)
        now = attributes_of(each.clone)
        kinds = ChangeKind.SET_ATTRIBUTE, ChangeKind.DELETE_ATTRIBUTE
        _compare_mapping(each.container, each.attributes, now, *kinds, found)
        if not _same_values(slot_values(each.clone), each.slots):
            raise UnsupportedError(
                f"the call assigns a slot of {type(each.clone).__name__} (__slots__)"
            )
    return found


def check_attributes(fakes: Iterable[tuple[torch.Tensor, dict[str, Any]]]) -> None:
    """Refuses if attributes that user code put on a tensor changed: pairs of fake and before."""
    for fake, before in fakes:
        if not _same_values(user_attributes(fake), before):
            raise UnsupportedError("the call puts an attribute on a tensor")


def _compare_class(each: Cloned) -> None:
    original = type(each.original)
    if type(each.clone) is not getattr(original, "__trident_original__", original):
        raise UnsupportedError(f"the call changes the class of a {original.__name__}")
    if isinstance(each.clone, collections.defaultdict) and (
        each.clone.default_factory is not each.factory
    ):
        raise UnsupportedError("the call changes the default_factory of a defaultdict")


def _compare_contents(each: Cloned, found: list[Change]) -> None:
    clone = each.clone
    if isinstance(clone, types.FunctionType):
        if not _same_values(function_parts(clone), each.items):
            raise UnsupportedError(
                f"the call assigns a nonlocal variable or an attribute of {clone.__qualname__}"
            )
    elif type(clone) is ClosedList:
        if clone.appended:
            found.append(Change(ChangeKind.EXTEND_LIST, each.container, None, clone.appended))
    elif isinstance(clone, dict):
        now = dict(dict_base(type(clone)).items(clone))
        kinds = ChangeKind.SET_ITEM, ChangeKind.DELETE_ITEM
        _compare_mapping(each.container, each.items, now, *kinds, found)
    elif isinstance(clone, (list, collections.deque)):
        base: Any = list if isinstance(clone, list) else collections.deque
        elements = list(base.__iter__(clone))
        if not _same_items(elements, each.items):
            found.append(Change(ChangeKind.REPLACE_LIST, each.container, None, elements))
    elif isinstance(clone, set) and not _C.same_sets(clone, each.items):
        raise UnsupportedError("the call changes the elements of a set")


def _compare_mapping(
    index: int,
    before: dict[Any, Any],
    now: dict[Any, Any],
    set_kind: ChangeKind,
    delete_kind: ChangeKind,
    found: list[Change],
) -> None:
    first = len(found)
    for key, value in now.items():
        if before.get(key, ABSENT) is not value:
            found.append(Change(set_kind, index, key, value))
    found.extend(Change(delete_kind, index, key, None) for key in before if key not in now)
    for change in found[first:]:
        if not _is_plain_key(change.key):
            kind = "Tensor" if isinstance(change.key, torch.Tensor) else type(change.key).__name__
            raise UnsupportedError(f"the call changes a dictionary's entry whose key is a {kind}")
    replayed = [*(key for key in before if key in now), *(key for key in now if key not in before)]
    if any(a is not b for a, b in zip(replayed, now, strict=True)):
        raise UnsupportedError("the call changes the order of a dictionary")


def _is_plain_key(key: Any) -> bool:
    """Whether a key is the same in a trace and outside: an object would be the trace's clone."""
    if type(key) is tuple:
        return all(map(_is_plain_key, key))
    return isinstance(key, _PLAIN_KEYS)


_PLAIN_KEYS = (
    *(str, int, float, complex, bytes, type, type(None), enum.Enum, torch.dtype, torch.device),
)


def _same_items(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


def _same_values(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    return left.keys() == right.keys() and all(left[name] is right[name] for name in left)
