"""Trident: native host execution for PyTorch models with user-written Triton kernels."""

from __future__ import annotations

from trident import installation as installation  # first: says what is missing, if something is
from trident.dim import Dim
from trident.errors import BuildError, HintError, NotPreparedError, TridentError, UnsupportedError
from trident.guard_types import register_guard_types
from trident.optimize import jit, optimize
from trident.report.explain import explain
from trident.report.logs import configure as configure_logs

__version__ = "0.1.0"

register_guard_types()
configure_logs()

__all__ = [
    "BuildError",
    "Dim",
    "HintError",
    "NotPreparedError",
    "TridentError",
    "UnsupportedError",
    "explain",
    "jit",
    "optimize",
]
