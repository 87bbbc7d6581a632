"""Element types: PyTorch's dtype, c10's enumeration value, and the type's spelling in MLIR."""

from __future__ import annotations

import torch

from trident.errors import UnsupportedError

# name in torch -> (c10::ScalarType, MLIR). The values are part of PyTorch's serialization format
# (c10/core/ScalarType.h); names that the installed torch lacks are skipped.
_TABLE = {
    "uint8": (0, "ui8"),
    "int8": (1, "si8"),
    "int16": (2, "si16"),
    "int32": (3, "si32"),
    "int64": (4, "si64"),
    "float16": (5, "f16"),
    "float32": (6, "f32"),
    "float64": (7, "f64"),
    "complex32": (8, "complex<f16>"),
    "complex64": (9, "complex<f32>"),
    "complex128": (10, "complex<f64>"),
    "bool": (11, "i1"),
    "bfloat16": (15, "bf16"),
    "float8_e5m2": (23, "f8E5M2"),
    "float8_e4m3fn": (24, "f8E4M3FN"),
    "float8_e5m2fnuz": (25, "f8E5M2FNUZ"),
    "float8_e4m3fnuz": (26, "f8E4M3FNUZ"),
    "uint16": (27, "ui16"),
    "uint32": (28, "ui32"),
    "uint64": (29, "ui64"),
    "float8_e8m0fnu": (44, "f8E8M0FNU"),
}

_CODES: dict[torch.dtype, int] = {}
_SPELLINGS: dict[torch.dtype, str] = {}
_BY_SPELLING: dict[str, torch.dtype] = {}
for _name, (_code, _spelling) in _TABLE.items():
    if hasattr(torch, _name):
        _dtype = getattr(torch, _name)
        _CODES[_dtype] = _code
        _SPELLINGS[_dtype] = _spelling
        _BY_SPELLING[_spelling] = _dtype

LAYOUT_CODES = {torch.strided: 0}

MEMORY_FORMAT_CODES = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


def code(dtype: torch.dtype) -> int:
    """The value of c10::ScalarType. Raises UnsupportedError for types Trident does not know."""
    try:
        return _CODES[dtype]
    except KeyError:
        raise UnsupportedError(f"tensors of dtype {dtype} are not supported") from None


def spelling(dtype: torch.dtype) -> str:
    """The element type as MLIR writes it. Raises UnsupportedError for unknown types."""
    try:
        return _SPELLINGS[dtype]
    except KeyError:
        raise UnsupportedError(f"tensors of dtype {dtype} are not supported") from None


def from_spelling(text: str) -> torch.dtype:
    """The dtype that ``spelling`` wrote as ``text``."""
    return _BY_SPELLING[text]
