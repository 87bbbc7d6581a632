"""Compiling variants to cubins with Triton's own compiler and its on-disk cache."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import triton
from triton import knobs
from triton.compiler.compiler import ASTSource

from trident.errors import UnsupportedError
from trident.kernels.descriptors import TENSOR_MAP, TensorMap, tensor_maps
from trident.kernels.functions import is_interpreted
from trident.kernels.language import LANGUAGE_LOCK
from trident.kernels.variant import Variant
from trident.kernels.written import written_parameters

# Cubins kept in memory; one that was dropped is read from Triton's cache again.
MAX_COMPILED = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledVariant:
    """What a launch needs of a compiled kernel.

    Attributes:
        cubin: the binary.
        name: of the entry function in it.
        shared: dynamic shared memory per block, in bytes.
        num_warps: warps per block as compiled (warp specialization may have added some).
        num_ctas: blocks per cluster; grid x is multiplied by it.
        cluster: cluster extents.
        launch_pdl: programmatic dependent launch.
        cooperative: cooperative launch.
        global_scratch_size: bytes per program of the first trailing pointer, with its alignment.
        profile_scratch_size: the same for the second.
        tensor_maps: what host tensor descriptors are encoded from.
        written: positions of the pointer parameters that it may write through.
        variant: what was compiled.
    """

    cubin: bytes
    name: str
    shared: int
    num_warps: int
    num_ctas: int
    cluster: tuple[int, int, int]
    launch_pdl: bool
    cooperative: bool
    global_scratch_size: int
    global_scratch_align: int
    profile_scratch_size: int
    profile_scratch_align: int
    tensor_maps: list[TensorMap]
    written: frozenset[int]
    variant: Variant


logger = logging.getLogger("trident")

_compiled: collections.OrderedDict[str, CompiledVariant] = collections.OrderedDict()
_in_progress: dict[str, concurrent.futures.Future[CompiledVariant]] = {}
_lock = threading.Lock()


def compile_variant(variant: Variant) -> CompiledVariant:
    """Compiles a variant once per process; threads that need the same one wait for it.

    Raises:
        UnsupportedError: the kernel was decorated under TRITON_INTERPRET=1.
        Exception: whatever Triton's compiler raises, unchanged.
    """
    with _lock:
        done = _compiled.get(variant.key)
        if done is not None:
            _compiled.move_to_end(variant.key)
            return done
        future = _in_progress.get(variant.key)
        owner = future is None
        if future is None:
            future = _in_progress[variant.key] = concurrent.futures.Future()
    if not owner:
        return future.result()
    try:
        result = _compile(variant)
    except BaseException as error:
        with _lock:
            del _in_progress[variant.key]
        future.set_exception(error)
        raise
    with _lock:
        del _in_progress[variant.key]
        _compiled[variant.key] = result
        while len(_compiled) > MAX_COMPILED:
            _compiled.popitem(last=False)
    future.set_result(result)
    return result


def compile_variants(
    variants: Sequence[Variant], max_workers: int | None = None
) -> list[CompiledVariant]:
    """Compiles several variants in parallel threads; results in the order of `variants`.

    Args:
        max_workers: threads; the number of cores, at most 8, by default.

    Raises:
        Exception: what the first variant that failed raised.
    """
    distinct = list({variant.key: variant for variant in variants}.values())
    workers = min(max_workers or min(os.cpu_count() or 1, 8), len(distinct))
    if workers <= 1:
        return [compile_variant(variant) for variant in variants]
    with concurrent.futures.ThreadPoolExecutor(workers, "trident-compile") as pool:
        by_key = dict(
            zip((v.key for v in distinct), pool.map(compile_variant, distinct), strict=True)
        )
    return [by_key[variant.key] for variant in variants]


def only_read(variant: Variant) -> frozenset[int]:
    """The tensors of a launch that its kernel, compiled if need be, is known not to write."""
    written = compile_variant(variant).written
    pointers = [(i, param.tensor) for i, param in enumerate(variant.params)]
    return frozenset(tensor for _, tensor in pointers if tensor is not None) - {
        tensor for i, tensor in pointers if i in written
    }


def _compile(variant: Variant) -> CompiledVariant:
    if is_interpreted(variant.kernel):
        raise UnsupportedError(
            f"kernel {variant.label} was decorated under TRITON_INTERPRET=1 and cannot be compiled",
            variant.where,
        )
    source = ASTSource(variant.kernel, variant.signature, variant.constexprs, variant.attrs)
    # The interpreter patches triton.language while it runs; nothing may be compiled meanwhile.
    with LANGUAGE_LOCK.shared():
        kernel = _parsed_alone(
            lambda: triton.compile(source, target=variant.target, options=variant.options.__dict__)
        )
    metadata = kernel.metadata
    types = [param.type for param in variant.params]
    described = list(getattr(metadata, "tensordesc_meta", None) or [])
    if len(described) != types.count(TENSOR_MAP):
        raise UnsupportedError(
            f"kernel {variant.label} takes {types.count(TENSOR_MAP)} tensor maps, and Triton "
            f"describes {len(described)}",
            variant.where,
        )
    num_ctas = metadata.num_ctas
    return CompiledVariant(
        cubin=kernel.asm["cubin"],
        name=metadata.name,
        shared=metadata.shared,
        num_warps=metadata.num_warps,
        num_ctas=num_ctas,
        cluster=(num_ctas, 1, 1),
        launch_pdl=bool(metadata.launch_pdl),
        cooperative=bool(metadata.launch_cooperative_grid),
        global_scratch_size=metadata.global_scratch_size,
        global_scratch_align=metadata.global_scratch_align,
        profile_scratch_size=metadata.profile_scratch_size or 0,
        profile_scratch_align=metadata.profile_scratch_align or 1,
        tensor_maps=tensor_maps(types, variant.descriptors, described) if described else [],
        written=written_parameters(_ttir(kernel), metadata.name, types, variant.target),
        variant=variant,
    )


def _parsed_alone(compile_: Callable[[], Any]) -> Any:
    """Calls Triton's compiler, which starts by parsing the kernel.

    CPython 3.11's parser counts its depth in one number for all threads, and raises where two of
    them parse at the same time.
    """
    for _ in range(16):
        try:
            return compile_()
        except SystemError as error:
            if "AST constructor recursion depth" not in str(error):
                raise
            logger.debug("two threads parsed at the same time, once more: %s", error)
    return compile_()


def _ttir(kernel: Any) -> str | None:
    """What the binary was made from; None if it was not kept or a later stage may be replaced."""
    if knobs.compilation.override or getattr(kernel.metadata, "ir_override", None):
        return None
    text: str | None = kernel.asm.get("ttir")
    return text
