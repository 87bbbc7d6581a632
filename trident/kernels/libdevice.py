"""libdevice for the interpreter: what `triton.language.extra.libdevice` names, in numpy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, interpreter_semantic

_Function = Callable[..., Any]


def _vectorized(function: Callable[[float], float]) -> _Function:
    def guarded(value: float) -> float:
        if math.isnan(value):
            return value
        try:
            return function(value)
        except OverflowError:
            return math.inf
        except ValueError:  # a pole or outside of the domain
            return math.nan

    over = np.vectorize(guarded, otypes=[np.float64])
    return lambda values: over(values.astype(np.float64)).astype(values.dtype)


def _round_half_away(values: Any) -> Any:
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


def _fused_multiply_add(x: Any, y: Any, z: Any) -> Any:
    wide = np.longdouble if x.dtype == np.float64 else np.float64
    return (x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(x.dtype)


# Floating-point functions: the result has the type of the arguments.
_FLOAT: dict[str, _Function] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * x),
    "div_rn": np.divide,
    "erf": _vectorized(math.erf),
    "erfc": _vectorized(math.erfc),
    "exp": np.exp,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x - y, 0)),
    "floor": np.floor,
    "fma": _fused_multiply_add,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "lgamma": _vectorized(math.lgamma),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "max": np.fmax,
    "min": np.fmin,
    "nearbyint": np.rint,
    "pow": np.power,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rint": np.rint,
    "round": _round_half_away,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": lambda x: np.sin(np.pi * x),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": _vectorized(math.gamma),
    "trunc": np.trunc,
}
_FAST = {
    "fast_cosf": "cos",
    "fast_dividef": "div_rn",
    "fast_exp10f": "exp10",
    "fast_expf": "exp",
    "fast_log10f": "log10",
    "fast_log2f": "log2",
    "fast_logf": "log",
    "fast_powf": "pow",
    "fast_sinf": "sin",
    "fast_tanf": "tan",
    "fast_tanhf": "tanh",
    "fmax": "max",
    "fmin": "min",
    "rsqrt_rn": "rsqrt",
    "sqrt_rn": "sqrt",
}
# Predicates: int32, 0 or 1.
_PREDICATE: dict[str, _Function] = {
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "signbit": np.signbit,
}


@functools.cache
def implementation(name: str) -> _Function:
    """The libdevice function `name` over the interpreter's tensors.

    Raises, when it is called:
        NotImplementedError: the function is not available on the CPU.
        ValueError: an argument is neither fp32 nor fp64 (as the compiler refuses it).
    """
    function = _FLOAT.get(_FAST.get(name, name))
    predicate = _PREDICATE.get(name)

    def apply(*args: Any, **_: Any) -> Any:
        compute = function or predicate
        if compute is None:
            raise NotImplementedError(f"libdevice.{name} is not supported in interpreter mode")
        tensors = [interpreter_semantic.to_tensor(arg) for arg in args]
        kinds = {tensor.dtype for tensor in tensors}
        kind = tl.float64 if tl.float64 in kinds else tl.float32
        if not kinds <= {tl.float32, tl.float64}:
            raise ValueError(f"libdevice.{name} takes fp32 or fp64, got {sorted(map(str, kinds))}")
        numpy_kind: Any = np.float64 if kind == tl.float64 else np.float32
        data = compute(*(tensor.handle.data.astype(numpy_kind) for tensor in tensors))
        if function is None:
            kind, numpy_kind = tl.int32, np.int32
        data = np.asarray(data, dtype=numpy_kind)
        is_block = any(tensor.type.is_block() for tensor in tensors)
        result_type = tl.block_type(kind, list(data.shape)) if is_block else kind
        return tl.tensor(TensorHandle(data, kind), result_type)

    return apply
