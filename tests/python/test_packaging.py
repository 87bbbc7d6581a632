"""The package as installed and described: native module, header, requirements, clear errors."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def package_folder() -> pathlib.Path:
    import trident

    assert trident.__file__ is not None
    return pathlib.Path(trident.__file__).parent


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def test_native_module_imports_where_no_gpu_is_visible() -> None:
    done = run_python("import trident, trident._C; print('ok')", CUDA_VISIBLE_DEVICES="")
    assert done.stdout.strip() == "ok", done.stderr


def test_native_module_does_not_link_the_cuda_driver() -> None:
    import trident._C

    done = subprocess.run(["readelf", "-d", trident._C.__file__], capture_output=True, text=True)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", done.stdout)
    assert any(name.startswith("libtorch") for name in needed), done.stderr
    assert not any(name.startswith("libcuda.so") for name in needed)


def test_header_of_generated_code_is_installed() -> None:
    installed = package_folder() / "include" / "trident" / "abi.h"
    assert installed.read_text() == (ROOT / "csrc" / "abi" / "abi.h").read_text()


def test_package_holds_every_source_and_one_native_module() -> None:
    def files(folder: pathlib.Path, pattern: str) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}

    installed = package_folder()
    for pattern in ("*.py", "*.pyi"):
        assert files(installed, pattern) == files(ROOT / "trident", pattern)
    assert len(files(installed, "*.so")) == 1  # not a checkout's own besides
    assert {"build/builder.py", "ir/passes/__init__.py"} <= files(installed, "*.py")


def test_public_interface_is_exported() -> None:
    import trident

    for name in ("optimize", "jit", "explain", "UnsupportedError"):
        assert callable(getattr(trident, name)), name
    assert issubclass(trident.UnsupportedError, Exception)


def test_installed_metadata_names_supported_versions() -> None:
    metadata = importlib.metadata.metadata("trident")
    assert metadata["Version"] == PROJECT["project"]["version"]
    requires = metadata.get_all("Requires-Dist") or []
    torch = next(line for line in requires if re.match(r"torch\b(?!-)", line))
    assert ">=2.11" in torch and "<2.15" in torch
    assert any(line.startswith("torch-mlir==20261001") for line in requires)
    assert {"demo", "test"} <= set(metadata.get_all("Provides-Extra") or [])


def test_build_does_not_require_a_second_torch() -> None:
    assert not any(line.startswith("torch") for line in PROJECT["build-system"]["requires"])


def test_changed_sources_are_noticed_by_content_and_get_the_present_time(
    tmp_path: pathlib.Path,
) -> None:
    for name in ("csrc", "third_party", "trident", "scripts"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "scripts" / "sources.sh", tmp_path / "scripts")
    kept, changed, new = (tmp_path / "csrc" / name for name in ("kept.h", "old name.h", "new.cpp"))
    for path in (kept, changed, *(tmp_path / f for f in ("CMakeLists.txt", "pyproject.toml"))):
        path.write_text("1")
        os.utime(path, (1, 1))
    (tmp_path / "README.md").write_text("1")

    def run() -> int:
        subprocess.run([tmp_path / "scripts" / "sources.sh", "build/list"], check=True)
        stamp = tmp_path / "build" / "list"
        written = stamp.stat().st_mtime_ns
        os.utime(stamp, (1, 1))
        return written

    run()
    assert run() == 10**9  # nothing changed, nothing written
    for path in (changed, new):
        path.write_text("2")
        os.utime(path, (1, 1))
    assert run() > 10**9
    assert kept.stat().st_mtime == 1
    assert changed.stat().st_mtime > 1 and new.stat().st_mtime > 1
    new.unlink()
    assert run() > 10**9


def test_requirements_expand_extras_of_the_package() -> None:
    script = ROOT / "scripts" / "requirements.py"
    done = subprocess.run([sys.executable, script, "test"], capture_output=True, text=True)
    lines = done.stdout.split("\n")
    assert "liger-kernel==0.8.5" in lines and not any("trident" in line for line in lines)
    done = subprocess.run([sys.executable, script, "no-deps"], capture_output=True, text=True)
    assert done.stdout.split() == ["flag_gems==5.0.2", "helion==1.5.1"]


def check_environment(*purposes: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts" / "check_environment.py"
    return subprocess.run(
        [sys.executable, script, *purposes],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def test_environment_check_accepts_this_environment() -> None:
    done = check_environment("demo", "test")
    assert (done.returncode, done.stderr) == (0, "")


def test_environment_check_names_a_missing_compiler_and_the_command() -> None:
    done = check_environment(CXX="no-such-compiler")
    assert done.returncode == 1
    assert done.stderr == (
        "trident: The C++ compiler no-such-compiler is missing. Run: apt-get install g++\n"
    )


def fake_torch(folder: pathlib.Path, version: str) -> None:
    """A package `torch` of which only the version can be told."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(
        f"__version__ = {version!r}\nclass _C:\n    _GLIBCXX_USE_CXX11_ABI = True\n"
    )
    metadata = folder / f"torch-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


def test_environment_check_names_an_unsupported_torch(tmp_path: pathlib.Path) -> None:
    fake_torch(tmp_path, "2.9.1")
    done = check_environment(PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    expected = "torch 2.9.1 is not supported (needs >= 2.11, < 2.15). Run: pip install 'torch"
    assert expected in done.stderr


def test_isolated_build_finds_the_installed_torch(tmp_path: pathlib.Path) -> None:
    # As pip isolates: a sitecustomize on PYTHONPATH drops the folders of what is installed.
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("pybind11", "yaml", "_yaml", "typing_extensions"):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        origin = pathlib.Path(spec.origin)
        origin = origin.parent if origin.name == "__init__.py" else origin
        (packages / origin.name).symlink_to(origin)
    (packages / "sitecustomize.py").write_text(
        "import sys\nsys.path = [p for p in sys.path if not p.endswith('-packages')]\n"
    )
    environment = os.environ | {"PYTHONPATH": str(packages)}
    build = tmp_path / "build"
    for command in (
        ["cmake", "-G", "Ninja", "-S", ROOT, "-B", build, f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", build, "--target", "aten/typed_ops.cpp"],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (build / "aten" / "typed_ops.cpp").stat().st_size > 0


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise ImportError('no torch here')", "cannot import it"),
        ("__version__ = '2.9.1'\nclass _C: _GLIBCXX_USE_CXX11_ABI = True", "found 2.9.1"),
    ],
    ids=["missing", "unsupported"],
)
def test_build_without_a_supported_torch_says_what_to_run(
    tmp_path: pathlib.Path, source: str, told: str
) -> None:
    (tmp_path / "torch.py").write_text(source)
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path / "build", f"-DPython_EXECUTABLE={sys.executable}"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert told in message
    assert "pip install 'torch>=2.11,<2.15'" in message
