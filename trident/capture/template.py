"""Templates: how the native code rebuilds a call's result, and the values of its effects.

A template is a list of nodes ``(kind, payload, children, attributes)`` in which children come
before parents; csrc/python/template.h reads it.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from trident.capture.changes import Change, ChangeKind
from trident.capture.objects import attributes_of, is_torch_result, slot_names
from trident.capture.shadow import Shadow
from trident.capture.symbols import Symbols
from trident.errors import UnsupportedError
from trident.ir import expressions
from trident.ir.expressions import Real, Size


class Kind(enum.IntEnum):
    """Node kinds; the values are those of csrc/python/template.h."""

    OUTPUT = 0
    TENSOR = 1
    CONTAINER = 2
    CONSTANT = 3
    TUPLE = 4
    LIST = 5
    DICT = 6
    OBJECT = 7
    INTEGER = 8
    DOUBLE = 9


Node = tuple[int, Any, tuple[Any, ...], tuple[Any, ...]]
Effect = tuple[int, int, Any, int]  # kind, container, key, node

_SETS = (ChangeKind.SET_ITEM, ChangeKind.SET_ATTRIBUTE)  # also to None

_LEAVES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    *(numpy.number, numpy.bool_),
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    range,
    slice,
    type(Ellipsis),
)


class Surroundings:
    """What templates of one call name beside its clones: the program's results, the user's objects.

    Args:
        symbols: of a symbolic capture.
        container_of: the index among the call's containers of an object of the user's that the
            code reached past the clones; None for one that the call made.

    Attributes:
        outputs: tensors that the program has to return, in order.
        numbers: numbers that it has to compute from the symbols, in order.
    """

    def __init__(
        self, symbols: Symbols | None, container_of: Callable[[Any, str], int | None]
    ) -> None:
        self.symbols = symbols
        self.container_of = container_of
        self.outputs: list[torch.Tensor] = []
        self.numbers: list[Size | Real] = []
        self._positions: dict[int, int] = {}

    def output(self, tensor: torch.Tensor) -> int:
        """The position of an output, which a tensor becomes when it is first asked for."""
        position = self._positions.setdefault(id(tensor), len(self.outputs))
        if position == len(self.outputs):
            self.outputs.append(tensor)
        return position

    def number(self, number: Size | Real) -> int:
        """The position of a number."""
        if number not in self.numbers:
            self.numbers.append(number)
        return self.numbers.index(number)


class TemplateBuilder:
    """Describes objects of a trace by what they are made of.

    Args:
        shadow: of the call.
        surroundings: of the call; receives what the nodes name of the host program.

    Attributes:
        nodes: the template so far.
        described: the objects that the nodes stand for.
    """

    def __init__(self, shadow: Shadow, surroundings: Surroundings) -> None:
        self.nodes: list[Node] = []
        self._surroundings = surroundings
        self._symbols = surroundings.symbols
        self._shadow = shadow
        self._known: dict[int, int] = {}
        self._open: set[int] = set()
        self.described: list[Any] = []

    def add(self, value: Any, path: str) -> int:
        """The node that builds `value` as it is now. `path` names it in messages.

        Raises:
            UnsupportedError: for an object that native code cannot build.
        """
        known = self._known.get(id(value))
        if known is not None:
            return known
        if id(value) in self._open:
            raise UnsupportedError(f"{path} contains itself")
        self._open.add(id(value))
        node = self._describe(value, path)
        self._open.discard(id(value))
        self.nodes.append(node)
        index = len(self.nodes) - 1
        self._known[id(value)] = index
        self.described.append(value)
        return index

    def add_changes(self, changes: Iterable[Change]) -> list[Effect]:
        """Nodes for the values of changes; the changes as native code replays them.

        Raises:
            UnsupportedError: for a value that native code cannot build.
        """
        effects = []
        for change in changes:
            node = 0
            if change.value is not None or change.kind in _SETS:
                where = f"the value assigned to {change.key!r}"
                node = (
                    self.add_list(change.value, where)
                    if change.key is None
                    else self.add(change.value, where)
                )
            effects.append((int(change.kind), change.container, change.key, node))
        return effects

    def add_list(self, items: list[Any], path: str) -> int:
        """A node for a new plain list of these items."""
        children = tuple(self.add(item, f"{path}[{i}]") for i, item in enumerate(items))
        self.nodes.append((Kind.LIST, list, children, ()))
        return len(self.nodes) - 1

    def _describe(self, value: Any, path: str) -> Node:
        if isinstance(value, torch.Tensor):
            # Code may hand out a tensor that it got from a global.
            known = self._shadow.fake_of(value)
            index = self._shadow.tensor_of.get(id(value if known is None else known))
            if index is not None:
                return (Kind.TENSOR, index, (), ())
            return (Kind.OUTPUT, self._surroundings.output(value), (), ())
        container = self._shadow.container_of.get(id(value))
        if container is None:
            container = self._surroundings.container_of(value, path)
        if container is not None:
            return (Kind.CONTAINER, container, (), ())
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._describe_number(value, path)
        if isinstance(value, slice) and any(
            isinstance(each, torch.SymInt) for each in (value.start, value.stop, value.step)
        ):
            raise UnsupportedError(f"{path} is a slice whose bounds vary")
        if isinstance(value, _LEAVES) and (
            isinstance(value, enum.Enum)
            or not attributes_of(value)
            or isinstance(value, (type, types.FunctionType, types.ModuleType))
        ):
            return (Kind.CONSTANT, value, (), ())
        return self._describe_container(value, path)

    def _describe_number(self, value: Any, path: str) -> Node:
        """A number after all, or one that is computed from the symbols; of a comparison the answer,
        which is guarded."""
        if isinstance(value, torch.SymBool):
            return (Kind.CONSTANT, bool(value), (), ())
        if self._symbols is not None and isinstance(value, torch.SymInt):
            number = self._symbols.number(value)
            if isinstance(number, int):
                return (Kind.CONSTANT, number, (), ())
            expressions.text(number)  # refuses what cannot be computed
            return (Kind.INTEGER, self._surroundings.number(number), (), ())
        if self._symbols is not None and isinstance(value, torch.SymFloat):
            number = self._symbols.reals.real_of(value)
            return (Kind.DOUBLE, self._surroundings.number(number), (), ())
        raise UnsupportedError(f"{path} is a number computed from sizes that vary")

    def _describe_container(self, value: Any, path: str) -> Node:
        cls = type(value)
        children: tuple[Any, ...] = ()
        if isinstance(value, tuple):
            kind = Kind.TUPLE
            builtin = cls.__flags__ & (1 << 9) == 0 and not is_torch_result(cls)
            if builtin and cls is not tuple and cls is not torch.Size:
                raise UnsupportedError(
                    f"{path} is a {cls.__name__}, which cannot be built natively"
                )
            if cls is torch.Size and all(type(size) is int for size in value):
                return (Kind.CONSTANT, value, (), ())
            children = tuple(self.add(item, f"{path}[{i}]") for i, item in enumerate(value))
        elif isinstance(value, list):
            kind = Kind.LIST
            children = tuple(
                self.add(x, f"{path}[{i}]") for i, x in enumerate(list.__iter__(value))
            )
        elif isinstance(value, dict):
            if isinstance(value, collections.defaultdict):
                raise UnsupportedError(f"{path} is a defaultdict")
            kind = Kind.DICT
            pairs = []
            for key, item in dict.items(value):
                if not isinstance(
                    key, (str, int, float, bool, bytes, enum.Enum, type(None), torch.dtype)
                ):
                    raise UnsupportedError(f"{path} has a key of type {type(key).__name__}")
                pairs.append((key, self.add(item, f"{path}[{key!r}]")))
            children = tuple(pairs)
        elif isinstance(value, (types.MethodType, functools.partial, set, frozenset)):
            raise UnsupportedError(f"{path} is a {cls.__name__}, which the call creates")
        elif cls.__flags__ & (1 << 9) and _plain_object(cls):
            kind = Kind.OBJECT
        else:
            raise UnsupportedError(
                f"{path} is a {cls.__module__}.{cls.__name__}, which the call creates"
            )
        return (kind, cls, children, self._attributes(value, path))

    def _attributes(self, value: Any, path: str) -> tuple[Any, ...]:
        found = [
            (name, self.add(item, f"{path}.{name}"), False)
            for name, item in attributes_of(value).items()
        ]
        found += [
            (name, self.add(getattr(value, name), f"{path}.{name}"), True)
            for name in slot_names(type(value))
            if hasattr(value, name)
        ]
        return tuple(found)


def _plain_object(cls: type) -> bool:
    """Whether instances hold only attributes: every base is a class statement or `object`."""
    return all(base is object or base.__flags__ & (1 << 9) for base in cls.__mro__)
