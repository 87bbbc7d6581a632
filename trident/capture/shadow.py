"""Shadow objects: clones of everything a call can reach, with fake tensors in place of real ones.

A call is traced over its shadow, so the user's objects stay as they are whatever the forward does.
Afterwards `Shadow.changes` tells how the forward changed the clones.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import weakref
from typing import Any

import torch

from trident.errors import UnsupportedError

_ABSENT = object()

# Clones of functions, of this and of earlier captures: they share the code of their originals.
shadow_functions: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()


class ChangeKind(enum.IntEnum):
    """How a container changed; the values are those of csrc/python/template.h."""

    SET_ITEM = 0
    DELETE_ITEM = 1
    SET_ATTRIBUTE = 2
    DELETE_ATTRIBUTE = 3
    REPLACE_LIST = 4


@dataclasses.dataclass
class Change:
    """One difference between a clone and what it was cloned from.

    Attributes:
        kind: what changed.
        container: index of the original container in the call's facts.
        key: dictionary key or attribute name; None for a list.
        value: the new value, made of shadow objects.
    """

    kind: ChangeKind
    container: int
    key: Any
    value: Any


def slot_names(cls: type) -> list[str]:
    """The names that `__slots__` declares in a class and its bases."""
    names: list[str] = []
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType) and base.__module__ != "builtins":
                names.append(name)
    return names


def attributes_of(obj: Any) -> dict[str, Any]:
    """The instance dictionary, or an empty one where there is none."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


