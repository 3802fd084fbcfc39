"""A log that is still being written: what was added since the last look, and the report so far."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forensics.errors import SourceError
from forensics.model import Context, Source
from forensics.statistics.model import Report
from forensics.statistics.summary import Gatherer

_CHUNK = 8 * 1024 * 1024


class Follower:
    """Reads a growing file. A file that became shorter or another one is read anew.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gatherer: Gatherer | None = None
        self._position = 0
        self._identity: tuple[int, int] | None = None

    def look(self) -> bool:
        """Read what was added; say whether there was anything.

        Only whole lines are taken: a line that is being written comes with the next look.

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
            raise SourceError(
                f"{self._path} cannot be read", error.strerror or str(error)
            ) from None

    def _take(self, file: Any) -> bool:  # noqa: ANN401 - an open file
        file.seek(self._position)
        added = False
        while data := file.read(_CHUNK):
            end = data.rfind(b"\n") + 1
            if not end:
                break
            if self._gatherer is None:
                source = Source(kind="file", name=str(self._path))
                self._gatherer = Gatherer(source, data[:end], Context(running=True))
            self._gatherer.feed(data[:end])
            self._position += end
            file.seek(self._position)
            added = True
        return added

    def report(self, tables: Mapping[str, Any]) -> Report:
        """Return the report on what was read so far.

        Raises:
            SourceError: Nothing was read yet.
        """
        if self._gatherer is None:
            raise SourceError(f"{self._path} is empty", "nothing was logged yet")
        return self._gatherer.report(tables)
