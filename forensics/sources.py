"""Where bytes come from: a file, a folder of logs, standard input; plain or compressed.

In: what the user typed. Out: runs of whole lines, a few megabytes each, never the whole.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from msgspec import Struct

from forensics.errors import SourceError
from forensics.model import Source

CHUNK = 1024 * 1024
#: A line longer than this is handed on in pieces.
MAX_LINE = 32 * 1024 * 1024
_HEAD = 65_536
_SUFFIXES = {".log", ".txt", ".out", ".err", ".stderr", ".stdout", ".console"}
_PACKED = {".gz", ".zst", ".xz", ".bz2"}
_MAX_FILES = 10_000
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


class Opened(Struct):
    """A source that is being read.

    Attributes:
        source: What it is; `bytes` is filled while reading.
        head: Its first bytes, for detection (they come again from `runs`).
        file: The open stream of plain bytes.
        consumed: Bytes handed out so far.
    """

    source: Source
    head: bytes
    file: IO[bytes]
    consumed: int = 0

    def runs(self) -> Iterator[bytes]:
        """Yield the bytes in runs that end at a line end (the last may not).

        Raises:
            SourceError: Reading or unpacking failed on the way.
        """
        rest = self.head
        while rest or (rest := _read(self.file, CHUNK, self.source.name)):
            # To the end of the line that the chunk cut: the next run begins a line.
            tail = b"" if rest.endswith(b"\n") else _to_line_end(self.file, self.source.name)
            run = rest + tail if tail else rest
            self.consumed += len(run)
            yield run
            rest = b""


def _to_line_end(file: IO[bytes], name: str) -> bytes:
    """Read on to the end of the current line, but not without bound."""
    return _guarded(file.readline, MAX_LINE, name)


def _read(file: IO[bytes], size: int, name: str) -> bytes:
    return _guarded(file.read, size, name)


def _guarded(read: Callable[[int], bytes], size: int, name: str) -> bytes:
    """Read, and say in one line why it cannot be done."""
    try:
        return read(size)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or str(error) or "unexpected end"
        raise SourceError(f"{name} cannot be read", str(why)) from None
    except Exception as error:  # zstandard raises its own type, imported late
        if type(error).__name__ == "ZstdError":
            raise SourceError(f"{name} is damaged", str(error)) from None
        raise


def find(names: list[str]) -> list[str]:
    """Return the sources that the user's words mean: folders become the logs in them.

    Raises:
        SourceError: A path does not exist, or a folder holds no log.
    """
    found: list[str] = []
    for name in names:
        path = Path(name)
        if not name:
            raise SourceError("an empty name is no source", "give a path, or - for standard input")
        if name != "-" and not path.exists():
            raise SourceError(f"{name} does not exist", "check the path")
        if name == "-" or not path.is_dir():
            found.append(name)
            continue
        logs = _logs_in(path)
        if not logs:
            raise SourceError(
                f"{name} holds no log", "give a file, or a folder with *.log or *.txt files"
            )
        found += logs
    return found


def _logs_in(folder: Path) -> list[str]:
    try:
        paths = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    except OSError as error:
        raise SourceError(f"{folder} cannot be read", error.strerror or str(error)) from None
    return [str(p) for p in paths if _is_log(p)][:_MAX_FILES]


def _is_log(path: Path) -> bool:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes = suffixes[:-1]
    # Rotated files end in a number: `x-json.log.1`.
    while suffixes and suffixes[-1][1:].isdecimal():
        suffixes = suffixes[:-1]
    return bool(suffixes) and suffixes[-1] in _SUFFIXES


def open_source(name: str) -> Opened:
    """Open one source.

    Args:
        name: A path, or `-` for standard input.

    Raises:
        SourceError: It does not exist, cannot be read, is empty, or is no text.
    """
    if name == "-":
        if sys.stdin is None:
            raise SourceError("standard input is closed", "give a file")
        return _opened("stdin", "-", sys.stdin.buffer)
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
        return _opened("file", name, file)
    except BaseException:
        file.close()
        raise


def _opened(kind: str, name: str, file: IO[bytes]) -> Opened:
    magic = _peek(file, name)
    plain = _unpacked(file, magic, name)
    head = _read(plain, _HEAD, name)
    if not head:
        raise SourceError(f"{name} is empty", "nothing was logged, or the log was not collected")
    _refuse_binary(head, name)
    if len(head) == _HEAD:
        head += _read(plain, CHUNK - _HEAD, name)
    return Opened(Source(kind=kind, name=name), head, plain)


class _Joined:
    """A stream whose first bytes were read already."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        if self._first:
            if size < 0:
                data, self._first = self._first + self._rest.read(), b""
                return data
            data, self._first = self._first[:size], self._first[size:]
            return data + self._rest.read(size - len(data)) if len(data) < size else data
        return self._rest.read(size)

    def readline(self, size: int = -1) -> bytes:
        if self._first:
            end = self._first.find(b"\n") + 1 or len(self._first)
            line, self._first = self._first[:end], self._first[end:]
            return line if line.endswith(b"\n") else line + self._rest.readline(size)
        return self._rest.readline(size)

    def close(self) -> None:
        self._rest.close()


class _Unpacked:
    """The plain bytes of a packed stream; closing it closes that, too."""

    def __init__(self, plain: IO[bytes], packed: IO[bytes]) -> None:
        self._plain = plain
        self._packed = packed

    def read(self, size: int = -1) -> bytes:
        return self._plain.read(size)

    def readline(self, size: int = -1) -> bytes:
        return self._plain.readline(size)

    def close(self) -> None:
        self._plain.close()
        self._packed.close()


def _peek(file: IO[bytes], name: str) -> bytes:
    if file.seekable():
        magic = _read(file, 16, name)
        file.seek(0)
        return magic
    return b""


def _unpacked(file: IO[bytes], magic: bytes, name: str) -> IO[bytes]:
    """Return the plain bytes of a stream, by content."""
    if not magic:
        magic = _read(file, 16, name)
        file = _Joined(magic, file)  # type: ignore[assignment]
    plain: Any
    if magic.startswith(b"\x1f\x8b"):
        plain = gzip.GzipFile(fileobj=file)
    elif magic.startswith(b"\xfd7zXZ\0"):
        plain = lzma.LZMAFile(file)  # noqa: SIM115 - closed by `_Unpacked`
    elif magic.startswith(b"BZh"):
        plain = bz2.BZ2File(file)
    elif magic.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        plain = io.BufferedReader(cast("io.RawIOBase", reader), 65_536)
    else:
        return file
    return cast("IO[bytes]", _Unpacked(plain, file))


def _refuse_binary(head: bytes, name: str) -> None:
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise SourceError(f"{name} is {what}, not a log", "give the text of a log")
    odd = sum(head.count(bytes([code])) for code in range(32) if code not in _TEXT_CONTROLS)
    foreign = head.decode("utf-8", "replace").count("\ufffd")
    # A log in another encoding has foreign bytes, but no control characters among them.
    if odd * 10 > len(head) or (odd * 50 > len(head) and foreign * 10 > len(head)):
        raise SourceError(f"{name} is not text", "give a log as the server printed it")
