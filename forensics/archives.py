"""Logs inside tar and zip files: listed and read where they stand, never written anywhere.

An entry is named `ARCHIVE!/PATH`. Names come from the archive and are only ever compared and
shown. Tar files may be packed as a whole; entries may be packed one by one.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from forensics.errors import SourceError
from forensics.unpacking import DEFAULT, DEFAULT_MAX_UNPACKED, Limits, peek, unpacked

MARK = "!/"
_TAR_AT, _TAR = 257, b"ustar"
_ZIP = b"PK\x03\x04"


def is_zip(head: bytes) -> bool:
    """Say whether bytes begin a zip file."""
    return head.startswith(_ZIP)


def is_tar(head: bytes) -> bool:
    """Say whether bytes begin a tar file (all writers of this century put a mark there)."""
    return head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR


def split(name: str) -> tuple[str, str] | None:
    """Return archive and entry of a name, None where it names no entry."""
    archive, mark, entry = name.partition(MARK)
    return (archive, entry) if mark and not Path(name).exists() else None


def entries(
    path: str, wanted: Callable[[Path], bool], limits: Limits = DEFAULT
) -> list[str] | None:
    """Return the names of the logs in an archive, in order; None where a file is none.

    Args:
        path: The file.
        wanted: Says by its name whether an entry is a log.
        limits: What may be read.

    Raises:
        SourceError: The archive is damaged, too large, or holds no log.
    """
    with _plain(path, limits) as (head, file):
        if is_zip(head):
            found = [i.filename for i in _zip_entries(path, limits) if wanted(Path(i.filename))]
        elif is_tar(head):
            found = [m.name for m in _tar_entries(file, path, limits) if wanted(Path(m.name))]
        else:
            return None
    if not found:
        raise SourceError(f"{path} holds no log", "it has no *.log or *.txt file in it")
    return [f"{path}{MARK}{name}" for name in sorted(dict.fromkeys(found))]


def open_entry(path: str, entry: str, limits: Limits = DEFAULT) -> IO[bytes]:
    """Open one file in an archive.

    Args:
        path: The archive.
        entry: Its name in there.
        limits: What may be read.

    Raises:
        SourceError: There is no such file in it.
    """
    try:
        raw = Path(path).open("rb")  # noqa: SIM115 - closed with the entry
    except OSError as error:
        raise SourceError(f"{path} cannot be read", error.strerror or str(error)) from None
    try:
        found = _entry(raw, path, entry, limits)
    except (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raw.close()
        raise SourceError(f"{path} cannot be read", str(error)) from None
    except BaseException:
        raw.close()
        raise
    if found is None:
        raw.close()
        raise SourceError(f"{path}{MARK}{entry} does not exist", "check the name in the archive")
    return cast("IO[bytes]", _Held(found, raw))


def _entry(raw: IO[bytes], path: str, entry: str, limits: Limits) -> IO[bytes] | None:
    file, _ = unpacked(raw, path, limits)
    head, file = peek(file, 512)
    if is_zip(head):
        info = next((i for i in _zip_entries(path, limits) if i.filename == entry), None)
        return None if info is None else zipfile.ZipFile(raw).open(info)
    return _tar_file(file, path, entry, limits) if is_tar(head) else None


class _Held:
    """A file in an archive that closes the archive with itself."""

    def __init__(self, file: IO[bytes], archive: IO[bytes]) -> None:
        self._file, self._archive = file, archive

    def read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except (zipfile.BadZipFile, tarfile.TarError) as error:
            raise OSError(str(error)) from None

    def readline(self, size: int) -> bytes:
        return self._file.readline(size)

    def close(self) -> None:
        self._file.close()
        self._archive.close()


@contextmanager
def _plain(path: str, limits: Limits) -> Iterator[tuple[bytes, IO[bytes]]]:
    """Open a file, unpacked, with its first bytes; turn what archives raise into one error."""
    try:
        with Path(path).open("rb") as raw:
            file, _ = unpacked(raw, path, limits)
            head, file = peek(file, 512)
            yield head, file
    except (zipfile.BadZipFile, tarfile.TarError, NotImplementedError) as error:
        raise SourceError(f"{path} cannot be read", str(error)) from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read", error.strerror or str(error)) from None


def _zip_entries(path: str, limits: Limits) -> Iterator[zipfile.ZipInfo]:
    most = limits.max_bytes or DEFAULT_MAX_UNPACKED
    with zipfile.ZipFile(path) as archive:
        for number, info in enumerate(archive.infolist(), 1):
            _bound(path, number, limits)
            if info.is_dir():
                continue
            if info.file_size > most:
                raise SourceError(
                    f"{path} holds a file of {info.file_size:,} bytes",
                    "raise --max-bytes to read it",
                )
            if info.file_size > 64 * 1024**2 and info.file_size > limits.ratio * max(
                info.compress_size, 1
            ):
                raise SourceError(
                    f"{path} unpacks to over {limits.ratio} times its size", "that is no log"
                )
            yield info


def _tar_entries(file: IO[bytes], path: str, limits: Limits) -> Iterator[tarfile.TarInfo]:
    with tarfile.open(fileobj=file, mode="r|", errorlevel=0) as archive:
        for number, member in enumerate(archive, 1):
            _bound(path, number, limits)
            if member.isfile():
                yield member


def _tar_file(file: IO[bytes], path: str, entry: str, limits: Limits) -> IO[bytes] | None:
    archive = tarfile.open(fileobj=file, mode="r|", errorlevel=0)  # noqa: SIM115 - read on later
    for number, member in enumerate(archive, 1):
        _bound(path, number, limits)
        if member.isfile() and member.name == entry:
            return archive.extractfile(member)
    return None


def _bound(path: str, number: int, limits: Limits) -> None:
    if number > limits.entries:
        raise SourceError(
            f"{path} holds more than {limits.entries:,} files", "give the log that you mean"
        )
