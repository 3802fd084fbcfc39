"""The readers of logs that have no file: one thread a run, and one that sees to their writing."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

from forensics.archive.model import Gap, Tier
from forensics.collector import records
from forensics.collector.api import ApiReader, End
from forensics.collector.engine import Engine
from forensics.collector.journal import JournalReader
from forensics.collector.subjects import Open, Subject
from forensics.errors import ForensicsError

_TICK_S, _JOIN_S = 0.1, 10.0
_QUIET_TICKS = 5

Reader = ApiReader | JournalReader


class Readers:
    """Reads logs through the engine's API, or out of the journal.

    Args:
        engine: The engine.
        told: Takes messages for the watcher: `("end", container, run, End)`.
    """

    def __init__(self, engine: Engine, told: Callable[[tuple[Any, ...]], None]) -> None:
        self._engine, self._told = engine, told
        self._readers: dict[str, tuple[Reader, threading.Thread]] = {}
        self._done: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._moved = self._quiet = 0
        # Only this machine's journal can be read.
        self._journal = engine.host.startswith("unix://") and shutil.which("journalctl") is not None
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        self._ticker.start()

    def tier(self, driver: str | None) -> Tier | None:
        """Return the way in which the logs of a driver come."""
        if driver == "none":
            return None
        return "journal" if driver == "journald" and self._journal else "api"

    def start(self, subject: Subject, run: Open) -> None:
        """Read the log of a run in a thread of its own."""
        reader = self._reader(subject, run)
        thread = threading.Thread(
            target=self._read, args=(subject.id, run, reader), name="reader", daemon=True
        )
        with self._lock:
            self._readers[run.writer.id] = (reader, thread)
        self._quiet = 0
        thread.start()

    def _reader(self, subject: Subject, run: Open) -> Reader:
        since = since_of(subject.inspect, run.started)
        if subject.tier == "journal":
            return JournalReader(
                self._engine, subject.id, run.writer, started=run.started, since=since,
                stop=run.stop,
            )  # fmt: skip
        config = subject.inspect.get("Config")
        tty = isinstance(config, dict) and config.get("Tty") is True
        return ApiReader(
            self._engine, subject.id, run.writer, started=run.started, since=since, tty=tty,
            stop=run.stop,
        )  # fmt: skip

    def _read(self, container: str, run: Open, reader: Reader) -> None:
        try:
            end = reader.run()
        except (ForensicsError, OSError) as error:
            end = End("possibly_truncated", [str(error)], [Gap(str(error))])
        with self._lock:
            self._readers.pop(run.writer.id, None)
            _add(self._done, reader)
        if end is None:
            run.writer.close()  # it stays partial, and is taken up by the next watcher
        else:
            self._told(("end", container, run.writer.id, end))

    def _tick(self) -> None:
        """Write what waits, several times a second: a reader may hear nothing for days."""
        while not self._stop.wait(_TICK_S):
            with self._lock:
                readers = [reader for reader, _ in self._readers.values()]
            size = 0
            for reader in readers:
                reader.tick(time.monotonic())
                size += reader.size
            self._quiet = self._quiet + 1 if size == self._moved else 0
            self._moved = size

    def quiet(self) -> bool:
        """Say whether nothing new comes at present."""
        return self._quiet >= _QUIET_TICKS or not self._readers

    def written(self) -> dict[str, tuple[int, int]]:
        """Return bytes and lines that were read so far, by tier."""
        with self._lock:
            found = dict(self._done)
            for reader, _ in self._readers.values():
                _add(found, reader)
        return found

    def close(self) -> None:
        """End all; their runs stay partial."""
        self._stop.set()
        with self._lock:
            readers = list(self._readers.values())
        for reader, _ in readers:
            reader.close()
        for _, thread in readers:
            thread.join(_JOIN_S)
        self._ticker.join(_JOIN_S)


def _add(found: dict[str, tuple[int, int]], reader: Reader) -> None:
    """Add what a reader has read since it began."""
    size, lines = found.get(reader.tier, (0, 0))
    begun = reader.begun
    found[reader.tier] = (size + reader.size - begun[0], lines + reader.lines - begun[1])


def since_of(inspect: dict[str, Any], started: int) -> int:
    """Return from when on lines of a container's log belong to a start, in nanoseconds since 1970.

    Args:
        inspect: The container's inspect data.
        started: When that start began.
    """
    state = records.state_of(inspect)
    count = inspect.get("RestartCount")
    once = state.before is None and not count
    if state.first or once or state.started != started:
        # The only start that is known of: whatever the log holds is its own.
        return 0 if state.first or once else max(0, started - records.BEFORE_START)
    return records.boundary(None, state.before, started) or 0
