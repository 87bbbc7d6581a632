"""FlagGems' operator wrappers: 25 operators on five shapes each, in bfloat16.

    python benchmarks/flaggems.py [--modes eager,...] [--operators abs,...] [--output FILE]
    python benchmarks/flaggems.py --smoke

Host time of a call and wall time until the device is done, in microseconds, medians of calls that
each start from an idle device; device time of the wrappers and of Trident, measured last. Each
system runs in a process of its own; all of them measure one operator before the next, so a run that
is stopped keeps what it has. They compile an operator at the same time and measure one after the
other. FlagGems tunes once, before that: its caches are shared by the systems and new for each run.
Results are compared with the eager wrapper's, Trident's bit by bit. --smoke: small shapes, few
calls, without a GPU in Triton's interpreter; it proves that the benchmark runs and measures nothing
of interest.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # absent under PYTHONSAFEPATH

import common  # noqa: E402
from flaggems_operators import (  # noqa: E402
    FULL,
    OPERATORS,
    SMALL,
    Sizes,
    arguments,
    flag_gems,
    wrapper,
)

PREPARE, MEASURE, PROFILE = "prepare", "measure", "profile"
MODES = ("eager", "default", "skip-guards", "trident", "trident-stream")
DEFAULT_MODES = MODES[:4]
PROFILED = ("eager", "trident", "trident-stream")  # torch.compile has forgotten it by then
LABELS = {
    "default": "torch.compile",
    "skip-guards": "guards skipped",
    "trident": "Trident",
    "trident-stream": "Trident, no graphs",
}


def _system(mode: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if mode == "eager":
        return function
    if mode.startswith("trident"):
        import trident

        return trident.optimize(function, graphs=False if mode == "trident-stream" else "auto")
    torch._dynamo.reset()
    return torch.compile(function, dynamic=True)


def _check(mode: str, got: torch.Tensor, wanted: torch.Tensor) -> None:
    if mode.startswith("trident"):
        same = torch.equal(got.view(torch.uint8), wanted.view(torch.uint8))
    else:
        same = torch.allclose(got.float(), wanted.float(), rtol=0.05, atol=0.05, equal_nan=True)
    if not same:
        raise AssertionError("wrong result")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """An operator that a system has tuned and compiled, with the arguments of its five calls."""

    name: str
    run: Callable[..., Any]
    calls: list[tuple[Any, ...]]


def prepare(package: Any, mode: str, name: str, smoke: bool) -> Prepared:
    """Has a system compile an operator for all sizes, and compares what it returns."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        drawn = torch.randn(shape, device=device, generator=generator)
        return drawn.to(torch.bfloat16)

    def below(limit: int, *shape: int) -> torch.Tensor:
        return torch.randint(limit, shape, device=device, generator=generator)

    sizes = SMALL if smoke else FULL
    calls = [arguments(name, sizes, index, normal, below) for index in range(len(sizes.shapes))]
    function = wrapper(package, name)
    run = _system(mode, function)
    for given in calls:
        for _ in range(3):  # one that tunes, one that compiles, one that hits
            _check(mode, run(*given), function(*given))
    return Prepared(name, run, calls)


def measure(mode: str, prepared: Prepared, smoke: bool) -> list[dict[str, Any]]:
    """One result per size: host and wall time."""
    run = prepared.run
    stance: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if mode == "skip-guards":
        stance = torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
    found = []
    with stance:
        for index, given in enumerate(prepared.calls):

            def call(given: tuple[Any, ...] = given) -> Any:
                return run(*given)

            times = common.measure(call, *((2, 1) if smoke else (60, 15)))
            found.append(
                dict(
                    operator=prepared.name,
                    size=index,
                    mode=mode,
                    host_us=times.host_us,
                    wall_us=times.wall_us,
                )
            )
    if mode.startswith("trident"):
        found[-1]["stats"] = run.stats()  # type: ignore[attr-defined]
    return found


def profile(mode: str, prepared: Prepared) -> list[dict[str, Any]]:
    """One result per size: device time, and the number of device operations."""
    found = []
    for index, given in enumerate(prepared.calls):
        work, count = common.device_work(functools.partial(prepared.run, *given))
        found.append(
            dict(operator=prepared.name, size=index, mode=mode, device_us=work, operations=count)
        )
    return found


