"""Places storages that do not leave the program at offsets of one arena."""

from __future__ import annotations

import bisect
import dataclasses

from trident.ir.forms import writes_into_given_memory
from trident.ir.program import Program, Storage
from trident.ir.registry import TypedOperators

# As PyTorch's CUDA allocator aligns; vectorized kernels rely on it.
ALIGNMENT = 256


def run(program: Program, typed: TypedOperators) -> None:
    """Sets ``arena_offset`` of plannable storages and ``program.arena_bytes``.

    Two storages overlap in the arena only if their lifetimes do not.
    """
    candidates = [each for each in program.storages.values() if _plannable(program, each, typed)]
    arena = _Arena()
    # Large storages first: small ones fill the gaps that these leave.
    for storage in sorted(candidates, key=lambda each: (-each.nbytes, each.first)):
        storage.arena_offset = arena.place(storage.first, storage.last, storage.nbytes)
    program.arena_bytes = arena.size


def _plannable(program: Program, storage: Storage, typed: TypedOperators) -> bool:
    owner = storage.owner
    if owner is None or storage.escapes or storage.resized:
        return False
    if not program.on_device(storage.device):
        return False
    if not all(value.layout.is_static for value in storage.values):
        return False
    fresh = [value for value in owner.outputs() if value.is_fresh]
    if len({value.storage for value in fresh}) != len(fresh):
        return False  # results of one operator that share memory
    return writes_into_given_memory(program, owner, typed)


@dataclasses.dataclass(frozen=True)
class _Block:
    offset: int
    end: int
    first: int
    last: int


class _Arena:
    """Blocks with lifetimes, ordered by offset."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self.size = 0

    def place(self, first: int, last: int, nbytes: int) -> int:
        """The offset of the smallest gap that fits during [first, last]."""
        needed = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        best: tuple[int, int] | None = None  # size of the gap, offset
        cursor = 0
        for block in self._blocks:
            if block.last < first or last < block.first:
                continue
            gap = block.offset - cursor
            if gap >= needed and (best is None or gap < best[0]):
                best = (gap, cursor)
            cursor = max(cursor, block.end)
        offset = best[1] if best is not None else cursor
        bisect.insort(
            self._blocks,
            _Block(offset, offset + needed, first, last),
            key=lambda block: (block.offset, block.end),
        )
        self.size = max(self.size, offset + needed)
        return offset
