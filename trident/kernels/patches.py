"""What other libraries have replaced while a trace routes launches, if they are loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Patch = tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]
"""Owner (a class or module), attribute, and what makes the replacement of the original."""


def loaded(module: str, name: str) -> Any:
    """An attribute of a module, or None where the module or the attribute is not there."""
    return getattr(sys.modules.get(module), name, None)
