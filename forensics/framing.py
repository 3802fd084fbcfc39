"""Docker's two binary formats, as far as telling them from other files needs it.

The `local` driver frames a protobuf entry with its length on both sides, so that a file can be
read backwards; the engine's API puts eight bytes before each piece of output.
Formats: moby `daemon/logger/local`, `entry.proto`, `pkg/stdcopy`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

#: No record is larger; a length beyond it is damage.
MAX_RECORD = 64 * 1024 * 1024
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BITS, _MORE = 70, 0x80
FRAME_HEAD = 8
#: Highest first byte of a frame's size: 64 MiB.
_SIZE_TOP = 4


class Entry(NamedTuple):
    """One record of the `local` driver."""

    source: bytes
    nanoseconds: int
    line: bytes
    partial: bool
    last: bool
    key: bytes


def framed(data: bytes, place: int) -> bytes | None:
    """Return the record at a place, None where it is not whole or is damaged."""
    if place + 8 > len(data):
        return None
    (size,) = struct.unpack_from(">I", data, place)
    end = place + 4 + size
    if size > MAX_RECORD or end + 4 > len(data) or data[end : end + 4] != data[place : place + 4]:
        return None
    return data[place + 4 : end]


def entry_of(record: bytes) -> Entry | None:
    """Read a LogEntry: 1 source, 2 time, 3 line, 4 partial, 5 {1 last, 2 id, 3 ordinal}."""
    fields = _fields(record)
    if fields is None:
        return None
    more = _fields(_raw(fields.get(5)))
    more = more if more is not None else {}
    return Entry(
        source=_raw(fields.get(1)),
        nanoseconds=_number(fields.get(2)),
        line=_raw(fields.get(3)),
        partial=bool(_number(fields.get(4))),
        last=bool(_number(more.get(1))),
        key=_raw(more.get(2)),
    )


def _raw(value: int | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def _number(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0


def _fields(data: bytes) -> dict[int, int | bytes] | None:
    """Read a protobuf message: the last value of each field, None where it is damaged."""
    found: dict[int, int | bytes] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            found[tag >> 3] = value
            size = 0
        elif kind == _BYTES:
            size, place = _varint(data, place)
            found[tag >> 3] = data[place : place + size]
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            return None
        place += size
        if place > len(data) or place < 0:
            return None
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of seven bits a byte; damage gives a place beyond the end."""
    value = shift = 0
    while place < len(data) and shift < _VARINT_BITS:
        byte = data[place]
        value |= (byte & ~_MORE) << shift
        place += 1
        if not byte & _MORE:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7
    return 0, len(data) + 1


def is_frame(data: bytes, place: int) -> bool:
    """Say whether a frame's head stands at a place: stream, three zeros, a size below 64 MiB."""
    head = data[place : place + 8]
    return head[0] in {0, 1, 2} and head[1:4] == b"\0\0\0" and head[4] < _SIZE_TOP


def is_local(head: bytes) -> bool:
    """Say whether a file is one of Docker's `local` driver: a framed record with known fields."""
    record = framed(head, 0)
    if record is None or not record:
        return False
    entry = entry_of(record)
    return entry is not None and entry.source in {b"stdout", b"stderr"} and entry.nanoseconds > 0


def is_frames(head: bytes) -> bool:
    """Say whether a file begins with two of the engine's stream frames (or is just one)."""
    if len(head) <= FRAME_HEAD or head[0] not in {1, 2} or not is_frame(head, 0):
        return False
    end = 8 + int.from_bytes(head[4:8], "big")
    return end == len(head) or (end + 8 <= len(head) and is_frame(head, end))


def is_log(head: bytes) -> bool:
    """Say whether bytes that are no text are a log nevertheless."""
    return is_local(head) or is_frames(head)
