"""Compiles generated host programs and keeps the results on disk."""

from trident.build.builder import build

__all__ = ["build"]
