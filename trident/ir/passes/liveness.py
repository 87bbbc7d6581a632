"""Finds during which operations the contents of each storage matter."""

from __future__ import annotations

from trident.ir.forms import is_pure_view, is_uninitialized
from trident.ir.program import Program


def run(program: Program) -> None:
    """Sets ``first`` and ``last`` of every storage, as positions in ``program.operations``.

    Both ends are inclusive: a storage that an operator reads and one that it writes overlap. Views
    and ``empty`` do not touch memory, so they extend nothing. Storages of inputs and of outputs
    live throughout.
    """
    end = len(program.operations)
    touched: dict[int, tuple[int, int]] = {}
    for position, operation in enumerate(program.operations):
        if is_pure_view(operation) or is_uninitialized(operation):
            continue
        for value in (*operation.inputs(), *operation.outputs()):
            first, _ = touched.get(value.storage, (position, position))
            touched[value.storage] = (first, position)
    for storage in program.storages.values():
        if storage.owner is None or storage.escapes:
            storage.first, storage.last = 0, end
        else:
            storage.first, storage.last = touched.get(storage.number, (0, 0))