class Shadow:
    """The clones of one call's objects.

    Args:
        tensors: real tensors of the call's facts, in their order.
        fakes: what stands for each of them.
        containers: containers of the call's facts, in their order.
    """

    def __init__(
        self, tensors: list[torch.Tensor], fakes: list[torch.Tensor], containers: list[Any]
    ) -> None:
        self._clones: dict[int, Any] = {id(t): f for t, f in zip(tensors, fakes, strict=True)}
        self._containers = {id(c): index for index, c in enumerate(containers)}
        self._keep: list[Any] = [*tensors, *containers]
        self._snapshots: list[tuple[int, Any, Any, dict[str, Any], dict[str, Any]]] = []
        self._stateful: dict[int, bool] = {}
        self.container_of: dict[int, int] = {}  # id of a clone -> index of the original
        self.tensor_of = {id(fake): index for index, fake in enumerate(fakes)}
        # Globals of cloned functions: id -> (the clone's, the original's, names that differ).
        self.namespaces: dict[int, tuple[dict[str, Any], dict[str, Any], frozenset[str]]] = {}

    def clone(self, obj: Any) -> Any:
        """The shadow of `obj`; leaves stand for themselves."""
        known = self._clones.get(id(obj), _ABSENT)
        if known is not _ABSENT:
            return known
        if type(obj) is weakref.ref:
            return self._clone_weak_reference(obj)
        if id(obj) not in self._containers:
            return obj
        clone = self._clone_container(obj)
        self._clones[id(obj)] = clone
        self.container_of.setdefault(id(clone), self._containers[id(obj)])
        self._keep.append(clone)
        return clone

    def _clone_weak_reference(self, reference: weakref.ref[Any]) -> weakref.ref[Any]:
        """A weak reference to the shadow of its target (recurrent layers keep such to weights)."""
        target = reference()
        clone = reference if target is None else weakref.ref(self.clone(target))
        self._clones[id(reference)] = clone
        self._keep.append(clone)
        return clone

    def _clone_container(self, obj: Any) -> Any:
        if isinstance(obj, (tuple, frozenset)):
            return self._clone_frozen(obj)
        if isinstance(obj, types.FunctionType):
            return self._clone_function(obj) if self._holds_state(obj) else obj
        if isinstance(obj, types.MethodType):
            return types.MethodType(self.clone(obj.__func__), self.clone(obj.__self__))
        if isinstance(obj, functools.partial):
            return functools.partial(
                self.clone(obj.func),
                *(self.clone(item) for item in obj.args),
                **{name: self.clone(value) for name, value in obj.keywords.items()},
            )
        if isinstance(obj, (range, slice)):
            return obj
        return self._clone_mutable(obj)

    def _clone_frozen(self, obj: Any) -> Any:
        items = [self.clone(item) for item in obj]
        if all(new is old for new, old in zip(items, obj, strict=True)):
            return obj
        base = tuple if isinstance(obj, tuple) else frozenset
        clone = base.__new__(type(obj), items)
        for name, value in attributes_of(obj).items():
            attributes_of(clone)[name] = self.clone(value)
        return clone

    def _clone_mutable(self, obj: Any) -> Any:
        cls = getattr(type(obj), "__trident_original__", type(obj))
        if isinstance(obj, dict):
            clone: Any = _dict_base(cls).__new__(cls)
            if hasattr(obj, "default_factory"):
                clone.default_factory = obj.default_factory
        elif isinstance(obj, list):
            clone = list.__new__(cls)
        elif isinstance(obj, set):
            clone = set.__new__(cls)
        else:
            clone = object.__new__(cls)
        self._clones[id(obj)] = clone  # before its contents, which may refer back to it
        self._keep.append(clone)
        if isinstance(obj, dict):
            base = _dict_base(cls)
            for key, value in dict.items(obj):
                base.__setitem__(clone, self.clone(key), self.clone(value))
            items: Any = dict(clone)
        elif isinstance(obj, list):
            list.extend(clone, [self.clone(item) for item in list.__iter__(obj)])
            items = list(clone)
        elif isinstance(obj, set):
            set.update(clone, set.__iter__(obj))
            items = set(clone)
        else:
            items = None
        attributes = attributes_of(clone)
        for name, value in attributes_of(obj).items():
            attributes[name] = self.clone(value)
        slots = {}
        for name in slot_names(cls):
            value = getattr(obj, name, _ABSENT)
            if value is not _ABSENT:
                slots[name] = self.clone(value)
                object.__setattr__(clone, name, slots[name])
        index = self._containers[id(obj)]
        self._snapshots.append((index, clone, items, dict(attributes), slots))
        return clone

    def _clone_function(self, function: types.FunctionType) -> types.FunctionType:
        from trident import _C

        replaced = {name: self.clone(value) for name, value in _C.stateful_globals(function)}
        namespace = function.__globals__
        if replaced:
            namespace = {**function.__globals__, **replaced}
            self.namespaces[id(namespace)] = (
                namespace,
                function.__globals__,
                frozenset(replaced),
            )
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        clone = types.FunctionType(
            function.__code__, namespace, function.__name__, function.__defaults__, cells or None
        )
        shadow_functions.add(clone)
        self._clones[id(function)] = clone
        self._keep.append(clone)
        if function.__defaults__:
            clone.__defaults__ = tuple(self.clone(value) for value in function.__defaults__)
        if function.__kwdefaults__:
            clone.__kwdefaults__ = {
                name: self.clone(value) for name, value in function.__kwdefaults__.items()
            }
        clone.__dict__.update(function.__dict__)
        for new, old in zip(cells, function.__closure__ or (), strict=True):
            try:
                new.cell_contents = self.clone(old.cell_contents)
            except ValueError:
                continue  # an empty cell
        self._snapshots.append(
            (self._containers[id(function)], clone, _cell_contents(clone), {}, {})
        )
        return clone

    def _holds_state(self, function: types.FunctionType) -> bool:
        """Whether a function's closure, defaults or globals reach a tensor or a mutable object."""
        known = self._stateful.get(id(function))
        if known is not None:
            return known
        self._stateful[id(function)] = False  # for functions that refer to themselves
        from trident import _C

        values = [value for _, value in _C.stateful_globals(function)]
        values += [content for content in _cell_contents(function) if content is not _ABSENT]
        values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        result = any(self._is_stateful(value) for value in values)
        self._stateful[id(function)] = result
        return result

    def _is_stateful(self, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return True
        if id(value) not in self._containers:
            return False
        if isinstance(value, types.FunctionType):
            return self._holds_state(value)
        if isinstance(value, types.MethodType):
            return self._is_stateful(value.__func__) or self._is_stateful(value.__self__)
        if isinstance(value, (tuple, frozenset)):
            return any(self._is_stateful(item) for item in value)
        return not isinstance(value, (range, slice))

    def changes(self) -> list[Change]:
        """What the trace changed in the clones, in the order in which they were made.

        Raises:
            UnsupportedError: for a change that cannot be replayed natively.
        """
        found: list[Change] = []
        for index, clone, items, attributes, slots in self._snapshots:
            self._compare_contents(index, clone, items, found)
            if isinstance(clone, types.FunctionType):
                continue
            now = attributes_of(clone)
            _compare_mapping(
                index, attributes, now, ChangeKind.SET_ATTRIBUTE, ChangeKind.DELETE_ATTRIBUTE, found
            )
            for name, value in slots.items():
                if getattr(clone, name, _ABSENT) is not value:
                    raise UnsupportedError(
                        f"the call assigns {type(clone).__name__}.{name}, which is stored in a slot"
                    )
        return found

    def _compare_contents(self, index: int, clone: Any, items: Any, found: list[Change]) -> None:
        if isinstance(clone, types.FunctionType):
            if any(a is not b for a, b in zip(_cell_contents(clone), items, strict=True)):
                raise UnsupportedError(
                    f"the call assigns a nonlocal variable of {clone.__qualname__}"
                )
        elif isinstance(clone, dict):
            _compare_mapping(
                index, items, dict(clone), ChangeKind.SET_ITEM, ChangeKind.DELETE_ITEM, found
            )
        elif isinstance(clone, list):
            now = list(list.__iter__(clone))
            if len(now) != len(items) or any(a is not b for a, b in zip(now, items, strict=True)):
                found.append(Change(ChangeKind.REPLACE_LIST, index, None, now))
        elif isinstance(clone, set) and set(clone) != items:
            raise UnsupportedError("the call changes the elements of a set")


def _compare_mapping(
    index: int,
    before: dict[Any, Any],
    now: dict[Any, Any],
    set_kind: ChangeKind,
    delete_kind: ChangeKind,
    found: list[Change],
) -> None:
    for key, value in now.items():
        if before.get(key, _ABSENT) is not value:
            found.append(Change(set_kind, index, key, value))
    found.extend(Change(delete_kind, index, key, None) for key in before if key not in now)


def _cell_contents(function: types.FunctionType) -> list[Any]:
    contents = []
    for cell in function.__closure__ or ():
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            contents.append(_ABSENT)
    return contents


def _dict_base(cls: type) -> type[dict[Any, Any]]:
    """The builtin dictionary type that instances of `cls` are made of."""
    return next(
        base
        for base in cls.__mro__
        if base.__module__ in ("builtins", "collections") and issubclass(base, dict)
    )
