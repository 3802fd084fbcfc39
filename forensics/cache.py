"""The folder of things that can be computed again: compiled patterns and parsed rules.

A cache entry is `<sha256 of body><body>`; one that is cut, altered or written by another program
version is ignored and written again. Nothing here ever fails a run: a full disk or a read-only
home only costs time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

_KEEP = 8


def folder() -> Path:
    """Return the cache folder: `$FORENSICS_CACHE`, else the platform's."""
    chosen = os.environ.get("FORENSICS_CACHE")
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("llm-forensics")


def read(name: str) -> bytes | None:
    """Return the body of an entry, or None where there is none that is whole."""
    try:
        with (folder() / name).open("rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            if hasattr(os, "getuid") and owner not in {0, os.getuid()}:
                return None
            data = file.read()
    except OSError:
        return None
    body = data[32:]
    return body if hashlib.sha256(body).digest() == data[:32] else None


def write(name: str, body: bytes) -> None:
    """Write an entry in one step; leave no more than a few of its kind behind."""
    home = folder()
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=home, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            Path(temporary).replace(home / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        _prune(home, name)


def _prune(home: Path, name: str) -> None:
    """Remove the oldest entries of the same kind (the text before the first dash)."""
    kind = name.split("-", 1)[0]
    entries = sorted(home.glob(f"{kind}-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in entries[_KEEP:]:
        old.unlink(missing_ok=True)
