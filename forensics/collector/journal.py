"""The journald driver: the log of one run out of the journal, which outlives container and engine.

Read by cursor, so that it goes on exactly where it stopped. Fields: those of Docker's journald
driver (CONTAINER_ID_FULL, CONTAINER_PARTIAL_MESSAGE, PRIORITY 3 for standard error) and of
journald's own JSON (MESSAGE as text, or as numbers where it is no UTF-8; times in microseconds).
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from forensics.archive.disk import DiskFull
from forensics.archive.model import Gap
from forensics.archive.writer import RunWriter
from forensics.collector import records
from forensics.collector.api import End
from forensics.collector.clock import text_of
from forensics.collector.engine import Engine, EngineError

_POLL_S, _FULL_S = 0.5, 0.5
_MICROSECOND = 1000
_ERR_PRIORITY = "3"
_BATCH = 2000
#: The journal may get a line a little after the container's end.
_READINGS = 3


class JournalError(EngineError):
    """The journal cannot be read."""


class JournalReader:
    """Reads one run out of the journal; `run` blocks until it has ended or `stop` is set.

    Args:
        engine: The engine, asked whether the container runs.
        container: The container's full id.
        writer: The run's writer; it goes on where that left off.
        started: When this start began, in nanoseconds since 1970.
        since: From when on lines belong to it; 0 for a container's first start.
        stop: Ends the reading; the run stays partial.

    Attributes:
        last: Time of the newest line, in nanoseconds since 1970; 0 before the first.
    """

    def __init__(
        self,
        engine: Engine,
        container: str,
        writer: RunWriter,
        *,
        started: int,
        since: int,
        stop: threading.Event,
    ) -> None:
        self._engine, self._container, self._writer = engine, container, writer
        self._started, self._since, self._stop = started, since, stop
        self._until: int | None = None
        #: Bytes and lines of the run when the reading began.
        self.begun = (writer.size, writer.lines)
        self._lock = threading.Lock()
        cursor = (writer.position or {}).get("cursor")
        self._cursor = cursor if isinstance(cursor, str) else None
        self.last = 0

    #: Which tier it is of.
    tier = "journal"

    @property
    def size(self) -> int:
        """Return how many bytes the run's log has so far."""
        return self._writer.size

    @property
    def lines(self) -> int:
        """Return how many lines it has so far."""
        return self._writer.lines

    def tick(self, now: float) -> None:
        """Write what has waited long enough (see `ApiReader.tick`)."""
        if self._lock.acquire(blocking=False):
            try:
                self._writer.tick(now)
            except DiskFull:
                pass  # whoever appends next waits for room
            finally:
                self._lock.release()

    def close(self) -> None:
        """Make `run` return soon."""
        self._stop.set()

    def run(self) -> End | None:
        """Read until the run has ended; None if it was stopped before."""
        quiet = 0
        while not self._stop.is_set():
            ended = self._ended()
            try:
                new = self._read()
            except JournalError as error:
                with self._lock:
                    self._flushed()
                return End("possibly_truncated", [str(error)], [Gap(str(error))])
            quiet = quiet + 1 if ended and not new else 0
            if quiet >= _READINGS:
                with self._lock:
                    self._flushed()
                return End(
                    "complete", ["after the container's end the journal was read to its end"]
                )
            if not new:
                self._stop.wait(_POLL_S)
        with self._lock:
            self._flushed()
        return None

    def _ended(self) -> bool:
        """Say whether this start is over (gone counts, an engine that is away does not)."""
        try:
            inspect = self._engine.inspect(self._container)
        except EngineError:
            return False
        if inspect is None:
            return True
        state = records.state_of(inspect)
        if state.started is not None and state.started > self._started:
            self._until = records.boundary(None, state.before, state.started)
            return True
        return not state.running and state.started is not None

    def _read(self) -> int:
        """Add what is new; return how many entries it was."""
        command = ["journalctl", "--output=json", "--all", "--no-pager", "--quiet"]
        command += [f"CONTAINER_ID_FULL={self._container}"]
        if self._cursor is not None:
            command.append(f"--after-cursor={self._cursor}")
        elif self._since > 0:
            seconds, rest = divmod(self._since, 1_000_000_000)
            command.append(f"--since=@{seconds}.{rest // _MICROSECOND:06d}")
        try:
            process = subprocess.Popen(  # noqa: S603 - fixed words and an id
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise JournalError("journalctl cannot be run", error.strerror or str(error)) from None
        with process:
            count = self._taken(process)
            why = process.stderr.read() if process.stderr is not None else b""
            if process.wait() and not self._stop.is_set():
                text = why.decode("utf-8", "replace").strip().split("\n")[-1][:300]
                raise JournalError("the journal cannot be read", text or "journalctl failed")
        return count

    def _taken(self, process: subprocess.Popen[bytes]) -> int:
        count = 0
        batch: list[bytes] = []
        for line in process.stdout or ():
            found = self._entry(line)
            if found is not None:
                batch.append(found)
                count += 1
            if len(batch) >= _BATCH:
                self._append(b"".join(batch))
                batch = []
                if self._stop.is_set():
                    process.terminate()
                    break
        self._append(b"".join(batch))
        return count

    def _entry(self, line: bytes) -> bytes | None:
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                cursor = entry.get("__CURSOR")
                self._cursor = cursor if isinstance(cursor, str) else self._cursor
                return b"".join(self._lines(entry))
        return None

    def _lines(self, entry: dict[str, Any]) -> Iterator[bytes]:
        at = str(entry.get("__REALTIME_TIMESTAMP", ""))
        moment = int(at) * _MICROSECOND if at.isdecimal() else self.last
        if moment < self._since or (self._until is not None and moment >= self._until):
            return
        self.last = max(self.last, moment)
        stream = b"stderr" if entry.get("PRIORITY") == _ERR_PRIORITY else b"stdout"
        partial = str(entry.get("CONTAINER_PARTIAL_MESSAGE", "")).lower() == "true"
        last = str(entry.get("CONTAINER_PARTIAL_LAST", "")).lower() == "true"
        stamp = text_of(moment).encode()
        *whole, rest = message_of(entry).split(b"\n")
        for text in whole:
            yield b" ".join((stamp, stream, b"F", text)) + b"\n"
        tag = b"P" if partial and not last else b"F"
        yield b" ".join((stamp, stream, tag, rest)) + b"\n"

    def _append(self, lines: bytes) -> None:
        if not lines:
            return
        with self._lock:
            try:
                self._writer.append(lines, {"cursor": self._cursor})
            except DiskFull:
                self._flushed()

    def _flushed(self) -> None:
        while True:
            try:
                self._writer.flush()
            except DiskFull:
                if self._stop.wait(_FULL_S):
                    return
            else:
                return


def message_of(entry: dict[str, Any]) -> bytes:
    """Return the bytes of an entry's message: text, or numbers where it is no UTF-8."""
    message = entry.get("MESSAGE")
    if isinstance(message, str):
        return message.encode("utf-8", "backslashreplace")
    if isinstance(message, list) and all(isinstance(n, int) and 0 <= n < 256 for n in message):  # noqa: PLR2004 - bytes
        return bytes(message)
    return b""
