"""Where CUDA graphs are captured: the memory and the stream that all graphs of one stream share."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import torch

from trident.collection import no_garbage_collection


@dataclasses.dataclass(frozen=True)
class _Place:
    """What all graphs that are replayed on one stream share.

    Their replays never overlap, and a graph's memory holds nothing between replays, so they can
    have the same memory. PyTorch reuses a block only for the stream that it was made for: hence one
    side stream. A pool whose graphs are all gone is not taken again while any of its memory is in
    use, and cuBLAS's workspace of the side stream always is: hence the anchor.
    """

    pool: Any  # what torch.cuda.graph_pool_handle gives
    side: torch.cuda.Stream
    anchor: torch.cuda.CUDAGraph  # of one operator; never replayed


# One capture at a time: they share a pool and a side stream.
lock = threading.RLock()
_places: dict[tuple[int, int], _Place] = {}
# Graphs whose capture failed. PyTorch's allocators may go on asking them which stream they capture.
_spoilt: list[torch.cuda.CUDAGraph] = []


@contextlib.contextmanager
def capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Captures what the current stream would run, with `lock` held.

    Raises:
        Exception: what the body or the capture raises; further captures are possible all the same.
    """
    key = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    if key not in _places:
        _places[key] = _new_place()
    try:
        with _capturing_in(_places[key], graph):
            yield
    except Exception:
        _places[key] = _recover(graph, _places[key])
        raise


def _new_place() -> _Place:
    """A place for the current stream of the current device."""
    place = _Place(torch.cuda.graph_pool_handle(), torch.cuda.Stream(), torch.cuda.CUDAGraph())
    mark = torch.zeros(1, device="cuda")
    with _capturing_in(place, place.anchor):
        mark.zero_()
    return place


@contextlib.contextmanager
def _capturing_in(place: _Place, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Captures on the side stream, which is left even where that fails.

    Not `torch.cuda.graph`, which first stops the device and empties PyTorch's cache of memory: the
    caller's program goes on with what it has there.
    """
    current = torch.cuda.current_stream()
    place.side.wait_stream(current)
    torch.cuda.set_stream(place.side)
    try:
        with no_garbage_collection():  # nothing of the caller's is to be destroyed in a capture
            graph.capture_begin(pool=place.pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                graph.capture_end()
    finally:
        torch.cuda.set_stream(current)
    current.wait_stream(place.side)


def _recover(graph: torch.cuda.CUDAGraph, place: _Place) -> _Place:
    """A place for further captures after one has failed.

    PyTorch's allocator then goes on routing memory to the pool, which keeps it from returning any,
    and the generator of random numbers takes a capture for under way until the next one ends.
    """
    _spoilt.append(graph)
    with contextlib.suppress(RuntimeError):  # where that capture was ended after all
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), place.pool)
    return _new_place()
