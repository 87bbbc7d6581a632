"""Reads the guards' words back: what each of them says, and of what.

`csrc/guards/words.h` has the vocabulary and the walker the order; this follows them step by step.
It runs at misses and in reports only, never in a call that hits.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch

from trident import _C
from trident.report.stream import PAYLOAD, Unreadable, WordStream

Facts = dict[str, str]
"""What is said, by what it is said of: ``{"argument x: size 0": "128"}``."""

NOT_SET = "not set"

# What nn.Module keeps in dictionaries shows as attributes.
_REGISTERED = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")

_NAMED_OBJECT = re.compile(
    r"^((?:module|class|function|builtin_function_or_method|code of) .*) at 0x[0-9a-f]+$"
)


def readable(place: str) -> str:
    """A place as Python code spells it: ``module.layers[0].scale``."""

    def attribute(match: re.Match[str]) -> str:
        return f"[{match[1]}]" if match[1].isdigit() else f".{match[1]}"

    return _REGISTERED.sub(attribute, place)


class WordReader(WordStream):
    """Reads one walk.

    Args:
        words: of the walk.
        objects: what stands at the addresses that the words name.
    """

    def __init__(self, words: Sequence[int], objects: Mapping[int, Any]) -> None:
        super().__init__(words, objects)
        self.facts: Facts = {}
        self.versions: dict[str, tuple[type, int]] = {}
        self._containers: list[str] = []
        self._tensors: list[str] = []
        self._numbers: dict[int, tuple[str, str]] = {}  # by word: what it is, and of what
        self.reading: str | None = None  # the place of the object whose words come next

    def call(self, positional: Sequence[str], state_of: Callable[[str, int], str]) -> None:
        """The words of a call: arguments, environment, state.

        Args:
            positional: names of the positional parameters.
            state_of: names the state's tensor or container (``"tensor"`` or ``"object"``) of a
                position.
        """
        payload = self._expect("CALL")
        count, num_keywords = payload >> 24, payload & 0xFFFFFF
        keywords = [self._string() for _ in range(num_keywords)]
        names = [*positional[:count]]
        names += [f"#{number}" for number in range(len(names), count)]
        self._say("number of positional arguments", str(count))
        self._say("keyword arguments", ", ".join(keywords) or "none")
        for name in (*names, *keywords):
            self.value(f"argument {name}")
        self.reading = None
        end = self.position + _C.environment_words
        for name, text in _C.describe_environment(list(self._words[self.position : end])):
            self._say(name, text)
        # The last one: what torch.Tensor and torch.nn.Parameter define.
        self.versions[name] = torch.nn.Parameter, self._words[end - 1]
        self.position = end
        self._expect("STATE")
        while self.position < len(self._words):
            kind = "tensor" if self._next() == "SAME_TENSOR" else "object"
            payload = self._take() & PAYLOAD
            mine, its = payload >> 32, payload & 0xFFFFFFFF
            place = (self._tensors if kind == "tensor" else self._containers)[mine]
            self._say(f"{place} is", state_of(kind, its))

    def place(self, kind: str, position: int) -> str:
        """The place of a tensor or container by its position in the walk."""
        return (self._tensors if kind == "tensor" else self._containers)[position]

    def number(self, position: int) -> str:
        """What a word is that may vary: ``size 0 of x``, ``argument n`` or ``module.count``."""
        kind, place = self._numbers[position]
        spelled = readable(place)
        if not kind:
            return spelled
        spelled = spelled if spelled.startswith("argument #") else spelled.removeprefix("argument ")
        return kind.format(spelled)

    def _version(self, cls: type) -> None:
        version = self._take()
        self.versions[f"class {_name(cls)}"] = cls, version
        self._say(f"class {_name(cls)}", f"version {version}")

    def _say(self, place: str, text: str) -> None:
        self.facts[place] = text

    def further_root(self) -> None:
        """What leads to tensors outside of the optimized object (`capture/outside.py`)."""
        place = "what a cache returned"
        if self._next() in ("FUNCTION", "IDENTITY"):
            identity = self.position + (self._next() == "FUNCTION")
            place = _name(self._object(self._words[identity + 1]))
        self.value(place)

    # --- one value

    def value(self, place: str) -> None:
        """What follows of an object, with all that it holds."""
        self.reading = place
        cls: Any = None
        exact = True
        if self._next() == "TYPE":
            self._take()
            cls = self._object(self._take())
            if not self._at_end() and self._words[self.position] >> 56 == 0:
                exact = False
                self._version(cls)
            self._say(f"type of {place}", _name(cls))
            self._class_attributes(cls)
        tag = self._next()
        self._body(tag, place, cls)
        if not exact and tag != "REFERENCE":
            self._attributes(cls, place, tag)

    def _body(self, tag: str, place: str, cls: Any) -> None:
        if tag in _CONSTANTS:
            self._take()
            self._say(place, _CONSTANTS[tag])
        elif tag == "NUMPY_SCALAR":
            payload = self._take() & PAYLOAD
            number = numpy.frombuffer(self._raw(payload), numpy.dtype(cls))[0]
            self._say(place, f"{cls.__name__} {number}")
        elif tag in _LEAVES:
            self._numbers[self.position + 1] = "", place
            self._say(place, self._leaf(tag))
        elif tag == "IDENTITY":
            self._identity(place)
        elif tag == "TENSOR":
            self._tensor(place)
        elif tag == "SAME_TENSOR":
            self._say(place, f"the same tensor as {self._tensors[self._take() & PAYLOAD]}")
        elif tag == "REFERENCE":
            self._say(place, f"the same object as {self._containers[self._take() & PAYLOAD]}")
        elif tag in _CONTAINERS:
            self._containers.append(place)
            _CONTAINERS[tag](self, place)
        else:
            raise Unreadable(f"{tag} at word {self.position}")

    def _attributes(self, cls: type, place: str, tag: str) -> None:
        _, has_dict, slots = _C.type_layout(cls)
        if tag in _LEAVES and not has_dict:
            return
        if slots:
            self._expect("SLOTS")
            for name in slots:
                if self._next() == "MISSING":
                    self._take()
                    self._say(f"{place}.{name}", NOT_SET)
                else:
                    self.value(f"{place}.{name}")
        if has_dict:
            self._entries(place, lambda key: f"{place}.{key}")

    # --- leaves

    def _leaf(self, tag: str) -> str:
        if tag == "STRING":
            return repr(self._string())
        payload = self._take() & PAYLOAD
        if tag == "INT":
            return str(self._signed())
        if tag == "BIG_INT":
            return self._string()
        if tag == "FLOAT":
            return repr(self._double())
        if tag == "COMPLEX":
            return repr(complex(self._double(), self._double()))
        if tag == "BYTES":
            return repr(self._raw(payload))
        return _C.describe_device(payload)

    def _identity(self, place: str) -> None:
        self._take()
        address = self._take()
        known = self._objects.get(address)
        self._say(place, "another object" if known is None else describe_object(known))
        if self._next() == "CLASS":
            self._take()
            cls = self._object(address)
            self._version(cls)
            self._class_attributes(cls)
        elif type(known) is types.MappingProxyType:
            self.value(place)

    # --- tensors and what was met before

    def _tensor(self, place: str) -> None:
        self._tensors.append(place)
        facts = _C.describe_tensor_header(self._take())
        for name, text in facts:
            self._say(f"{place}: {name}", text)
        rank = int(dict(facts)["dimensions"])
        for name in ("size", "stride"):
            for axis in range(rank):
                self._numbers[self.position] = f"{name} {axis} of {{}}", place
                self._say(f"{place}: {name} {axis}", str(self._signed()))
        self._numbers[self.position] = "address of {} modulo 16", place
        self._say(f"{place}: address modulo 16", str(self._take()))
        if self._next() == "ATTRIBUTES":
            self._take()
            self._entries(place, lambda key: f"{place}.{key}")

    # --- containers

    def _items(self, place: str) -> None:
        kind = self._next().lower()
        count = self._take() & PAYLOAD
        self._say(f"length of {place}", f"{count} ({kind})")
        for index in range(count):
            self.value(f"{place}[{index}]")

    def _deque(self, place: str) -> None:
        count = self._take() & PAYLOAD
        longest = self._signed()
        limit = "" if longest < 0 else f", at most {longest}"
        self._say(f"length of {place}", f"{count} (deque{limit})")
        for index in range(count):
            self.value(f"{place}[{index}]")

    def _closed_list(self, place: str) -> None:
        self._take()
        self._say(f"length of {place}", "any: it is only appended to")

    def _set(self, place: str) -> None:
        count = self._take() & PAYLOAD
        self._say(f"length of {place}", f"{count} (set)")
        for index in range(count):
            self.value(f"element {index} of {place}")

    def _dict(self, place: str) -> None:
        self._entries(place, lambda key: f"{place}[{key!r}]")

    def _entries(self, place: str, name: Callable[[Any], str]) -> None:
        count = self._expect("DICT")
        keys = []
        for index in range(count):
            if self._next() == "STRING":
                keys.append(self._string())
                inner = name(keys[-1])
            else:
                inner = f"{place}[{self._key(f'key {index} of {place}')}]"
                keys.append(inner)
            self.value(inner)
        self._say(f"keys of {place}", ", ".join(map(str, keys)) or "none")
        if self._next() == "ORDER":
            count = self._take() & PAYLOAD
            self._say(f"order of {place}", str([self._take() for _ in range(count)]))

    def _key(self, place: str) -> str:
        before = dict(self.facts)
        self.value(place)
        return self.facts.pop(place, None) or before.get(place) or place

    def _plain(self, place: str) -> None:
        self._take()

    def _method(self, place: str) -> None:
        self._take()
        self.value(f"{place}.__func__")
        self.value(f"{place}.__self__")

    def _partial(self, place: str) -> None:
        self._take()
        for name in ("func", "args", "keywords"):
            self.value(f"{place}.{name}")

    def _range(self, place: str) -> None:
        self._take()
        for name in ("start", "stop", "step"):
            self.value(f"{place}.{name}")

    def _weak_ref(self, place: str) -> None:
        self._take()
        self.value(f"what {place} refers to")

    # --- code

    def _function(self, place: str) -> None:
        self._take()
        function = self._object(self._words[self.position + 1])
        self._identity(place)
        self.function_parts(place)
        for name in function.__code__.co_freevars:
            inner = f"variable {name} of {place}"
            if self._next() == "MISSING":
                self._take()
                self._say(inner, NOT_SET)
            else:
                self.value(inner)
        for _ in range(self._expect("GLOBALS")):
            self.value(f"{function.__module__}.{self._string()}")

    def function_parts(self, place: str) -> None:
        """A function's code, defaults and attributes."""
        self._identity(f"code of {place}")
        self.value(f"defaults of {place}")
        self.value(f"keyword defaults of {place}")
        if self._next() == "ATTRIBUTES":
            self._take()
            self._entries(place, lambda key: f"{place}.{key}")

    def missing_or_value(self, place: str) -> None:
        """A variable that may not be set."""
        if self._next() == "MISSING":
            self._take()
            self._say(place, NOT_SET)
        else:
            self.value(place)

    def _class_attributes(self, cls: type) -> None:
        if self._next() == "CLASS_ATTRIBUTES":
            for _ in range(self._take() & PAYLOAD):
                self.value(f"{_name(cls)}.{self._string()}")


