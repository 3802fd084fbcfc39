"""The API tier: the log of one run as the engine tells it, for whatever has no file to read.

Followed from the start on, taken up again after any break from a second before the last line: of
what comes a second time, as many pieces are left out as are in the archive already (where the
engine's clock was set back: of the log from its beginning). The end of
the stream says nothing (it comes with the end of the container, with the engine's, and with
nothing at all), so the container is asked, and its log read once more before it counts as whole.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct

from forensics.archive.disk import DiskFull
from forensics.archive.frames import frames
from forensics.archive.model import Completeness, Gap
from forensics.archive.writer import LOG, RunWriter
from forensics.collector import records
from forensics.collector.clock import nanoseconds, now_text, text_of
from forensics.collector.engine import Engine, EngineError, Gone, LogsUnreadable
from forensics.collector.rotation import rotation_of
from forensics.containers.cri import Cri

#: Lines of two streams may be filed in another order than their times say, by less than this.
OVERLAP_NS = 1_000_000_000
_SECOND = 1_000_000_000
_RETRY_S, _FULL_S = 0.5, 0.5
#: A log up to this size is read again as a whole in the end.
_SMALL = 32 << 20
#: After its end, lines of a container may still be on their way into its log.
_SETTLE_S = 0.3
_LINE = re.compile(rb"(\S+) (stdout|stderr) ([FP]) ?([^\n]*)\n")

Key = tuple[bytes, bytes, bytes, int]


class End(Struct, frozen=True):
    """How the reading of a run ended.

    Attributes:
        completeness: `complete` only if the log was read to its end after the container's.
        reasons: What proves that, or why it may not be whole.
        gaps: What could not be had.
    """

    completeness: Completeness
    reasons: list[str]
    gaps: list[Gap] = []


class ApiReader:
    """Reads one run; `run` blocks until its log has ended or `stop` is set.

    Args:
        engine: The engine.
        container: The container's full id.
        writer: The run's writer; it goes on where that left off. Nobody else may use it meanwhile.
        started: When this start of the container began, in nanoseconds since 1970.
        since: From when on lines belong to it; 0 for a container's first start.
        tty: Whether the container has a terminal.
        stop: Ends the reading; the run stays partial.

    Attributes:
        last: Time of the newest piece, in nanoseconds since 1970; 0 before the first.
    """

    def __init__(  # noqa: PLR0913 - one run has that many facts
        self,
        engine: Engine,
        container: str,
        writer: RunWriter,
        *,
        started: int,
        since: int,
        tty: bool,
        stop: threading.Event,
    ) -> None:
        self._engine, self._container, self._writer = engine, container, writer
        self._started, self._since, self._tty, self._stop = started, since, tty, stop
        #: Bytes and lines of the run when the reading began.
        self.begun = (writer.size, writer.lines)
        self._lock = threading.Lock()
        #: What is in the archive from where the engine was asked to begin again: what comes is
        #: compared with it as a whole, and where that fails piece by piece.
        self._tail, self._place = b"", 0
        self._frames: Iterator[bytes] = iter(())
        self._seen: Counter[Key] = Counter()
        self._overlap = self._heard = 0
        self._until: int | None = None
        self._gaps: list[Gap] = []
        self.last = self._last_written()
        #: Whether the engine's clock was set back meanwhile: then no time says where to go on.
        self._back = bool((writer.position or {}).get("back"))
        self._clock = _clock()

    #: Which tier it is of.
    tier = "api"

    @property
    def size(self) -> int:
        """Return how many bytes the run's log has so far."""
        return self._writer.size

    @property
    def lines(self) -> int:
        """Return how many lines it has so far."""
        return self._writer.lines

    def tick(self, now: float) -> None:
        """Write what has waited long enough: to be called several times a second by another thread.

        Args:
            now: Seconds of the monotonic clock.
        """
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
        """Read until the run has ended.

        Returns:
            How; None if it was stopped before.
        """
        while not self._stop.is_set():
            try:
                self._follow()
                state = self._state()
            except LogsUnreadable as error:
                return self._end(str(error))
            except Gone:
                return self._end("the container was removed before its log was read to the end")
            except EngineError:
                self._wait_for_engine()
                continue
            if state == "ended" and not self._stop.is_set():
                try:
                    return self._check()
                except Gone:
                    return self._end("the container was removed before its log was read again")
                except EngineError:
                    self._wait_for_engine()
        with self._lock:
            self._flushed()
        return None

    # --- one connection ------------------------------------------------------------------------

    def _follow(self) -> None:
        self._read(follow=True)
        self._heard = self.last

    def _read(self, *, follow: bool) -> int:
        """Read what the engine tells; return how many bytes of it were new."""
        # What the engine files under an earlier time than it is asked for, it would not tell.
        whole = not follow and self._writer.size <= _SMALL
        since = self._begin(whole=whole)
        cri, before = Cri(tty=self._tty), self._writer.size
        with self._engine.logs(
            self._container, tty=self._tty, follow=follow, since=since
        ) as chunks:
            watcher = threading.Thread(
                target=_closer, args=(self._stop, chunks.close, done := threading.Event()),
                daemon=True,
            )  # fmt: skip
            watcher.start()
            try:
                for data in chunks.blocks():
                    self._append(cri.feed(data))
                self._append(cri.rest())
            finally:
                done.set()
                watcher.join()
        return self._writer.size - before

    def _begin(self, *, whole: bool) -> str | None:
        """Return from when on to ask, and note what is in the archive from there on."""
        since = max(self._since, self.last - OVERLAP_NS) if self.last else self._since
        self._back = self._back or _clock() < self._clock - OVERLAP_NS
        self._seen, self._frames = Counter(), iter(())
        self._overlap = self.last + OVERLAP_NS
        if self._back or whole:
            self._overlap = 0  # no time says when it is over
            since, self._frames = self._since, self._whole()
            self._next_tail()
        else:
            self._tail, self._place = self._written(since) if self.last else b"", 0
        return f"{since // _SECOND}.{since % _SECOND:09d}" if since > 0 else None

    def _append(self, lines: bytes) -> None:
        """Add CRI lines, less those that are there already or belong to another start."""
        if self._tail:
            lines = self._beyond_tail(lines)
        if self._seen and self._overlap and _time_of_first(lines) > self._overlap:
            self._seen.clear()  # what is left of it will not come again
        if self._seen or self._until is not None:
            lines = b"".join(self._new(lines))
        if not lines:
            return
        newest = _time_of_last(lines)
        self._back = self._back or newest < self.last - OVERLAP_NS
        self.last = max(self.last, newest)
        position: dict[str, Any] = {"last": text_of(self.last) if self.last else None}
        with self._lock:
            try:
                self._writer.append(lines, position | ({"back": True} if self._back else {}))
            except DiskFull:
                self._flushed()

    def _beyond_tail(self, lines: bytes) -> bytes:
        """Return what of lines is not the archive's tail, as far as both are the same."""
        while self._tail and lines:
            tail, place = self._tail, self._place
            if tail.startswith(lines, place):
                self._place += len(lines)
                if self._place == len(tail):
                    self._next_tail()
                return b""
            rest = len(tail) - place
            if rest < len(lines) and tail.endswith(lines[:rest], place):
                lines = lines[rest:]
                self._next_tail()
                continue
            # Another order, or a masked secret: piece by piece, then.
            while self._tail:
                keys = (_key(found) for found in _LINE.finditer(self._tail, self._place))
                self._seen.update(keys)
                self._next_tail()
        return lines

    def _next_tail(self) -> None:
        """Go on to what of the archive is to be compared next."""
        self._tail, self._place = next((data for data in self._frames if data), b""), 0

    def _new(self, lines: bytes) -> Iterator[bytes]:
        for found in _LINE.finditer(lines):
            at = nanoseconds(found[1].decode())
            if self._until is not None and at is not None and at >= self._until:
                continue
            key = _key(found)
            if self._seen[key] > 0:
                self._seen[key] -= 1
                continue
            yield found[0]

    def _flushed(self) -> None:
        """Write what waits; where the disk is full, as soon as there is room."""
        while True:
            try:
                self._writer.flush()
            except DiskFull:
                if self._stop.wait(_FULL_S):
                    return  # the engine still has it
            else:
                return

    # --- what is there already -----------------------------------------------------------------

    def _written(self, since: int) -> bytes:
        """Return what the archive has from the first line of a time on."""
        with self._lock:
            self._flushed()
        text = b"".join(reversed(list(self._backwards(since))))
        place = 0
        while place < len(text) and _time_of_first(text[place : place + 64]) < since:
            place = text.find(b"\n", place) + 1 or len(text)
        return text[place:]

    def _whole(self) -> Iterator[bytes]:
        """Yield all that is in the archive."""
        with self._lock:
            self._flushed()
        for frame in frames(self._writer.folder / LOG):
            yield frame.data

    def _backwards(self, since: int) -> Iterator[bytes]:
        """Yield the data of frames from the last one back to the first that is wholly older."""
        older = 0
        for frame in self._writer.newest():
            yield frame.data
            newest = _time_of_last(frame.data)
            # Two streams may be out of order across the end of a frame: one more is looked at.
            older = older + 1 if newest < since else 0
            if older > 1:
                return

    def _last_written(self) -> int:
        position = self._writer.position or {}
        said = position.get("last")
        return (nanoseconds(said) or 0) if isinstance(said, str) else 0

    # --- the end -------------------------------------------------------------------------------

    def _state(self) -> Literal["running", "ended"]:
        """Ask the container itself, since the end of a stream tells nothing."""
        inspect = self._engine.inspect(self._container)
        if inspect is None:
            raise Gone("the container is gone")
        if self._restarted(inspect):
            return "ended"
        state = records.state_of(inspect)
        if state.running or state.started is None:
            self._stop.wait(0.05)
            return "running"
        return "ended"

    def _restarted(self, inspect: dict[str, Any]) -> bool:
        """Say whether the container was started again; what comes then belongs to the next run."""
        state = records.state_of(inspect)
        if state.started is None or state.started <= self._started:
            return False
        # What came by the stream that ended with the container is this start's in any case.
        until = records.boundary(None, state.before, state.started)
        self._until = None if until is None else max(until, self._heard + 1)
        return True

    def _is_later(self, line: bytes) -> bool:
        at = _time_of_first(line)
        return self._until is not None and at >= self._until

    def _check(self) -> End:
        """Read the log once more, now that nothing is written any more."""
        self._stop.wait(_SETTLE_S)
        # Whatever is new is written and looked at again, until two readings agree.
        while self._read(follow=False) and not self._stop.is_set():
            self._stop.wait(_SETTLE_S)
        inspect = self._engine.inspect(self._container)
        if inspect is not None and self._restarted(inspect):
            # It may have begun anew between two questions: such lines are the next run's.
            with self._lock:
                self._writer.take_back(self._is_later)
        rotation = rotation_of(inspect) if inspect is not None else None
        if rotation is not None and rotation.reached(self._writer.size):
            return self._end(
                "its log is rotated: of lines that were rotated away while they were read the "
                "engine's API tells nothing"
            )
        reason = "after the container's end its log was read again, and held nothing more"
        return End("possibly_truncated" if self._gaps else "complete", [reason], self._gaps)

    def _end(self, reason: str) -> End:
        with self._lock:
            self._flushed()
        return End("possibly_truncated", [reason], [*self._gaps, Gap(reason, until=now_text())])

    def _wait_for_engine(self) -> None:
        """The engine is out of reach: wait; its containers may run on, and their lines are kept."""
        with self._lock:
            self._flushed()
        self._stop.wait(_RETRY_S)


def _closer(stop: threading.Event, close: Callable[[], None], done: threading.Event) -> None:
    """Close a stream that waits when the reading is to stop."""
    while not done.wait(0.1):
        if stop.is_set():
            close()
            return


def _clock() -> int:
    """Return what changes only when this machine's clock is set, in nanoseconds."""
    return time.time_ns() - time.monotonic_ns()


def _key(found: re.Match[bytes]) -> Key:
    # Secrets are masked in the archive, at their length: a piece is known by its time, its stream
    # and its length, and by how many of them there are.
    return (found[1], found[2], found[3], len(found[4]))


def _time_of_first(lines: bytes) -> int:
    return nanoseconds(lines[: lines.find(b" ")].decode("ascii", "replace")) or 0


def _time_of_last(lines: bytes) -> int:
    start = lines.rfind(b"\n", 0, len(lines) - 1) + 1
    stamp = lines[start : lines.find(b" ", start)]
    return nanoseconds(stamp.decode("ascii", "replace")) or 0
