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
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from forensics.envelopes import Block, Pipeline, Quiet, clean, pipeline
from forensics.envelopes.quiet import even_lines
from forensics.evidence import Wanted, in_window
from forensics.hyperscan_finder import HyperscanFinder, WrappedFinder
from forensics.model import Source
from forensics.patterns import PlainFinder
from forensics.sources import Reader
from forensics.starts import Run, Runs

#: Blocks in work at once; each holds a few megabytes.
_AHEAD = 6
HEAD_BYTES = 65_536
#: Of a wrapped log, stretches of so many bytes are read or passed over as one.
_STRETCH = 32_768
#: The envelope that can be searched without taking it off.
_SEARCHABLE = "docker-json"


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

    def work(self, find: _Finders) -> None:
        """Clean what is raw and look for candidates (in any thread)."""
        if self.raw is not None:
            self.block = clean(self.raw, self.block.first_line)
        self.candidates = find.clean.candidates(self.block.text, statistics=self.statistics)


class _Part(Struct):
    """Lines of a wrapped piece: read, or passed over; their numbers begin with the piece."""

    block: Block | Quiet
    lines: int
    candidates: list[tuple[int, int]] = []
    statistics: bool = False


class _Wrapped(Struct):
    """A piece of a log in Docker's json-file format, searched before it is unwrapped.

    Attributes:
        raw: Its bytes.
        position: Where it begins in the source.
        parts: What became of it, None where it must be unwrapped in order with its neighbours.
    """

    raw: bytes
    position: int
    parts: list[_Part] | None = None

    def work(self, find: _Finders) -> None:
        """Find the stretches that must be read and read them (in any thread)."""
        lines = even_lines(self.raw)
        if find.wrapped is None or lines is None:
            return
        places = find.wrapped.places(self.raw)
        if places is None:
            return
        parts: list[_Part] = []
        line = 1
        for begin, end, loud in self._stretches(places):
            last = end == len(self.raw)
            count = lines - line + 1 if last else self.raw.count(b"\n", begin, end)
            quiet = Quiet(self.raw[begin:end], line, count)
            part = _Part(quiet, quiet.lines)
            if loud:
                part.block = block = quiet.block()
                if block.numbers is not None:
                    return
                part.statistics = in_window(self.position + begin, end - begin)
                part.candidates = find.clean.candidates(block.text, statistics=part.statistics)
            parts.append(part)
            line += quiet.lines
        self.parts = parts

    def _stretches(self, places: list[int]) -> Iterator[tuple[int, int, bool]]:
        """Yield where stretches begin and end, and whether they must be read."""
        begin = start = 0
        was = False
        place = iter([*places, len(self.raw)])
        ahead = next(place)
        while start < len(self.raw):
            end = self.raw.find(b"\n", start + _STRETCH) + 1 or len(self.raw)
            loud = ahead < end or in_window(self.position + start, end - start)
            while ahead < end:
                ahead = next(place)
            if loud != was and start > begin:
                yield begin, start, was
                begin = start
            start, was = end, loud
        yield begin, len(self.raw), was


class _Finders(Struct):
    """What one thread searches with."""

    clean: HyperscanFinder | PlainFinder
    wrapped: WrappedFinder | None = None

    def clone(self) -> _Finders:
        """Return the same for another thread."""
        if isinstance(self.clean, PlainFinder):
            return self
        return _Finders(self.clean.clone(), self.wrapped.clone() if self.wrapped else None)


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
            if isinstance(task, _Wrapped):
                yield from self._unwrapped(task, runs)
                continue
            if task.raw is not None:
                task.block = self.pipeline.counted(task.block, task.raw)
            yield from runs.feed(
                task.service, task.block, task.candidates, statistics=task.statistics
            )
        yield from runs.finish()

    def _unwrapped(self, task: _Wrapped, runs: Runs) -> Iterator[Run]:
        """Take a piece that was searched first, where it stands between its neighbours."""
        if task.parts is None or self.pipeline.waiting:
            for service, block in self.pipeline.feed(task.raw):
                found = self._find.candidates(block.text)
                yield from runs.feed(service, block, found, statistics=True)
            return
        before = self.pipeline.lines
        for part in task.parts:
            here = replace(part.block, first_line=before + part.block.first_line)
            self.pipeline.lines += part.lines
            yield from runs.feed(None, here, part.candidates, statistics=part.statistics)

    def _scanned(self) -> Iterator[_Task | _Wrapped]:
        pieces = self._reader.runs()
        first = next(pieces, b"")
        second = next(pieces, None)
        every = chain([first], [] if second is None else [second], pieces)
        if second is None or not isinstance(self._find, HyperscanFinder):
            for task in self._tasks(every):
                task.work(_Finders(self._find))
                yield task
        elif self.pipeline.name == _SEARCHABLE:
            finders = _Finders(self._find, self._find.wrapped())
            yield from _in_threads(_wrapped_tasks(every), finders)
            for service, block in self.pipeline.finish():
                last = _Task(service, block, statistics=True)
                last.work(finders)
                yield last
        else:
            yield from _in_threads(self._tasks(every), _Finders(self._find))

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


_T = TypeVar("_T", _Task, _Wrapped)


def _wrapped_tasks(pieces: Iterable[bytes]) -> Iterator[_Wrapped]:
    position = 0
    for piece in pieces:
        yield _Wrapped(piece, position)
        position += len(piece)


def _in_threads(tasks: Iterator[_T], find: _Finders) -> Iterator[_T]:
    """Scan blocks in threads; give them in their order."""
    workers = max(2, min(4, os.cpu_count() or 2))
    finders: deque[_Finders] = deque(find.clone() for _ in range(workers))

    def work(task: _T) -> _T:
        mine = finders.popleft()
        try:
            task.work(mine)
            return task
        finally:
            finders.append(mine)

    with ThreadPoolExecutor(workers) as pool:
        queue: deque[Future[_T]] = deque()
        for task in tasks:
            queue.append(pool.submit(work, task))
            if len(queue) > workers + _AHEAD:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
