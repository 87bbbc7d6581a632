"""How the benchmarks run each system in a process of its own, and keep to their time."""

from __future__ import annotations

import os
import pathlib
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import common  # noqa: E402

WORKER = """
import json, subprocess, sys, time
print("RESULT " + json.dumps({"case": "first"}), flush=True)
job = sys.argv[-1]
if job == "fail":
    sys.exit("no such kernel")
if job == "hang":
    child = subprocess.Popen(["sleep", "600"])
    print("RESULT " + json.dumps({"child": child.pid}), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def script(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    return str(path)


def alive(pid: int) -> bool:
    stat = pathlib.Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_results_of_a_worker_that_ends_well(script: str) -> None:
    assert common.run_worker(script, ["well"], 60) == [{"case": "first"}]


def test_a_worker_that_fails_keeps_what_it_had(script: str) -> None:
    found = common.run_worker(script, ["fail"], 60)
    assert found == [{"case": "first"}, {"error": "no such kernel"}]


def test_a_worker_that_hangs_is_ended_with_what_it_started(script: str) -> None:
    first, child, error = common.run_worker(script, ["hang"], 3)
    assert first == {"case": "first"} and error == {"error": "no result within 3 s"}
    deadline = time.monotonic() + 10
    while alive(child["child"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child["child"])


def test_no_worker_is_started_when_the_time_is_up(script: str) -> None:
    limit = common.TimeLimit(5)
    assert limit.left(300) == 0
    assert common.TimeLimit(1000).left(5) == 5 and 900 < common.TimeLimit(1000).left(2000) <= 1000
    os.unlink(script)
    assert common.run_worker(script, ["well"], limit.left(300)) == [{"error": common.NO_TIME}]
    assert not common.ours_failed([{"mode": "trident", "error": common.NO_TIME}])


def test_a_peer_that_fails_does_not_fail_the_run() -> None:
    assert not common.ours_failed([{"mode": "default", "error": "crash"}, {"mode": "trident"}])
    assert common.ours_failed([{"mode": "trident", "error": "crash"}])
