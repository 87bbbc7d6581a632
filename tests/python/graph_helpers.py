"""What the tests of CUDA graphs share: a kernel, and what became of a capture."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from trident import _C
from trident.graphs import HITS_BEFORE_CAPTURE
from trident.optimize import optimizer_of

WARM = HITS_BEFORE_CAPTURE + 2  # after so many calls a graph has been replayed


@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * 2 + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def record_of(fast: Any) -> Any:
    return _C.entries(optimizer_of(fast).scm)[0][0]
