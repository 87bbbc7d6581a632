"""``TRIDENT_LOGS``: what is logged as it happens.

A comma-separated list of `guards` (what each new specialization guards) and `misses` (why each call
that no specialization matched was one). They are the loggers ``trident.guards`` and
``trident.misses`` of Python's `logging`, at level INFO.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

LOGS = ("guards", "misses")


def configure(names: str | None = None) -> None:
    """Turns on the logs that are named, by default in ``$TRIDENT_LOGS``, and off all others.

    A log goes to the handlers that the application has installed, or to standard error where there
    are none. An unknown name is a warning that lists the known ones.
    """
    explicit = names is not None
    if names is None:
        names = os.environ.get("TRIDENT_LOGS", "")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in LOGS]
    if unknown:
        warnings.warn(
            f"TRIDENT_LOGS: there is no log {', '.join(map(repr, unknown))}; "
            f"use {', '.join(LOGS)}, separated by commas",
            stacklevel=2,
        )
    for name in LOGS:
        logger = logging.getLogger(f"trident.{name}")
        if name in wanted:
            logger.setLevel(logging.INFO)
        elif explicit or logger.level == logging.NOTSET:  # else the application has chosen
            logger.setLevel(logging.WARNING)
        if name in wanted and not logger.hasHandlers():
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
            logger.addHandler(handler)
            logger.propagate = False