_CONSTANTS = {"NONE": "None", "TRUE": "True", "FALSE": "False"}
_LEAVES = ("INT", "BIG_INT", "FLOAT", "COMPLEX", "STRING", "BYTES", "DEVICE")
_CONTAINERS: dict[str, Callable[[WordReader, str], None]] = {
    "TUPLE": WordReader._items,
    "LIST": WordReader._items,
    "DEQUE": WordReader._deque,
    "CLOSED_LIST": WordReader._closed_list,
    "SET": WordReader._set,
    "DICT": WordReader._dict,
    "OBJECT": WordReader._plain,
    "METHOD": WordReader._method,
    "PARTIAL": WordReader._partial,
    "RANGE": WordReader._range,
    "WEAK_REF": WordReader._weak_ref,
    "FUNCTION": WordReader._function,
}


def _name(cls: Any) -> str:
    return str(getattr(cls, "__qualname__", cls)).replace("<locals>.", "")


def describe_object(value: Any) -> str:
    """A leaf in words, and its address where the words may fit another one as well.

    Calls nothing of the user's, such as a `__repr__`.
    """
    cls = type(value)
    if value is None or cls in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{cls.__qualname__}.{value._name_}"
    if cls.__module__ == "torch":
        return repr(value)
    if isinstance(value, types.ModuleType):
        what = f"module {value.__name__}"
    elif isinstance(value, types.CodeType):
        what = f"code of {value.co_qualname} in line {value.co_firstlineno}"
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        label = "class" if isinstance(value, type) else cls.__name__
        what = f"{label} {value.__qualname__.replace('<locals>.', '')}"
    else:
        what = f"{cls.__qualname__} object"
    return f"{what} at {id(value):#x}"


def without_address(text: str) -> str:
    """What `describe_object` said, without the address of what has a name."""
    return _NAMED_OBJECT.sub(r"\1", text)
