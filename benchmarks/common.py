"""What the benchmarks share: timing, device time, machine facts, worker processes, tables, JSON."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import datetime
import gc
import importlib.metadata
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

NO_TIME = "not run: no time was left"
RESULT_MARK = "RESULT "  # starts a worker's lines of JSON, among whatever compilers print


@dataclasses.dataclass(frozen=True)
class Times:
    """Median times of one call in microseconds: until it returns, and until the device is done."""

    host_us: float
    wall_us: float


class TimeLimit:
    """How long a run may still take: some machines are to be had for minutes only."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self, at_most: float) -> float:
        """Seconds until the end, or `at_most`; 0 where less than ten are left."""
        left = self._end - time.monotonic()
        return min(left, at_most) if left >= 10 else 0


def require_gpu() -> None:
    """Exits with status 2 and one sentence where there is no GPU to measure on."""
    if not torch.cuda.is_available():
        print(
            "The benchmarks need an NVIDIA GPU: torch.cuda.is_available() is False here "
            f"(torch {torch.__version__}).",
            file=sys.stderr,
        )
        raise SystemExit(2)


def measure(call: Callable[[], object], repeat: int, warmup: int) -> Times:
    """Times `repeat` calls, each from an idle device, after `warmup` calls that are not counted."""
    for _ in range(warmup):
        call()
    host, wall = [], []
    for _ in range(repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        returned = time.perf_counter()
        torch.cuda.synchronize()
        done = time.perf_counter()
        host.append((returned - start) * 1e6)
        wall.append((done - start) * 1e6)
    return Times(statistics.median(host), statistics.median(wall))


def device_work(call: Callable[[], object]) -> tuple[float, int]:
    """Device time of a call in microseconds (kernels, copies, fills added up), and their number.

    Nothing may be timed after this in the same process: the profiler's library (CUPTI) stays, and
    makes launches dearer, by 0.2 to 0.5 us for each node of a CUDA graph.
    """
    activities = [torch.profiler.ProfilerActivity.CUDA]
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sum(e.time_range.elapsed_us() for e in events), len(events)


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory that PyTorch held during one call, what it held before included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def held_bytes(call: Callable[[], object]) -> int:
    """What is held after one call more than before it, its results aside."""
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    gc.collect()
    return torch.cuda.memory_allocated() - before


def first_call(call: Callable[[], object]) -> float:
    """Seconds of one call, compilation included, until the device is done."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def hand_captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The call as a CUDA graph captured by hand: what replaying the same kernels costs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    return graph


def count_work(call: Callable[[], object]) -> int:
    """How many kernels, copies and fills a call launches, without a profiler."""
    graph = hand_captured(call)
    count = ctypes.c_size_t()
    status = ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(
        ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count)
    )
    if status:
        raise RuntimeError(f"cuGraphGetNodes failed with CUresult {status}")
    return count.value


def machine() -> dict[str, str]:
    """The facts that a figure depends on."""
    packages = {}
    names = (
        "torch",
        "triton",
        "transformers",
        "liger-kernel",
        "flag-gems",
        "torch-mlir",
        "trident",
    )
    for name in names:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    processor = platform.processor() or platform.machine()
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = models[0].split(":", 1)[1].strip() if models else processor
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True).stdout.split()
    except FileNotFoundError:
        driver = []
    return {
        "date": datetime.date.today().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "driver": driver[0] if driver else "unknown",
        "processor": processor,
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **packages,
    }


def emit(**result: object) -> None:
    """A worker's result, for `run_worker` to read."""
    print(RESULT_MARK + json.dumps(result), flush=True)


def end_group(process: subprocess.Popen[str]) -> None:
    """Ends a process that leads a group, and whatever it started there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run_worker(script: str, arguments: Sequence[str], timeout: float) -> list[dict[str, Any]]:
    """Runs one system in its own process (compilers leave state behind); returns what it emitted.

    A worker that fails or takes longer than `timeout` seconds, 0 for none to be started, adds a
    result with the key ``error`` to what it emitted until then.
    """
    if not timeout:
        return [{"error": NO_TIME}]
    command = [sys.executable, script, "--worker", *arguments]
    pipes: dict[str, Any] = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A group of its own: compilers start processes that must not outlive the worker.
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
            error = ""
            if process.returncode:
                error = (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
                print(errors[-4000:], file=sys.stderr)
        except subprocess.TimeoutExpired:
            end_group(process)
            output, _ = process.communicate()
            error = f"no result within {timeout:.0f} s"
        finally:
            end_group(process)
    lines = [line for line in output.splitlines() if line.startswith(RESULT_MARK)]
    results: list[dict[str, Any]] = [json.loads(line.removeprefix(RESULT_MARK)) for line in lines]
    return [*results, {"error": error}] if error else results


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An aligned text table; floats get three significant places after the point at most."""

    def text(cell: object) -> str:
        if cell is None:
            return "-"
        if isinstance(cell, float):
            return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
        return str(cell)

    lines = [list(header)] + [[text(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def write_json(path: str | None, facts: dict[str, str], results: list[dict[str, Any]]) -> None:
    """Writes the results of one run with the machine's facts as JSON; without a path, nothing."""
    if path is None:
        return
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")


def ours_failed(results: Iterable[dict[str, Any]]) -> bool:
    """Whether a result of Trident or eager is an error; one of a peer is a result like others."""
    ours = ("eager", "trident", "trident-stream")
    return any(
        "error" in result and result["error"] != NO_TIME and result["mode"] in ours
        for result in results
    )


def parser(script_doc: str | None, modes: Sequence[str]) -> argparse.ArgumentParser:
    """The options that every benchmark of systems takes; `modes` are the systems."""
    made = argparse.ArgumentParser(description=script_doc.splitlines()[0] if script_doc else None)
    made.add_argument("--modes", default=",".join(modes), help="comma list (default: all)")
    made.add_argument("--timeout", type=float, default=150, help="seconds per system")
    made.add_argument("--limit", type=float, default=3600, help="seconds for the whole run")
    made.add_argument("--output", metavar="FILE", help="where to write the results as JSON")
    made.add_argument("--worker", metavar="JOB", help=argparse.SUPPRESS)
    return made


def chosen(text: str, known: Sequence[str], what: str) -> list[str]:
    """A comma-separated choice out of `known`; for a wrong word, exits with their list."""
    words = [word for word in text.split(",") if word]
    wrong = [word for word in words if word not in known]
    if wrong or not words:
        shown = ", ".join(wrong) or repr(text)
        raise SystemExit(f"Unknown {what} {shown}; there are: {', '.join(known)}")
    return words
