"""`log.zst`: a file of independent zstd frames that survives whatever happens to its writer.

Behind each frame stands a skippable frame with the position in the source up to which the bytes
before it reach, so that data and position are durable together or not at all; every zstd reader
passes over it. What stands behind the last whole pair is torn, and is cut before more is written.
Format: RFC 8878, sections 3.1.1 (frames, with content checksum) and 3.1.2 (skippable frames).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import zstandard
from msgspec import Struct

from forensics.archive.disk import replace_file, told, write_all

LEVEL = 3
_MAGIC = 0xFD2FB528
#: The first of the sixteen numbers of skippable frames is ours.
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_MAX_POSITION = 1 << 20
_PIECE = 1 << 18
_HEAD = struct.Struct("<II")
_PLACE = struct.Struct("<Q")


class Frame(Struct, frozen=True):
    """One whole frame of the file.

    Attributes:
        start: Where it stands in the file.
        end: Where the next one begins (its position included).
        data: Its bytes, unpacked.
        position: The position in the source behind it.
    """

    start: int
    end: int
    data: bytes
    position: dict[str, Any]


class FrameFile:
    """The log file of one run, open for writing at its end.

    Args:
        path: The file; made if it is not there. A torn end is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self.position: dict[str, Any] | None = None
        self._carry_out()
        self._read_over()

    def _read_over(self) -> None:
        """Learn what the file holds, and cut what is torn."""
        self._frames: list[tuple[int, int, int]] = []
        self.bytes = self.lines = 0
        end = 0
        for frame in frames(self.path):
            self._count(frame.start, frame.data, lines_in(frame.data))
            self.position = frame.position
            end = frame.end
        os.ftruncate(self._fd, end)
        self._end = os.lseek(self._fd, end, os.SEEK_SET)

    def _count(self, start: int, data: bytes, lines: int) -> None:
        self._frames.append((start, len(data), lines))
        self.bytes += len(data)
        self.lines += lines

    @property
    def packed(self) -> int:
        """Return the size of the file."""
        return self._end

    def write(self, data: bytes, position: dict[str, Any], lines: int | None = None) -> None:
        """Add a frame and the position behind it.

        Args:
            data: The bytes of the frame.
            position: Where their source stands behind them.
            lines: The line ends among them, if they are counted already.

        Raises:
            DiskFull: There is no room for it; the file is as it was.
        """
        packed = self._packed(data, position)
        try:
            write_all(self._fd, packed)
        except OSError as error:
            # A disk that fills up first takes a part.
            os.ftruncate(self._fd, self._end)
            os.lseek(self._fd, self._end, os.SEEK_SET)
            raise told(error, self.path) from None
        self._count(self._end, data, lines_in(data) if lines is None else lines)
        self._end += len(packed)
        self.position = position

    def _packed(self, data: bytes, position: dict[str, Any]) -> bytes:
        note = msgspec.json.encode(position)
        head = _HEAD.pack(_SKIPPABLE, len(note))
        return b"".join((self._compressor.compress(data), head, note))

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        os.fdatasync(self._fd)

    def last(self) -> Iterator[Frame]:
        """Yield the frames from the last one backwards."""
        for start, _, _ in reversed(self._frames):
            yield next(frames(self.path, start))

    def rewrite(self, start: int, data: bytes) -> None:
        """Replace everything from a frame on by other bytes; the position stays.

        What is to be done is written down first, so that it can be done again if the process ends
        on the way.

        Raises:
            DiskFull: There is no room; the file is as it was.
        """
        packed = self._packed(data, self.position or {}) if data else b""
        try:
            replace_file(self._plan, _PLACE.pack(start) + packed)
        except OSError as error:
            raise told(error, self.path) from None
        self._carry_out()
        while self._frames and self._frames[-1][0] >= start:
            _, size, lines = self._frames.pop()
            self.bytes -= size
            self.lines -= lines
        if data:
            self._count(start, data, lines_in(data))
        self._end = start + len(packed)

    @property
    def _plan(self) -> Path:
        return self.path.with_name(f".{self.path.name}.plan")

    def _carry_out(self) -> None:
        """Do what a plan says, if there is one."""
        try:
            plan = self._plan.read_bytes()
        except FileNotFoundError:
            return
        (start,) = _PLACE.unpack_from(plan)
        os.ftruncate(self._fd, start)
        os.lseek(self._fd, start, os.SEEK_SET)
        write_all(self._fd, plan[_PLACE.size :])
        os.fsync(self._fd)
        self._plan.unlink()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lines_in(data: bytes) -> int:
    """Return the line ends in bytes: four times as fast as to count them one by one."""
    return len(data) - len(data.replace(b"\n", b""))


def frames(path: Path, start: int = 0) -> Iterator[Frame]:
    """Yield the whole frames of a file, up to its end or the first that is torn or damaged.

    Args:
        path: The file.
        start: Where a frame begins.
    """
    with path.open("rb") as file:
        file.seek(start)
        rest = file.read(_HEAD.size)
        while len(rest) == _HEAD.size and _HEAD.unpack(rest)[0] == _MAGIC:
            data, rest, size = _unpacked(rest, file)
            if data is None:
                return
            position, noted = _position(rest, file)
            if position is None:
                return
            end = start + size + noted
            yield Frame(start, end, data, position)
            file.seek(end)
            start, rest = end, file.read(_HEAD.size)


def _position(first: bytes, file: IO[bytes]) -> tuple[dict[str, Any] | None, int]:
    """Read the position behind a frame (None: torn or damaged), and its size."""
    rest = first + file.read(max(0, _HEAD.size - len(first)))
    if len(rest) < _HEAD.size:
        return None, 0
    kind, size = _HEAD.unpack_from(rest)
    if kind & _SKIPPABLE_MASK != _SKIPPABLE or size > _MAX_POSITION:
        return None, 0
    size += _HEAD.size
    rest += file.read(max(0, size - len(rest)))
    try:
        note = rest[_HEAD.size : size]
        position = msgspec.json.decode(note, type=dict[str, Any]) if len(rest) >= size else None
    except msgspec.MsgspecError:
        position = None
    return position, size


def _unpacked(first: bytes, file: IO[bytes]) -> tuple[bytes | None, bytes, int]:
    """Unpack one frame; return its bytes (None: torn or damaged), what follows, and its size."""
    decoder = zstandard.ZstdDecompressor().decompressobj()
    pieces, taken, piece = [], 0, first
    try:
        while True:
            pieces.append(decoder.decompress(piece))
            taken += len(piece)
            if decoder.eof:
                rest = decoder.unused_data
                return b"".join(pieces), rest, taken - len(rest)
            piece = file.read(_PIECE)
            if not piece:
                return None, b"", 0
    except zstandard.ZstdError:
        return None, b"", 0
