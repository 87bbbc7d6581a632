"""Follows a trace: which of the user's functions run, and what they read besides arguments."""

from __future__ import annotations

import builtins
import collections
import enum
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from trident.capture.attribute_reads import AttributeReads
from trident.capture.caches import Caches, parts_of
from trident.capture.code import CodeFacts, code_facts, imported_modules
from trident.capture.handed_out import HandedOut
from trident.capture.hidden import ClassQuestion, show_classes
from trident.capture.leaves import LEAF_TYPES
from trident.capture.library import is_library_globals, is_library_module, note_users_function
from trident.capture.loaded_modules import LoadedModules
from trident.capture.objects import attributes_of, can_hold_attributes, slot_values
from trident.capture.outside import leading_to, root_of_cell, root_of_global
from trident.capture.past_clones import PastClones
from trident.capture.reads import Read, ReadSet
from trident.capture.saved_names import SavedNames
from trident.capture.shadow import Shadow
from trident.capture.snapshot import Snapshot, cell_value
from trident.errors import ChangedError, NotReadyError, UnsupportedError


class Observer:
    """Sees each of the user's functions before it first runs.

    Args:
        containers: the containers of the call's facts.
        arguments: what is called and the values that it is given.
    """

    def __init__(self, containers: list[Any], arguments: Iterable[Any]) -> None:
        self.problem: Exception | None = None
        self.past_clones = PastClones(containers)
        self._reads = ReadSet()
        self._saved = SavedNames()
        self._loaded = LoadedModules(self._reads)
        self._attributes = AttributeReads(self._reads, self._saved, self._loaded, self._add_value)
        self._snapshot = Snapshot(self._is_clone, self._attributes.meet, self.past_clones.note)
        self._functions: dict[int, types.FunctionType] = {}
        self._nested: set[types.CodeType] = set()
        self._codes: dict[types.CodeType, CodeFacts] = {}
        self.handed_out = HandedOut(
            self.past_clones, self._snapshot, self._is_made_by_trace, self._codes
        )
        self._with_type: dict[int, dict[str, Any]] = {}
        self._caches = Caches()
        for argument in arguments:
            self._reach(argument, "an argument")
        for cls in {type(container): None for container in containers}:
            self._attributes.meet(cls)
            if not is_library_module(cls.__module__):
                self._snapshot.add(cls, f"class {cls.__qualname__}")
                self._reach_attributes(cls)
        for container in containers:
            self._start(container)

    def _start(self, container: Any) -> None:
        values = [*attributes_of(container).values(), *slot_values(container).values()]
        if isinstance(container, dict):
            values += dict.values(container)
        elif isinstance(container, (list, tuple, collections.deque)):
            values += container
        path = f"what an object of class {type(container).__qualname__} holds"
        for value in values:
            self._reach(value, path)
        if isinstance(container, types.FunctionType):
            self._saved.save_library(container)

    def _reach(self, value: Any, path: str) -> None:
        """Takes note of what a fact of the call knows by identity, though it has contents."""
        if isinstance(value, types.FunctionType):
            note_users_function(value)
        if isinstance(value, types.MethodType):
            value = value.__self__
        if isinstance(value, (types.ModuleType, type, enum.Enum, *LEAF_TYPES)):
            self._add_value(value, path)
        elif isinstance(value, _VALUE_TYPES) and can_hold_attributes(value):
            self._saved.save_library(value)

    def _reach_attributes(self, cls: type) -> None:
        for base in cls.__mro__:
            if not is_library_module(base.__module__):
                for name, value in [*vars(base).items()]:
                    self._reach(value, f"{base.__qualname__}.{name}")

    @property
    def shadow(self) -> Shadow | None:
        """What the trace runs over, once it runs."""
        return self.past_clones.shadow

    @shadow.setter
    def shadow(self, shadow: Shadow) -> None:
        self.past_clones.shadow = shadow

    def _is_clone(self, obj: Any) -> bool:
        return self.shadow is not None and self.shadow.is_clone(obj)

    def enter(
        self, function: types.FunctionType | None, code: types.CodeType, namespace: dict[str, Any]
    ) -> None:
        """Called by the native recorder before a function of the user's runs for the first time.

        Raises:
            UnsupportedError: where the function does what cannot be replayed; see `keeping`.
        """
        self.keeping(lambda: self._enter(function, code, namespace))

    def keeping(self, check: Callable[[], None]) -> None:
        """Runs a check in the middle of the user's code, which may catch what it raises.

        Raises:
            Exception: as the check does; `problem` keeps it.
        """
        try:
            check()
        except Exception as error:
            self.problem = self.problem or error
            raise

    def _enter(
        self, function: types.FunctionType | None, code: types.CodeType, namespace: dict[str, Any]
    ) -> None:
        running = namespace
        namespace = namespace.get("__trident_globals__", namespace)
        if code not in self._codes:
            self._enter_code(code, namespace)
        if "type" in self._codes[code].globals and "type" not in running:
            running["type"] = ClassQuestion
            self._with_type[id(running)] = running
        if function is None or self._is_clone(function) or self._is_made_by_trace(function):
            return
        self._caches.enter(function)
        self._functions[id(function)] = function
        self._snapshot.add(function, f"a variable of {function.__qualname__}")
        for cell in function.__closure__ or ():
            value = cell_value(cell)
            self._reads.check(value, cell, None)
            self._add_value(value, f"a closure variable of {function.__qualname__}")
            self._check_identity(value, f"a closure variable of {function.__qualname__}", code)

    def _is_made_by_trace(self, function: types.FunctionType) -> bool:
        """Whether the call itself makes the function: a local function, or a generator expression.

        One that an earlier call made is reached from what is saved, or is part of the state.
        """
        return function.__code__ in self._nested and function not in self._snapshot

    def _enter_code(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        place = f"{code.co_filename}:{code.co_firstlineno}"
        if code.co_name == "<module>":
            raise NotReadyError("the call imports a module for the first time", place)
        facts = self._codes[code] = code_facts(code)
        self._nested.update(each for each in code.co_consts if isinstance(each, types.CodeType))
        if facts.assigned_global is not None:
            raise UnsupportedError(
                f"{code.co_qualname} assigns the global variable {facts.assigned_global}", place
            )
        self._saved.save_namespace(namespace)
        self._saved.note(facts)
        for name in facts.globals:
            self._reads.add(namespace, name)
            if name in namespace:
                if not is_library_globals(namespace):
                    self._reads.check(namespace[name], namespace, name)
                self._add_value(namespace[name], f"the global variable {name}", code)
                self._check_identity(namespace[name], f"the global variable {name}", code)
            else:
                self._attributes.add_builtin(name, vars(builtins))
        for name, module in imported_modules(facts, namespace):
            self._reads.add(sys.modules, name)
            self._add_value(module, f"the module {name}")
        if "environ" in facts.attributes or "environ" in facts.globals:
            self._reads.add_environment()
        if "getLogger" in facts.attributes or "getLogger" in facts.globals:
            self._attributes.add_loggers((*facts.texts, namespace.get("__name__")))
        if "__class__" in facts.attributes:
            show_classes()
        for name in self._attributes.add_names(facts.attributes):
            if name in _INNER and not code.co_name.startswith("__"):
                raise UnsupportedError(f"{code.co_qualname} uses {name}", place)
            if vars(torch.nn.Parameter).get(name) is not _OF_PARAMETERS.get(name):
                raise UnsupportedError(f"{name} was put on torch.nn.Parameter", place)
        for module in self._loaded.found_by(facts):
            self._attributes.add_module(module)

    def _add_value(self, value: Any, path: str, code: types.CodeType | None = None) -> None:
        """Takes note of a global or closure variable's present value."""
        self._loaded.note(value)
        if isinstance(value, types.ModuleType):
            self._attributes.add_module(value)
            return
        if self.past_clones.index_of(value) is not None and not isinstance(
            value, types.FunctionType
        ):
            facts = code_facts(code) if code is not None else None
            if facts is not None and facts.compares_identity:
                raise UnsupportedError(
                    f"{path} is also an attribute or argument, and the code compares identities"
                )
            self.past_clones.note(value, path)
        if isinstance(value, type):
            if self._attributes.add_class(value) and not is_library_module(value.__module__):
                self._reach_attributes(value)
        elif isinstance(value, enum.Enum):
            self._attributes.add_member(value, path)
        self._snapshot.add(value, path)

    def _check_identity(self, value: Any, path: str, code: types.CodeType) -> None:
        """Refuses comparing a tensor with what stands for it in the trace."""
        if (
            isinstance(value, torch.Tensor)
            and self.shadow is not None
            and self.shadow.fake_of(value) is not None
            and code_facts(code).compares_identity
        ):
            raise UnsupportedError(
                f"{path} is also an attribute or argument, and the code compares identities"
            )

    def note_names(self, module: types.ModuleType, name: str | None) -> None:
        """A name that the user's code looks up in a module; None stands for all.

        Raises:
            UnsupportedError: where the name is none that can be guarded; see `keeping`.
        """
        self.keeping(lambda: self._attributes.add_looked_up(module, name))

    @property
    def codes(self) -> tuple[types.CodeType, ...]:
        """The user's code that ran, each once, in the order of first execution."""
        return tuple(self._codes)

    def roots_of(self, tensors: Iterable[torch.Tensor]) -> list[Any]:
        """What a walk of the state has to start from to reach tensors that the trace met."""
        return list(leading_to(tensors, self._candidates()))

    def _candidates(self) -> Iterator[tuple[Any, Any]]:
        """What the user's code may have read so far: each value with a root that leads to it."""
        for function in self._functions.values():
            variables = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            for name, cell in variables:
                yield cell_value(cell), root_of_cell(function, name, cell)
            for defaults in (function.__defaults__ or (), (function.__kwdefaults__ or {}).values()):
                yield from ((value, function) for value in defaults)
        for source, name, deep in self._reads.items():
            if isinstance(source, type):
                yield source, source
            elif deep and name in source:
                yield source[name], root_of_global(source, name)
        for result in self._caches.results:
            yield result, result

    def add_read(self, namespace: dict[Any, Any], name: Any) -> None:
        """A global, or an entry of any dictionary, that something else than the code read."""
        self._reads.add(namespace, name)

    def finish(
        self, changed_containers: list[Any], executed: list[tuple[types.CodeType, dict[str, Any]]]
    ) -> list[Read]:
        """What the trace read.

        Args:
            changed_containers: the user's objects whose clones the trace changed.
            executed: code and globals of everything that ran.

        Raises:
            UnsupportedError: where the trace changed through a clone what is also read otherwise.
        """
        changed = {id(container) for container in changed_containers}
        self.past_clones.check(
            changed, any(facts.compares_identity for facts in self._codes.values())
        )
        for function in self._functions.values():
            self._reads.add_function(function)
        for code, namespace in executed:
            if "__trident_globals__" not in namespace and is_library_globals(namespace):
                self._reads.add_library_code(code.co_names, namespace)
        return self._reads.items()

    def verify(self) -> None:
        """Checks, after the reads were recorded, that they are what the trace saw.

        Raises:
            ChangedError: another thread changed one meanwhile.
        """
        changed = self._reads.changed() or self._snapshot.changed()
        if changed is not None:
            raise ChangedError(f"{changed} changed while the call was captured")

    def restore(self) -> None:
        """Puts back what the trace changed outside of its clones, and notes that as the problem."""
        for running in self._with_type.values():
            running.pop("type", None)
        self._with_type.clear()
        changed = self._snapshot.restore()
        changed_name = self._saved.restore()
        changed = changed or changed_name
        problem = self._caches.finish(self._reads)
        for result in self._caches.results:
            for each in parts_of(result):
                self._reach(each, "what a function with a cache returned")
        self.problem = self.problem or problem
        if changed is not None and self.problem is None:
            self.problem = UnsupportedError(f"the call changes {changed}")


# Objects of their subclasses can have attributes, and are not cloned.
_VALUE_TYPES = (bool, int, float, complex, str, bytes)
# A parameter's stand-in in a trace is a tensor, which has none of what its class was given later.
_OF_PARAMETERS = dict(vars(torch.nn.Parameter))
# What leads past all that is guarded: to a function's globals, to classes made at any time, to
# attributes of modules. Methods of Python's own names use these on their own object.
_INNER = ("__globals__", "__subclasses__", "__getattribute__")
