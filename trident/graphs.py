"""Graph mode: a specialization that keeps hitting becomes one CUDA graph."""

from __future__ import annotations

import enum
import logging
import types
from typing import TYPE_CHECKING

import torch

import trident._C as _C
from trident import graph_places
from trident.errors import NotPreparedError
from trident.graph_copies import GraphCopies

if TYPE_CHECKING:
    from trident.pipeline import SpecializationRecord

logger = logging.getLogger("trident")

# A capture takes the time of a few hundred calls, so `graphs="auto"` waits for a specialization to
# prove itself.
HITS_BEFORE_CAPTURE = 3
HITS_BEFORE_AUTOMATIC_CAPTURE = 8

# Larger inputs are not copied before each replay; the graph serves them where they lie.
MAX_STAGED_BYTES = 64 * 1024
# Unless they keep moving: copying so many bytes takes the device less time than the host takes for
# one kernel that it launches by itself.
MAX_MOVED_BYTES_PER_KERNEL = 1024 * 1024
MAX_MOVED_BYTES = 32 * 1024 * 1024
# A small input that moves is copied by one kernel of the graph, or so many are pointed at it.
MAX_POINTERS_OF_SMALL = 2


def check_may_compile(name: str, what: str) -> None:
    """Refuses to compile inside a user's graph capture, which compiling would break or fall into.

    Args:
        name: of the optimized callable.
        what: has not been compiled.

    Raises:
        NotPreparedError: the current stream is being captured.
    """
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise NotPreparedError(
            f"{name} has not been compiled for {what}, and nothing can be compiled while a CUDA "
            "graph is captured: call prepare() with the same arguments before"
        )


def capture_graph(
    program: _C.Program,
    record: SpecializationRecord,
    inputs: list[torch.Tensor],
    symbols: list[int],
    moved: set[int],
) -> _C.GraphReplay | types.NotImplementedType | None:
    """Captures a host program with the inputs of one call, which is not run by that.

    Launches are pointed at inputs and outputs that nothing else touches, wherever these lie in a
    call. Other arguments that the program only reads and that are small, or that ``moved`` since
    the last capture, are staged: the graph first copies them into tensors of its own, and other
    outputs to the caller's last; where from and to is set at each replay. All other inputs must lie
    at the same addresses in later calls; a call where one does not runs in stream mode, as does one
    where the program's symbols have other values than ``symbols``.

    Returns:
        The replay, or None where the program cannot be captured; `record.graph` says why.
        NotImplemented while the user captures a graph: a later call may be captured.
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
    device = next(tensor.device for tensor in inputs if tensor.is_cuda)
    with graph_places.lock, torch.no_grad(), torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return NotImplemented
        return _capture(program, record, inputs, symbols, moved)


def _capture(
    program: _C.Program,
    record: SpecializationRecord,
    inputs: list[torch.Tensor],
    symbols: list[int],
    moved: set[int],
) -> _C.GraphReplay | None:
    limit = min(MAX_MOVED_BYTES, (program.launches + record.operators) * MAX_MOVED_BYTES_PER_KERNEL)
    pointers = program.input_pointers
    ways = [
        _way_in(
            record,
            index,
            tensor,
            limit if index in moved else MAX_STAGED_BYTES,
            pointers.get(index, 0),
        )
        for index, tensor in enumerate(inputs)
    ]
    own = [
        torch.empty_like(tensor) if way is _Way.STAGED else None
        for way, tensor in zip(ways, inputs, strict=True)
    ]
    pointed_outputs = program.output_pointers
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    launches = _C.CapturedLaunches()
    try:
        copies = GraphCopies()
        with graph_places.capturing(graph):
            alignments = [
                1 if mine is None else copies.enqueue(mine, theirs, input=index)
                for index, (mine, theirs) in enumerate(zip(own, inputs, strict=True))
            ]
            read = [
                theirs if mine is None else mine for mine, theirs in zip(own, inputs, strict=True)
            ]
            outputs = program.capture(read, symbols, launches)
            # Whatever the caller gets instead of these is copied to by the same kernels.
            given = [
                None
                if index in pointed_outputs and not _is_part(output)
                else torch.empty_like(output)
                for index, output in enumerate(outputs)
            ]
            for index, (output, callers) in enumerate(zip(outputs, given, strict=True)):
                if callers is not None:
                    copies.enqueue(callers, output, output=index)
    except Exception as error:
        record.graph = f"capture failed: {error}"
        logger.warning("%s stays in stream mode: %s", program.name, record.graph)
        return None
    if not all(_is_dense(output) for output in outputs):
        record.graph = "an output has gaps"
        return None
    try:
        replay = _C.GraphReplay(
            graph,
            torch.cuda.current_device(),
            [
                _C.CapturedInput(
                    own=own[index],
                    callers=tensor,
                    argument=index in record.argument_inputs,
                    pointed=ways[index] is _Way.POINTED,
                    written=index in record.written_inputs,
                    launched=index in record.launched_inputs,
                    alignment=alignments[index],
                )
                for index, tensor in enumerate(inputs)
            ],
            list(zip(outputs, given, strict=True)),
            launches,
            copies.launches,
        )
    except Exception as error:
        record.graph = f"the captured graph cannot be used: {error}"
        logger.warning("%s stays in stream mode: %s", program.name, record.graph)
        return None
    values = f" for {symbols} in place of the symbols" if symbols else ""
    record.graph = (
        f"captured{values}; {ways.count(_Way.STAGED)} inputs staged, "
        f"{sum(each is not None for each in given)} of {len(given)} outputs copied"
    )
    logger.info("%s: specialization %d %s", program.name, record.index, record.graph)
    return replay


class _Way(enum.Enum):
    """How an input reaches the kernels of a graph."""

    FIXED = enum.auto()
    STAGED = enum.auto()
    POINTED = enum.auto()


def _way_in(
    record: SpecializationRecord, index: int, tensor: torch.Tensor, limit: int, pointers: int
) -> _Way:
    """How an input is to reach the kernels.

    Args:
        limit: of what is copied, in bytes.
        pointers: how many kernels would have to be pointed at it; 0 where others than launches use
            it.
    """
    can_be_staged = (
        index in record.argument_inputs
        and index not in record.written_inputs
        and _can_be_staged(tensor, limit)
        and not (index in record.launched_inputs and _is_part(tensor))
    )
    if pointers and (pointers <= MAX_POINTERS_OF_SMALL or not can_be_staged):
        return _Way.POINTED
    return _Way.STAGED if can_be_staged else _Way.FIXED


def _can_be_staged(tensor: torch.Tensor, limit: int) -> bool:
    size = tensor.numel() * tensor.element_size()
    return tensor.is_cuda and tensor.is_contiguous() and 0 < size <= limit


def _is_part(tensor: torch.Tensor) -> bool:
    """Whether the storage holds more than a dense tensor, which a kernel may read or write, too."""
    return tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes()


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
