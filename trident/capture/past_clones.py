"""The user's own containers that code reaches during a trace: through globals, classes, modules.

The trace runs over clones. Of what is both held by the call's arguments or state and reached
otherwise, there are two objects in the trace and one in eager.
"""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import Any

from trident.capture.shadow import Shadow
from trident.errors import UnsupportedError


class PastClones:
    """Containers of the call's facts that are reached past their clones.

    Args:
        containers: all containers of the facts.
    """

    def __init__(self, containers: list[Any]) -> None:
        self.shadow: Shadow | None = None
        self._indexes = {id(container): index for index, container in enumerate(containers)}
        self._reached: dict[int, tuple[Any, str]] = {}

    def index_of(self, value: Any) -> int | None:
        """The index of a container; None for anything else."""
        return self._indexes.get(id(value))

    def note(self, value: Any, path: str) -> None:
        """Takes note of an object that code may reach by a path, if it is a container."""
        index = self.index_of(value)
        if index is not None:
            self._reached.setdefault(index, (value, path))

    def doubled(self) -> list[int]:
        """Those that have a clone, by index."""
        shadow = self.shadow
        return [index for index in self._reached if shadow is not None and shadow.has_clone(index)]

    def check(self, changed: Collection[int], compares_identity: bool) -> None:
        """Refuses where the trace's two objects would tell.

        Args:
            changed: identities of the containers whose clones the trace changed.
            compares_identity: whether code that ran compares identities.

        Raises:
            UnsupportedError: one of them was changed, or may have been compared.
        """
        for index in self.doubled():
            value, path = self._reached[index]
            if id(value) in changed:
                raise UnsupportedError(
                    f"the call changes what is both {path} and held by an argument or the state"
                )
            if compares_identity and not isinstance(value, types.FunctionType):
                raise UnsupportedError(
                    f"{path} leads to an attribute or argument, and the code compares identities"
                )
