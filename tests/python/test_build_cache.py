"""Compiling and the on-disk cache."""

from __future__ import annotations

import ctypes
import logging
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from trident.build import build, cache
from trident.errors import BuildError

SOURCE = """\
#include <trident/abi.h>
extern "C" __attribute__((visibility("default"))) int answer() {
  return %d + (TRIDENT_ABI_VERSION > 8 ? 9 : 1);
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("TRIDENT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(cache, "_private", None)
    return tmp_path / "cache"


def answer(path: pathlib.Path) -> int:
    return int(ctypes.CDLL(str(path)).answer())


def test_source_becomes_a_library(folder: pathlib.Path) -> None:
    path = build(SOURCE % 41, "model.forward")
    assert folder in path.parents
    assert path.name.startswith("model_forward-")
    assert answer(path) == 42


def test_second_build_runs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(SOURCE % 1, "f")
    written = first.stat().st_mtime_ns
    assert build(SOURCE % 1, "f") == first
    assert first.stat().st_mtime_ns == written


def test_other_source_or_header_is_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(SOURCE % 1, "f")
    assert build(SOURCE % 2, "f") != first
    header = "#define TRIDENT_ABI_VERSION 9\n"
    monkeypatch.setattr("trident.build.builder._interface_header", lambda: header)
    other = build(SOURCE % 1, "f")
    assert other != first
    assert answer(other) == 10


@pytest.mark.parametrize("damage", [b"", b"\x7fELF and nothing else"])
def test_damaged_entry_is_compiled_anew(damage: bytes) -> None:
    path = build(SOURCE % 3, "f")
    path.unlink()
    path.write_bytes(damage)
    assert answer(build(SOURCE % 3, "f")) == 4


def test_entry_without_checksum_is_compiled_anew() -> None:
    path = build(SOURCE % 3, "f")
    path.with_suffix(".sha256").unlink()
    assert answer(build(SOURCE % 3, "f")) == 4


def test_nothing_temporary_is_left(folder: pathlib.Path) -> None:
    build(SOURCE % 1, "f")
    with pytest.raises(BuildError):
        build("no c++", "broken")
    assert not list(folder.rglob(".tmp-*"))
    assert not list(folder.rglob(".probe-*"))


def test_error_shows_the_compilers_message_and_keeps_the_source() -> None:
    with pytest.raises(BuildError, match="(?s)kept at (.*)\\.cpp.*error") as raised:
        build("int broken = ;\n", "f")
    (path,) = [word.rstrip(";") for word in str(raised.value).split() if word.endswith(".cpp;")]
    assert pathlib.Path(path).read_text() == "int broken = ;\n"


def test_missing_compiler_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BuildError, match="apt-get install g\\+\\+.*CXX"):
        build(SOURCE % 1, "f")


def test_compiler_that_does_not_run_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken-g++"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(BuildError, match="does not run"):
        build(SOURCE % 1, "f")


def test_cxx_may_hold_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ -DANSWER=5")
    source = SOURCE.replace("%d", "ANSWER")
    assert answer(build(source, "f")) == 6


def test_unwritable_folder_means_a_private_one_and_one_warning(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("TRIDENT_CACHE_DIR", str(blocked / "cache"))
    with caplog.at_level(logging.WARNING, logger="trident"):
        first, second = build(SOURCE % 1, "f"), build(SOURCE % 2, "f")
    assert (answer(first), answer(second)) == (2, 3)
    assert len([r for r in caplog.records if "TRIDENT_CACHE_DIR" in r.getMessage()]) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o555)
    monkeypatch.setenv("TRIDENT_CACHE_DIR", str(sealed))
    assert answer(build(SOURCE % 1, "f")) == 2


def test_concurrent_threads() -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: build(SOURCE % 7, "f"), range(8)))
    assert len(paths) == 1
    assert answer(paths.pop()) == 8


def test_concurrent_processes(folder: pathlib.Path) -> None:
    script = (
        "import ctypes, sys; from trident.build import build\n"
        "assert ctypes.CDLL(str(build(sys.argv[1], 'f'))).answer() == 9\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, SOURCE % 8], env=os.environ.copy())
        for _ in range(3)
    ]
    assert [process.wait() for process in running] == [0, 0, 0]


def test_parts_of_a_key_are_told_apart() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
