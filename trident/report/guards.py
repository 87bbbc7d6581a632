"""A specialization's guards as text."""

from __future__ import annotations

import builtins
import dataclasses
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from trident import _C
from trident.capture.library import is_library_globals
from trident.pipeline import SpecializationRecord
from trident.report.conditions import Conditions
from trident.report.facts import Guarded, facts_of_specialization, root_name
from trident.report.lines import Lines
from trident.report.stream import Unreadable
from trident.report.words import NOT_SET, Facts, readable, without_address

logger = logging.getLogger("trident")
_log = logging.getLogger("trident.guards")

# Structure, which the facts that are shown imply.
_STRUCTURE = ("class ", "type of ", "keys of ", "length of ", "order of ")
_ENVIRONMENT = ("torch.", "operators registered")
_WIDTH = 100
_LAST_NAME = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])*$")


@dataclasses.dataclass(frozen=True)
class DescribedGuards:
    """What must hold for a specialization to serve a call, in words.

    Attributes:
        varying: what it leaves open.
        conditions: on that, with the user's lines that asked for them.
        arguments: one number or tensor each.
        environment: PyTorch's global state.
        state: of the optimized object's state and of global variables, those that the user's code
            names, with the line that names them; the others are counted.
    """

    varying: list[str]
    conditions: list[str]
    arguments: list[str]
    environment: Facts
    state: list[str]


def describe_guards(
    scm: _C.Scm, function: Callable[..., Any], record: SpecializationRecord
) -> DescribedGuards:
    """The guards of a specialization.

    Raises:
        KeyError: the specialization has been dropped.
    """
    try:
        guarded = facts_of_specialization(scm, function, record)
    except Unreadable as problem:
        conditions = Conditions(record, record.symbols).texts()
        return DescribedGuards(
            record.symbols, conditions, [], {}, [f"(cannot be shown: {problem})"]
        )
    lines = Lines(record.codes)
    root = root_name(function)
    state = _named(
        {place: text for place, text in guarded.call.items() if _is_below(place, root)},
        lines.attributes,
    )
    of_user = _reads_of_user(guarded, record)
    builtin = [place for place, text in of_user.items() if _is_builtin(place, text)]
    for place in builtin:
        del of_user[place]
    reads = _named(of_user, {**lines.attributes, **lines.globals})
    rest = sum(_is_below(place, root) for place in guarded.call) - len(state)
    others = len(guarded.reads) - len(reads) - len(builtin)
    counted = f"and {rest} more facts of {root}'s state"
    counted += f", {len(builtin)} builtins not redefined" if builtin else ""
    counted += f", {others} of code, classes and libraries"
    environment = {
        place: text for place, text in guarded.call.items() if place.startswith(_ENVIRONMENT)
    }
    return DescribedGuards(
        guarded.varying,
        Conditions(record, guarded.varying).texts(),
        _arguments(guarded.call, guarded.varying),
        environment,
        [*state, *reads, counted],
    )


def log_guards(
    scm: _C.Scm, name: str, function: Callable[..., Any], record: SpecializationRecord
) -> None:
    """Logs what a new specialization guards, where ``TRIDENT_LOGS`` asks for that."""
    if not _log.isEnabledFor(logging.INFO):
        return
    try:
        guards = describe_guards(scm, function, record)
        lines = guards.arguments + environment_lines("environment", guards.environment)
        text = "\n    ".join(lines + guards.state)
    except Exception:  # a report must not be what makes a call fail
        logger.warning("%s: its guards cannot be shown", name, exc_info=True)
    else:
        _log.info("%s: specialization %d\n    %s", name, record.index, text)


def environment_lines(label: str, facts: Facts) -> list[str]:
    """Facts of PyTorch's global state, several to a line; nothing where there are none."""
    if not facts:
        return []
    lines = [f"{label}:"]
    for place, text in facts.items():
        if len(lines[-1]) + len(place) > _WIDTH:
            lines.append("   ")
        lines[-1] += f" {place} is {text};"
    lines[-1] = lines[-1].rstrip(";")
    return lines


def _arguments(facts: Facts, varying: Sequence[str]) -> list[str]:
    shown = []
    for place, text in facts.items():
        if place.startswith("argument ") and ": " not in place:
            shown.append(f"{place} is {text}")
        elif place.startswith("argument ") and place.endswith(": dtype"):
            shown.append(_tensor(facts, place.removesuffix(": dtype")))
    if varying:
        shown.append(f"but for what varies: {', '.join(varying)}")
    return shown


def _tensor(facts: Facts, place: str) -> str:
    rank = int(facts[f"{place}: dimensions"])
    sizes = ", ".join(facts[f"{place}: size {axis}"] for axis in range(rank))
    strides = ", ".join(facts[f"{place}: stride {axis}"] for axis in range(rank))
    text = (
        f"{place} is {facts[f'{place}: dtype']}[{sizes}] with strides [{strides}] on "
        f"{facts[f'{place}: device']}, address modulo 16 is {facts[f'{place}: address modulo 16']}"
    )
    for name in ("requires_grad", "made in inference mode"):
        text += f", {name}" if facts[f"{place}: {name}"] == "True" else ""
    return text


def _is_below(place: str, root: str) -> bool:
    return place == root or place.startswith((f"{root}.", f"{root}[", f"{root}:"))


def _named(facts: Facts, lines: dict[str, str]) -> list[str]:
    """The facts whose last name the user's code reads."""
    shown = []
    for place, text in facts.items():
        spelled = readable(place)
        name = _LAST_NAME.search(spelled)
        where = lines.get(name[1]) if name and ": " not in spelled else None
        if where is not None and not place.startswith(_STRUCTURE):
            shown.append(f"{spelled} is {without_address(text)} (at {where})")
    return shown


def _is_builtin(place: str, text: str) -> bool:
    """Whether a fact says no more than that a name is the builtin one."""
    return text == NOT_SET and hasattr(builtins, place.rpartition(".")[2])


def _reads_of_user(guarded: Guarded, record: SpecializationRecord) -> Facts:
    """Global variables of the user's modules, and what they hold."""
    modules = {
        f"{source['__name__']}."
        for source, name, _ in record.reads
        if source is not None and name is not None
        if "__name__" in source and not is_library_globals(source)
    }
    return {
        place: text
        for place, text in guarded.reads.items()
        if place.startswith((*modules, "variable ")) and ": " not in place
    }
