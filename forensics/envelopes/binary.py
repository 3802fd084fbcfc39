"""Envelopes with lengths in them: Docker's `local` driver, its stream frames, journald's export.

In binary files there are no lines; there the physical line is the number of the record. The
export format is text with binary fields in between: its physical lines are those of the file.
Formats: moby `daemon/logger/local` and `entry.proto`, systemd `JOURNAL_EXPORT_FORMATS.md`.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

from forensics.envelopes.batch import Batch, Envelope, Lines
from forensics.envelopes.jsonlines import journal_time
from forensics.envelopes.parts import Joiner
from forensics.framing import MAX_RECORD, entry_of, framed, is_frame, is_frames, is_local

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LocalLayer:
    """Docker's `local` driver: length, protobuf, length again."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._joiner = Joiner()

    def feed(self, batch: Batch) -> Batch:
        """Take bytes, cut anywhere, and return the lines of whole records."""
        data = self._rest + batch.text
        out, place = Lines(), 0
        while (record := framed(data, place)) is not None:
            self._number += 1
            place += len(record) + 8
            entry = entry_of(record)
            if entry is None:
                continue
            at = nanosecond_time(entry.nanoseconds)
            key = (entry.source, entry.key)
            whole = not entry.partial or entry.last
            self._joiner.add(out, key, entry.line, self._number, at, last=whole)
        self._rest = data[place : place + MAX_RECORD]
        return out.batch()

    def finish(self) -> Batch:
        """Return a line whose last part never came; a torn record is left out."""
        out = Lines()
        self._joiner.rest(out)
        return out.batch(ended=False)


def nanosecond_time(value: int) -> str | None:
    """Return nanoseconds since 1970 as RFC 3339 with nine digits."""
    seconds, rest = divmod(value, 1_000_000_000)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09}Z" if value > 0 else None


class FramesLayer:
    """What the engine's API sends of a container without a terminal: 8 bytes before each piece."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._joiner = Joiner()

    def feed(self, batch: Batch) -> Batch:
        """Take bytes, cut anywhere, and return the lines of whole frames."""
        data = self._rest + batch.text
        out, place = Lines(), 0
        while place + 8 <= len(data) and is_frame(data, place):
            (size,) = struct.unpack_from(">I", data, place + 4)
            end = place + 8 + size
            if end > len(data):
                break
            self._number += 1
            *lines, rest = data[place + 8 : end].split(b"\n")
            for line in lines:
                self._joiner.add(out, data[place], line, self._number, last=True)
            if rest:
                self._joiner.add(out, data[place], rest, self._number, last=False)
            place = end
        self._rest = data[place : place + MAX_RECORD]
        return out.batch()

    def finish(self) -> Batch:
        """Return lines that did not end."""
        out = Lines()
        self._joiner.rest(out)
        return out.batch(ended=False)


class ExportLayer:
    """`journalctl -o export`: fields as text or, with control characters, as sized bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._line = 0
        self._joiner = Joiner()

    def feed(self, batch: Batch) -> Batch:
        """Take lines and return the messages of whole entries."""
        if not self._line and batch.numbers:
            self._line = batch.numbers[0]
        return self._read(self._rest + batch.text, at_end=False)

    def _read(self, data: bytes, *, at_end: bool) -> Batch:
        out, place, start, line = Lines(), 0, 0, self._line
        entry: dict[bytes, tuple[bytes, int]] = {}
        while place < len(data):
            end = data.find(b"\n", place)
            if end < 0:
                break
            if end == place:
                self._entry(out, entry)
                entry = {}
                start, line = place + 1, line + 1
                self._line, place = line, start
                continue
            name, equals, value = data[place:end].partition(b"=")
            if equals:
                entry[name] = (value, line)
                place, line = end + 1, line + 1
                continue
            size = int.from_bytes(data[end + 1 : end + 9], "little")
            stop = end + 9 + size
            if size > MAX_RECORD:  # damage: go on at the next line
                place, line = end + 1, line + 1
                continue
            if stop >= len(data):
                break
            inner = data[end + 9 : stop]
            # The bytes of a message begin after the line of its name and that of its length.
            entry[name] = (inner, line + 1 + data.count(b"\n", end + 1, end + 9))
            line += 1 + data.count(b"\n", end + 1, stop + 1)
            place = stop + 1
        if at_end:
            self._entry(out, entry)
            start = len(data)
        self._rest = data[start : start + MAX_RECORD]
        return out.batch()

    def _entry(self, out: Lines, entry: dict[bytes, tuple[bytes, int]]) -> None:
        if b"MESSAGE" not in entry:
            return

        def text(name: bytes) -> str:
            return entry[name][0].decode("utf-8", "replace") if name in entry else ""

        message, number = entry[b"MESSAGE"]
        at = journal_time(text(b"SYSLOG_TIMESTAMP"), text(b"__REALTIME_TIMESTAMP"))
        service = text(b"CONTAINER_NAME") or None
        key = text(b"CONTAINER_PARTIAL_ID") or (service, text(b"PRIORITY"))
        partial = text(b"CONTAINER_PARTIAL_MESSAGE").lower() == "true"
        last = not partial or text(b"CONTAINER_PARTIAL_LAST").lower() == "true"
        for offset, piece in enumerate(message.split(b"\n")):
            self._joiner.add(out, key, piece, number + offset, at, service, last=last)

    def finish(self) -> Batch:
        """Return the last entry, which need not end in a blank line, and begun lines."""
        out = self._read(self._rest + (b"" if self._rest.endswith(b"\n") else b"\n"), at_end=True)
        more = Lines()
        if not self._joiner.rest(more):
            return out
        rest = more.batch(ended=False)
        both = Lines()
        for one in (out, rest):
            for index, line in enumerate(one.lines()):
                at = one.times[index] if one.times else None
                both.add(
                    line, one.numbers[index], at, one.services[index] if one.services else None
                )
        return both.batch(ended=False)


def _is_export(head: bytes) -> bool:
    first = head[:4096].lstrip(b"\n").split(b"\n", 1)[0]
    return first.startswith((b"__CURSOR=", b"__REALTIME_TIMESTAMP=")) and b"MESSAGE" in head


BINARY: tuple[Envelope, ...] = (
    Envelope("docker-local", is_local, lambda _: LocalLayer()),
    Envelope("docker-frames", is_frames, lambda _: FramesLayer()),
    Envelope("journal-export", _is_export, lambda _: ExportLayer()),
)
