"""One Markdown table and plots out of what the benchmarks of one run wrote as JSON.

    python benchmarks/report.py build/bench/*.json --output build/bench/report

Reads the files of host_overhead.py (results with a ``case``), decode.py (a ``model``), prefill.py
(a ``prefill``) and flaggems.py (an ``operator``), writes ``report.md`` and, with matplotlib (`pip
install 'trident[bench]'`), PNG plots: host time against the number of kernels, specializations and
parameters, and the decode step beside the sum of its kernels and other systems.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import re
import statistics
import sys
from collections.abc import Sequence
from typing import Any

# Systems in the order of the table's columns. Others follow as they come.
LABELS = {
    "floor": "floor",
    "eager": "eager",
    "default": "torch.compile",
    "skip-guards": "torch.compile, guards skipped",
    "reduce-overhead": "torch.compile, reduce-overhead",
    "cuda-graph": "hand-captured graph",
    "trident": "Trident",
    "trident-stream": "Trident, graphs=False",
}
# Cases whose name ends in the number that the plot's axis shows.
SERIES = {
    "kernels": ("chain", "kernels in a chain"),
    "specializations": ("specs", "specializations"),
    "parameters": ("params", "parameters"),
}
SAME_RUN = ("gpu", "driver", "processor", "python", "torch", "triton", "trident")

Result = dict[str, Any]
Times = dict[str, float]  # by system


class Mixed(ValueError):
    """The files come from different machines or versions."""


def read(paths: Sequence[pathlib.Path]) -> tuple[dict[str, str], list[Result]]:
    """The machine of a run and all its results that are no errors.

    Raises:
        Mixed: the files are not of one run; a table of them would compare what cannot be compared.
        ValueError: a file is not what a benchmark writes.
    """
    machine: dict[str, str] = {}
    results: list[Result] = []
    for path in paths:
        content = json.loads(path.read_text())
        if not isinstance(content, dict) or not {"machine", "results"} <= content.keys():
            raise ValueError(f"{path} was not written by a benchmark of Trident's")
        facts = content["machine"]
        for key in SAME_RUN:
            if machine.get(key, facts.get(key)) != facts.get(key, machine.get(key)):
                raise Mixed(f"{path}: {key} {facts[key]}, elsewhere {machine[key]}")
        machine = {**facts, **machine}
        results += [each for each in content["results"] if "error" not in each]
    return machine, results


def host_times(results: Sequence[Result]) -> dict[str, Times]:
    """Host microseconds of a call, by case and system."""
    found: dict[str, Times] = {}
    for each in results:
        if "case" in each and "host_us" in each:
            found.setdefault(each["case"], {})[each["mode"]] = each["host_us"]
    return found


def decode_times(results: Sequence[Result], key: str) -> dict[str, Times]:
    """Milliseconds of a decode step, by model and system; ``floor`` is the sum of its kernels.

    Every system runs other kernels, so the floor is that of the hand-captured graph, which runs
    eager's; without one, the least of all.
    """
    found: dict[str, Times] = {}
    device: dict[str, Times] = {}
    for each in results:
        if "model" in each and key in each:
            found.setdefault(each["model"], {})[each["mode"]] = each[key]
            device.setdefault(each["model"], {})[each["mode"]] = each["device_ms"]
    if key == "wall_ms":
        for model, times in found.items():
            sums = device[model]
            times["floor"] = sums.get("cuda-graph", min(sums.values()))
    return found


def prefill_times(results: Sequence[Result], key: str) -> dict[str, Times]:
    """Milliseconds of a prefill, by model and system."""
    found: dict[str, Times] = {}
    for each in results:
        if "prefill" in each:
            found.setdefault(each["prefill"], {})[each["mode"]] = each[key]
    return found


def operator_times(results: Sequence[Result]) -> tuple[int, Times]:
    """Of operators measured with every system: how many, and the geometric mean of host times."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for each in results:
        if "operator" in each and "host_us" in each:
            place = (each["operator"], each["size"])
            found.setdefault(each["mode"], {})[place] = each["host_us"]
    common = set.intersection(*map(set, found.values())) if found else set()
    means = {
        mode: statistics.geometric_mean([times[place] for place in common])
        for mode, times in found.items()
        if common
    }
    return len(common), means


