"""A log that is still being written: what was added since the last look, and the report so far."""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from forensics.errors import SourceError
from forensics.model import Context, Source
from forensics.statistics.model import Report
from forensics.statistics.summary import Gatherer

_CHUNK = 8 * 1024 * 1024
_PIPE = 1024 * 1024
#: Pieces of a stream that may wait to be taken.
_WAITING = 256


class Growing:
    """What all growing logs have in common.

    Args:
        source: What is read.
        context: What is known beside the log.
    """

    #: Whether a look waits for more by itself.
    waits = True
    ended = False

    def __init__(self, source: Source, context: Context) -> None:
        self._source = source
        self._context = context
        self._gatherer: Gatherer | None = None

    def _feed(self, lines: bytes) -> None:
        """Take whole lines."""
        if self._gatherer is None:
            self._gatherer = Gatherer(self._source, lines, self._context)
        self._gatherer.feed(lines)

    def _take_whole(self, data: bytes) -> tuple[bytes, bool]:
        """Take the whole lines of some bytes; return the rest, and whether there were any."""
        end = len(data) if self.ended else data.rfind(b"\n") + 1
        if end:
            self._feed(data[:end])
        return data[end:], end > 0

    def look(self) -> bool:
        """Read what was added; say whether there was anything.

        Raises:
            SourceError: It cannot be read.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what is read."""

    def report(self, tables: Mapping[str, Any]) -> Report:
        """Return the report on what was read so far.

        Raises:
            SourceError: Nothing was read yet.
        """
        if self._gatherer is None:
            raise SourceError(f"{self._source.name} is empty", "nothing was logged yet")
        return self._gatherer.report(tables)


class FileFollower(Growing):
    """Reads a growing file. A file that became shorter, or is another one now, is read anew.

    Args:
        path: The file.
    """

    waits = False

    def __init__(self, path: Path) -> None:
        super().__init__(Source(kind="file", name=str(path)), Context(running=True))
        self._path = path
        self._position = 0
        self._identity: tuple[int, int] | None = None

    def look(self) -> bool:
        """Read what was added; say whether there was anything.

        Only whole lines are taken: a line that is being written comes with a later look.

        Raises:
            SourceError: The file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                identity = (state.st_dev, state.st_ino)
                if identity != self._identity or state.st_size < self._position:
                    self._gatherer, self._position, self._identity = None, 0, identity
                return self._take(file)
        except OSError as error:
            why = error.strerror or str(error)
            raise SourceError(f"{self._path} cannot be read", why) from None

    def _take(self, file: IO[bytes]) -> bool:
        file.seek(self._position)
        added = False
        while data := file.read(_CHUNK):
            end = data.rfind(b"\n") + 1
            if not end:
                break
            self._feed(data[:end])
            self._position += end
            file.seek(self._position)
            added = True
        return added


class PipeFollower(Growing):
    """Reads a pipe, such as `docker logs --follow NAME 2>&1 |`, until its end.

    Args:
        descriptor: Of the pipe.
        patience: Seconds to wait for more before a look ends.
    """

    def __init__(self, descriptor: int, patience: float) -> None:
        super().__init__(Source(kind="stdin", name="-"), Context(running=True))
        self._descriptor = descriptor
        self._patience = patience
        self._rest = b""

    def look(self) -> bool:
        """Read until the patience ends; say whether whole lines came."""
        parts = [self._rest]
        until = time.monotonic() + self._patience
        while not self.ended and (left := until - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], left)[0]:
                data = os.read(self._descriptor, _PIPE)
                self.ended = not data
                parts.append(data)
        self._rest, added = self._take_whole(b"".join(parts))
        return added


class StreamFollower(Growing):
    """Reads a stream that says by itself when it ends, such as the log of a running container.

    Args:
        source: What it is.
        stream: Its reads wait for more; closing it ends such a wait.
        context: What is known beside the log.
        patience: Seconds to wait for more before a look ends.
    """

    def __init__(
        self, source: Source, stream: IO[bytes], context: Context, patience: float
    ) -> None:
        super().__init__(source, context)
        self._stream = stream
        self._patience = patience
        self._rest = b""
        self._came: queue.Queue[bytes | OSError] = queue.Queue(_WAITING)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := self._stream.read(_PIPE):
                self._came.put(data)
            self._came.put(b"")
        except (OSError, ValueError) as error:
            self._came.put(error if isinstance(error, OSError) else OSError(str(error)))

    def look(self) -> bool:
        """Read until the patience ends; say whether whole lines came.

        Raises:
            SourceError: Reading failed.
        """
        parts = [self._rest]
        until = time.monotonic() + self._patience
        while not self.ended and (left := until - time.monotonic()) > 0:
            try:
                data = self._came.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(data, OSError):
                raise SourceError(f"{self._source.name} cannot be read", str(data)) from None
            self.ended = not data
            parts.append(data)
        self._rest, added = self._take_whole(b"".join(parts))
        return added

    def close(self) -> None:
        """End the reading."""
        self._stream.close()
