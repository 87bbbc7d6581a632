"""The kernel tests once more under TRITON_INTERPRET=1, where kernels are another class.

Eager Triton runs there without a GPU, so some compare with it there only.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="this is already the interpreted process"
)
@pytest.mark.parametrize(
    "name",
    [
        *("launch", "routing", "interpreter", "narrow_floats", "liger", "native", "autotune"),
        *("hooks", "helion"),
    ],
)
def test_kernels_in_interpret_mode(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, str(HERE / f"test_kernels_{name}.py")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
