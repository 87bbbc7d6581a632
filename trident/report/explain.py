"""`trident.explain`: the specializations of an optimized callable, in words."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable
from typing import Any

from trident import _C
from trident.optimize import optimizer_of
from trident.report.guards import describe_guards, environment_lines
from trident.report.misses import MAX_MISSES
from trident.report.words import Facts


def explain(optimized: Any) -> str:
    """Describes what an optimized callable has compiled, and what it runs eagerly and why.

    Args:
        optimized: what `trident.optimize` returned.

    Returns:
        A text: one paragraph per specialization with its arguments, hits, kernels, size and guards,
        those of them that the user's code reads with the line that does; what all of them guard of
        PyTorch's global state; then the last misses, each with the facts in which it differed from
        the nearest specialization.

    Raises:
        TypeError: `optimized` does not come from `trident.optimize`.
    """
    optimizer = optimizer_of(optimized)
    stats = optimizer.stats()
    lines = [
        f"{optimizer.name}: {stats['calls']} calls, {stats['hits']} hits, "
        f"{stats['misses']} misses, {stats['fallbacks']} fallbacks, {stats['errors']} errors; "
        f"driver {stats['driver']}"
    ]
    entries = sorted(_C.entries(optimizer.scm), key=lambda entry: entry[0].index)
    described = {
        record.index: describe_guards(optimizer.scm, optimizer.function, record)
        for record, _, compiled in entries
        if compiled
    }
    common = _common(guards.environment for guards in described.values())
    for record, hits, compiled in entries:
        lines.append("")
        if not compiled:
            place = f" (at {record.where})" if record.where else ""
            lines.append(f"[{record.index}] runs eagerly: {record.reason}{place}")
            lines.append(f"    arguments: {record.arguments}")
            continue
        lines.append(f"[{record.index}] {hits} hits; compiled in {record.seconds:.2f} s")
        lines.append(f"    arguments: {record.arguments}")
        guards = described[record.index]
        if guards.varying:
            lines.append(f"    varying: {', '.join(guards.varying)}")
            lines.extend(f"    where {each}" for each in guards.conditions)
        if record.fixed is not None:
            lines.append(f"    numbers that vary stay fixed: {record.fixed}")
        lines.append(
            f"    {record.operators} operator calls, {len(record.kernels)} launches, "
            f"{_code_bytes(record.source)} bytes of code, arena {record.arena_bytes} bytes"
        )
        for operator, reason in record.python_operators.items():
            lines.append(f"    Python code at each hit: {operator}, not traced because {reason}")
        if record.graph is not None:
            lines.append(f"    graph mode: {record.graph}")
        for label, count in collections.Counter(record.kernels).items():
            lines.append(f"    {count} x {label}")
        lines.append(f"    host program: {record.source}")
        lines.append("    guards:")
        own = {place: text for place, text in guards.environment.items() if place not in common}
        facts = guards.arguments + environment_lines("environment", own) + guards.state
        lines.extend(f"        {each}" for each in facts)
    if common:
        lines += ["", *environment_lines("environment, guarded by each specialization", common)]
    if optimizer.misses.misses:
        lines += ["", f"last misses, at most {MAX_MISSES}:"]
        lines.extend(f"    {miss}" for miss in optimizer.misses.misses)
    lines.extend(f"not captured: {reason}" for reason in optimizer.warnings.eager_reasons())
    return "\n".join(lines)


def _common(each: Iterable[Facts]) -> Facts:
    """The facts that are the same wherever there are any."""
    first, *others = [facts for facts in each if facts] or [{}]
    return {
        place: text
        for place, text in first.items()
        if all(facts.get(place) == text for facts in others)
    }


def _code_bytes(path: str) -> int:
    """Size of a loaded library; 0 where its file has been removed."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
