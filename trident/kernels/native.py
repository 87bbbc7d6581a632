"""Loading variants into the native module: one `trident._C.Kernel` per variant and driver."""

from __future__ import annotations

import collections
import threading
import weakref
from typing import TYPE_CHECKING, Any, Literal

import torch
from triton.runtime.errors import OutOfResources

from trident.kernels.compile import compile_variant
from trident.kernels.interpreter import interpreted_runner
from trident.kernels.variant import Variant

if TYPE_CHECKING:
    from trident._C import Kernel

# Kernels kept loaded although nothing uses them just now.
MAX_IDLE = 512

_kernels: weakref.WeakValueDictionary[tuple[str, str], Any] = weakref.WeakValueDictionary()
_recent: collections.OrderedDict[tuple[str, str], Any] = collections.OrderedDict()
_lock = threading.RLock()


def native_kernel(variant: Variant, driver: Literal["cuda", "cpu"]) -> Kernel:
    """The native kernel that runs a variant; one object per key and driver.

    Args:
        variant: what `specialize` returned.
        driver: ``cuda`` compiles a cubin, ``cpu`` runs the kernel's source in Triton's interpreter.

    Raises:
        OutOfResources: the kernel needs more shared memory than the current GPU has.
        Exception: whatever Triton's compiler raises.
    """
    from trident._C import Kernel

    key = (variant.key, driver)
    with _lock:
        kernel = _kernels.get(key)
        if kernel is None:
            make = _load if driver == "cuda" else _interpret
            kernel = _kernels[key] = make(Kernel, variant)
        _recent[key] = kernel
        _recent.move_to_end(key)
        while len(_recent) > MAX_IDLE:
            _recent.popitem(last=False)
        return kernel


def _interpret(kernel_class: Any, variant: Variant) -> Any:
    return kernel_class.interpreted(
        interpreted_runner(variant),
        label=variant.label,
        params=[param.type for param in variant.params],
    )


def _load(kernel_class: Any, variant: Variant) -> Any:
    compiled = compile_variant(variant)
    if torch.cuda.is_available():
        limit = getattr(
            torch.cuda.get_device_properties(), "shared_memory_per_block_optin", compiled.shared
        )
        if compiled.shared > limit:
            raise OutOfResources(compiled.shared, limit, "shared memory")
    return kernel_class.cuda(
        compiled.cubin,
        compiled.name,
        label=variant.label,
        params=[param.type for param in variant.params],
        shared=compiled.shared,
        num_warps=compiled.num_warps,
        num_ctas=compiled.num_ctas,
        cluster=compiled.cluster,
        launch_pdl=compiled.launch_pdl,
        cooperative=compiled.cooperative,
        global_scratch_size=compiled.global_scratch_size,
        global_scratch_align=compiled.global_scratch_align,
        profile_scratch_size=compiled.profile_scratch_size,
        profile_scratch_align=compiled.profile_scratch_align,
        tensor_maps=compiled.tensor_maps,
    )
