"""Scalar kernel arguments as the bits that a launch passes, and back."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

# Bits of the types that a scalar parameter can have. A bool occupies a byte.
_INTEGER_BITS = {
    "u1": 8,
    "i1": 8,
    **{f"{sign}{bits}": bits for sign in "iu" for bits in (8, 16, 32, 64)},
}
_FLOAT_BITS = {"fp16": 16, "bf16": 16, "fp32": 32, "f32": 32, "fp64": 64}


def bit_width(type_name: str) -> int:
    """Width in bits of a parameter type such as ``i32``, ``u1``, ``fp32``, ``*bf16``.

    Raises:
        KeyError: not the type of a launch parameter.
    """
    if type_name.startswith("*"):
        return 64
    width = _INTEGER_BITS.get(type_name)
    return _FLOAT_BITS[type_name] if width is None else width


def is_integer(type_name: str) -> bool:
    """Whether a parameter type is an integer wider than a truth value."""
    return type_name in _INTEGER_BITS and type_name not in ("u1", "i1")


def pack_scalar(type_name: str, value: Any) -> int:
    """The value as the low bits of a uint64, converted as Triton's launcher converts it.

    Args:
        type_name: ``i8``..``i64``, ``u1``, ``u8``..``u64``, ``fp16``, ``bf16``, ``fp32``, ``fp64``,
            or a pointer type, for which None is the null pointer.
        value: int, bool, float, or None for a pointer.

    Raises:
        TypeError: a float where the kernel takes an integer, or no number at all.
        OverflowError: an integer outside of 64 bits, or a float outside of fp16.
    """
    if type_name.startswith("*"):
        address: int = 0 if value is None else value.__index__()
        if not 0 <= address < 2**64:
            raise OverflowError(f"address {address} does not fit 64 bits")
        return address
    width = bit_width(type_name)
    if type_name in _INTEGER_BITS:
        number = int(value.__index__()) if hasattr(value, "__index__") else None
        if number is None:
            raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
        if not -(2**63) <= number < 2**64:
            raise OverflowError(f"{number} does not fit 64 bits")
        return number & (2**width - 1)
    if not hasattr(value, "__float__"):
        raise TypeError(f"must be real number, not {type(value).__name__}")
    number_f = float(value)
    if type_name == "fp16":
        return int.from_bytes(struct.pack("<e", number_f), "little")
    if type_name == "fp64":
        return int.from_bytes(struct.pack("<d", number_f), "little")
    # ctypes converts as C does: out of range gives infinity, where struct raises.
    bits = int.from_bytes(bytes(ctypes.c_float(number_f)), "little")
    return bits >> 16 if type_name == "bf16" else bits


def unpack_scalar(type_name: str, bits: int) -> int | float | bool:
    """The Python number that bits stand for; the inverse of `pack_scalar` up to rounding."""
    width = bit_width(type_name)
    bits &= 2**width - 1
    if type_name.startswith("*") or type_name.startswith("u") or type_name == "i1":
        return bool(bits) if width == 8 and type_name in ("u1", "i1") else bits
    if type_name.startswith("i"):
        return bits - 2**width if bits >> (width - 1) else bits
    if type_name == "bf16":
        bits, type_name = bits << 16, "fp32"
    code = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}[type_name]
    result: float = struct.unpack(code, bits.to_bytes(struct.calcsize(code), "little"))[0]
    return result
