"""The GPU that kernels are compiled for, and Triton's backend for it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

# What kernels are specialized for on a machine without a GPU (an H100 or H200).
DEFAULT_TARGET = GPUTarget("cuda", 90, 32)


def current_target() -> GPUTarget:
    """The target of the current CUDA device; `DEFAULT_TARGET` where there is none."""
    if not torch.cuda.is_available():
        return DEFAULT_TARGET
    major, minor = torch.cuda.get_device_capability()
    return GPUTarget("cuda", 10 * major + minor, 32)


@functools.lru_cache(maxsize=16)
def backend_for(target: GPUTarget) -> Any:
    """Triton's compiler backend of a target; needs no GPU."""
    return make_backend(target)
