"""What a code object can touch, read from its instructions."""

from __future__ import annotations

import dataclasses
import dis
import functools
import importlib.util
import sys
import types
from typing import Any


@dataclasses.dataclass(frozen=True)
class CodeFacts:
    """Names in a code object, nested code left out.

    Attributes:
        globals: names looked up in the module's globals or the builtins.
        attributes: names looked up on objects, and those in constant strings that `getattr` or
            `operator.attrgetter` could get.
        texts: constant strings that could name a module.
        stores: names assigned on objects.
        imports: ``(name, level)`` of import statements.
        assigned_global: a global variable that the code assigns, or None.
        compares_identity: whether an ``is`` compares with something else than None.
    """

    globals: tuple[str, ...]
    attributes: tuple[str, ...]
    texts: tuple[str, ...]
    stores: tuple[str, ...]
    imports: tuple[tuple[str, int], ...]
    assigned_global: str | None
    compares_identity: bool


@functools.lru_cache(maxsize=8192)
def code_facts(code: types.CodeType) -> CodeFacts:
    """The facts of one code object."""
    names: dict[str, None] = {}
    attributes: dict[str, None] = {}
    stores: dict[str, None] = {}
    texts: dict[str, None] = {}
    imports: list[tuple[str, int]] = []
    assigned: str | None = None
    compares_identity = False
    constants: list[Any] = [None, None]
    for instruction in dis.get_instructions(code):
        kind = instruction.opname
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[instruction.argval] = None
        elif kind in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"):
            attributes[instruction.argval] = None
        elif kind in ("STORE_ATTR", "DELETE_ATTR"):
            stores[instruction.argval] = None
        elif kind == "IMPORT_NAME":
            level = constants[-2]
            imports.append((instruction.argval, level if isinstance(level, int) else 0))
        elif kind in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            assigned = assigned or str(instruction.argval)
        elif kind == "IS_OP" and constants[-1] is not _NONE:
            compares_identity = True
        constants = [
            constants[-1],
            (_NONE if instruction.argval is None else instruction.argval)
            if kind == "LOAD_CONST"
            else None,
        ]
    for constant in code.co_consts:
        if not isinstance(constant, str):
            continue
        names_in_it = constant.lstrip(".").replace(":", ".").split(".")
        if all(each.isidentifier() for each in names_in_it):
            attributes.update(dict.fromkeys(names_in_it))
            texts[constant] = None
    return CodeFacts(
        tuple(names),
        tuple(attributes),
        tuple(texts),
        tuple(stores),
        tuple(imports),
        assigned,
        compares_identity,
    )


_NONE = object()


def imported_modules(facts: CodeFacts, namespace: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the code's import statements lead to, by name, as far as it is loaded: modules, and
    what was put in the place of one."""
    found = []
    for name, level in facts.imports:
        full = name
        if level:
            try:
                full = importlib.util.resolve_name("." * level + name, namespace.get("__package__"))
            except ImportError:
                continue
        parts = full.split(".")
        for count in range(1, len(parts) + 1):
            full = ".".join(parts[:count])
            module = sys.modules.get(full)
            if module is not None:
                found.append((full, module))
    return found
