"""Copies of whole tensors in CUDA graphs, by a kernel that can be pointed at other memory later.

A replay moves where a kernel reads and writes for a tenth of what moving a copy's node takes.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from trident import _C
from trident.errors import UnsupportedError
from trident.kernels import current_target, native_kernel, record_launch, specialize

# Memory is copied in rows of so many bytes where both sides are aligned to that, else byte by byte.
ROW_BYTES = 16
_ROWS_PER_BLOCK = 512
_MAX_ROWS = 2**31 - 1  # what the kernel takes: int32


def _copy_rows(to_ptr, from_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    place = row * WIDTH + tl.arange(0, WIDTH)[None, :]
    values = tl.load(from_ptr + place, mask=row < rows)
    tl.store(to_ptr + place, values, mask=row < rows)


_copy_aligned = triton.jit(do_not_specialize=["rows"])(_copy_rows)
_copy_bytes = triton.jit(do_not_specialize=["to_ptr", "from_ptr", "rows"])(_copy_rows)


class GraphCopies:
    """Copies on the current device. Made before a capture, in which nothing may be loaded.

    Attributes:
        launches: of the copies so far.

    Raises:
        Exception: whatever Triton's compiler or the driver raises.
    """

    def __init__(self) -> None:
        self.launches = _C.CapturedLaunches()
        device = torch.cuda.current_device()
        self._kernels = {aligned: _loaded_kernel(aligned, device) for aligned in (True, False)}

    def enqueue(
        self,
        to: torch.Tensor,
        source: torch.Tensor,
        *,
        input: int | None = None,
        output: int | None = None,
    ) -> int:
        """Copies a dense tensor's memory on the current stream, which is being captured.

        Args:
            to: where to; of as many bytes.
            source: where from.
            input: of the program, which is what is read and may move later.
            output: of the program, which is what is written and may move later.

        Returns:
            What addresses have to be multiples of, in bytes.

        Raises:
            UnsupportedError: the tensor is too large for a copy byte by byte.
        """
        total = source.numel() * source.element_size()
        aligned = (to.data_ptr() | source.data_ptr() | total) % ROW_BYTES == 0
        alignment = ROW_BYTES if aligned else 1
        if total:
            rows = total // alignment
            if rows > _MAX_ROWS:
                raise UnsupportedError(f"a copy of {total} bytes at an odd address")
            blocks = triton.cdiv(rows, _ROWS_PER_BLOCK)
            kernel = self._kernels[aligned]
            self.launches.copy(kernel, to, source, rows, blocks, input, output)
        return alignment


@functools.cache
def _loaded_kernel(aligned: bool, device: int) -> _C.Kernel:
    """The kernel on one GPU; it holds no tensor."""
    example = torch.empty(ROW_BYTES, dtype=torch.int32 if aligned else torch.int8, device="cuda")
    request, _ = record_launch(
        _copy_aligned if aligned else _copy_bytes,
        (example, example, ROW_BYTES),
        {"WIDTH": ROW_BYTES // 4 if aligned else 1, "ROWS": _ROWS_PER_BLOCK, "num_warps": 4},
        (1,),
        lambda tensor: tensor.data_ptr() % ROW_BYTES,
    )
    kernel = native_kernel(specialize(request, current_target()), "cuda")
    kernel.load(device)
    return kernel
