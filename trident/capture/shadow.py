"""Shadow objects: clones of everything a call can reach, with fake tensors in place of real ones.

A call is traced over its shadow, so the user's objects stay as they are whatever the forward does.
Afterwards `Shadow.changes` tells how the forward changed the clones.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from trident import _C
from trident.capture.changes import Change, Cloned, check_attributes, find_changes
from trident.capture.closed_lists import ClosedList
from trident.capture.objects import (
    ABSENT,
    attributes_of,
    can_hold_attributes,
    copy_set,
    dict_base,
    function_parts,
    held_by_function,
    is_torch_result,
    made_bare,
    slot_values,
    user_attributes,
)
from trident.capture.soft_words import SoftWord
from trident.errors import UnsupportedError

# Of a defaultdict, whatever attributes its class makes up.
_FACTORY: Any = vars(collections.defaultdict)["default_factory"]


class Shadow:
    """The clones of one call's objects.

    Args:
        tensors: real tensors of the call's facts, in their order.
        fakes: what stands for each of them.
        containers: containers of the call's facts, in their order.
        numbers: what stands for numbers that containers hold and that are symbols.
        closed: positions of containers that are lists whose contents the call must not see.
    """

    def __init__(
        self,
        tensors: list[torch.Tensor],
        fakes: list[torch.Tensor],
        containers: list[Any],
        numbers: Mapping[SoftWord, Any] = types.MappingProxyType({}),
        closed: Collection[int] = (),
    ) -> None:
        self._closed = frozenset(closed)
        self._numbers = {
            (word.index, word.is_attribute, word.place): value for word, value in numbers.items()
        }
        self._clones: dict[int, Any] = {id(t): f for t, f in zip(tensors, fakes, strict=True)}
        self._containers = {id(c): index for index, c in enumerate(containers)}
        self._keep: list[Any] = [*tensors, *containers]
        self._made: list[Cloned] = []
        self._stateful: dict[int, bool] = {}
        self.container_of: dict[int, int] = {}  # id of a clone -> index of the original
        self.tensor_of = {id(fake): index for index, fake in enumerate(fakes)}
        self._fakes = fakes
        self._own: set[int] = set()  # ids of clones
        self._cloned: set[int] = set()  # indexes of the containers that have one
        self._dictionaries: dict[int, dict[str, Any]] = {}  # instance dictionary -> the clone's
        self._attributes = [
            self._clone_attributes(t, f) for t, f in zip(tensors, fakes, strict=True)
        ]

    def clone(self, obj: Any) -> Any:
        """The shadow of `obj`; leaves stand for themselves."""
        known = self._clones.get(id(obj), ABSENT)
        if known is not ABSENT:
            return known
        if type(obj) is weakref.ref:
            return self._clone_weak_reference(obj)
        if type(obj) is types.MappingProxyType:
            return self._clone_proxy(obj)
        if id(obj) not in self._containers:
            return obj
        optimizer = getattr(type(obj), "__trident_optimizer__", None)
        if optimizer is not None and not isinstance(obj, torch.nn.Module):
            clone = self.clone(optimizer.function)  # traced in, as if it were not optimized
        else:
            clone = self._clone_container(obj)
        if clone is not obj:
            self._own.add(id(clone))
            self._cloned.add(self._containers[id(obj)])
        self._clones[id(obj)] = clone
        self.container_of.setdefault(id(clone), self._containers[id(obj)])
        self._keep.append(clone)
        return clone

    def _clone_member(self, owner: Any, place: Any, value: Any, attribute: bool = False) -> Any:
        """The shadow of what a container holds: the symbol where the number there is one."""
        if type(value) in (int, float):
            return self._numbers.get((self._containers[id(owner)], attribute, place), value)
        return self.clone(value)

    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What stands for a tensor of the call's facts; None for any other."""
        fake: torch.Tensor | None = self._clones.get(id(tensor))
        return fake

    def has_clone(self, container: int) -> bool:
        """Whether the trace reaches a clone of a container of the call's facts."""
        return container in self._cloned

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

    def _clone_proxy(self, proxy: types.MappingProxyType[Any, Any]) -> Any:
        """A read-only view of the shadow of what a view shows."""
        (mapping,) = gc.get_referents(proxy)
        shadow = self.clone(mapping)
        if id(proxy) in self._clones:  # it shows itself
            return self._clones[id(proxy)]
        clone = proxy if shadow is mapping else types.MappingProxyType(shadow)
        self._clones[id(proxy)] = clone
        self._keep += [proxy, clone]
        return clone

    def _clone_container(self, obj: Any) -> Any:
        if isinstance(obj, (tuple, frozenset)):
            return self._clone_frozen(obj)
        if isinstance(obj, types.FunctionType):
            return self._clone_function(obj) if self._holds_state(obj) else obj
        if isinstance(obj, types.MethodType):
            return types.MethodType(self.clone(obj.__func__), self.clone(obj.__self__))
        if isinstance(obj, functools.partial):
            return self._clone_partial(obj)
        if isinstance(obj, (range, slice)):
            return obj
        return self._clone_mutable(obj)

    def _clone_frozen(self, obj: Any) -> Any:
        items = [self._clone_member(obj, i, item) for i, item in enumerate(obj)]
        has_attributes = can_hold_attributes(obj)
        if not has_attributes and all(new is old for new, old in zip(items, obj, strict=True)):
            return obj
        if is_torch_result(type(obj)):
            return type(obj)(items)
        base = next(each for each in (torch.Size, tuple, frozenset) if isinstance(obj, each))
        clone = base.__new__(type(obj), items)
        if has_attributes:
            self._note_made(obj, clone)
        return clone

    def _clone_partial(self, obj: functools.partial[Any]) -> Any:
        clone: Any = functools.partial.__new__(type(obj), obj.func)
        self._clones[id(obj)] = clone  # it may be among its own arguments
        parts = self.clone(obj.func), self.clone(obj.args), self.clone(obj.keywords)
        clone.__setstate__((*parts, None))  # keeps the clones themselves, and a partial's partial
        self._note_made(obj, clone)
        return clone

    def _note_made(self, obj: Any, clone: Any) -> None:
        """Gives a clone the attributes of the original; changes of them are found later."""
        self._clone_instance_dictionary(obj, clone)
        index, attributes = self._containers[id(obj)], dict(attributes_of(clone))
        self._made.append(Cloned(index, obj, clone, None, attributes, slot_values(clone)))

    def _clone_mutable(self, obj: Any) -> Any:
        cls = getattr(type(obj), "__trident_original__", type(obj))
        factory = None
        closed = self._containers[id(obj)] in self._closed
        clone: Any = ClosedList() if closed else made_bare(obj, cls)
        if isinstance(obj, collections.defaultdict):
            factory = self.clone(obj.default_factory)
            _FACTORY.__set__(clone, factory)
        self._clones[id(obj)] = clone  # before its contents, which may refer back to it
        self._own.add(id(clone))
        self._keep.append(clone)
        items: Any = None
        if type(clone) is ClosedList:
            pass
        elif isinstance(obj, dict):
            base = dict_base(cls)
            for key, value in base.items(obj):
                base.__setitem__(clone, self.clone(key), self._clone_member(obj, key, value))
            items = dict(base.items(clone))
        elif isinstance(obj, list):
            list.extend(
                clone, [self._clone_member(obj, i, x) for i, x in enumerate(list.__iter__(obj))]
            )
            items = list(clone)
        elif isinstance(obj, collections.deque):
            clone.extend(self._clone_member(obj, i, x) for i, x in enumerate(obj))
            items = list(clone)
        elif isinstance(obj, set):
            _C.copy_set(obj, clone)
            items = copy_set(obj)
        self._clone_instance_dictionary(obj, clone)
        slots = {
            member: self._clone_member(obj, member.__name__, value, attribute=True)
            for member, value in slot_values(obj).items()
        }
        for member, value in slots.items():
            member.__set__(clone, value)
        attributes = attributes_of(clone)
        index = self._containers[id(obj)]
        self._made.append(Cloned(index, obj, clone, items, dict(attributes), slots, factory))
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
            attributes[name] = self._clone_member(obj, name, value, attribute=True)

    def _clone_function(self, function: types.FunctionType) -> types.FunctionType:
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
        clone.__defaults__ = self.clone(function.__defaults__)
        clone.__kwdefaults__ = self.clone(function.__kwdefaults__)
        for name, value in function.__dict__.items():
            clone.__dict__[name] = self.clone(value)
        for new, old in zip(cells, function.__closure__ or (), strict=True):
            try:
                new.cell_contents = self.clone(old.cell_contents)
            except ValueError:
                continue  # an empty cell
        index = self._containers[id(function)]
        self._made.append(Cloned(index, function, clone, function_parts(clone), {}, {}))
        return clone

    def _holds_state(self, function: types.FunctionType) -> bool:
        """Whether a function's closure, defaults or globals reach a tensor or a mutable object."""
        known = self._stateful.get(id(function))
        if known is not None:
            return known
        self._stateful[id(function)] = False  # for functions that refer to themselves
        values = [value for _, value in _C.stateful_globals(function)]
        values += held_by_function(function)
        result = bool(function.__dict__) or any(self._is_stateful(value) for value in values)
        self._stateful[id(function)] = result
        return result

    def _is_stateful(self, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return True
        if type(value) is types.MappingProxyType:
            return any(map(self._is_stateful, gc.get_referents(value)))
        if id(value) not in self._containers:
            return False
        if isinstance(value, types.FunctionType):
            return self._holds_state(value)
        if isinstance(value, types.MethodType):
            return self._is_stateful(value.__func__) or self._is_stateful(value.__self__)
        if isinstance(value, (tuple, frozenset)):
            return any(self._is_stateful(item) for item in value)
        return not isinstance(value, (range, slice))

    @property
    def clones(self) -> list[Cloned]:
        """The clones that the trace may change, in the order in which they were made."""
        return self._made

    def changes(self, clones: Iterable[Cloned] | None = None) -> list[Change]:
        """What the trace changed in these of the clones, or in all.

        Raises:
            UnsupportedError: for a change that cannot be replayed natively.
        """
        found = find_changes(self._made if clones is None else clones)
        check_attributes(zip(self._fakes, self._attributes, strict=True))
        return found
