"""A source that is open, to the runs in it: envelopes off, candidates found, starts told apart.

In: a reader and a finder. Out: the runs of the log, in the order in which they ended. Blocks are
scanned in threads where the source is large; the result is the same.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Protocol

from msgspec import Struct

from forensics.envelopes import Block, Pipeline, clean, pipeline
from forensics.evidence import Wanted, in_window
from forensics.hyperscan_finder import HyperscanFinder
from forensics.model import Source
from forensics.patterns import PlainFinder
from forensics.starts import Run, Runs

#: Blocks in work at once; each holds a few megabytes.
_AHEAD = 6
HEAD_BYTES = 65_536


class Reader(Protocol):
    """What is needed of an open source."""

    @property
    def head(self) -> bytes:
        """Return its first bytes."""

    @property
    def source(self) -> Source:
        """Return what it is."""

    @property
    def consumed(self) -> int:
        """Return how many bytes were handed out."""

    def runs(self) -> Iterator[bytes]:
        """Yield its bytes in runs of whole lines."""


class Memory(Struct):
    """Bytes in memory, read as a source."""

    head: bytes
    source: Source

    @property
    def consumed(self) -> int:
        """Return how many bytes there are."""
        return len(self.head)

    def runs(self) -> Iterator[bytes]:
        """Yield all of them."""
        yield self.head


class _Task(Struct):
    """A block and its candidates; lines that nothing wraps come raw and are cleaned on the way."""

    service: str | None
    block: Block
    statistics: bool
    raw: bytes | None = None
    candidates: list[tuple[int, int]] = []

    def work(self, find: HyperscanFinder | PlainFinder) -> None:
        """Clean what is raw and look for candidates (in any thread)."""
        if self.raw is not None:
            self.block = clean(self.raw, self.block.first_line)
        self.candidates = find.candidates(self.block.text, statistics=self.statistics)


class Scan:
    """One pass over a source.

    Args:
        reader: The source.
        wants: All patterns.
        find: Looks for them.
    """

    def __init__(self, reader: Reader, wants: Wanted, find: HyperscanFinder | PlainFinder) -> None:
        self._reader, self._wants, self._find = reader, wants, find
        self.pipeline: Pipeline = pipeline(reader.head[:HEAD_BYTES])

    def runs(self) -> Iterator[Run]:
        """Yield each run when it has ended or the source has; the last one of a service last."""
        runs = Runs(self._wants, self._find.candidates)
        for task in self._scanned():
            if task.raw is not None:
                task.block = self.pipeline.counted(task.block, task.raw)
            yield from runs.feed(
                task.service, task.block, task.candidates, statistics=task.statistics
            )
        yield from runs.finish()

    def _scanned(self) -> Iterator[_Task]:
        pieces = self._reader.runs()
        first = next(pieces, b"")
        second = next(pieces, None)
        tasks = self._tasks(chain([first], [] if second is None else [second], pieces))
        if second is None or not isinstance(self._find, HyperscanFinder):
            for task in tasks:
                task.work(self._find)
                yield task
            return
        yield from _in_threads(tasks, self._find)

    def _tasks(self, pieces: Iterable[bytes]) -> Iterator[_Task]:
        """Take envelopes off; say for each block whether lines of statistics are wanted in it."""
        if self.pipeline.name is None:
            yield from _raw_tasks(pieces)
            return
        positions: dict[str | None, int] = {}
        given = False
        for service, block in chain(
            (one for piece in pieces for one in self.pipeline.feed(piece)),
            self.pipeline.finish(),
        ):
            position = positions.get(service, 0)
            positions[service] = position + len(block.text)
            given = True
            yield _Task(service, block, in_window(position, len(block.text)))
        if not given:
            yield _Task(None, Block(b"", 1, (), 0), statistics=True)


def _raw_tasks(pieces: Iterable[bytes]) -> Iterator[_Task]:
    """Give runs that nothing wraps; where they stand in the clean text is only about known."""
    position = 0
    for piece in pieces:
        # The first line alone may begin with a mark of its encoding; true numbers come later.
        place = Block(b"", 1 if position == 0 else 2, (), 0)
        yield _Task(None, place, in_window(position, len(piece)), raw=piece)
        position += len(piece)


def _in_threads(tasks: Iterator[_Task], find: HyperscanFinder) -> Iterator[_Task]:
    """Scan blocks in threads; give them in their order."""
    workers = max(2, min(4, os.cpu_count() or 2))
    finders: deque[HyperscanFinder] = deque(find.clone() for _ in range(workers))

    def work(task: _Task) -> _Task:
        mine = finders.popleft()
        try:
            task.work(mine)
            return task
        finally:
            finders.append(mine)

    with ThreadPoolExecutor(workers) as pool:
        queue: deque[Future[_Task]] = deque()
        for task in tasks:
            queue.append(pool.submit(work, task))
            if len(queue) > workers + _AHEAD:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
