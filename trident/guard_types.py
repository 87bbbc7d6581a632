"""Tells the native walker which Python objects are leaves, and what counts as a library."""

from __future__ import annotations

from trident import _C
from trident.capture.leaves import LEAF_TYPES
from trident.capture.library import is_library_globals
from trident.miss import Optimizer


def register_guard_types() -> None:
    """Registers types whose objects are guarded by identity: another object is another fact."""
    for cls in (*LEAF_TYPES, Optimizer):
        _C.register_identity_type(cls)
    _C.set_library_predicate(is_library_globals)
