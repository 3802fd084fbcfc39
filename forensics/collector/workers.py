"""The threads beside the watcher's own: one copies files, one makes runs final."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from forensics.archive.disk import DiskFull
from forensics.archive.model import RunRecord
from forensics.archive.writer import RunWriter
from forensics.collector.files import Follower
from forensics.collector.host import probes
from forensics.errors import ForensicsError

_REST_S, _FULL_S, _DROP_S = 0.05, 0.5, 2.0


class Copier:
    """Copies all files in turns, in one thread.

    Args:
        say: Takes notices.
        full: Told when the archive's disk fills up, and when there is room again.
    """

    def __init__(self, say: Callable[[str], None], full: Callable[[bool], None]) -> None:
        self._say, self._full = say, full
        self._followers: dict[str, Follower] = {}
        self._lock = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._was_full = False
        self._troubled: set[str] = set()
        #: Rounds in which nothing moved, since `wake` or something did.
        self.quiet = 0
        self._thread = threading.Thread(target=self._work, name="copier", daemon=True)
        self._thread.start()

    def add(self, follower: Follower) -> None:
        """Copy one more."""
        with self._lock:
            self._followers[follower.container] = follower
        self.wake()

    def discard(self, container: str) -> None:
        """Copy one less."""
        with self._lock:
            self._followers.pop(container, None)

    def wake(self) -> None:
        """There is something new."""
        self.quiet = 0
        self._wake.set()

    def followers(self) -> list[Follower]:
        """Return all that are copied."""
        with self._lock:
            return list(self._followers.values())

    def _work(self) -> None:
        dropped = time.monotonic()
        while not self._stop.is_set():
            self._wake.clear()
            moved, full = 0, False
            for follower in self.followers():
                size, was_full = self._step(follower)
                moved, full = moved + size, full or was_full
            self._told(full=full)
            if time.monotonic() - dropped >= _DROP_S and not full:
                dropped = time.monotonic()
                self._drop()
            if full or not moved:
                self.quiet += 1
                self._wake.wait(_FULL_S if full else _REST_S)

    def _step(self, follower: Follower) -> tuple[int, bool]:
        try:
            return follower.step(), False
        except DiskFull:
            return 0, True
        except (ForensicsError, OSError) as error:
            # One container's trouble is not the others'.
            if follower.container not in self._troubled:
                self._troubled.add(follower.container)
                self._say(f"the log of container {follower.container[:12]}: {error}")
            return 0, False

    def _drop(self) -> None:
        for follower in self.followers():
            try:
                follower.drop()
            except (ForensicsError, OSError):
                continue  # they stay held

    def _told(self, *, full: bool) -> None:
        if full != self._was_full:
            self._was_full = full
            self._full(full)

    def close(self) -> None:
        """Stop; runs stay partial, and are durable up to what was copied."""
        self._stop.set()
        self._wake.set()
        self._thread.join(30)
        for follower in self.followers():
            follower.close()


class Finisher:
    """Makes runs final, in one thread: to do so, a log is read once more.

    Args:
        done: Told of each run that is final.
        say: Takes notices.
    """

    def __init__(self, done: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._done, self._say = done, say
        self._jobs: queue.Queue[tuple[RunWriter, RunRecord] | None] = queue.Queue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="finisher", daemon=True)
        self._thread.start()

    def add(self, writer: RunWriter, record: RunRecord) -> None:
        """Make a run final when its turn comes."""
        self._jobs.put((writer, record))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            writer, record = job
            record = replace(record, host=probes(record.started_at, record.finished_at))
            while True:
                try:
                    writer.finish(record)
                except DiskFull:
                    # It stays partial, and its files stay held, until there is room.
                    if self._stop.wait(_FULL_S):
                        writer.close()
                        break
                except (ForensicsError, OSError) as error:
                    self._say(f"run {writer.id} cannot be made final: {error}")
                    writer.close()
                    break
                else:
                    self._done(writer.id)
                    break

    def close(self) -> None:
        """Do what waits, and stop; what finds no room stays partial."""
        self._stop.set()
        self._jobs.put(None)
        self._thread.join(120)
