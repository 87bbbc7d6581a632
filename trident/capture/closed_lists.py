"""Lists of the state that calls only append to: their contents need not be guarded.

A list that grows with every call would make every call a new kind. While a list is *closed*, the
native walk leaves its contents out, and a trace gets a stand-in that takes what is appended and
refuses everything else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils import _pytree

from trident.errors import UnsupportedError

# What a list does without showing anything of its contents.
_ALLOWED = {
    *("__class__", "__class_getitem__", "__delattr__", "__dir__", "__doc__", "__getattribute__"),
    *("__getstate__", "__hash__", "__init__", "__init_subclass__", "__new__", "__setattr__"),
    *("__subclasshook__", "append", "extend", "__iadd__"),
}


class ClosedListError(UnsupportedError):
    """The call reads a list whose contents were left out of the state."""


class ClosedList(list[Any]):
    """Stands for a closed list during a trace.

    Attributes:
        appended: what the trace appended.
    """

    __slots__ = ("appended",)

    def __init__(self) -> None:
        self.appended: list[Any] = []
        # For C code that reads a list's memory past its methods.
        list.append(self, _Contents())

    def append(self, item: Any) -> None:
        self.appended.append(item)

    def extend(self, items: Iterable[Any]) -> None:
        self.appended.extend(items)

    def __iadd__(self, items: Iterable[Any]) -> ClosedList:  # type: ignore[misc]
        self.appended.extend(items)
        return self

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list


class _Contents:
    """Stands for the items; every use of them is refused."""


# What was refused in the capture that runs now; one runs at a time.
_problems: list[Exception] = []


@contextlib.contextmanager
def refuse_reads() -> Iterator[list[Exception]]:
    """Around a trace; yields a list that receives what was refused, should the code catch it."""
    _problems.clear()
    yield _problems


def _refuse(*args: Any, **kwargs: Any) -> Any:
    _problems.append(ClosedListError("the call reads a list that it also appends to"))
    raise _problems[-1]


for _name in sorted(
    {*vars(list), "__radd__", "__bool__", "__reduce_ex__", "__format__", "__str__"}
):
    if _name not in _ALLOWED:
        setattr(ClosedList, _name, _refuse)

_OPERATIONS = (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv"),
    *(
        "mod",
        "rmod",
        "neg",
        "pos",
        "abs",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "hash",
        "bool",
        "len",
    ),
    *("iter", "next", "contains", "getitem", "setitem", "call", "index", "int", "float", "complex"),
    *("repr", "str", "format", "getattr", "setattr", "reduce_ex"),
)
for _name in _OPERATIONS:
    setattr(_Contents, f"__{_name}__", _refuse)
_Contents.__torch_function__ = classmethod(_refuse)  # type: ignore[attr-defined]

# PyTorch's trees take a class that they do not know for a leaf.
_pytree.register_pytree_node(ClosedList, _refuse, _refuse, flatten_with_keys_fn=_refuse)
