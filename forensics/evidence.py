"""Blocks and candidates to `Evidence`: the only place where a log's size matters.

`Builder` takes blocks in order with the candidates that a finder named. It makes records only
around what is interesting, keeps first and last occurrences, and counts the rest, so that memory
does not grow with the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from forensics import facts, times, tracebacks
from forensics.engines import DIALECTS, ENGINES, Dialect, Metrics, Signal
from forensics.engines.generic import in_request
from forensics.envelopes import Block, Quiet
from forensics.model import (
    Context,
    Evidence,
    ExceptionEvent,
    Excerpt,
    Hit,
    Milestone,
    Record,
    SignalEvent,
    Source,
)
from forensics.patterns import confirm
from forensics.records import understand

HEADER_PATTERN = r"Traceback \(most recent call last\):\s*$"
KEEP_FIRST = 24
KEEP_LAST = 4
MAX_EXCEPTIONS = 256
MAX_SIGNALS = 400
MAX_EXCERPTS = 400
MAX_LINE_BYTES = 262_144
MAX_SERIES = 4096
#: A log of days holds millions of lines of statistics, and medians need only some: all are read
#: in the first part, then those in one window of each period (bytes of clean text).
STATISTICS_FIRST = 2 * 1024 * 1024
STATISTICS_PERIOD = 16 * 1024 * 1024
STATISTICS_WINDOW = 128 * 1024
_WINDOW = 262_144
_CONTEXT_LINES = 2
#: The first time in a log is looked for in so many lines.
_CLOCK_LINES = 1_000
#: A shorter message is no proof that an earlier line spoke of the same thing.
_MIN_REPEATED = 16
#: A program that dies of an exception prints little after it.
_LAST_WORDS = 40
_BLANK = b" \t\r\n\0"
#: The end of an access line of uvicorn that tells of success, and how far from the end it counts.
_ANSWERED = b'HTTP/1.1" 2'
_TAIL_BYTES = 16_384


def in_window(position: int, length: int = 1) -> bool:
    """Say whether lines of statistics are read anywhere in a stretch of the clean text.

    Args:
        position: Where it begins, in bytes.
        length: How long it is.
    """
    if position < STATISTICS_FIRST:
        return True
    phase = position % STATISTICS_PERIOD
    return phase < STATISTICS_WINDOW or phase + length > STATISTICS_PERIOD


class Wanted(Struct, frozen=True):
    """All patterns, each once, and what each is for.

    Attributes:
        patterns: In a fixed order; a finder names candidates by index.
        finds: What the finder looks for in place of each (mostly the same).
        signals: Pattern index to the signals that use it, with their dialects.
        rules: Indices that rules use.
        structure: Indices at which a traceback may begin.
        statistics: Texts that mark a line of running statistics.
    """

    patterns: tuple[str, ...]
    finds: tuple[str, ...]
    signals: dict[int, tuple[tuple[Dialect, Signal], ...]]
    rules: frozenset[int]
    structure: frozenset[int]
    statistics: tuple[str, ...]


def wanted(rule_patterns: Iterable[str]) -> Wanted:
    """Number the patterns of dialects, tracebacks and rules."""
    index: dict[str, int] = {}
    finds: dict[int, str] = {}
    signals: dict[int, list[tuple[Dialect, Signal]]] = {}
    structure = [index.setdefault(p, len(index)) for p in (HEADER_PATTERN, tracebacks.BARE)]
    for dialect in DIALECTS:
        for signal in dialect.signals:
            number = index.setdefault(signal.pattern, len(index))
            signals.setdefault(number, []).append((dialect, signal))
            if signal.find:
                finds[number] = signal.find
    rules = frozenset(index.setdefault(p, len(index)) for p in dict.fromkeys(rule_patterns))
    return Wanted(
        patterns=tuple(index),
        finds=tuple(finds.get(i, p) if i not in rules else p for i, p in enumerate(index)),
        signals={k: tuple(v) for k, v in signals.items()},
        rules=rules,
        structure=frozenset(structure),
        statistics=tuple(
            s.find for d in DIALECTS for s in d.signals if s.kind == "statistics" and s.find
        ),
    )


class _Kept(Struct):
    """First and last hits of one pattern."""

    first: list[Hit]
    last: list[Hit]
    count: int = 0

    def add(self, hit: Hit) -> None:
        self.count += 1
        if len(self.first) < KEEP_FIRST:
            self.first.append(hit)
        else:
            self.last.append(hit)
            if len(self.last) > KEEP_LAST:
                self.last.pop(0)


class _Series(Struct):
    """Numbers of one name, thinned evenly so that they stay few."""

    values: list[tuple[int, float]]
    stride: int = 1
    seen: int = 0

    def add(self, line: int, value: float) -> None:
        if self.seen % self.stride == 0:
            self.values.append((line, value))
            if len(self.values) > MAX_SERIES:
                self.values = self.values[::2]
                self.stride *= 2
        self.seen += 1


class Builder:
    """Blocks in, evidence out; see the module's text.

    Args:
        wants: All patterns.
    """

    def __init__(self, wants: Wanted) -> None:
        self._wants = wants
        self._hits: dict[int, dict[str, _Kept]] = {}
        self._signals: list[SignalEvent] = []
        self._numbers: dict[str, _Series] = {}
        self._statistics = tuple(text.encode() for text in wants.statistics)
        self._position = 0
        self._answered: list[int] = []
        self._offsets: dict[int, int] = {}
        self._identity: dict[str, int] = {}
        self._ready: dict[str, int] = {}
        self._seen_signals: dict[tuple[str, str, str], int] = {}
        self._assembler = tracebacks.Assembler()
        self._exceptions: list[ExceptionEvent] = []
        self._folded: dict[tuple[str, str, str | None], int] = {}
        self._by_number: dict[int, int] = {}
        self._excerpts: dict[int, Excerpt] = {}
        self._limits: dict[str, int] = {}
        self._recent: list[tuple[int, Block | Quiet]] = []
        self._passed: Quiet | None = None
        self._short: dict[int, int] = {}
        self._walking = False
        self._walk_from = 0
        self._first_clock: Record | None = None
        self._last: Record | None = None
        self._timed: Record | None = None
        self._lines = 0
        self._unfinished = False
        self._dropped = 0

    # --- feeding -------------------------------------------------------------------------------

    def feed(self, block: Block, candidates: list[tuple[int, int]]) -> None:
        """Take the next block.

        Args:
            block: Clean text of whole lines.
            candidates: (offset, pattern index) by offset, as a finder gives them.
        """
        text = block.text
        cursor, ahead = _Cursor(block), _Cursor(block)
        self._remember(block)
        walked = self._walk(ahead, 0) if self._walking else 0
        if self._first_clock is None:
            self._find_clock(block)
        start, end = 0, -1
        found: set[int] = set()
        for offset, index in candidates:
            if offset > end:
                if found:
                    walked = self._line(cursor, ahead, start, end, found, walked)
                start = text.rfind(b"\n", 0, offset) + 1
                end = text.find(b"\n", offset)
                end = len(text) if end < 0 else end
                found = set()
            found.add(index)
        if found:
            self._line(cursor, ahead, start, end, found, walked)
        self._remember_end(block)
        self._position += block.size

    def pass_over(self, quiet: Quiet) -> None:
        """Take lines in which no pattern can match; not where they are `attentive`."""
        self._remember(quiet)
        self._lines += quiet.lines
        self._position += quiet.size
        self._passed = quiet

    @property
    def attentive(self) -> bool:
        """Whether the next lines must be read, whatever stands in them."""
        return self._walking or self._first_clock is None

    @property
    def position(self) -> int:
        """Bytes of clean text taken so far."""
        return self._position

    @property
    def timed(self) -> Record | None:
        """The last line that has a time."""
        return self._timed

    @property
    def ready(self) -> bool:
        """Whether a server has said that it is ready."""
        return bool(self._ready)

    @property
    def underway(self) -> bool:
        """Whether the run got beyond its first words: then another start is another run."""
        if self._exceptions:
            return True
        early = {name for dialect in ENGINES for name in dialect.milestones[:2]}
        return any(
            s.kind in {"fatal", "death", "crash", "end", "stop"}
            or (s.kind == "milestone" and s.name not in early)
            for s in self._signals
        )

    def runs_inside(self, engine: str) -> bool:
        """Say whether a program seen here runs that engine itself and passes its output on."""
        return any(engine in d.passes_on for d in ENGINES if self._identity.get(d.name))

    def _line(
        self,
        cursor: _Cursor,
        ahead: _Cursor,
        start: int,
        end: int,
        found: set[int],
        walked: int,
    ) -> int:
        """Handle one line with its candidates; return up to where tracebacks were read."""
        block = cursor.block
        raw = block.text[start : min(end, start + MAX_LINE_BYTES)]
        if not in_window(self._position + start) and any(text in raw for text in self._statistics):
            return walked
        number = cursor.line(start)
        record = understand(raw, number, cursor.time(start))
        begins = False
        for index in sorted(found):
            pattern = self._wants.patterns[index]
            try:
                groups = confirm(pattern, record.message)
            except TimeoutError:
                self._limit("a pattern took too long on a line and was given up there")
                continue
            if groups is None:
                continue
            begins |= index in self._wants.structure
            if index in self._wants.rules:
                group = record.kind if record.kind in {"access", "request", "dump"} else "message"
                kept = self._hits.setdefault(index, {}).setdefault(group, _Kept([], []))
                kept.add(Hit(record, groups))
                if kept.count <= _CONTEXT_LINES:
                    self._excerpt(self._position + start, number)
            for dialect, signal in self._wants.signals.get(index, ()):
                self._signal(dialect, signal, record, groups)
                if signal.kind in {"fatal", "death", "crash", "milestone"}:
                    self._excerpt(self._position + start, number)
        if begins and start >= walked and record.kind not in {"access", "request", "dump"}:
            self._walk_from = self._position + start
            self._offsets.clear()
            return self._walk(ahead, start)
        return walked

    def _signal(
        self, dialect: Dialect, signal: Signal, record: Record, groups: dict[str, str]
    ) -> None:
        if record.kind in {"access", "request"} or (
            record.kind == "dump" and signal.kind != "fact"
        ):
            return
        if signal.identity:
            self._identity[dialect.name] = self._identity.get(dialect.name, 0) + 1
        if signal.kind == "statistics":
            for name, number in _numbers(groups):
                self._numbers.setdefault(name, _Series([])).add(record.line, number)
        if signal.kind == "milestone" and signal.name == dialect.ready:
            self._ready[dialect.name] = record.line
        key = (dialect.name, signal.kind, signal.name)
        seen = self._seen_signals[key] = self._seen_signals.get(key, 0) + 1
        once = signal.kind in {"milestone", "statistics"}
        if seen <= (1 if once else KEEP_FIRST) and len(self._signals) < MAX_SIGNALS:
            self._signals.append(
                SignalEvent(signal.kind, signal.name, record, groups, dialect.name, signal.gives_up)
            )

    # --- tracebacks ----------------------------------------------------------------------------

    def _walk(self, cursor: _Cursor, start: int) -> int:
        """Feed lines to the assembler from `start` on until no traceback is open."""
        text = cursor.block.text
        position = start
        self._walking = True
        while position < len(text):
            end = text.find(b"\n", position)
            end = len(text) if end < 0 else end
            number = cursor.line(position)
            record = understand(
                text[position : min(end, position + MAX_LINE_BYTES)], number, cursor.time(position)
            )
            self._offsets[number] = self._position + position
            self._assembler.feed(record)
            self._collect(self._assembler.take())
            position = end + 1
            if not self._assembler.busy:
                self._walking = False
                self._collect(self._assembler.finish())
                break
        return position

    def _collect(self, raised: list[tracebacks.Raised]) -> None:
        for one in raised:
            self._exception(one)

    def _exception(self, one: tracebacks.Raised) -> None:
        record = one.record
        process, depth = self._whose(one)
        first_line = one.message.split("\n", 1)[0]
        key = (one.type, first_line[:300], process)
        known = self._folded.get(key)
        if known is not None and self._exceptions[known].line < record.line:
            old = self._exceptions[known]
            self._exceptions[known] = replace(old, count=old.count + 1, last_line=record.line)
            self._by_number[one.number] = known
            return
        if known is None and len(self._exceptions) >= MAX_EXCEPTIONS:
            self._dropped += 1
            return
        line, text = tracebacks.telling(one)
        earlier = self._first_seen(first_line, one)
        event = ExceptionEvent(
            type=one.type,
            message=tracebacks.full_message(one),
            line=record.line,
            text=record.text,
            telling_line=line,
            telling_text=text,
            header=one.header,
            process=process,
            depth=depth,
            pid=record.pid,
            level=record.level,
            relation=one.relation,
            cause=self._by_number.get(one.cause) if one.cause is not None else None,
            frames=one.frames,
            first_seen=earlier[0] if earlier else None,
            first_seen_text=earlier[1] if earlier else None,
            last_line=record.line,
            end_line=one.extra[-1][0] if one.extra else record.line,
            clock=record.clock,
            in_group=one.in_group,
            at=record.at,
        )
        if known is not None:
            # Logger and raw output of one process close in any order: the earlier line leads.
            old = self._exceptions[known]
            event = replace(event, count=old.count + 1, last_line=max(old.last_line, old.line))
            self._exceptions[known] = event
        else:
            known = len(self._exceptions)
            self._exceptions.append(event)
        self._folded[key] = self._by_number[one.number] = known
        if len(self._exceptions) <= KEEP_FIRST:
            for number in (record.line, line):
                if number in self._offsets:
                    self._excerpt(self._offsets[number], number)

    def _whose(self, one: tracebacks.Raised) -> tuple[str | None, int]:
        """Return the process of an exception and its depth: as printed, else by its frames."""
        if one.record.process:
            return one.record.process, max(e.depth(one.record.process) for e in ENGINES)
        for engine in ENGINES:
            process, depth = engine.process_of(one.frames)
            if process:
                return process, depth
        return None, 0

    def _first_seen(self, message: str, one: tracebacks.Raised) -> tuple[int, str] | None:
        """Find an earlier line that already printed the message, as libraries do that retry.

        Only raw output of the same process shortly before the traceback counts: a logger that
        quotes an exception reports the same event.
        """
        if len(message) < _MIN_REPEATED or len(self._exceptions) >= KEEP_FIRST:
            return None
        needle = message[:200].encode()
        for base, block in self._near():
            text, until = block.text, max(0, self._walk_from - base)
            place = text.find(needle, max(0, until - _WINDOW), until)
            while place >= 0:
                start = text.rfind(b"\n", 0, place) + 1
                end = text.find(b"\n", place)
                number = _line_of(block, start)
                record = understand(text[start : min(end, start + MAX_LINE_BYTES)], number)
                same = record.process in {None, one.record.process}
                if same and record.kind == "raw" and record.level is None:
                    return number, record.text
                place = text.find(needle, end, until)
        return None

    # --- lines around --------------------------------------------------------------------------

    def _remember(self, block: Block | Quiet) -> None:
        """Keep what stood shortly before: the neighbours of a line may be in another block."""
        oldest = self._position - 2 * _WINDOW
        self._recent = [(base, b) for base, b in self._recent if base + b.size > oldest]
        self._recent.append((self._position, block))
        first = self._recent[0][0]
        self._offsets = {n: offset for n, offset in self._offsets.items() if offset >= first}
        short, self._short = self._short, {}
        for number, offset in short.items():
            del self._excerpts[number]
            self._excerpt(offset, number)

    def _near(self) -> list[tuple[int, Block]]:
        """Return what stood shortly before, unwrapped."""
        found = [(base, b.block() if isinstance(b, Quiet) else b) for base, b in self._recent]
        self._recent = list(found)
        return found

    def _excerpt(self, offset: int, number: int) -> None:
        """Keep the neighbours of a line that may be quoted.

        Args:
            offset: Where it begins in the clean text of the whole source.
            number: Its physical number.
        """
        if number in self._excerpts or len(self._excerpts) >= MAX_EXCERPTS:
            return
        after = tuple(self._after(offset, number))
        if len(after) < _CONTEXT_LINES:
            self._short[number] = offset
        self._excerpts[number] = Excerpt(tuple(self._before(offset, number)), after)

    def _before(self, offset: int, number: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for base, block in reversed(self._near()):
            edge = min(offset - base, len(block.text)) - 1
            while edge >= 0 and len(found) < _CONTEXT_LINES:
                begin = block.text.rfind(b"\n", 0, edge) + 1
                here = _line_of(block, begin) if block.uneven else number - len(found) - 1
                found.insert(0, (here, self._plain(block.text[begin:edge])))
                edge = begin - 1
        return found

    def _after(self, offset: int, number: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        mine = True
        for base, block in self._near():
            text = block.text
            begin = max(0, offset - base)
            if begin >= len(text):
                continue
            while begin < len(text) and len(found) < _CONTEXT_LINES:
                end = text.find(b"\n", begin)
                end = len(text) if end < 0 else end
                if not mine:
                    here = _line_of(block, begin) if block.uneven else number + len(found) + 1
                    found.append((here, self._plain(text[begin:end])))
                mine = False
                begin = end + 1
        return found

    @staticmethod
    def _plain(raw: bytes) -> str:
        return raw[:4096].decode("utf-8", "replace")

    def _find_clock(self, block: Block) -> None:
        """Take the first time in the log as the zero of the timeline."""
        start = 0
        for back in range(_CLOCK_LINES - self._lines):
            end = block.text.find(b"\n", start)
            if end < 0:
                return
            number, at = block.line_at(back, start), block.time_at(back, start)
            record = understand(block.text[start : min(end, start + 4096)], number, at)
            if record.clock or record.at:
                self._first_clock = record
                return
            start = end + 1

    def _remember_answers(self, block: Block) -> None:
        """Note the last line, near the end, by which a request was answered with success."""
        text = block.text
        place = text.rfind(_ANSWERED, max(0, len(text) - _TAIL_BYTES))
        if place >= 0:
            self._answered = [block.line_at(block.newlines - text.count(b"\n", place), place)]

    def _remember_end(self, block: Block) -> None:
        self._lines += block.lines
        if self._passed is not None and not block.text.strip(_BLANK):
            self._note_end(self._passed.block())
        self._passed = None
        self._note_end(block)

    def _note_end(self, block: Block) -> None:
        self._remember_answers(block)
        self._unfinished = bool(block.text) and not block.text.endswith(b"\n")
        edge, missing, left = len(block.text), True, _CLOCK_LINES
        while edge > 0 and left > 0:
            start = block.text.rfind(b"\n", 0, edge - 1) + 1 if edge > 1 else 0
            line = block.text[start:edge]
            if line.strip(_BLANK):
                after = block.text.count(b"\n", start)
                before = block.newlines - after
                number, at = block.line_at(before, start), block.time_at(before, start)
                record = understand(line.rstrip(b"\n")[:MAX_LINE_BYTES], number, at)
                self._last = record if missing else self._last
                missing, left = False, left - 1
                if record.at or record.clock:
                    self._timed = record
                    return
            edge = start

    def _limit(self, text: str) -> None:
        self._limits[text] = self._limits.get(text, 0) + 1

    # --- the result ----------------------------------------------------------------------------

    def finish(self, source: Source, context: Context, written: str | None = None) -> Evidence:
        """Return the evidence of all blocks fed.

        Args:
            source: Where they came from (its line count is filled in here).
            context: What is known beside the log.
            written: When the log was last written; gives printed clocks their year.
        """
        if self._passed is not None:
            self._note_end(self._passed.block())
            self._passed = None
        if written is not None:
            self._signals = [replace(s, record=_dated(s.record, written)) for s in self._signals]
        self._collect(self._assembler.finish())
        self._exceptions = _in_order(self._exceptions)
        dialect = self._engine()
        engine = dialect.name if dialect else None
        signals = tuple(
            sorted(
                (s for s in self._signals if _may_say(s, dialect)),
                key=lambda s: s.record.line,
            )
        )
        run = facts.run_of(signals, engine, context)
        arguments = facts.arguments_of(signals, context)
        milestones = self._milestones(signals, dialect)
        ending = self._ending(signals, dialect, context)
        head = context.whole or self._head_complete(milestones, signals, dialect)
        if ending == "orderly" and not milestones and not context.exit_code:
            head = context.whole  # an end alone
        tail = context.whole or ending in {"orderly", "running", "failure"}
        if self._dropped:
            self._limit(f"{self._dropped} more different exceptions were not read")
        lines = self._lines + int(self._unfinished)
        truncated = [*source.truncated]
        if not head:
            truncated.append("head")
        if ending == "cut" and not context.whole and "tail" not in truncated:
            truncated.append("tail")
        return Evidence(
            source=replace(source, lines=source.lines or lines, truncated=truncated),
            run=run,
            context=context,
            hits={
                index: sorted(
                    (
                        hit if written is None else Hit(_dated(hit.record, written), hit.groups)
                        for kept in groups.values()
                        for hit in (*kept.first, *kept.last)
                    ),
                    key=lambda hit: hit.record.line,
                )
                for index, groups in self._hits.items()
            },
            counts={i: sum(k.count for k in groups.values()) for i, groups in self._hits.items()},
            exceptions=tuple(self._exceptions),
            signals=signals,
            milestones=milestones,
            last_ready=self._ready.get(engine or ""),
            metrics=self._metrics(dialect, run.engine_version),
            arguments=arguments,
            architecture=facts.architectures_of(signals),
            versions=facts.versions_of(signals, engine, context),
            ending=ending,
            head_complete=head,
            tail_complete=tail,
            last=self._last,
            excerpts=self._excerpts,
            limits=tuple(text for text in self._limits),
            answered=tuple(self._answered),
            timed=_dated(self._timed, written) if self._timed and written else self._timed,
        )

    def _engine(self) -> Dialect | None:
        """Return the engine whose lines say so most often, or the one that passes them on."""
        seen = [d for d in ENGINES if self._identity.get(d.name)]
        engine = max(seen, key=lambda d: self._identity[d.name], default=None)
        if engine is None:
            # A program that dies at once prints nothing but a traceback through its own files.
            frames = [e.frames for e in self._exceptions]
            return next((d for d in ENGINES if any(d.process_of(f)[0] for f in frames)), None)
        return next((d for d in seen if engine.name in d.passes_on), engine)

    def _metrics(self, dialect: Dialect | None, version: str | None) -> Metrics:
        metrics = {name: series.values for name, series in self._numbers.items()}
        return dialect.normalise(metrics, version) if dialect else metrics

    def _milestones(
        self, signals: tuple[SignalEvent, ...], dialect: Dialect | None
    ) -> tuple[Milestone, ...]:
        names = dialect.milestones if dialect else ()
        return tuple(
            Milestone(
                s.name, s.record.line, s.record.at, seconds_between(self._first_clock, s.record)
            )
            for s in signals
            if s.kind == "milestone" and s.name in names and dialect and s.dialect == dialect.name
        )

    def _ending(
        self, signals: tuple[SignalEvent, ...], dialect: Dialect | None, context: Context
    ) -> Literal["orderly", "failure", "cut", "running"]:
        """Judge by the log's own words how it ends."""
        if any(s.kind == "end" for s in signals):
            return "orderly"
        if any(s.kind in {"fatal", "death"} for s in signals):
            return "failure"
        last = self._last.line if self._last else 0
        if any(
            e.level not in {"WARNING", "INFO", "DEBUG"}
            and last - e.end_line <= _LAST_WORDS
            and not in_request(e.frames)
            and not any(line > e.end_line for line in self._answered)
            for e in self._exceptions
        ):
            return "failure"
        if any(s.kind == "crash" for s in signals):
            return "failure"
        del dialect
        return "running" if context.running else "cut"

    def _head_complete(
        self,
        milestones: tuple[Milestone, ...],
        signals: tuple[SignalEvent, ...],
        dialect: Dialect | None,
    ) -> bool:
        """Say whether the log begins where the program began."""
        if dialect is None:
            return True
        early = set(dialect.milestones[:2])
        if any(m.milestone in early for m in milestones):
            return True
        return any(s.kind == "fatal" for s in signals) and not milestones


