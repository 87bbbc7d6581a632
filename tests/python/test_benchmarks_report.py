"""benchmarks/report.py on the results of a small run."""

import importlib
import importlib.util
import json
import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"

MACHINE = {"date": "2026-11-01", "gpu": "Some GPU", "torch": "2.14", "trident": "0.1.0"}
HOST = [
    {"mode": "floor", "case": "chain1", "host_us": 3.1, "kernels": 1},
    {"mode": "eager", "case": "chain1", "host_us": 37.0},
    {"mode": "trident", "case": "chain1", "host_us": 9.46},
    {"mode": "trident", "case": "chain50", "host_us": 195.4},
    {"mode": "trident", "case": "chain10", "host_us": 45.0},
    {"mode": "trident", "case": "specs4", "host_us": 8.0},
    {"mode": "trident", "case": "params100", "host_us": 9.9},
    {"mode": "default", "case": "chain1", "error": "RuntimeError: no"},
]
DECODE = [
    {"model": "small", "mode": "eager", "host_ms": 27.0, "device_ms": 1.7, "wall_ms": 27.5},
    {"model": "small", "mode": "cuda-graph", "host_ms": 0.01, "device_ms": 1.8, "wall_ms": 1.9},
    {"model": "small", "mode": "trident", "host_ms": 0.02, "device_ms": 1.8, "wall_ms": 1.91},
]

PREFILL = [{"prefill": "small", "mode": "trident", "host_ms": 3, "device_ms": 5, "wall_ms": 5.1}]


@pytest.fixture(scope="module")
def report():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("report")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "host.json", tmp_path / "decode.json", tmp_path / "prefill.json"]
    for path, results in zip(paths, (HOST, DECODE, PREFILL), strict=True):
        path.write_text(json.dumps({"machine": MACHINE, "results": results}))
    return paths


def test_table_has_a_row_per_measure_and_a_column_per_system(report, files):
    _, results = report.read(files)
    lines = report.table(results).splitlines()
    assert lines[0] == "|  | floor | eager | hand-captured graph | Trident |"
    assert "| chain1, host us | 3.1 | 37 | - | 9.46 |" in lines
    assert "| chain50, host us | - | - | - | 195 |" in lines
    assert "| decode small, host ms | - | 27 | 0.01 | 0.02 |" in lines
    # The floor of a decode step is what the kernels of the captured graph take.
    assert "| decode small, wall ms | 1.8 | 27.5 | 1.9 | 1.91 |" in lines
    assert "| prefill small, device ms | - | - | - | 5 |" in lines
    assert len(lines) == 2 + 5 + 2 + 3


def test_series_are_ordered_by_the_number_in_the_name(report):
    points = report.series(report.host_times(HOST), "chain")
    assert points["trident"] == [(1, 9.46), (10, 45.0), (50, 195.4)]
    assert points["floor"] == [(1, 3.1)]
    assert "default" not in points


def test_operators_are_summed_up_where_every_system_was_measured(report):
    def result(mode, operator, host):
        return {"mode": mode, "operator": operator, "size": 0, "host_us": host}

    results = [
        result("eager", "abs", 8.0),
        result("eager", "add", 2.0),
        result("eager", "exp", 100.0),
        result("trident", "abs", 1.0),
        result("trident", "add", 4.0),
        {"mode": "trident", "operator": "exp", "error": "RuntimeError: no"},
    ]
    count, means = report.operator_times(results)
    assert count == 2
    assert means == {"eager": pytest.approx(4.0), "trident": pytest.approx(2.0)}
    row = "| FlagGems, 2 cases, geometric mean of host us | 4 | 2 |"
    assert row in report.table(results).splitlines()


def test_files_of_different_runs_are_refused(report, files, tmp_path, capsys):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"machine": {**MACHINE, "torch": "2.11"}, "results": []}))
    assert report.main([str(files[0]), str(other), "--output", str(tmp_path / "out")]) == 2
    assert "torch 2.11, elsewhere 2.14" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_json_is_refused(report, tmp_path, capsys):
    path = tmp_path / "counts.json"
    path.write_text("[1]")
    assert report.main([str(path), "--output", str(tmp_path / "out")]) == 2
    assert "was not written by a benchmark" in capsys.readouterr().err


def test_report_names_the_machine_and_shows_every_plot(report, files, tmp_path, capsys):
    out = tmp_path / "out"
    assert report.main([*map(str, files), "--output", str(out)]) == 0
    text = (out / "report.md").read_text()
    assert "gpu Some GPU, torch 2.14" in text
    plots = ["host_kernels", "host_specializations", "host_parameters", "decode_small"]
    if importlib.util.find_spec("matplotlib") is None:
        assert "pip install 'trident[bench]'" in capsys.readouterr().err
        assert "![" not in text
        return
    for name in plots:
        assert f"![{name}]({name}.png)" in text
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
