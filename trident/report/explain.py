"""`trident.explain`: the specializations of an optimized callable, in words."""

from __future__ import annotations

import collections
from typing import Any

from trident import _C
from trident.optimize import optimizer_of


def explain(optimized: Any) -> str:
    """Describes what an optimized callable has compiled, and what it runs eagerly and why.

    Args:
        optimized: what `trident.optimize` returned.

    Returns:
        A text: one paragraph per specialization with its arguments, kernels, operators, memory and
        hits.

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
    for record, hits, compiled in entries:
        lines.append("")
        if not compiled:
            place = f" (at {record.where})" if record.where else ""
            lines.append(f"[{record.index}] runs eagerly: {record.reason}{place}")
            lines.append(f"    arguments: {record.arguments}")
            continue
        lines.append(f"[{record.index}] {hits} hits; compiled in {record.seconds:.2f} s")
        lines.append(f"    arguments: {record.arguments}")
        if record.symbols:
            lines.append(f"    varying: {', '.join(record.symbols)}")
            lines.append(f"    where {'; '.join(record.guards)}")
        lines.append(
            f"    {record.operators} operator calls, {len(record.kernels)} launches, "
            f"arena {record.arena_bytes} bytes"
        )
        for operator, reason in record.python_operators.items():
            lines.append(f"    Python code at each hit: {operator}, not traced because {reason}")
        if record.graph is not None:
            lines.append(f"    graph mode: {record.graph}")
        for label, count in collections.Counter(record.kernels).items():
            lines.append(f"    {count} x {label}")
        lines.append(f"    host program: {record.source}")
    lines.extend(f"not captured: {reason}" for reason in optimizer.eager_reasons())
    return "\n".join(lines)
