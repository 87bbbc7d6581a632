"""From source text to a shared object on disk."""

from __future__ import annotations

import functools
import hashlib
import logging
import pathlib
import re
import time

from trident.build import cache
from trident.build.compiler import FLAGS, find_compiler
from trident.errors import BuildError

logger = logging.getLogger("trident")


def build(source: str, name: str) -> pathlib.Path:
    """Compiles a host program, or finds it in the cache.

    Entries are addressed by the source, the interface header, the compiler's version and the flags,
    published atomically, and checked before use: a damaged one is compiled anew. Any number of
    processes may share the folder.

    Args:
        source: the translation unit.
        name: for humans; it becomes part of the file's name.

    Raises:
        BuildError: without a compiler, or if it refuses the source.
    """
    compiler = find_compiler()
    header = _interface_header()
    key = cache.digest(source, header, compiler.version, " ".join((*compiler.command, *FLAGS)))
    folder = cache.folder()
    label = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")[:40] or "program"
    target = folder / "programs" / f"{label}-{key}.so"
    if _is_intact(target):
        logger.debug("%s: compiled before, %s", name, target)
        return target

    start = time.perf_counter()
    include = folder / "include" / cache.digest(header)
    cache.write_text(include / "trident" / "abi.h", header)
    text = target.with_suffix(".cpp")
    cache.write_text(text, source)
    with cache.publishing(target) as temporary:
        compiler.compile(text, include, temporary)
        checksum = hashlib.sha256(temporary.read_bytes()).hexdigest()
    # Last, so that a checksum never vouches for a file that is still missing.
    cache.write_text(_checksum_path(target), checksum)
    logger.info("%s: compiling took %.0f ms", name, 1e3 * (time.perf_counter() - start))
    return target


def _checksum_path(target: pathlib.Path) -> pathlib.Path:
    return target.with_suffix(".sha256")


def _is_intact(target: pathlib.Path) -> bool:
    """Whether the entry is there and holds what was compiled. Loading a damaged one could crash."""
    try:
        expected = _checksum_path(target).read_text()
        return hashlib.sha256(target.read_bytes()).hexdigest() == expected
    except (OSError, UnicodeDecodeError):
        return False


@functools.cache
def _interface_header() -> str:
    """The text of ``trident/abi.h``: installed with the package, or in the checkout."""
    package = pathlib.Path(__file__).resolve().parent.parent
    for candidate in (
        package / "include" / "trident" / "abi.h",
        package.parent / "csrc" / "abi" / "abi.h",
    ):
        if candidate.is_file():
            return candidate.read_text()
    raise BuildError(
        f"{package / 'include' / 'trident' / 'abi.h'} is missing: Trident's installation is "
        "incomplete. Reinstall it with `pip install --force-reinstall trident`."
    )
