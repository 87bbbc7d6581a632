"""What code may read of modules and classes that it reaches: the attributes that it names.

Of the user's modules they count with all that they hold, of libraries by identity, but for what
the user put there. Which of the attributes code reads is not known; all that it names are guarded.
"""

from __future__ import annotations

import collections
import enum
import gc
import logging
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._config_module import ConfigModule

from trident.capture.leaves import LEAF_TYPES
from trident.capture.library import is_library_globals, is_library_module
from trident.capture.loaded_modules import LoadedModules
from trident.capture.objects import can_hold_attributes
from trident.capture.reads import ReadSet
from trident.capture.saved_names import SavedNames
from trident.errors import UnsupportedError

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: others cannot be changed
# Facts of every call tell what these define.
_IN_ENVIRONMENT = (torch.Tensor, torch.nn.Parameter)
# What the members of an enumeration have by themselves, beside their name and value.
_OF_MEMBERS = {"__objclass__", "_sort_order_"}
# How autotuners and heuristics launch.
_SAYS_HOW = {"configs", "values", "fn", "keys", "best_config"}
# Known by what they are.
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


class AttributeReads:
    """Modules, classes, members of enumerations and loggers that a trace has reached.

    Args:
        reads: receives what is guarded.
        saved: receives what may have to be put back.
        loaded: is told what values were read.
        add_value: takes note of a value that code may read, given with its path.
    """

    def __init__(
        self,
        reads: ReadSet,
        saved: SavedNames,
        loaded: LoadedModules,
        add_value: Callable[[Any, str], None],
    ) -> None:
        self._reads = reads
        self._saved = saved
        self._loaded = loaded
        self._add_value = add_value
        self._names: set[str] = set()
        self._modules: dict[int, types.ModuleType] = {}
        self._waiting: list[types.ModuleType] = []
        self._classes: dict[int, type] = {}
        self._of_libraries: dict[int, tuple[type, dict[str, Any]]] = {}  # with their attributes
        self._objects: dict[int, Any] = {}  # of libraries, kernels and the like
        self._loggers: set[logging.Logger] = set()
        for cls in _IN_ENVIRONMENT:
            self._add_library_class(cls)

    def meet(self, value: Any) -> None:
        """Takes note of something reached, if it is of these kinds."""
        if isinstance(value, types.ModuleType):
            self.add_module(value)
        elif isinstance(value, logging.Logger):
            self._add_logger(value)
        elif isinstance(value, type):
            self._add_library_class(value)
        elif can_hold_attributes(value):
            self._add_object(value)

    def add_names(self, names: tuple[str, ...]) -> set[str]:
        """Takes note of attributes that code names; returns those that none named before."""
        new = set(names) - self._names
        self._names |= new
        for module in [*self._modules.values()]:
            self._add_module_names(module, new)
        for cls, attributes in [*self._of_libraries.values()]:
            self._add_class_names(cls, attributes, new)
        for value in [*self._objects.values()]:
            self._add_object_names(value, new)
        return new

    def add_module(self, module: types.ModuleType) -> None:
        """A module that code reaches, and those that its attributes lead to."""
        if id(module) in self._modules:
            return
        self._modules[id(module)] = module
        self._waiting.append(module)
        if len(self._waiting) > 1:  # reached from one that is being looked at
            return
        while self._waiting:
            self._add_module_names(self._waiting[0], self._names)
            del self._waiting[0]

    def add_looked_up(self, module: types.ModuleType, name: str | None) -> None:
        """A name that code looks up in a module; None stands for all that it has.

        Raises:
            UnsupportedError: the value is not among the module's attributes.
        """
        if isinstance(module, ConfigModule) and name not in vars(module):
            raise UnsupportedError(f"the call reads {module.__name__}.{name or '__dict__'}")
        self.add_module(module)
        if name is None:
            self._reads.add_names(vars(module))
        self._add_module_names(module, {*vars(module)} if name is None else {name})

    def add_class(self, cls: type) -> bool:
        """A class that code names; whether it had not been added before."""
        if id(cls) in self._classes:
            return False
        self._classes[id(cls)] = cls
        if cls.__flags__ & _HEAP_TYPE and cls not in _IN_ENVIRONMENT:
            self._reads.add_class(cls)
        if is_library_module(cls.__module__):
            self._saved.save_library(cls)
            self._add_library_class(cls)
        if not is_library_module(type(cls).__module__):
            self._add_value(type(cls), f"the class of {cls.__qualname__}")
        return True

    def add_member(self, member: enum.Enum, path: str) -> None:
        """An enumeration's member: its name, value and other attributes, which may be exchanged."""
        for name in vars(member).keys() - _OF_MEMBERS:
            self._saved.save_library(member)
            self._reads.add(vars(member), name)
            self._add_value(vars(member)[name], path)

    def add_loggers(self, names: Iterable[Any]) -> None:
        """Loggers that code may get by these names, and the root of all."""
        self._add_logger(logging.root)
        known: dict[Any, Any] = logging.root.manager.loggerDict
        for name in names:
            if isinstance(name, str):
                self._reads.add(known, name)
                self.meet(known.get(name))

    def add_builtin(self, name: str, namespace: dict[str, Any]) -> None:
        """A name that code looks up among the builtins."""
        self._add_of_library(namespace, name, f"the builtin {name}")
        self._loaded.note(namespace.get(name))

    def _add_module_names(self, module: types.ModuleType, names: set[str]) -> None:
        namespace = vars(module)
        if is_library_globals(namespace):
            self._saved.save_library(module)
            for name in names:
                self._add_of_library(namespace, name, f"{module.__name__}.{name}")
            for name in names & namespace.keys():
                self._loaded.note(namespace[name])
                if isinstance(namespace[name], types.ModuleType):
                    self.add_module(namespace[name])
                elif isinstance(namespace[name], type):
                    self.add_class(namespace[name])
                else:
                    self._add_library_object(namespace[name])
            return
        self._saved.save_namespace(namespace)
        for name in names:
            self._reads.add(namespace, name)
            if name in namespace:
                self._add_value(namespace[name], f"{module.__name__}.{name}")

    def _add_of_library(self, namespace: dict[str, Any], name: str, path: str) -> None:
        value = namespace.get(name)
        if not _holds_users_data(value):
            self._reads.add(namespace, name)
            return
        self._reads.add(namespace, name, deep=True)
        self._add_value(value, path)

    def _add_library_class(self, cls: type) -> None:
        """A class of which there is an object: what the user put on those of libraries."""
        for base in cls.__mro__:
            if (
                id(base) not in self._of_libraries
                and base.__flags__ & _HEAP_TYPE
                and is_library_module(base.__module__)
            ):
                attributes = _dictionary_of(base)
                self._of_libraries[id(base)] = base, attributes
                self._add_class_names(base, attributes, self._names)

    def _add_class_names(self, cls: type, attributes: dict[str, Any], names: set[str]) -> None:
        for name in names & attributes.keys():
            if _holds_users_data(attributes[name]) and not name.startswith("__"):
                self._add_of_library(attributes, name, f"{cls.__qualname__}.{name}")

    def _add_library_object(self, value: Any) -> None:
        """An object that a library's module or another such object holds, if it has attributes."""
        if isinstance(value, (*_FUNCTIONS, torch.Tensor)) or not is_library_module(
            type(value).__module__
        ):
            return
        if type(getattr(value, "__dict__", None)) is dict:
            self._add_object(value)

    def _add_object(self, value: Any) -> None:
        if id(value) not in self._objects:
            self._objects[id(value)] = value
            self._saved.save_library(value)
            self._add_object_names(value, self._names)

    def _add_object_names(self, value: Any, names: set[str]) -> None:
        attributes = vars(value)
        if isinstance(value, LEAF_TYPES):  # what the user put on it, and how it launches
            read = {name for name in names - _own_names(type(value)) if not name.startswith("__")}
        else:
            of_class = {name for base in type(value).__mro__ for name in vars(base)}
            read = names & (attributes.keys() | of_class)
        for name in read:
            self._add_of_library(attributes, name, f"an attribute of {type(value).__qualname__}")
            self._add_library_object(attributes.get(name))

    def _add_logger(self, logger: logging.Logger) -> None:
        """What decides whether a logger writes."""
        for each in _with_parents(logger):
            if each not in self._loggers:
                self._loggers.add(each)
                self._reads.add(vars(each), "level")
                self._reads.add(vars(each), "disabled")
                self._reads.add(vars(each.manager), "_disable")


def _holds_users_data(value: Any) -> bool:
    """Whether a value in a library's namespace may have contents that the user changes."""
    if value is sys.modules:  # known by the names that code looks up
        return False
    if isinstance(value, (dict, list, set, collections.deque)):
        return True
    return not is_library_module(type(value).__module__)


_own_names_of: dict[type, frozenset[str]] = {}


def _own_names(cls: type) -> frozenset[str]:
    """What a class's own methods may put on its objects, other than what says how they launch."""
    if cls not in _own_names_of:
        members = [member for base in cls.__mro__ for member in vars(base).values()]
        methods = [member for member in members if isinstance(member, types.FunctionType)]
        names = {name for method in methods for name in method.__code__.co_names}
        _own_names_of[cls] = frozenset(names - _SAYS_HOW)
    return _own_names_of[cls]


def _dictionary_of(cls: type) -> dict[str, Any]:
    """The dictionary behind a class's `__dict__`."""
    (found,) = gc.get_referents(vars(cls))
    attributes: dict[str, Any] = found
    return attributes


def _with_parents(logger: logging.Logger) -> Iterator[logging.Logger]:
    found: logging.Logger | None = logger
    while found is not None:
        yield found
        found = found.parent
