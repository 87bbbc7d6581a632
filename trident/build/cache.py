"""The folder of compiled programs, addressed by content."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pathlib
import tempfile
import threading
from collections.abc import Iterator

logger = logging.getLogger("trident")

_lock = threading.Lock()
_private: tempfile.TemporaryDirectory[str] | None = None


def digest(*parts: str) -> str:
    """A name for content; parts are told apart, whatever they hold."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:32]


def folder() -> pathlib.Path:
    """``$TRIDENT_CACHE_DIR``, else ``~/.cache/trident``.

    If that cannot be written, a private temporary folder that lasts as long as the process.
    """
    configured = os.environ.get("TRIDENT_CACHE_DIR")
    try:
        wanted = (
            pathlib.Path(configured).expanduser()
            if configured
            else pathlib.Path.home() / ".cache" / "trident"
        )
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=wanted, prefix=".probe-"):
            return wanted
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        return _temporary(configured or "~/.cache/trident", error)


def _temporary(wanted: str, error: Exception) -> pathlib.Path:
    global _private
    with _lock:
        if _private is None:
            _private = tempfile.TemporaryDirectory(prefix="trident-")
            logger.warning(
                "the cache folder %s cannot be written (%s): compiled programs are kept for this "
                "process only. Set TRIDENT_CACHE_DIR to a folder that can be written.",
                wanted,
                error,
            )
        return pathlib.Path(_private.name)


@contextlib.contextmanager
def publishing(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a temporary path beside ``target`` that replaces it at once if the block succeeds.

    Other processes see the old file, the new one, or none: never half of one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".tmp-", suffix=target.suffix)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o755 if target.suffix == ".so" else 0o644)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(target: pathlib.Path, text: str) -> None:
    """Publishes ``text`` unless the file holds it already."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if target.read_text() == text:
            return
    with publishing(target) as temporary:
        temporary.write_text(text)
