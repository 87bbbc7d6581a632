"""What a specialization guards and what a call shows, by place, and where the two differ."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trident import _C
from trident.capture.reads import Read
from trident.pipeline import SpecializationRecord
from trident.report.conditions import Conditions
from trident.report.stream import Unreadable, is_number_tag
from trident.report.words import Facts, WordReader, describe_object, readable

NOT_THERE = "not there"


@dataclasses.dataclass(frozen=True)
class Difference:
    """A fact that is another one than in an earlier call.

    Attributes:
        place: what it is said of, such as ``argument x: size 1`` or ``module.scale``.
        before: what a specialization was made for.
        now: what the call shows.
    """

    place: str
    before: str
    now: str

    def __str__(self) -> str:
        if self.place.startswith("argument "):
            return f"{self.place} was {self.before}, now {self.now}"
        return f"{self.place}: {self.before} -> {self.now}"


@dataclasses.dataclass(frozen=True)
class Guarded:
    """The facts of a specialization.

    Attributes:
        call: of the call and the state.
        reads: of what its code read.
        varying: what each of its symbols is.
    """

    call: Facts
    reads: Facts
    varying: list[str]


@dataclasses.dataclass(frozen=True)
class _Reading:
    """Facts, the versions of the classes among them, and what the words are that vary."""

    facts: Facts
    versions: dict[str, tuple[type, int]]
    varying: list[str] = dataclasses.field(default_factory=list)


def facts_of_specialization(
    scm: _C.Scm, function: Callable[..., Any], record: SpecializationRecord
) -> Guarded:
    """What a specialization guards.

    Raises:
        KeyError: it has been dropped.
        Unreadable: its state has been forgotten.
    """
    found = _C.guards_of(scm, record)
    if found["state_words"] is None:
        raise Unreadable("the state has been forgotten")
    open_words = found["symbolic"] if record.symbols else ()
    call = _read_call(function, found["words"], found["state_words"], found["objects"], open_words)
    return Guarded(call.facts, _read_reads(record.reads, found["reads"]).facts, call.varying)


def differences(
    scm: _C.Scm, function: Callable[..., Any], record: SpecializationRecord, facts: _C.Facts
) -> list[Difference]:
    """Where a call's facts differ from those of a specialization. Arguments come first.

    Raises:
        KeyError: the specialization has been dropped.
        Unreadable: its state has been forgotten.
    """
    found = _C.guards_of(scm, record)
    words = facts.words
    known = {**found["objects"], **{id(value): value for value in facts.identities}}
    before_words = list(found["words"])
    if found["state_words"] is None:
        raise Unreadable("the state has been forgotten")
    state_words = list(found["state_words"])
    every = [*words, *facts.state_words]
    same_length = (len(before_words), len(state_words)) == (len(words), len(facts.state_words))
    if same_length:
        all_before = [*before_words, *state_words]
        for position in found["symbolic"]:  # the specialization leaves these open
            tag = all_before[position - 1]
            if not is_number_tag(tag) or tag == every[position - 1]:  # numbers of one type
                all_before[position] = every[position]
        before_words, state_words = all_before[: len(words)], all_before[len(words) :]
    open_words = found["symbolic"] if record.symbols else ()
    before = _read_call(function, before_words, state_words, known, open_words)
    now = _read_call(function, words, facts.state_words, known)
    result = _compare(before, now)
    present = _C.present_reads(scm, record)
    if present is None:
        result.append(Difference("what the code reads", "describable", "not describable"))
    else:
        result += _compare(
            _read_reads(record.reads, found["reads"]), _read_reads(record.reads, present)
        )
    result += _full_caches(record.reads)
    result += _other_region(record.reads)
    result = list(dict.fromkeys(result))
    if not result and record.symbols and same_length:
        conditions = Conditions(record, before.varying)
        failing = conditions.first_failing([every[each] for each in open_words])
        if failing is not None:
            text, values = failing
            result = [Difference(f"condition {text}", "holds", f"does not hold ({values})")]
    return result


def _compare(before: _Reading, now: _Reading) -> list[Difference]:
    found: list[Difference] = []
    for place in {**now.facts, **before.facts}:
        old, new = before.facts.get(place), now.facts.get(place)
        if old == new:
            continue
        if place in before.versions and place in now.versions:
            changes = _class_changes(before.versions[place], now.versions[place])
            found += changes or [Difference(place, old or NOT_THERE, new or NOT_THERE)]
        else:
            found.append(Difference(readable(place), old or NOT_THERE, new or NOT_THERE))
    return found


def _class_changes(before: tuple[type, int], now: tuple[type, int]) -> list[Difference]:
    """The attributes that two versions of a class define differently."""
    cls, version = now

    def text(value: tuple[Any] | None) -> str:
        return NOT_THERE if value is None else describe_object(value[0])

    changes = _C.class_changes(cls, before[1], version)
    name = cls.__qualname__.replace("<locals>.", "")
    return [Difference(f"{name}.{each}", text(old), text(new)) for each, old, new in changes]


def _read_call(
    function: Callable[..., Any],
    words: Sequence[int],
    state_words: Sequence[int],
    objects: dict[int, Any],
    varying: Sequence[int] = (),
) -> _Reading:
    state = WordReader(state_words, objects)
    state.value(root_name(function))
    while state.position < len(state_words):
        state.further_root()
    call = WordReader(words, objects)
    call.call(parameters(function), state.place)
    names = [
        call.number(each) if each < len(words) else state.number(each - len(words))
        for each in varying
    ]
    return _Reading({**call.facts, **state.facts}, {**call.versions, **state.versions}, names)


def _read_reads(reads: Sequence[Read], described: _C.Described) -> _Reading:
    words, starts, objects = described
    # In the native order: classes come last.
    reads = [read for read in reads if read[2] is not None]  # the others are limits or regions
    ordered = [read for read in reads if not isinstance(read[0], type)]
    ordered += [read for read in reads if isinstance(read[0], type)]
    names = _variables(reads)
    reader = WordReader(words, objects)
    for (source, name, _), start in zip(ordered, starts, strict=True):
        reader.position = start
        if name is not None:
            reader.missing_or_value(_global_name(source, name))
        elif isinstance(source, type):
            reader.value(f"class {source.__qualname__}")
        elif id(source) in names:
            reader.missing_or_value(names[id(source)])
        else:
            reader.function_parts(_function_name(source))
    if reader.position != len(words):
        raise Unreadable(f"words of what was read are left over at {reader.position}")
    return _Reading(reader.facts, reader.versions)


def _full_caches(reads: Sequence[Read]) -> list[Difference]:
    """Caches of functions that have reached their size since."""
    return [
        Difference("a function's cache", f"fewer than {limit} entries", "full")
        for cache, limit, deep in reads
        if deep is None and cache is not None and len(cache) >= limit
    ]


def _other_region(reads: Sequence[Read]) -> list[Difference]:
    """Whether the thread has entered or left the regions of autocast since."""
    inside = _C.in_autocast_region()
    return [
        Difference("inside of a torch.autocast context", str(recorded), str(inside))
        for source, recorded, _ in reads
        if source is None and recorded is not inside
    ]


def _global_name(namespace: dict[Any, Any], name: Any) -> str:
    module = namespace.get("__name__")
    return f"{module}.{name}" if isinstance(module, str) else f"the entry {name!r} of a table"


def _variables(reads: Sequence[Read]) -> dict[int, str]:
    """The names of closure variables, by the identity of their cells."""
    names: dict[int, str] = {}
    for source, _, _ in reads:
        closure = source.__closure__ if isinstance(source, types.FunctionType) else None
        for index, cell in enumerate(closure or ()):
            variable = source.__code__.co_freevars[index]
            names[id(cell)] = f"variable {variable} of {_function_name(source)}"
    return names


def root_name(function: Callable[..., Any]) -> str:
    """What reports call the optimized object."""
    return "module" if isinstance(function, torch.nn.Module) else _function_name(function)


def _function_name(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return str(name).replace("<locals>.", "")


def parameters(function: Callable[..., Any]) -> list[str]:
    """Names of the positional parameters."""
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in parameters if each.kind in positional]
