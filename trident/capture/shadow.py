"""Shadow objects: clones of everything a call can reach, with fake tensors in place of real ones.

A call is traced over its shadow, so the user's objects stay as they are whatever the forward does.
Afterwards `Shadow.changes` tells how the forward changed the clones.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import re
import types
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trident.errors import UnsupportedError

_ABSENT = object()


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
    return [name for name, _ in _slots(cls)]


def _slots(cls: type) -> list[tuple[str, types.MemberDescriptorType]]:
    return [
        (name, member)
        for base in cls.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
        and base.__module__ not in ("builtins", "collections")
        and name != "__dict__"
    ]


def slot_values(obj: Any) -> dict[str, Any]:
    """What the slots of an object hold; unset ones are left out."""
    found = {}
    for name, member in _slots(type(obj)):
        try:
            found[name] = member.__get__(obj)
        except AttributeError:
            continue
    return found


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
        self._fakes = fakes
        self._originals = containers
        self._factories: dict[int, Any] = {}
        self._own: set[int] = set()  # ids of clones
        self._dictionaries: dict[int, dict[str, Any]] = {}  # instance dictionary -> the clone's
        self._attributes = [
            self._clone_attributes(t, f) for t, f in zip(tensors, fakes, strict=True)
        ]

    def clone(self, obj: Any) -> Any:
        """The shadow of `obj`; leaves stand for themselves."""
        known = self._clones.get(id(obj), _ABSENT)
        if known is not _ABSENT:
            return known
        if type(obj) is weakref.ref:
            return self._clone_weak_reference(obj)
        if id(obj) not in self._containers:
            return obj
        optimizer = getattr(type(obj), "__trident_optimizer__", None)
        if optimizer is not None and not isinstance(obj, torch.nn.Module):
            clone = self.clone(optimizer.function)  # traced in, as if it were not optimized
        else:
            clone = self._clone_container(obj)
        if clone is not obj:
            self._own.add(id(clone))
        self._clones[id(obj)] = clone
        self.container_of.setdefault(id(clone), self._containers[id(obj)])
        self._keep.append(clone)
        return clone

    def is_clone(self, obj: Any) -> bool:
        """Whether an object belongs to the trace and not to the user."""
        return id(obj) in self._own

    def _clone_attributes(self, tensor: torch.Tensor, fake: torch.Tensor) -> dict[str, Any]:
        """Gives a fake what user code put on the tensor; returns the attributes, cloned."""
        cloned = {name: self.clone(value) for name, value in attributes_of(tensor).items()}
        attributes_of(fake).update(cloned)
        return user_attributes(fake)

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
            partial = functools.partial(
                self.clone(obj.func),
                *(self.clone(item) for item in obj.args),
                **{name: self.clone(value) for name, value in obj.keywords.items()},
            )
            for name, value in attributes_of(obj).items():
                attributes_of(partial)[name] = self.clone(value)
            return partial
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
            clone: Any = dict_base(cls).__new__(cls)
            if hasattr(obj, "default_factory"):
                factory = clone.default_factory = self.clone(obj.default_factory)
                self._factories[id(clone)] = factory
        elif isinstance(obj, list):
            clone = list.__new__(cls)
        elif isinstance(obj, set):
            clone = set.__new__(cls)
        else:
            base = types.SimpleNamespace if cls is types.SimpleNamespace else object
            clone = base.__new__(cls)
        self._clones[id(obj)] = clone  # before its contents, which may refer back to it
        self._own.add(id(clone))
        self._keep.append(clone)
        if isinstance(obj, dict):
            base = dict_base(cls)
            for key, value in base.items(obj):
                base.__setitem__(clone, self.clone(key), self.clone(value))
            items: Any = dict(base.items(clone))
        elif isinstance(obj, list):
            list.extend(clone, [self.clone(item) for item in list.__iter__(obj)])
            items = list(clone)
        elif isinstance(obj, set):
            set.update(clone, set.__iter__(obj))
            items = list(set.__iter__(clone))
            if any(a is not b for a, b in zip(items, set.__iter__(obj), strict=True)):
                raise UnsupportedError("a set whose copy has another order of iteration")
        else:
            items = None
        self._clone_instance_dictionary(obj, clone)
        slots = {name: self.clone(value) for name, value in slot_values(obj).items()}
        for name, member in _slots(cls):
            if name in slots:
                member.__set__(clone, slots[name])
        attributes = attributes_of(clone)
        index = self._containers[id(obj)]
        self._snapshots.append((index, clone, items, dict(attributes), slots))
        return clone

    def _clone_instance_dictionary(self, obj: Any, clone: Any) -> None:
        original = attributes_of(obj)
        if not original:
            return
        if id(original) in self._containers:
            raise UnsupportedError(
                f"a {type(obj).__name__} whose __dict__ is itself an attribute or argument"
            )
        known = self._dictionaries.get(id(original))
        if known is not None:  # an optimized module shares that of the original
            object.__setattr__(clone, "__dict__", known)
            return
        attributes = self._dictionaries[id(original)] = attributes_of(clone)
        for name, value in original.items():
            attributes[name] = self.clone(value)

    def _clone_function(self, function: types.FunctionType) -> types.FunctionType:
        from trident import _C

        stateful = _C.stateful_globals(function)
        namespace = function.__globals__
        if stateful:
            # The marker leads back: what the clone reads is a read of the original's globals.
            namespace = {**namespace, "__trident_globals__": namespace}
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        clone = types.FunctionType(
            function.__code__, namespace, function.__name__, function.__defaults__, cells or None
        )
        self._clones[id(function)] = clone
        self._own.add(id(clone))
        self._keep.append(clone)
        # After the clone is known: a function may name itself.
        for name, value in stateful:
            namespace[name] = self.clone(value)
        if function.__defaults__:
            clone.__defaults__ = tuple(self.clone(value) for value in function.__defaults__)
        if function.__kwdefaults__:
            clone.__kwdefaults__ = {
                name: self.clone(value) for name, value in function.__kwdefaults__.items()
            }
        for name, value in function.__dict__.items():
            clone.__dict__[name] = self.clone(value)
        for new, old in zip(cells, function.__closure__ or (), strict=True):
            try:
                new.cell_contents = self.clone(old.cell_contents)
            except ValueError:
                continue  # an empty cell
        self._snapshots.append(
            (self._containers[id(function)], clone, _function_parts(clone), {}, {})
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
        result = bool(function.__dict__) or any(self._is_stateful(value) for value in values)
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
            self._compare_class(index, clone)
            now = attributes_of(clone)
            _compare_mapping(
                index, attributes, now, ChangeKind.SET_ATTRIBUTE, ChangeKind.DELETE_ATTRIBUTE, found
            )
            if not _same_values(slot_values(clone), slots):
                raise UnsupportedError(
                    f"the call assigns a slot of {type(clone).__name__} (__slots__)"
                )
        for fake, cloned in zip(self._fakes, self._attributes, strict=True):
            if not _same_values(user_attributes(fake), cloned):
                raise UnsupportedError("the call puts an attribute on a tensor")
        return found

    def _compare_class(self, index: int, clone: Any) -> None:
        original = type(self._originals[index])
        if type(clone) is not getattr(original, "__trident_original__", original):
            raise UnsupportedError(f"the call changes the class of a {original.__name__}")
        if isinstance(clone, collections.defaultdict) and (
            clone.default_factory is not self._factories[id(clone)]
        ):
            raise UnsupportedError("the call changes the default_factory of a defaultdict")

    def _compare_contents(self, index: int, clone: Any, items: Any, found: list[Change]) -> None:
        if isinstance(clone, types.FunctionType):
            if not _same_values(_function_parts(clone), items):
                raise UnsupportedError(
                    f"the call assigns a nonlocal variable or an attribute of {clone.__qualname__}"
                )
        elif isinstance(clone, dict):
            _compare_mapping(
                index,
                items,
                dict(dict_base(type(clone)).items(clone)),
                ChangeKind.SET_ITEM,
                ChangeKind.DELETE_ITEM,
                found,
            )
        elif isinstance(clone, list):
            now = list(list.__iter__(clone))
            if not _same_items(now, items):
                found.append(Change(ChangeKind.REPLACE_LIST, index, None, now))
        elif isinstance(clone, set) and not _same_items(list(set.__iter__(clone)), items):
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
        if before.get(key, _ABSENT) is not value:
            found.append(Change(set_kind, index, key, value))
    found.extend(Change(delete_kind, index, key, None) for key in before if key not in now)
    for change in found[first:]:
        if not _is_plain_key(change.key):
            raise UnsupportedError(
                f"the call changes a dictionary's entry whose key is a {type(change.key).__name__}"
            )
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


def _same_values(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(left[name] is right[name] for name in left)


def _function_parts(function: types.FunctionType) -> dict[str, Any]:
    """What a function's body may assign: closure variables and its own attributes."""
    cells = {f"cell {i}": value for i, value in enumerate(_cell_contents(function))}
    return {**cells, **{f".{name}": value for name, value in function.__dict__.items()}}


def user_attributes(fake: torch.Tensor) -> dict[str, Any]:
    """The attributes of a fake tensor that are not those of its class."""
    return {
        name: value
        for name, value in attributes_of(fake).items()
        if name not in _FAKE_ATTRIBUTES and not _MEMO.fullmatch(name)
    }


# What FakeTensor itself keeps on its instances.
_FAKE_ATTRIBUTES = {
    *FakeTensor.__annotations__,
    *("fake_device", "fake_mode", "constant", "real_tensor", "pytype", "dispatch_keys"),
    "_is_param",
}
# And what PyTorch or torch.compile notes on any tensor, which eager code does not read.
_MEMO = re.compile(r"_\w+_memo(_vc|_epoch)?|_dynamo_\w+")


def _cell_contents(function: types.FunctionType) -> list[Any]:
    contents = []
    for cell in function.__closure__ or ():
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            contents.append(_ABSENT)
    return contents


def dict_base(cls: type) -> type[dict[Any, Any]]:
    """The builtin dictionary type that instances of `cls` are made of."""
    return next(
        base
        for base in cls.__mro__
        if base.__module__ in ("builtins", "collections") and issubclass(base, dict)
    )