@torch.no_grad()
def worker(mode: str, smoke: bool) -> None:
    """Serves tasks on an operator, a line each: results, and then an empty one."""
    torch._dynamo.config.recompile_limit = 100
    prepared: dict[str, Prepared] = {}
    with flag_gems(smoke) as package:
        for line in sys.stdin:
            task, name = line.split()
            try:
                results = []
                if task == PREPARE:
                    prepared[name] = prepare(package, mode, name, smoke)
                elif task == MEASURE:
                    results = measure(mode, prepared[name], smoke)
                elif name in prepared:
                    results = profile(mode, prepared[name])
                for result in results:
                    common.emit(**result)
            except Exception as error:  # a system that cannot run an operator is a result, too
                text = f"{type(error).__name__}: {error}"
                common.emit(operator=name, mode=mode, error=text[:300])
            common.emit()


class Worker:
    """The parent's end of one system's process; started when needed, and again after a crash."""

    def __init__(self, mode: str, smoke: bool) -> None:
        self.mode = mode
        self._command = [sys.executable, __file__, "--worker", mode, *(["--smoke"] * smoke)]
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def ask(self, task: str, operator: str, timeout: float) -> list[dict[str, Any]]:
        """What comes of a task within `timeout` seconds, 0 for not at all.

        A result with the key ``error`` if it fails.
        """
        if not timeout:
            return [dict(operator=operator, mode=self.mode, error=common.NO_TIME)]
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        results: list[dict[str, Any]] = []
        try:
            self._process.stdin.write(f"{task} {operator}\n")
            self._process.stdin.flush()
            end = time.monotonic() + timeout
            while (line := self._next_line(end)) is not None:
                if not line.startswith(common.RESULT_MARK):
                    continue
                result = json.loads(line.removeprefix(common.RESULT_MARK))
                if not result:
                    if any("CUDA error" in each.get("error", "") for each in results):
                        self.stop()  # its context is of no more use
                    return results
                results.append(result)
            why = f"exit status {self._process.wait()}"
        except queue.Empty:
            why = f"no result within {timeout:.0f} s"
        except BrokenPipeError:
            why = f"exit status {self._process.wait()}"
        self.stop()
        return [*results, dict(operator=operator, mode=self.mode, error=why)]

    def _next_line(self, end: float) -> str | None:
        """The process's next line, None after its last; queue.Empty once it is too late."""
        return self._lines.get(timeout=max(end - time.monotonic(), 0.001))

    def _start(self) -> None:
        pipes: dict[str, Any] = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pipes["start_new_session"] = True  # compilers start processes that must not outlive it
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        process = self._process = subprocess.Popen(self._command, env=environment, **pipes)
        lines = self._lines = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()

    def stop(self) -> None:
        """Ends the process, if there is one."""
        if self._process is not None:
            common.end_group(self._process)
            self._process.wait()
            self._process = None


def _measured(
    workers: dict[str, Worker], operator: str, timeout: Callable[[], float]
) -> dict[str, list[dict[str, Any]]]:
    """By system, what it measures of an operator; what failed at compiling is not measured."""

    def prepared(mode: str) -> list[dict[str, Any]]:
        return workers[mode].ask(PREPARE, operator, timeout())

    first, *others = workers  # the first one tunes
    found = {first: prepared(first)}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found.update(zip(others, pool.map(prepared, others), strict=True))
    for mode, failed in found.items():
        found[mode] = failed or workers[mode].ask(MEASURE, operator, timeout())
    return found


def _add_device_times(
    workers: dict[str, Worker], results: list[dict[str, Any]], timeout: Callable[[], float]
) -> None:
    """Completes results by what the profiler says, and adds one for each failure."""
    by_place = {(r["mode"], r["operator"], r.get("size")): r for r in results}
    for mode, operator in dict.fromkeys((r["mode"], r["operator"]) for r in results):
        if mode in PROFILED:
            for found in workers[mode].ask(PROFILE, operator, timeout()):
                result = by_place.get((mode, operator, found.get("size")))
                results.append(found) if result is None else result.update(found)


