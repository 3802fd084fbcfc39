"""Writes one run: bytes in, durable and without secrets; its record whole at every moment.

A run's directory is complete or visibly `partial`. Bytes are written as frames (`frames`), a few
times a second; the record (`run.json`) is replaced by a rename.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from forensics.archive.disk import sync_folder
from forensics.archive.frames import Frame, FrameFile, frames, lines_in
from forensics.archive.masking import Masker
from forensics.archive.model import LogEnvelope, LogFile, RunRecord

RUN, LOG = "run.json", "log.zst"
#: So many bytes are one frame: as small as larger ones, and little is lost with a torn one.
FLUSH_BYTES = 256 * 1024
FLUSH_S = 0.25
SYNC_BYTES = 4 * 1024 * 1024
SYNC_S = 1.0


class RunWriter:
    """Writes one run; nobody else does while it is open. Made by `Archive.begin` and `resume`.

    Attributes:
        record: What is known of the run.
        position: Where in its source the durable bytes end (what `append` was given with them).
        size: Bytes so far, unpacked, durable or not.
        lines: Line ends among them.
    """

    def __init__(
        self,
        folder: Path,
        record: RunRecord,
        lock: int,
        replace_file: Callable[[Path, bytes], None],
        secrets: Collection[str] = (),
    ) -> None:
        self.folder, self.record = folder, record
        self._lock, self._replace_file = lock, replace_file
        self._file = FrameFile(self.folder / LOG)
        self._masker = Masker(secrets)
        #: What came, and what of it was masked but could not be written yet.
        self._came: list[bytes] = []
        self._masked = b""
        self._held = self._held_lines = 0
        self._next: dict[str, Any] = {}
        self._unsynced = 0
        now = time.monotonic()
        self._flushed_at = self._synced_at = now
        self.size, self.lines = self._file.bytes, self._file.lines

    @property
    def id(self) -> str:
        """Return the name of the run."""
        return self.record.id

    @property
    def position(self) -> dict[str, Any] | None:
        """Return the position behind the last durable byte."""
        return self._file.position

    def append(self, data: bytes, position: dict[str, Any]) -> None:
        """Add bytes to the log; they are written when there are enough, or by `tick`.

        Args:
            data: The next bytes, whole lines as far as possible.
            position: Where their source stands behind them, as JSON data.

        Raises:
            DiskFull: They are held, but cannot be written now; `flush` tries again.
        """
        self._came.append(data)
        self._held += len(data)
        self.size += len(data)
        lines = lines_in(data)
        self.lines += lines
        self._held_lines += lines
        self._next = position
        if self._held >= FLUSH_BYTES:
            self.flush()

    @property
    def held(self) -> int:
        """Return how many bytes wait to be written."""
        return self._held

    def flush(self, *, sync: bool = False) -> None:
        """Write what waits.

        Args:
            sync: Also wait until it is on the disk.

        Raises:
            DiskFull: There is no room; everything is still held.
        """
        if self._held:
            self._masked += self._masker.mask(b"".join(self._came))
            self._came = []
            self._file.write(self._masked, self._next, self._held_lines)
            self._unsynced += self._held
            self._masked, self._held, self._held_lines = b"", 0, 0
        self._flushed_at = time.monotonic()
        if sync or self._unsynced >= SYNC_BYTES:
            self._sync()

    def _sync(self) -> None:
        if self._unsynced:
            self._file.sync()
        self._unsynced, self._synced_at = 0, time.monotonic()

    def tick(self, now: float) -> None:
        """Write what has waited long enough; to be called several times a second.

        Args:
            now: Seconds of the monotonic clock.

        Raises:
            DiskFull: As for `flush`.
        """
        if self._held and now - self._flushed_at >= FLUSH_S:
            self.flush()
        if self._unsynced and now - self._synced_at >= SYNC_S:
            self._sync()

    def newest(self) -> Iterator[Frame]:
        """Yield what is durable, frame by frame, from the last one backwards."""
        return self._file.last()

    def take_back(
        self,
        is_later: Callable[[bytes], bool],
        first: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """Cut the end of the log off, from the first line that belongs to a later run.

        Args:
            is_later: Says so of a line (its end included). Of the lines from the one that it first
                holds for, all are later.
            first: What is to be done with the later bytes before they are cut here (to make them
                durable elsewhere, so that none is lost if the process ends between the two).

        Returns:
            The later bytes.
        """
        self.flush()
        kept: list[Frame] = []
        text = b""
        for frame in self._file.last():
            kept.append(frame)
            text = frame.data + text
            line = frame.data[: frame.data.find(b"\n") + 1]
            # The first line of a frame may be the end of one in the frame before.
            if line and not is_later(line) and (frame.start == 0 or _begins_a_line(line)):
                break
        cut = _first_later(text, is_later)
        later = text[cut:]
        if not later:
            return b""
        if first is not None:
            first(later)
        self._file.rewrite(kept[-1].start, text[:cut])
        self.size, self.lines = self._file.bytes, self._file.lines
        return later

    def update(self, record: RunRecord) -> None:
        """Replace what is known of the run; it stays partial.

        Raises:
            DiskFull: There is no room, not even in what was kept.
        """
        record = replace(record, id=self.id, state="partial", log=self.record.log)
        self._put(record)

    def _put(self, record: RunRecord) -> None:
        self._replace_file(self.folder / RUN, encoded(record))
        self.record = record

    def finish(self, record: RunRecord) -> None:
        """Make the run final: its bytes are on the disk before its record says so. Idempotent.

        Args:
            record: All that is known of it; `log` is filled in here.

        Raises:
            DiskFull: There is no room; the run stays partial and can be finished again.
        """
        if self._lock < 0:
            return
        self.flush(sync=True)
        log = self.record.log
        if log is not None:
            log = None if not self._file.bytes and record.log is None else self._described(log)
        self._put(replace(record, id=self.id, state="final", log=log))
        sync_folder(self.folder)
        self.close()

    def _described(self, log: LogFile) -> LogFile:
        told = _Lines(log.envelope)
        for frame in frames(self.folder / LOG):
            told.feed(frame.data)
        return told.finish(self._file)

    def close(self) -> None:
        """Let the run go as it is; what still waits is lost to it, but not to its source."""
        if self._lock >= 0:
            self._file.close()
            os.close(self._lock)
            self._lock = -1


class _Lines:
    """Counts the lines of a log, and finds its first and last time."""

    def __init__(self, envelope: LogEnvelope) -> None:
        self._envelope: LogEnvelope = envelope
        self._lines = self._bad = 0
        self._first = self._last = b""
        self._rest = b""
        self._digest = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        self._digest.update(data)
        text = self._rest + data
        end = text.rfind(b"\n") + 1
        whole, self._rest = text[:end], text[end:]
        if not whole:
            return
        count = lines_in(whole)
        self._lines += count
        if not self._first:
            self._first = whole[: whole.index(b"\n")]
        self._last = whole[whole.rfind(b"\n", 0, end - 1) + 1 : end - 1]
        if self._envelope == "docker-json":
            starts = whole.count(b'\n{"') + whole.startswith(b'{"')
            self._bad += count - min(starts, whole.count(b'"}\n'))

    def finish(self, file: FrameFile) -> LogFile:
        if self._rest:
            self._lines += 1
            self._bad += self._envelope == "docker-json"
            self._first = self._first or self._rest
            self._last = self._rest
        return LogFile(
            self._envelope,
            bytes=file.bytes,
            lines=self._lines,
            packed=file.packed,
            sha256=self._digest.hexdigest(),
            first_at=line_time(self._first, self._envelope),
            last_at=line_time(self._last, self._envelope),
            damaged=self._bad,
        )


_JSON_TIME = re.compile(rb'"time":"(\d{4}-\d\d-\d\dT[0-9:.]{8,18}(?:Z|[+-]\d\d:\d\d))"\}?\s*$')
_CRI_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT[0-9:.]{8,18}(?:Z|[+-]\d\d:\d\d)) (?:stdout|stderr) ")


def line_time(line: bytes, envelope: LogEnvelope) -> str | None:
    """Return the time that an envelope gives to a line (RFC 3339), None where it has none."""
    if envelope == "raw":
        return None
    found = _JSON_TIME.search(line) if envelope == "docker-json" else _CRI_TIME.match(line)
    return found[1].decode() if found is not None else None


def encoded(record: RunRecord) -> bytes:
    """Return a record as `run.json` holds it."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def _begins_a_line(line: bytes) -> bool:
    return line.startswith(b"{") or _CRI_TIME.match(line) is not None


def _first_later(text: bytes, is_later: Callable[[bytes], bool]) -> int:
    place = 0
    while place < len(text):
        end = text.find(b"\n", place) + 1 or len(text)
        if is_later(text[place:end]):
            return place
        place = end
    return len(text)
