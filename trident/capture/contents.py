"""Whether objects still hold what they held: asked often in a trace, of thousands of objects."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Iterable
from typing import Any

from trident import _C
from trident.capture.changes import Cloned
from trident.capture.closed_lists import ClosedList
from trident.capture.objects import (
    attributes_of,
    can_hold_attributes,
    copy_set,
    function_parts,
    slot_values,
    slots_of,
)


class Contents:
    """What objects held at one time: dictionaries, lists, sets, deques, functions, attributes."""

    def __init__(self) -> None:
        self._held: list[tuple[Any, Any]] = []  # dictionary, list or set, and a copy
        self._owners: list[Any] = []  # of each of these
        self._others: list[tuple[Any, list[Any], Any]] = []

    @classmethod
    def of_clones(cls, clones: Iterable[Cloned]) -> Contents:
        """What clones held before the trace; `changed` gives the `Cloned`."""
        made = cls()
        for each in clones:
            made._add(each.clone, each, each.items, each.attributes, each.slots)
        return made

    @classmethod
    def of_objects(cls, objects: Iterable[Any]) -> Contents:
        """What objects hold now. Leaves, which hold nothing, are passed over."""
        made = cls()
        for each in objects:
            made._add(each, each, _items(each), dict(attributes_of(each)), slot_values(each))
        return made

    def changed(self) -> list[Any]:
        """The objects that do not hold the same things in the same order any more, each once."""
        found = [self._owners[position] for position in _C.changed_contents(self._held)]
        found += [owner for each, before, owner in self._others if not _same(_parts(each), before)]
        return list({id(each): each for each in found}.values())

    def _add(
        self, each: Any, owner: Any, items: Any, attributes: dict[str, Any], slots: dict[Any, Any]
    ) -> None:
        if isinstance(each, types.FunctionType):
            self._others.append((each, [*items.values()], owner))
            return
        held = [*slots.values(), *attributes.values()]
        if isinstance(each, collections.deque):
            self._others.append((each, [*items, *held], owner))
            return
        pairs: list[tuple[Any, Any]] = []
        if type(each) is ClosedList:
            pairs.append((each.appended, []))
        elif isinstance(each, (dict, list, set)):
            pairs.append((each, items))
        if can_hold_attributes(each):
            pairs.append((attributes_of(each), attributes))
        self._held += pairs
        self._owners += [owner] * len(pairs)
        if slots_of(type(each)):
            self._others.append((each, held, owner))


def _items(each: Any) -> Any:
    """A copy of what an object holds beside attributes."""
    if isinstance(each, dict):
        return dict(dict.items(each))
    if isinstance(each, set):
        return copy_set(each)
    if isinstance(each, types.FunctionType):
        return function_parts(each)
    if isinstance(each, (list, collections.deque)):
        base: Any = list if isinstance(each, list) else collections.deque
        return list(base.__iter__(each))
    return None


def _parts(each: Any) -> list[Any]:
    """What an object holds, where it has no dictionary, list or set of its own to compare."""
    if isinstance(each, types.FunctionType):
        return [*function_parts(each).values()]
    items = _items(each) if isinstance(each, collections.deque) else ()
    return [*items, *slot_values(each).values(), *attributes_of(each).values()]


def _same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))
