"""Tells the native walker which Python objects are leaves, guarded by identity."""

from __future__ import annotations

import _thread
import logging
import re
import threading
import types
import weakref

import torch
from triton.runtime.jit import JITCallable, KernelInterface

from trident import _C
from trident.capture.library import is_library_globals
from trident.miss import Optimizer


def register_guard_types() -> None:
    """Registers types whose objects are used, not read: another object is another fact."""
    identity = (
        JITCallable,
        KernelInterface,
        Optimizer,
        _C.Scm,
        _C.ModuleEntry,
        logging.Logger,
        logging.Handler,
        re.Pattern,
        _thread.LockType,
        type(threading.RLock()),
        threading.local,
        types.MappingProxyType,
        types.GenericAlias,
        weakref.ReferenceType,
        torch.Generator,
        torch.Stream,
        torch.Event,
        torch._ops.OpOverload,
        torch._ops.OpOverloadPacket,
    )
    for cls in identity:
        _C.register_identity_type(cls)
    _C.set_library_predicate(is_library_globals)
