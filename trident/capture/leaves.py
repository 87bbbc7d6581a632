"""Python objects that code uses but does not read: guarded by identity, never cloned."""

from __future__ import annotations

import _thread
import abc
import functools
import logging
import re
import threading
import types
import typing
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from triton.compiler.compiler import CompiledKernel
from triton.runtime.jit import JITCallable, KernelInterface

from trident import _C
from trident.kernels.helion import HelionKernel, loaded_classes

LEAF_TYPES: tuple[Any, ...] = (
    JITCallable,
    KernelInterface,
    HelionKernel,
    CompiledKernel,
    CustomOpDef,
    _C.Scm,
    _C.MethodEntry,
    _C.ModuleEntry,
    functools._lru_cache_wrapper,  # trident.capture.caches guards what it returns
    logging.Logger,
    logging.Handler,
    re.Pattern,
    _thread.LockType,
    type(threading.RLock()),
    types.ModuleType,  # and what is put in its place, such as torch.backends.cudnn
    # What annotations are made of.
    types.GenericAlias,
    types.UnionType,
    *(typing.TypeVar, typing.TypeVarTuple, typing.ParamSpec),
    *(typing.ParamSpecArgs, typing.ParamSpecKwargs),
    *((typing.TypeAliasType,) if hasattr(typing, "TypeAliasType") else ()),
    typing.ForwardRef,
    type(NotImplemented),
    type(vars(abc.ABC)["_abc_impl"]),  # registered subclasses, and caches of what was asked
    torch.Generator,
    torch.Stream,
    torch.Event,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    type(torch._C._dispatch_tls_local_exclude_set()),
    *((torch._C._SafeKernelFunction,) if hasattr(torch._C, "_SafeKernelFunction") else ()),
)

_registered: set[type] = set()


def register_loaded_leaves() -> None:
    """Registers leaf types of libraries that were loaded since, for the native walker."""
    for cls in loaded_classes():
        if cls not in _registered:
            _registered.add(cls)
            _C.register_identity_type(cls)
