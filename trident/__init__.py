"""Trident: native host execution for PyTorch models with user-written Triton kernels."""

from __future__ import annotations

import importlib.util
import warnings

import torch  # its libraries must be loaded before the extension module

from trident.errors import BuildError, TridentError, UnsupportedError

__version__ = "0.1.0"

for _package, _command in (
    ("triton", "pip install triton"),
    ("torch_mlir", "pip install torch-mlir==20261001"),
):
    if importlib.util.find_spec(_package) is None:
        raise TridentError(
            f"Trident needs the package {_package}, which is not installed. Run: {_command}"
        )

try:
    from trident import _C
except ImportError as error:
    raise TridentError(
        "Trident's native module is missing or was built for another torch "
        f"(this is torch {torch.__version__}): {error}. Build it against the installed torch with: "
        "pip install --no-build-isolation --force-reinstall --no-deps ."
    ) from error

from trident.guard_types import register_guard_types
from trident.optimize import jit, optimize
from trident.report.explain import explain

register_guard_types()

__all__ = ["BuildError", "TridentError", "UnsupportedError", "explain", "jit", "optimize"]
