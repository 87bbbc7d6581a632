"""benchmarks/instructions.py and callgrind.py, up to the counting itself, which takes minutes."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"

PROFILE = """\
version: 1
desc: Trigger: Client Request: two sums
positions: line
events: Ir

ob=/lib/_C.so
fl=a.cpp
fn=trident::python::Module::call(int)
10 100
12 20
cob=/lib/libtorch.so
cfi=b.cpp
cfn=at::add(at::Tensor)
calls=4 3
11 4000
cfn=trident::host::Program::run(int)
calls=2 7
13 600

fn=trident::host::Program::run(int)
7 600

ob=/lib/libtorch.so
fl=b.cpp
fn=at::add(at::Tensor)
3 4000

ob=/usr/bin/python
fn=loop
cob=/lib/_C.so
cfn=trident::python::Module::call(int)
calls=2 10
4 4720

totals: 4720
"""


@pytest.fixture(scope="module")
def callgrind():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("callgrind")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def instructions(callgrind):
    return importlib.import_module("instructions")


def test_profile_gives_inclusive_costs_of_functions_and_own_costs_of_libraries(callgrind):
    profile = callgrind.parse(PROFILE.splitlines())
    assert profile.cost("trident::python::Module::call") == 4720
    assert profile.cost("trident::host::Program::run") == 600
    assert profile.calls["at::add(at::Tensor)"] == 4
    assert profile.libraries == {"/lib/_C.so": 720, "/lib/libtorch.so": 4000}
    assert profile.total == 4720


def test_profiles_are_found_by_the_name_they_were_counted_under(callgrind, tmp_path):
    (tmp_path / "profile").write_text("version: 1\ndesc: Trigger: Program termination\n")
    (tmp_path / "profile.1").write_text(PROFILE)
    assert list(callgrind.read_profiles(tmp_path)) == ["two sums"]


COMMITTED = {"versions": {"torch": "2"}, "counts": {"case": {"entry": 1000, "program": 5000}}}


def test_three_percent_more_than_the_committed_count_is_reported(instructions):
    counts = {"case": {"entry": 1000, "program": 5200}, "new case": {"entry": 1}}
    grown, obstacle = instructions.growth(COMMITTED, counts, {"torch": "2"})
    assert obstacle is None
    assert grown == ["case, program: 5200 instructions, 5000 committed"]


def test_less_or_hardly_more_than_the_committed_count_is_not_reported(instructions):
    counts = {"case": {"entry": 1020, "program": 100}}
    assert instructions.growth(COMMITTED, counts, {"torch": "2"}) == ([], None)


def test_counts_of_other_versions_are_not_compared(instructions):
    grown, obstacle = instructions.growth(
        COMMITTED, {"case": {"entry": 9999, "program": 1}}, {"torch": "3"}
    )
    assert grown == []
    assert obstacle == "the committed counts are of other versions: torch 2 there, 3 here"


def test_missing_valgrind_is_said_in_one_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "host_overhead.py"), "--instructions"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "apt-get install valgrind" in done.stderr
    assert "Traceback" not in done.stderr
