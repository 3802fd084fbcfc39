"""Steps on a disk that are whole or not at all: replace a file, lock a folder, say what failed."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from forensics.errors import ForensicsError, UsageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskFull(ForensicsError):  # noqa: N818 - a state of the disk, not a mistake
    """There is no room; nothing is half-written, and what was to be written is still held."""


def is_full(error: OSError) -> bool:
    """Say whether an error means that the disk is full."""
    return error.errno in _FULL


def told(error: OSError, path: Path) -> ForensicsError:
    """Return an error of the disk as one that a person can act on."""
    if is_full(error):
        return DiskFull(f"{path} cannot be written", "the disk is full")
    return UsageError(f"{path} cannot be written", error.strerror or str(error))


def write_all(handle: int, data: bytes) -> None:
    """Write all bytes; a disk that fills up takes a part first.

    Raises:
        OSError: They cannot all be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step, for its owner alone, and wait until it is on the disk.

    Raises:
        OSError: It cannot be done; the file is as it was.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(temporary, flags, 0o600)
        try:
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk (where a file system can do that)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def locked(folder: Path) -> int | None:
    """Take the lock on a folder.

    Returns:
        A handle that holds it until it is closed, also by the end of the process; None if another
        process has it, or the folder is not there.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
