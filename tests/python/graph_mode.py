"""`optimize` that captures a CUDA graph at the first hit, for programs of only a few calls.

For the runner of cases, with this folder on the path: ``run_case.py CASE --with
graph_mode:optimize``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trident
import trident.miss

trident.miss.HITS_BEFORE_CAPTURE = 0


def optimize(function: Callable[..., Any]) -> Any:
    return trident.optimize(function, graphs=True)
