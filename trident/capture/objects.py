"""What Python objects hold, read without running any code of theirs."""

from __future__ import annotations

import collections
import contextlib
import re
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trident import _C

ABSENT = object()  # stands for what is not there


def slot_names(cls: type) -> list[str]:
    """The names that `__slots__` declares in a class and its bases."""
    return [name for name, _ in slots_of(cls)]


_Slots = list[tuple[str, types.MemberDescriptorType]]
# By the class's address, while these are remembered; the class is kept alive with them.
_known_slots: dict[int, tuple[type, _Slots]] | None = None


def is_torch_result(cls: type) -> bool:
    """Whether a class is a tuple that PyTorch's operators return, such as `torch.max`'s."""
    return cls.__module__ == "torch.return_types"


@contextlib.contextmanager
def slots_remembered() -> Iterator[None]:
    """Looks at each class once in this block, for one capture at a time."""
    global _known_slots
    _known_slots = {}
    try:
        yield
    finally:
        _known_slots = None


def slots_of(cls: type) -> _Slots:
    """The slots that a class and its bases declare: name and descriptor."""
    if _known_slots is None:
        return _find_slots(cls)
    if id(cls) not in _known_slots:
        _known_slots[id(cls)] = cls, _find_slots(cls)
    return _known_slots[id(cls)][1]


def _find_slots(cls: type) -> _Slots:
    return [
        (name, member)
        for base in cls.__mro__
        for name, member in vars(base).items()
        if type(member) is types.MemberDescriptorType
        and base.__module__ not in ("builtins", "collections", "functools")
        and not is_torch_result(base)
        and name != "__dict__"
    ]


def slot_values(obj: Any) -> dict[types.MemberDescriptorType, Any]:
    """What the slots of an object hold, by descriptor: two classes may each have one of a name.

    Unset ones are left out.
    """
    found = {}
    for _, member in slots_of(type(obj)):
        try:
            found[member] = member.__get__(obj)
        except AttributeError:
            continue
    return found


def can_hold_attributes(obj: Any) -> bool:
    """Whether an object has an instance dictionary, or gets one when an attribute is put on it."""
    return type(obj).__dictoffset__ != 0


def attributes_of(obj: Any) -> dict[str, Any]:
    """The instance dictionary, or an empty one where there is none."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def dict_base(cls: type) -> type[dict[Any, Any]]:
    """The builtin dictionary type that instances of `cls` are made of."""
    return next(
        base
        for base in cls.__mro__
        if base.__module__ in ("builtins", "collections") and issubclass(base, dict)
    )


def made_bare(like: Any, cls: type) -> Any:
    """A new object of a class, made of the same builtin type as another and with nothing in it."""
    if isinstance(like, collections.deque):
        return collections.deque(maxlen=like.maxlen)
    if isinstance(like, dict):
        return dict_base(cls).__new__(cls)
    bases: tuple[type, ...] = (list, set, types.SimpleNamespace)
    base: Any = next((base for base in bases if issubclass(cls, base)), object)
    return base.__new__(cls)


def copy_set(original: set[Any]) -> set[Any]:
    """A plain set that iterates in the same order as another, and goes on to grow like it."""
    copy: set[Any] = set()
    _C.copy_set(original, copy)
    return copy


def cell_contents(function: types.FunctionType) -> list[Any]:
    """The contents of a function's closure; ABSENT for an empty cell."""
    contents = []
    for cell in function.__closure__ or ():
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            contents.append(ABSENT)
    return contents


def held_by_function(function: types.FunctionType) -> list[Any]:
    """What a function's closure and defaults hold."""
    contents = [content for content in cell_contents(function) if content is not ABSENT]
    return [*contents, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def function_parts(function: types.FunctionType) -> dict[str, Any]:
    """What a function's body may assign: closure variables and its own attributes."""
    cells = {f"cell {i}": value for i, value in enumerate(cell_contents(function))}
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
