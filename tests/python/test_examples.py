"""Every example runs to its end and agrees with eager; the benchmarks say clearly what they need.

The examples run in processes of their own: they set Triton's mode before it is imported, and the
demonstration patches Hugging Face's modules.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHMARKS = [
    f"benchmarks/{name}.py" for name in ("decode", "flaggems", "host_overhead", "prefill")
]


def run_script(
    path: str, *arguments: str, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / path), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_quickstart_agrees_with_eager() -> None:
    done = run_script("examples/quickstart.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "agree"
    assert "hits 3, misses 2, fallbacks 0" in done.stdout


@pytest.mark.slow
def test_llama_and_qwen_demo_agrees_and_hits() -> None:
    done = run_script("examples/llama_qwen_demo.py", "--tokens", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "All agree."
    assert done.stdout.count("tokens   agree") == 2
    # The prefill and the first decode step compile; every later step is a hit.
    counts = re.findall(r"(\d+) hits, (\d+) misses, (\d+) fallbacks, (\d+) errors", done.stdout)
    assert counts == [("4", "2", "0", "0")] * 2
    driver = "cuda" if torch.cuda.is_available() else "cpu"
    assert re.findall(r"driver +(\w+)", done.stdout) == [driver] * 2


def test_demo_refuses_more_tokens_than_its_cache_holds() -> None:
    done = run_script("examples/llama_qwen_demo.py", "--tokens", "1000")
    assert done.returncode == 2
    assert "--tokens must lie between 1 and" in done.stderr


@pytest.mark.parametrize("script", BENCHMARKS)
def test_benchmark_names_the_choices_for_a_wrong_mode(script: str) -> None:
    done = run_script(script, "--modes", "eagre")
    assert done.returncode == 1
    assert "Unknown mode eagre; there are:" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
@pytest.mark.parametrize("script", BENCHMARKS)
def test_benchmark_without_gpu_says_so(script: str) -> None:
    done = run_script(script)
    assert done.returncode == 2
    assert done.stderr.startswith("The benchmarks need an NVIDIA GPU")


@pytest.mark.gpu
def test_host_overhead_measures_a_chain_beside_the_floor(tmp_path: pathlib.Path) -> None:
    output = tmp_path / "host.json"
    done = run_script(
        "benchmarks/host_overhead.py",
        *("--modes", "floor,eager,trident", "--cases", "chain1", "--output", str(output)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert output.exists()
    assert re.search(r"^chain1( +[\d.]+){3}$", done.stdout, flags=re.MULTILINE)
