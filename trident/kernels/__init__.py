"""Triton's contract: launches recorded, kernels specialized, compiled, or run on the CPU."""

from trident.kernels.compile import (
    CompiledVariant,
    compile_variant,
    compile_variants,
    only_read,
)
from trident.kernels.functions import (
    as_jit_function,
    captured_globals,
    check_captured_globals,
    is_interpreted,
    is_kernel,
)
from trident.kernels.hooks import LeftToTriton, hook_places
from trident.kernels.interpreter import interpreted_runner
from trident.kernels.launch import LaunchRequest, TensorArg, record_launch
from trident.kernels.native import native_kernel
from trident.kernels.packing import pack_scalar, unpack_scalar
from trident.kernels.routing import Routed, prepare_routing, route_launches
from trident.kernels.target import DEFAULT_TARGET, current_target
from trident.kernels.tuning import NeedsTuning, tune_on_scratch, tuning_key
from trident.kernels.variant import Param, Variant, specialize

__all__ = [
    "DEFAULT_TARGET",
    "CompiledVariant",
    "LaunchRequest",
    "LeftToTriton",
    "NeedsTuning",
    "Param",
    "Routed",
    "TensorArg",
    "Variant",
    "as_jit_function",
    "captured_globals",
    "check_captured_globals",
    "compile_variant",
    "compile_variants",
    "current_target",
    "hook_places",
    "interpreted_runner",
    "is_interpreted",
    "is_kernel",
    "native_kernel",
    "only_read",
    "pack_scalar",
    "prepare_routing",
    "record_launch",
    "route_launches",
    "specialize",
    "tune_on_scratch",
    "tuning_key",
    "unpack_scalar",
]
