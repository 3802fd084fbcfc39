"""Where bytes come from: a file, a folder or archive of logs, standard input; plain or packed.

In: what the user typed. Out: runs of whole lines, a few megabytes each, never the whole.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from forensics import archives
from forensics.errors import SourceError
from forensics.framing import is_log as is_binary_log
from forensics.model import Source
from forensics.unpacking import DEFAULT, Limits, Unpacker, peek, unpacked

CHUNK = 1024 * 1024
#: A line longer than this is handed on in pieces.
MAX_LINE = 32 * 1024 * 1024
_HEAD = 65_536
_MAX_FILES = 10_000
#: What names begin with that are no paths: containers and units (see `forensics.live`), and runs
#: of the archive (see `forensics.archive.reading`).
LIVE = ("docker:", "journal:")
ARCHIVED = "run:"
#: `x.log.1`, `x-json.log.2.gz` (Docker, logrotate), `0.log.20261201-020000.gz` (kubelet).
_ROTATION = re.compile(
    r"(?P<stem>.+?)(?:\.(?P<number>\d{1,4})|[.-](?P<date>\d{8}(?:-\d{6})?))"
    r"(?:\.(?:gz|zst|xz|bz2))?$",
    re.DOTALL,
)
_LOG = re.compile(
    r"\.(?:log|txt|out|err|stderr|stdout|console)(?:[.-]\d{1,8}(?:-\d{6})?)?"
    r"(?:\.(?:gz|zst|xz|bz2))?$",
    re.IGNORECASE,
)
_TEXT_CONTROLS = frozenset(b"\t\n\r\x0b\x0c\x08\x1b")
_MAGIC = {
    b"\x7fELF": "a program (ELF)",
    b"\x89PNG": "a picture (PNG)",
    b"\xff\xd8\xff": "a picture (JPEG)",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a parquet file",
    b"SQLite format": "an SQLite database",
    b"%PDF": "a PDF document",
}


class Reader(Protocol):
    """What is needed of an open source."""

    @property
    def head(self) -> bytes:
        """Return its first bytes."""

    @property
    def source(self) -> Source:
        """Return what it is."""

    @property
    def consumed(self) -> int:
        """Return how many bytes were handed out."""

    def runs(self) -> Iterator[bytes]:
        """Yield its bytes in runs of whole lines."""


class Opened(Struct):
    """A source that is being read.

    Attributes:
        source: What it is; `bytes` is filled while reading.
        head: Its first bytes, for detection (they come again from `runs`).
        file: The open stream of plain bytes.
        modified: When it was last written (RFC 3339), None where that is not known.
        limits: What may be read.
        unpacker: What unpacks it, None where it is plain.
        rest: Further parts of the same log, each opened when the one before it ends.
        consumed: Bytes handed out so far.
        parts: Name of each part and the line at which it begins; empty for a log in one file.
        holes: Line before which files of a rotated log are missing, with their names.
    """

    source: Source
    head: bytes
    file: IO[bytes]
    modified: str | None = None
    limits: Limits = DEFAULT
    unpacker: Unpacker | None = None
    rest: list[str] = []
    consumed: int = 0
    parts: list[tuple[str, int]] = []
    holes: list[tuple[int, str]] = []

    @property
    def damage(self) -> str | None:
        """Return why a packed file ended before its end, None where it did not."""
        return self.unpacker.damage if self.unpacker is not None else None

    def runs(self) -> Iterator[bytes]:
        """Yield the bytes in runs that end at a line end (the last may not).

        Raises:
            SourceError: Reading or unpacking failed on the way.
        """
        line = 1
        missing = missing_parts([name for name, _ in self.parts] + self.rest)
        while True:
            for run in self._runs():
                if self.parts:
                    line += run.count(b"\n")
                yield run
            if not self.rest:
                return
            name = self.rest.pop(0)
            more = open_source(name, self.limits)
            self.file.close()
            self.head, self.file, self.unpacker = more.head, more.file, more.unpacker
            self.parts.append((name, line))
            if name in missing:
                self.holes.append((line, missing[name]))

    def _runs(self) -> Iterator[bytes]:
        rest = self.head
        while rest or (rest := _read(self.file, CHUNK, self.source.name)):
            # To the end of the line that the chunk cut: the next run begins a line.
            tail = b"" if rest.endswith(b"\n") else _to_line_end(self.file, self.source.name)
            run = rest + tail if tail else rest
            self.consumed += len(run)
            if self.limits.max_bytes is not None and self.consumed > self.limits.max_bytes:
                raise SourceError(
                    f"{self.source.name} holds more than {self.limits.max_bytes:,} bytes",
                    "raise --max-bytes, or cut the log",
                )
            yield run
            rest = b""


class Rotated(str):
    """The name of a log that was rotated: that of its newest file.

    Attributes:
        parts: Names of all its files, the oldest first.
    """

    __slots__ = ("parts",)
    parts: list[str]

    def __new__(cls, parts: list[str]) -> Self:
        """Name a log by its newest file."""
        made = super().__new__(cls, parts[-1])
        made.parts = parts
        return made


def missing_parts(names: list[str]) -> dict[str, str]:
    """Return before which files of a rotated log others are missing, and how those are called.

    Only numbers tell it: they are given without a gap.

    Args:
        names: The files, the oldest first.
    """
    found: dict[str, str] = {}
    before: int | None = None
    for name in names:
        parts = _ROTATION.match(name)
        number = 0 if parts is None else int(parts["number"]) if parts["number"] else None
        if before is not None and number is not None and before - number > 1:
            stem = Path(parts["stem"] if parts else name).name
            last = f" to {stem}.{number + 1}" if before - number > 2 else ""  # noqa: PLR2004 - more than one
            found[name] = f"{stem}.{before - 1}{last}"
        before = number
    return found


def _to_line_end(file: IO[bytes], name: str) -> bytes:
    """Read on to the end of the current line, but not without bound."""
    return _guarded(file.readline, MAX_LINE, name)


def _read(file: IO[bytes], size: int, name: str) -> bytes:
    return _guarded(file.read, size, name)


def _guarded(read: Callable[[int], bytes], size: int, name: str) -> bytes:
    """Read, and say in one line why it cannot be done."""
    try:
        return read(size)
    except (OSError, EOFError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or "unexpected end"
        raise SourceError(f"{name} cannot be read", str(why)) from None


def find(names: list[str], limits: Limits = DEFAULT) -> list[str]:
    """Return the sources that the user's words mean.

    Folders and archives become the logs in them, the files of a rotated log become one.

    Args:
        names: What the user typed.
        limits: What may be read of an archive.

    Raises:
        SourceError: A path does not exist, or a folder or archive holds no log.
    """
    found: list[str] = []
    for name in names:
        path = Path(name)
        if not name:
            raise SourceError("an empty name is no source", "give a path, or - for standard input")
        elsewhere = name.startswith((*LIVE, ARCHIVED)) or archives.split(name) is not None
        if name != "-" and not elsewhere and not path.exists():
            raise SourceError(f"{name} does not exist", "check the path")
        if name == "-" or not path.exists():
            found.append(name)
        elif path.is_dir():
            logs = _logs_in(path)
            if not logs:
                raise SourceError(
                    f"{name} holds no log", "give a file, or a folder with *.log or *.txt files"
                )
            for log in logs:
                found += _inside(log, limits)
        else:
            found += _inside(name, limits)
    return _rotated(found)


def _inside(name: str, limits: Limits) -> list[str]:
    if not Path(name).is_file():  # a pipe can be read only once
        return [name]
    inside = archives.entries(name, _is_log, limits)
    return [name] if inside is None else inside


def _rotated(names: list[str]) -> list[str]:
    """Put the files of rotated logs together, in the place of the first of them."""
    groups: dict[str, list[tuple[tuple[int, str], str]]] = {}
    for name in names:
        found = _ROTATION.match(name)
        stem = name
        age = (0, "")
        if found is not None:
            stem, number, date = found["stem"], found["number"], found["date"]
            # A higher number is older, a later date is newer; the file without either is newest.
            age = (-int(number), "") if number else (-1, date) if date else (0, "")
        groups.setdefault(stem, []).append((age, name))
    out: list[str] = []
    for group in groups.values():
        ordered = [name for _, name in sorted(group)]
        out.append(ordered[0] if len(ordered) == 1 else Rotated(ordered))
    return out


def _logs_in(folder: Path) -> list[str]:
    try:
        paths = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    except OSError as error:
        raise SourceError(f"{folder} cannot be read", error.strerror or str(error)) from None
    return [str(p) for p in paths if _is_log(p)][:_MAX_FILES]


def _is_log(path: Path) -> bool:
    return _LOG.search(path.name) is not None


def open_source(name: str, limits: Limits = DEFAULT) -> Opened:
    """Open one source.

    Args:
        name: A path, `ARCHIVE!/PATH`, a `Rotated` log, or `-` for standard input.
        limits: What may be read.

    Raises:
        SourceError: It does not exist, cannot be read, is empty, or is no text.
    """
    if isinstance(name, Rotated):
        opened = open_source(name.parts[0], limits)
        opened.parts = [(name.parts[0], 1)]
        opened.rest = list(name.parts[1:])
        opened.source = replace(opened.source, name=str(name))
        return opened
    if name == "-":
        if sys.stdin is None:
            raise SourceError("standard input is closed", "give a file")
        return opened_stream("stdin", "-", sys.stdin.buffer, limits)
    inside = archives.split(name)
    if inside is not None:
        return opened_stream("file", name, archives.open_entry(*inside, limits), limits)
    path = Path(name)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise SourceError(f"{name} does not exist", "check the path") from None
    except IsADirectoryError:
        raise SourceError(f"{name} is a folder", "give a log in it") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SourceError(f"{name} cannot be read", why) from None
    try:
        modified = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC).isoformat()
        return opened_stream("file", name, file, limits, modified)
    except BaseException:
        file.close()
        raise


def opened_stream(
    kind: str,
    name: str,
    file: IO[bytes],
    limits: Limits = DEFAULT,
    modified: str | None = None,
) -> Opened:
    """Begin to read a stream.

    Args:
        kind: What kind of source it is.
        name: Its name.
        file: The stream; closed by whoever reads it.
        limits: What may be read.
        modified: When it was last written.

    Raises:
        SourceError: It is empty, damaged, or no log.
    """
    try:
        plain, unpacker = unpacked(file, name, limits)
        head, plain = peek(plain, _HEAD)
    except (OSError, EOFError, ValueError) as error:
        raise SourceError(f"{name} cannot be read", str(error)) from None
    if not head and unpacker is not None and unpacker.damage:
        raise SourceError(f"{name} cannot be read", unpacker.damage)
    if not head:
        raise SourceError(f"{name} is empty", "nothing was logged, or the log was not collected")
    _refuse_binary(head, name)
    first = _read(plain, len(head), name)
    if len(head) == _HEAD:
        first += _read(plain, CHUNK - _HEAD, name)
    return Opened(Source(kind=kind, name=name), first, plain, modified, limits, unpacker)


def _refuse_binary(head: bytes, name: str) -> None:
    if is_binary_log(head):
        return
    if archives.is_tar(head):
        raise SourceError(f"{name} is a tar archive", "save it to a file, or unpack it first")
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise SourceError(f"{name} is {what}, not a log", "give the text of a log")
    odd = sum(head.count(bytes([code])) for code in range(32) if code not in _TEXT_CONTROLS)
    foreign = head.decode("utf-8", "replace").count("\ufffd")
    # A log in another encoding has foreign bytes, but no control characters among them.
    if odd * 10 > len(head) or (odd * 50 > len(head) and foreign * 10 > len(head)):
        raise SourceError(f"{name} is not text", "give a log as the server printed it")