def _row(title: str, modes: Sequence[str], found: dict[str, dict[str, Any]]) -> str:
    cells = [title.ljust(22)]
    for key in ("host_us", "wall_us"):
        for mode in modes:
            value = found.get(mode, {}).get(key)
            cells.append("-".rjust(9) if value is None else f"{value:9.1f}")
    return " ".join(cells)


def _title(name: str, sizes: Sizes, index: int) -> str:
    if name in ("embedding", "mm", "addmm", "bmm"):
        return f"{name} {sizes.rows[index]} rows"
    return f"{name} {'x'.join(map(str, sizes.shapes[index]))}"


def summary(results: list[dict[str, Any]], mode: str) -> list[str]:
    """How often a system beats the eager wrapper, in the geometric mean of an operator's sizes."""
    times = {(r["mode"], r["operator"], r["size"]): r for r in results if "error" not in r}
    lines = []
    for key, what in (("host_us", "host time"), ("wall_us", "end to end"), ("device_us", "device")):
        ratios: dict[str, list[float]] = {}
        for (found, operator, size), result in times.items():
            eager = times.get(("eager", operator, size))
            if found == mode and eager and eager.get(key) and result.get(key):
                ratios.setdefault(operator, []).append(eager[key] / result[key])
        means = {name: statistics.geometric_mean(each) for name, each in ratios.items()}
        if means:
            faster = sum(mean > 1 for mean in means.values())
            overall = statistics.geometric_mean(means.values())
            lines.append(
                f"{LABELS[mode]} against the eager wrapper, {what}: faster on {faster} of "
                f"{len(means)} operators, {overall:.2f}x in the geometric mean"
            )
    return lines


def _print_header(modes: Sequence[str]) -> None:
    print("\nHost time and wall time of a call, us\n")
    group = " ".join(LABELS.get(mode, mode)[:9].rjust(9) for mode in modes)
    print(" ".join(["operator".ljust(22), *[group] * 2]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--modes", help=f"comma list of {', '.join(MODES)}")
    parser.add_argument(
        "--operators", default=",".join(OPERATORS), help="comma list (default: all)"
    )
    parser.add_argument("--smoke", action="store_true", help="small and quick, GPU or not")
    parser.add_argument(
        "--timeout", type=float, default=180, help="seconds per operator and system"
    )
    parser.add_argument("--limit", type=float, default=3600, help="seconds for the whole run")
    parser.add_argument("--output", metavar="FILE", help="where to write the results as JSON")
    parser.add_argument("--worker", metavar="MODE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    here = torch.cuda.is_available()
    default = DEFAULT_MODES if here else ("eager", "trident")
    modes = common.chosen(options.modes or ",".join(default), MODES, "mode")
    operators = common.chosen(options.operators, OPERATORS, "operator")
    if not options.smoke:
        common.require_gpu()
    if options.worker:
        worker(options.worker, options.smoke)
        return 0

    facts = common.machine() if here else {"gpu": "none: a smoke run"}
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    sizes = SMALL if options.smoke else FULL
    results: list[dict[str, Any]] = []
    limit = common.TimeLimit(options.limit)
    workers = {mode: Worker(mode, options.smoke) for mode in modes}
    with tempfile.TemporaryDirectory() as caches:
        os.environ["FLAGGEMS_CACHE_DIR"] = caches
        try:
            _print_header(modes)
            for name in operators:
                found = _measured(workers, name, lambda: limit.left(options.timeout))
                results += [result for each in found.values() for result in each]
                for index in range(len(sizes.shapes)):
                    by_mode = {
                        mode: result
                        for mode, each in found.items()
                        for result in each
                        if result.get("size") == index
                    }
                    print(_row(_title(name, sizes, index), modes, by_mode), flush=True)
                for each in found.values():
                    for result in each:
                        if "error" in result:
                            print(f"  {name}, {result['mode']}: {result['error']}", flush=True)
                # A run that is stopped early keeps what it has measured.
                common.write_json(options.output, facts, results)
            if here:
                _add_device_times(workers, results, lambda: limit.left(options.timeout))
                common.write_json(options.output, facts, results)
        finally:
            for each in workers.values():
                each.stop()
    if options.output:
        print(f"Written: {options.output}")
    print()
    for mode in modes:
        if mode != "eager" and "eager" in modes:
            print("\n".join(summary(results, mode)))
    return 1 if common.ours_failed(results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
