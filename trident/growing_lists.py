"""Lists of the state that grow from call to call: tried without their contents being guarded."""

from __future__ import annotations

import logging
from typing import Any

from trident import _C

logger = logging.getLogger("trident")


class GrowingLists:
    """Which lists of one optimized callable's state are closed; see `capture.closed_lists`.

    Args:
        scm: the native side of the optimized callable.
    """

    def __init__(self, scm: _C.Scm) -> None:
        self._scm = scm
        self._lengths: dict[int, int] = {}  # by identity, at the last compilation
        self._read: set[int] = set()  # identities of lists that code was seen to read

    def close_grown(self, facts: _C.Facts) -> bool:
        """Closes the lists that have grown since the last compilation; whether there are any."""
        lists = _open_lists(facts)
        grown = [
            each
            for each in lists
            if id(each) not in self._read and len(each) > self._lengths.get(id(each), len(each))
        ]
        for each in grown:
            logger.info("a list of the state grew to %d items; it is left out of it", len(each))
            _C.close_list(self._scm, each, closed=True)
        self._lengths = {id(each): len(each) for each in lists}
        return bool(grown)

    def reopen(self, facts: _C.Facts) -> None:
        """Takes the contents of all closed lists into the state again, for good."""
        for position in facts.closed_lists:
            each = facts.containers[position]
            self._read.add(id(each))
            _C.close_list(self._scm, each, closed=False)


def _open_lists(facts: _C.Facts) -> list[list[Any]]:
    closed = {*facts.closed_lists}
    return [
        container
        for position, container in enumerate(facts.containers)
        if position >= facts.num_argument_containers
        and position not in closed
        and type(container) is list
    ]
