"""One log, several runs: split where a server starts again, and by service.

In: clean blocks with candidates. Out: one `Builder` for each run, in the order in which they
began. A restarted container, a compose service and a journal's unit keep writing to one log; what
one run printed says nothing of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from forensics.envelopes import Block, Quiet
from forensics.evidence import Builder, Wanted, in_window
from forensics.patterns import confirm
from forensics.records import understand

Candidates = list[tuple[int, int]]
Finder = Callable[[bytes], Candidates]


class Run(Struct):
    """One run of one service.

    Attributes:
        service: The container or unit, None where the log names none.
        number: 1 for the first run of the service.
        builder: What was seen of it.
        first_line: Physical line at which it begins.
    """

    service: str | None
    number: int
    builder: Builder
    first_line: int


class Runs:
    """Blocks in, runs out.

    Args:
        wants: All patterns.
        rescan: Finds candidates with those of statistics (the first part of a run has them).
    """

    def __init__(self, wants: Wanted, rescan: Finder) -> None:
        self._wants = wants
        self._rescan = rescan
        self._now: dict[str | None, Run] = {}
        self._starts = {
            index: dialect.name
            for index, pairs in wants.signals.items()
            for dialect, signal in pairs
            if signal.kind == "milestone" and signal.name in dialect.milestones[:1]
        }

    def feed(
        self,
        service: str | None,
        block: Block | Quiet,
        candidates: Candidates,
        *,
        statistics: bool,
    ) -> Iterator[Run]:
        """Take the next block of a service; give the runs that ended in it.

        Args:
            service: Whose it is.
            block: Clean text of whole lines, or lines in which no pattern can match.
            candidates: What a finder named in it.
            statistics: Whether it looked for lines of statistics.
        """
        run = self._now.get(service)
        if run is None:
            run = self._now[service] = Run(service, 1, Builder(self._wants), block.first_line)
        if isinstance(block, Quiet):
            if not run.builder.attentive and not in_window(run.builder.position, block.size):
                run.builder.pass_over(block)
                return
            block, statistics = block.block(), False
        if not statistics and in_window(run.builder.position, block.size):
            candidates = self._rescan(block.text)
        starts = self._begins(block, candidates)
        if not starts:
            run.builder.feed(block, candidates)
            return
        rest = _Rest(block, candidates)
        for offset, engine in starts:
            rest.feed(run.builder, offset)
            if run.builder.underway and not run.builder.runs_inside(engine):
                yield run
                run = Run(service, run.number + 1, Builder(self._wants), rest.line)
                self._now[service] = run
        rest.feed(run.builder, len(block.text))

    def _begins(self, block: Block, candidates: Candidates) -> list[tuple[int, str]]:
        """Return the offsets of lines by which a server says that it begins, and which it is."""
        found: list[tuple[int, str]] = []
        end = -1
        for offset, index in candidates:
            if index not in self._starts or offset <= end:
                continue
            start = block.text.rfind(b"\n", 0, offset) + 1
            stop = block.text.find(b"\n", offset)
            stop = len(block.text) if stop < 0 else stop
            record = understand(block.text[start : min(stop, start + 65_536)], 0)
            try:
                says = confirm(self._wants.patterns[index], record.message) is not None
            except TimeoutError:
                continue
            if says and record.kind in {"log", "raw"}:
                found.append((start, self._starts[index]))
                end = stop
        return found

    def finish(self) -> Iterator[Run]:
        """Give the runs that were going on when the log ended."""
        yield from self._now.values()
        self._now.clear()


class _Rest:
    """What of a block has not been fed yet; each line is looked at once."""

    def __init__(self, block: Block, candidates: Candidates) -> None:
        self._block, self._candidates = block, candidates
        self._index = self._newlines = 0
        self.begin = 0

    @property
    def line(self) -> int:
        """Return the physical number of the first line."""
        return self._block.line_at(self._newlines, self.begin)

    def feed(self, builder: Builder, end: int) -> None:
        """Feed the lines up to an offset at which one begins."""
        begin, mine = self.begin, []
        if end <= begin:
            return
        # A candidate's offset lies in its line or at its end, which may be that of the text.
        final = end == len(self._block.text)
        while self._index < len(self._candidates):
            offset, pattern = self._candidates[self._index]
            if offset >= end and not final:
                break
            mine.append((offset - begin, pattern))
            self._index += 1
        part = self._block.part(begin, end, self._newlines)
        builder.feed(part, mine)
        self.begin = end
        self._newlines += part.newlines