def _may_say(signal: SignalEvent, engine: Dialect | None) -> bool:
    """Say whether a signal counts in a log of this engine (any does, if it is unknown).

    What an engine runs inside may fail for it, but its end is not the engine's end.
    """
    if engine is None or signal.dialect not in {d.name for d in ENGINES} - {engine.name}:
        return True
    return signal.dialect in engine.passes_on and signal.kind not in {"stop", "end"}


def _dated(record: Record, written: str) -> Record:
    """Give a record a time, where the engine printed one without its year."""
    if record.at is not None or record.clock is None:
        return record
    return replace(record, at=times.with_year(record.clock, written))


def _in_order(exceptions: list[ExceptionEvent]) -> list[ExceptionEvent]:
    """Sort exceptions by their lines: of interleaved ones, a later one may be finished first."""
    order = sorted(range(len(exceptions)), key=lambda i: exceptions[i].line)
    place = {old: new for new, old in enumerate(order)}
    return [
        replace(one, cause=None if one.cause is None else place[one.cause])
        for one in (exceptions[i] for i in order)
    ]


class _Cursor:
    """Physical line numbers within one block, counted forwards only once."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._offset = 0
        self._newlines = 0

    def line(self, offset: int) -> int:
        """Return the physical number of the line that begins at `offset`."""
        if offset < self._offset:
            return _line_of(self.block, offset)
        self._newlines += self.block.text.count(b"\n", self._offset, offset)
        self._offset = offset
        return self.block.line_at(self._newlines, offset)

    def time(self, offset: int) -> str | None:
        """Return the time of the line that begins at `offset`, as its envelope says it."""
        if not self.block.times:
            return None
        if offset < self._offset:
            return self.block.time_at(self.block.text.count(b"\n", 0, offset), offset)
        self.line(offset)
        return self.block.time_at(self._newlines, offset)


def _line_of(block: Block, offset: int) -> int:
    return block.line_at(block.text.count(b"\n", 0, offset), offset)


def _numbers(groups: dict[str, str]) -> Iterable[tuple[str, float]]:
    """Yield the numbers of a line of statistics by name (see `Signal`)."""
    for name, value in groups.items():
        if name.endswith("_list"):
            for i, part in enumerate(value.split(","), 1):
                number = _number(part)
                if number is not None:
                    yield f"{name.removesuffix('_list')}_{i}", number
            continue
        number = _number(value)
        if number is None:
            continue
        if name.endswith("_pct"):
            yield name.removesuffix("_pct"), number / 100
        else:
            yield name, number


def _number(value: str) -> float | None:
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None  # noqa: PLR0124


_CLOCK = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")
_DAYS = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


def seconds_between(first: Record | None, then: Record) -> float | None:
    """Return the seconds from one record to another, None where a time is missing.

    Clocks without a year are taken as at most half a year apart, over New Year if need be.
    """
    if first is None:
        return None
    if first.at and then.at:
        return times.between(first.at, then.at)
    begin, end = _CLOCK.match(first.clock or ""), _CLOCK.match(then.clock or "")
    if begin is None or end is None:
        return None
    a, b = (
        _DAYS[int(m[1]) % 13] * 86_400
        + int(m[2]) * 86_400
        + int(m[3]) * 3600
        + int(m[4]) * 60
        + int(m[5])
        for m in (begin, end)
    )
    span_s = b - a
    if span_s < -182 * 86_400:
        span_s += 365 * 86_400
    return float(span_s)


def index_of(wants: Wanted) -> Mapping[str, int]:
    """Return the index of each pattern."""
    return {pattern: i for i, pattern in enumerate(wants.patterns)}
