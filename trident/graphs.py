"""Graph mode: a specialization that keeps hitting becomes one CUDA graph."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

import trident._C as _C

if TYPE_CHECKING:
    from trident.pipeline import SpecializationRecord

logger = logging.getLogger("trident")

# A capture pauses the device once, so `graphs="auto"` waits for a specialization to prove itself.
HITS_BEFORE_CAPTURE = 3
HITS_BEFORE_AUTOMATIC_CAPTURE = 8

# Larger inputs are not copied before each replay; the graph serves them where they lie.
MAX_STAGED_BYTES = 64 * 1024


def capture_graph(
    program: _C.Program, record: SpecializationRecord, inputs: list[torch.Tensor]
) -> _C.GraphReplay | None:
    """Captures a host program with the inputs of one call, which is not run by that.

    Small arguments that the program only reads are staged: the graph reads copies of its own. All
    other inputs must lie at the same addresses in later calls; a call where one does not runs in
    stream mode.

    Returns:
        The replay, or None where the program cannot be captured; `record.graph` says which.
    """
    if not any(tensor.is_cuda for tensor in inputs):
        record.graph = "no input is on a GPU"
        return None
    if record.graph_obstacle is not None:
        record.graph = record.graph_obstacle
        return None
    if program.launches == 0 and record.operators == 0:
        record.graph = "nothing to run"
        return None
    staged = [
        index in record.argument_inputs
        and index not in record.written_inputs
        and tensor.numel() * tensor.element_size() <= MAX_STAGED_BYTES
        and tensor.is_contiguous()
        for index, tensor in enumerate(inputs)
    ]
    written = [index in record.written_inputs for index in range(len(inputs))]
    device = next(tensor.device for tensor in inputs if tensor.is_cuda)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.device(device):
            own = [
                tensor.detach().clone() if copied else tensor
                for tensor, copied in zip(inputs, staged, strict=True)
            ]
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                outputs = program.run(own)
            torch.cuda.current_stream().wait_stream(side)
    except RuntimeError as error:
        record.graph = f"capture failed: {error}"
        logger.warning("%s stays in stream mode: %s", program.name, record.graph)
        return None
    if not all(_is_dense(output) for output in outputs):
        record.graph = "an output has gaps"
        return None
    record.cuda_graph = graph  # owns the instantiated graph and its memory
    record.graph = f"captured; {sum(staged)} inputs staged"
    logger.info("%s: specialization %d %s", program.name, record.index, record.graph)
    return _C.GraphReplay(
        graph.raw_cuda_graph_exec(), device.index or 0, own, staged, written, outputs
    )


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one block of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
