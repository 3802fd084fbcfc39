"""Packed bytes to plain ones, by content and within limits.

In: an open stream. Out: a stream of plain bytes that stops with a clear error where it grows out of
bounds, and that gives what there is where a file is cut or damaged at its end.
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import zlib
from typing import IO, Any, cast

from msgspec import Struct

from forensics.errors import SourceError

_PIECE = 65_536
_GZIP, _XZ, _BZIP2, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"BZh", b"\x28\xb5\x2f\xfd"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: Below so many unpacked bytes any ratio is fine: tiny files of one repeated line pack well.
_RATIO_FROM = 256 * 1024 * 1024


class Limits(Struct, frozen=True):
    """What may be read of one source.

    Attributes:
        max_bytes: Unpacked bytes; None for no limit on plain files and the default on packed ones.
        ratio: Unpacked over packed bytes, beyond the first 256 MiB.
        entries: Files in an archive.
    """

    max_bytes: int | None = None
    ratio: int = 500
    entries: int = 10_000


DEFAULT_MAX_UNPACKED = 64 * 1024**3
DEFAULT = Limits()


class Joined:
    """A stream whose first bytes were read already."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int) -> bytes:
        """Read up to so many bytes."""
        if self._first:
            data, self._first = self._first[:size], self._first[size:]
            return data
        return self._rest.read(size)

    def readline(self, size: int) -> bytes:
        """Read to the end of the line, or so many bytes."""
        if self._first:
            end = self._first.find(b"\n") + 1 or len(self._first)
            line, self._first = self._first[:end], self._first[end:]
            return line if line.endswith(b"\n") else line + self._rest.readline(size)
        return self._rest.readline(size)

    def close(self) -> None:
        """Close the stream."""
        self._rest.close()


class Lines:
    """A stream that can only read, given `readline`."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - anything with read and close
        self.stream = stream
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Read up to so many bytes."""
        data: bytes
        if self._rest:
            data, self._rest = self._rest[:size], self._rest[size:]
        else:
            data = self.stream.read(size)
        return data

    def readline(self, size: int) -> bytes:
        """Read to the end of the line, or so many bytes."""
        line = b""
        while len(line) < size:
            data = self.read(_PIECE)
            if not data:
                break
            end = data.find(b"\n") + 1
            if end:
                self._rest = data[end:] + self._rest
                return line + data[:end]
            line += data
        return line

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()


class Unpacker:
    """Unpacks a stream piece by piece; several packed members may follow each other.

    Args:
        file: The packed stream.
        kind: The first bytes of its format.
        name: Its name for messages.
        limits: What may be read.
    """

    def __init__(self, file: IO[bytes], kind: bytes, name: str, limits: Limits) -> None:
        self._file = _Counted(file)
        self._kind, self._name, self._limits = kind, name, limits
        self._decoder: Any = self._new()
        self._waiting = b""
        self._plain = 0
        self._ended = False
        #: Why it ended before the end, None where it did not.
        self.damage: str | None = None

    def _new(self) -> Any:  # noqa: ANN401 - three types without a common one
        if self._kind == _GZIP:
            return zlib.decompressobj(31)
        if self._kind == _XZ:
            return lzma.LZMADecompressor()
        if self._kind == _BZIP2:
            return bz2.BZ2Decompressor()
        return _zstd(self._file)

    def read(self, size: int) -> bytes:
        """Read up to so many plain bytes; nothing at the end."""
        while not self._ended:
            try:
                data = self._step(size)
            except Exception as error:
                if not _is_damage(error):
                    raise
                if self._plain == 0:
                    raise SourceError(f"{self._name} is damaged", str(error)) from None
                self.damage, self._ended = str(error), True
                return b""
            if data:
                self._plain += len(data)
                self._check()
                return data
        return b""

    def _step(self, size: int) -> bytes:
        """Unpack once; nothing where more packed bytes are needed."""
        decoder = self._decoder
        if self._kind == _ZSTD:
            found: bytes = decoder.read(size)
            self._ended = not found
            return found
        if decoder.eof:
            rest = decoder.unused_data or self._file.read(_PIECE)
            if not rest.startswith(self._kind):
                self._ended = True  # padding, or a signature
                return b""
            decoder = self._decoder = self._new()
            self._waiting = rest
        hungry = getattr(decoder, "needs_input", not self._waiting)
        if hungry and not self._waiting:
            self._waiting = self._file.read(_PIECE)
            if not self._waiting:
                self.damage, self._ended = "it ends in the middle", True
                return b""
        piece, self._waiting = self._waiting, b""
        data: bytes = decoder.decompress(piece, size)
        self._waiting = getattr(decoder, "unconsumed_tail", b"")
        return data

    def _check(self) -> None:
        most = self._limits.max_bytes or DEFAULT_MAX_UNPACKED
        if self._plain > most:
            raise SourceError(
                f"{self._name} holds more than {most:,} bytes when unpacked",
                "raise --max-bytes if you trust it",
            )
        packed = max(self._file.count, 1)
        if self._plain > _RATIO_FROM and self._plain > packed * self._limits.ratio:
            raise SourceError(
                f"{self._name} unpacks to over {self._limits.ratio} times its size",
                "that is no log; unpack it yourself if you trust it",
            )

    def close(self) -> None:
        """Close the packed stream."""
        self._file.close()


def _is_damage(error: Exception) -> bool:
    """Say whether an error comes from unpacking (zstandard's own type is imported late)."""
    known = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)
    return isinstance(error, known) or type(error).__name__ == "ZstdError"


class _Counted:
    """A stream that counts what is read of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        return data

    def close(self) -> None:
        self._file.close()


def _zstd(file: _Counted) -> Any:  # noqa: ANN401 - zstandard's reader
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(
        cast("IO[bytes]", file), read_across_frames=True, closefd=False
    )


class _Utf16:
    """UTF-16 with a byte order mark, read as UTF-8."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def read(self, size: int) -> bytes:
        """Read about so many bytes; nothing at the end."""
        while data := self._file.read(size):
            text = self._decoder.decode(data)
            if text:
                return text.encode("utf-8", "replace")
        return self._decoder.decode(b"", final=True).encode("utf-8", "replace")

    def close(self) -> None:
        """Close the stream."""
        self._file.close()


def peek(file: IO[bytes], size: int) -> tuple[bytes, IO[bytes]]:
    """Return the first bytes of a stream, and a stream that still has them."""
    first = b""
    while len(first) < size and (data := file.read(size - len(first))):
        first += data
    return first, cast("IO[bytes]", Joined(first, file))


def unpacked(
    file: IO[bytes], name: str, limits: Limits = DEFAULT
) -> tuple[IO[bytes], Unpacker | None]:
    """Return the plain bytes of a stream, and what unpacks them.

    Args:
        file: The stream.
        name: Its name for messages.
        limits: What may be read.
    """
    magic, file = peek(file, 16)
    for kind in (_GZIP, _XZ, _BZIP2, _ZSTD):
        if magic.startswith(kind):
            unpacker = Unpacker(file, kind, name, limits)
            return text_of(cast("IO[bytes]", Lines(unpacker))), unpacker
    return text_of(file), None


def text_of(file: IO[bytes]) -> IO[bytes]:
    """Return a stream as UTF-8, where it says that it is UTF-16."""
    mark, file = peek(file, 2)
    return cast("IO[bytes]", Lines(_Utf16(file))) if mark in _UTF16 else file