def series(times: dict[str, Times], prefix: str) -> dict[str, list[tuple[int, float]]]:
    """Points (number in the case's name, microseconds) by system, ascending."""
    found: dict[str, list[tuple[int, float]]] = {}
    for case, by_system in times.items():
        match = re.fullmatch(prefix + r"(\d+)", case)
        if match is None:
            continue
        for system, value in by_system.items():
            found.setdefault(system, []).append((int(match.group(1)), value))
    return {system: sorted(points) for system, points in found.items()}


def table(results: Sequence[Result]) -> str:
    """All measures by system, as Markdown."""
    rows: list[tuple[str, Times]] = [
        (f"{case}, host us", times) for case, times in host_times(results).items()
    ]
    for key, unit in (("host_ms", "host"), ("wall_ms", "wall")):
        for model, times in decode_times(results, key).items():
            rows.append((f"decode {model}, {unit} ms", times))
    for key, unit in (("host_ms", "host"), ("device_ms", "device"), ("wall_ms", "wall")):
        for model, times in prefill_times(results, key).items():
            rows.append((f"prefill {model}, {unit} ms", times))
    count, means = operator_times(results)
    if means:
        rows.append((f"FlagGems, {count} cases, geometric mean of host us", means))
    seen = dict.fromkeys(system for _, times in rows for system in times)
    systems = [each for each in LABELS if each in seen] + [
        each for each in seen if each not in LABELS
    ]
    header = ["", *(LABELS.get(system, system) for system in systems)]
    lines = [header, ["---", *("---:" for _ in systems)]]
    for name, times in rows:
        lines.append([name, *(_number(times.get(system)) for system in systems)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def describe(machine: dict[str, str]) -> str:
    """The machine, versions and date in one sentence."""
    return ", ".join(f"{key} {value}" for key, value in machine.items()) + "."


def plot(results: Sequence[Result], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the plots for which there are results; returns their paths.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    written = []
    times = host_times(results)
    for name, (prefix, title) in SERIES.items():
        lines = series(times, prefix)
        if not lines:
            continue
        figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for system in sorted(lines, key=_order):
            style = "--" if system == "floor" else "-"
            axes.plot(*zip(*lines[system], strict=True), style, marker="o", label=_label(system))
        axes.set(xlabel=title, ylabel="host time of a call, us", xscale="log", yscale="log")
        axes.legend(fontsize="small")
        written.append(_save(figure, folder / f"host_{name}.png", pyplot))
    for model, by_system in decode_times(results, "wall_ms").items():
        figure, axes = pyplot.subplots(figsize=(6, 3), layout="constrained")
        systems = sorted(by_system, key=_order, reverse=True)
        bars = axes.barh([_label(s) for s in systems], [by_system[s] for s in systems])
        axes.bar_label(bars, fmt="%.3g", padding=3)
        axes.axvline(by_system["floor"], linestyle="--", color="black", linewidth=1)
        axes.set(xlabel="wall time of a decode step, ms", title=model)
        written.append(_save(figure, folder / f"decode_{model}.png", pyplot))
    return written


def _order(system: str) -> int:
    return list(LABELS).index(system) if system in LABELS else len(LABELS)


def _label(system: str) -> str:
    return LABELS.get(system, system)


def _save(figure: Any, path: pathlib.Path, pyplot: Any) -> pathlib.Path:
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="JSON files of one run")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."), metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        machine, results = read(options.files)
    except (OSError, ValueError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        plots = plot(results, options.output)
    except ModuleNotFoundError as error:
        plots = []
        print(f"No plots: {error}. Run: pip install 'trident[bench]'", file=sys.stderr)
    images = "".join(f"\n![{path.stem}]({path.name})\n" for path in plots)
    target = options.output / "report.md"
    target.write_text(f"{table(results)}\n{describe(machine)}\n{images}")
    for path in (target, *plots):
        print(f"Written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
