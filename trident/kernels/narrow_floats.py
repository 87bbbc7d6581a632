"""bfloat16 and fp8 in the interpreter, which computes on their bits and loses carries in rounding.

Wrappers for the methods of Triton's `InterpreterBuilder`: operands are widened to fp32, results
rounded to the nearest value, ties to even, as the GPU does after each operation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_ARITHMETIC = (
    *("create_fadd", "create_fsub", "create_fmul", "create_fdiv", "create_frem", "create_fneg"),
    *("create_precise_divf", "create_fma", "create_clampf", "create_floor", "create_ceil"),
    *("create_minimumf", "create_minnumf", "create_maximumf", "create_maxnumf"),
    *("create_exp", "create_exp2", "create_log", "create_log2", "create_sin", "create_cos"),
    *("create_sqrt", "create_precise_sqrt", "create_rsqrt", "create_erf", "create_dot"),
)
_COMPARISONS = tuple(
    f"create_fcmp{kind}{relation}"
    for kind in "OU"
    for relation in ("LT", "GT", "LE", "GE", "EQ", "NE")
)
_CASTS = (
    *("create_si_to_fp", "create_ui_to_fp", "create_fp_to_si", "create_fp_to_ui"),
    *("create_fp_ext", "create_fp_trunc", "create_fp_to_fp"),
)
_QUIET_NAN = np.uint16(0x7FFF)
_FP8_NAN = np.uint8(0x7F)
_NUMPY_FLOATS = {tl.float16: np.float16, tl.float32: np.float32, tl.float64: np.float64}
_FP8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}


def widened(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The float32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of the bfloat16 values nearest to float32 ones, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    nearest = ((bits + half) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), _QUIET_NAN, nearest)


def truncated(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of float32 values rounded toward zero to bfloat16."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return np.where(np.isnan(values), _QUIET_NAN, (bits >> np.uint32(16)).astype(np.uint16))


@functools.cache
def _fp8_values(kind: tl.dtype) -> np.ndarray[Any, Any]:
    """The value of each of the 256 codes; those without a sign ascend up to infinity or NaN."""
    codes = torch.arange(256, dtype=torch.uint8)
    return np.asarray(codes.view(_FP8[kind]).to(torch.float32).tolist(), np.float32)


def fp8_codes(
    values: np.ndarray[Any, Any], kind: tl.dtype, toward_zero: bool = False
) -> np.ndarray[Any, Any]:
    """The codes of float32 values in fp8e4nv or fp8e5: to the nearest, ties to even, and what is
    too large, infinity too, to the largest, as NVIDIA's conversions do."""
    positive = _fp8_values(kind)[:128]
    finite = positive[np.isfinite(positive)].astype(np.float64)
    size = np.abs(values.astype(np.float64))
    if toward_zero:
        code = np.searchsorted(finite, size, side="right") - 1
    else:
        halfway = (finite[:-1] + finite[1:]) / 2
        code = np.searchsorted(halfway, size, side="left")
        tie = (code < len(halfway)) & (halfway[np.minimum(code, len(halfway) - 1)] == size)
        code = code + (tie & (code % 2 == 1))
    signed = code.astype(np.uint8) | (np.signbit(values).astype(np.uint8) << np.uint8(7))
    return np.where(np.isnan(values), _FP8_NAN, signed)


def changes() -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """Owner, name and replacement of each method that has to know these types."""
    for names, wrap in ((_ARITHMETIC, _arithmetic), (_COMPARISONS, _comparison), (_CASTS, _cast)):
        for name in names:
            original = getattr(InterpreterBuilder, name, None)
            if original is not None:
                yield InterpreterBuilder, name, wrap(original)
    yield InterpreterBuilder, "get_bf16", _constant
    yield InterpreterBuilder, "create_atomic_rmw", _atomic(InterpreterBuilder.create_atomic_rmw)


def is_bfloat16(value: Any) -> bool:
    """Whether a value of a kernel, or one in a tuple, is a tensor of bfloat16."""
    if isinstance(value, tuple):
        return any(map(is_bfloat16, value))
    return isinstance(value, tl.tensor) and _is_bfloat16(value.handle)


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16


def _is_fp8(value: Any) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar in _FP8


def _widen(value: Any) -> Any:
    if _is_bfloat16(value):
        return TensorHandle(widened(value.data), tl.float32)
    if _is_fp8(value):
        return TensorHandle(_fp8_values(value.dtype.scalar)[value.data], tl.float32)
    return value


def _round(value: TensorHandle) -> TensorHandle:
    return TensorHandle(rounded(value.data), tl.bfloat16)


def _arithmetic(original: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """The result has the type of the last tensor operand: all are alike, but for a dot's sum."""

    @functools.wraps(original)
    def method(self: Any, *operands: Any) -> TensorHandle:
        tensors = [operand for operand in operands if isinstance(operand, TensorHandle)]
        if not any(_is_bfloat16(each) or _is_fp8(each) for each in tensors):
            return original(self, *operands)
        result = original(self, *map(_widen, operands))
        return _round(result) if _is_bfloat16(tensors[-1]) else result

    return method


def _comparison(original: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    @functools.wraps(original)
    def method(self: Any, left: Any, right: Any) -> TensorHandle:
        return original(self, _widen(left), _widen(right))

    return method


def _cast(original: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    @functools.wraps(original)
    def method(self: Any, source: Any, kind: Any, *rest: Any) -> TensorHandle:
        target = kind.scalar
        wide = _widen(source)
        if target == tl.bfloat16 or target in _FP8:
            values = np.asarray(wide.data).astype(np.float32)
            toward_zero = ir.ROUNDING_MODE.RTZ in rest
            if target in _FP8:
                return TensorHandle(fp8_codes(values, target, toward_zero), target)
            return TensorHandle(truncated(values) if toward_zero else rounded(values), target)
        if wide is not source and target in _NUMPY_FLOATS:
            return TensorHandle(wide.data.astype(_NUMPY_FLOATS[target]), target)
        return original(self, wide, kind, *rest)

    return method


def _constant(self: Any, value: Any) -> TensorHandle:
    return TensorHandle(rounded(np.array([value], dtype=np.float32)), tl.bfloat16)


def _atomic(original: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    @functools.wraps(original)
    def method(self: Any, operation: Any, pointer: Any, value: Any, *rest: Any) -> TensorHandle:
        if _is_bfloat16(value):
            raise NotImplementedError("bfloat16 atomics are not supported in interpreter mode")
        return original(self, operation, pointer, value, *rest)

    return method
