"""The composition: a source that is open → the report; and what counters and benchmarks add to it.

Lines are parsed in threads while the next bytes are read. The start is understood as in a
diagnosis, but only up to the line at which the server serves.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import polars as pl
from msgspec.structs import replace

from forensics import redaction
from forensics.envelopes import Block, clean, pipeline
from forensics.evidence import Builder, wanted
from forensics.hyperscan_finder import finder
from forensics.model import Context, Evidence, Finding, Source
from forensics.sources import Reader
from forensics.statistics import advice, agreement, figures, table, windows
from forensics.statistics.formats import BY_NAME
from forensics.statistics.model import (
    SCHEMA,
    Bench,
    Counters,
    Report,
    Speculation,
    Startup,
    Stats,
)

#: The start is looked for in so many bytes of clean text at most.
_HEAD = 16 * 1024 * 1024
#: Lines whose text is kept, to quote them.
_QUOTED = 20_000
_WORKERS = 2
_YEARLESS = re.compile(r"\d\d-\d\d \d\d:")
_MARK = b"\xef\xbb\xbf"
_BUDGET = re.compile(
    rb"(?:Chunked prefill is enabled with max_num_batched_tokens=|max_num_batched_tokens to )"
    rb"(\d{1,9})"
)


class Gatherer:
    """Takes runs of lines and can report at any time what they amount to.

    Args:
        source: What is read.
        head: Its first bytes, for detection.
        context: What is known beside the log.
    """

    def __init__(self, source: Source, head: bytes, context: Context) -> None:
        self._source = source
        self._context = context
        self._pipeline = pipeline(head[:65_536])
        self._wants = wanted(())
        self._finder = finder(self._wants.finds, self._wants.statistics)
        self._builder = Builder(self._wants)
        self._served = False
        self._scanned = 0
        self._head_line = 1
        self._lines = 0
        self._bytes = 0
        self._budget: int | None = None
        self._frames: list[pl.DataFrame] = []
        self._rows = 0
        self._open_line = False

    def take(self, run: bytes) -> bytes:
        """Take the next run of lines, learn from it what belongs to the start, hand it on."""
        if not self._bytes and run.startswith(_MARK):
            self._bytes, run = len(_MARK), run[len(_MARK) :]
        self._bytes += len(run)
        self._open_line = not run.endswith(b"\n")
        if not self._served and self._scanned < _HEAD:
            self._start(run)
        return run

    @property
    def wrapped(self) -> bool:
        """Whether an envelope is around the lines."""
        return self._pipeline.name is not None

    def _start(self, run: bytes) -> None:
        block = clean(run, self._head_line)
        self._head_line += block.lines
        self._learn(block)

    def _learn(self, block: Block) -> None:
        """Read a piece of the start as a diagnosis reads it."""
        self._builder.feed(block, self._finder.candidates(block.text, statistics=False))
        self._scanned += len(block.text)
        self._served = self._builder.ready
        if self._budget is None and b"max_num_batched_tokens" in block.text:
            budget = _BUDGET.search(block.text)
            self._budget = int(budget[1]) if budget else None

    def parse(self, runs: list[bytes], *, texts: bool) -> table.Parsed:
        """Parse runs of whole lines (may run in a thread)."""
        return table.parse(b"".join(runs), texts=texts)

    def keep(self, parsed: table.Parsed) -> None:
        """Keep parsed rows, in order."""
        self._frames += [f.with_columns(pl.col("line") + self._lines) for f in parsed.frames]
        self._lines += parsed.lines
        self._rows += parsed.height

    @property
    def quoting(self) -> bool:
        """Whether the texts of further lines are kept."""
        return self._rows < _QUOTED

    def feed(self, run: bytes) -> None:
        """Take and parse one run at once."""
        if not self.wrapped:
            self.keep(self.parse([self.take(run)], texts=self.quoting))
            return
        self._bytes += len(run)
        for _, block in self._pipeline.feed(run):
            self._unwrapped(block)
        self._lines, self._open_line = self._pipeline.lines, self._pipeline.unfinished

    def end(self) -> None:
        """Take what an envelope still held back."""
        for _, block in self._pipeline.finish():
            self._unwrapped(block)

    def _unwrapped(self, block: Block) -> None:
        if not self._served and self._scanned < _HEAD:
            self._learn(block)
        for rows in table.parse_block(block, texts=self.quoting):
            self._frames.append(rows)
            self._rows += rows.height

    def report(self, tables: Mapping[str, Any]) -> Report:
        """Return the report on everything taken so far; ends the reading of the start."""
        evidence = self._builder.finish(self._source, self._context)
        rows = table.gathered(self._frames)
        self._frames = list(rows.parts.values())
        # Only the start was read as a diagnosis reads it: whether the end is there is not known.
        source = replace(
            evidence.source,
            bytes=self._bytes,
            lines=self._lines + int(self._open_line),
            envelope=self._pipeline.name,
            truncated=["head"] if evidence.last_ready is None and rows.height else [],
        )
        return _report(rows, evidence, source, tables, self._budget)


def gather(reader: Reader, context: Context) -> Gatherer:
    """Read a source to its end."""
    gatherer = Gatherer(reader.source, reader.head, context)
    if gatherer.wrapped:
        for run in reader.runs():
            gatherer.feed(run)
        gatherer.end()
        return gatherer
    with ThreadPoolExecutor(_WORKERS) as pool:
        queue: deque[Future[table.Parsed]] = deque()
        for runs in _batches(gatherer.take(run) for run in reader.runs()):
            queue.append(pool.submit(gatherer.parse, runs, texts=gatherer.quoting))
            if len(queue) > _WORKERS:
                gatherer.keep(queue.popleft().result())
        while queue:
            gatherer.keep(queue.popleft().result())
    return gatherer


def _batches(runs: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Gather runs until they are worth parsing."""
    parts: list[bytes] = []
    size = 0
    for run in runs:
        parts.append(run)
        size += len(run)
        if size >= table.BATCH:
            yield parts
            parts, size = [], 0
    if parts:
        yield parts


def _report(
    rows: table.Rows,
    evidence: Evidence,
    source: Source,
    tables: Mapping[str, Any],
    budget: int | None,
) -> Report:
    arguments = dict(evidence.arguments or {})
    if budget is not None:
        arguments.setdefault("max_num_batched_tokens", budget)
    k = _speculative_tokens(arguments)
    version = evidence.run.engine_version or ""
    rows = windows.recovered(
        rows,
        k=k,
        bonus=not version.startswith("0.8.5") if version else None,
        started=evidence.last_ready is not None,
        interval=_whole(arguments.get("decode_log_interval")) or windows.SGLANG_INTERVAL,
    )
    drafting = figures.drafting_rows(rows)
    found = figures.speculation(drafting, arguments, k)
    denoised = figures.diffusion(rows)
    engine = figures.engine_rows(rows)
    loads = figures.loads(drafting, engine)
    stats = Stats(
        schema=SCHEMA,
        source=source,
        speculative=found.totals if found else None,
        throughput=figures.throughput(engine),
        startup=_startup(evidence),
        series=[
            *figures.series(drafting, engine, found, loads),
            *figures.diffusion_points(denoised),
        ],
        findings=[],
    )
    run = evidence.run
    if run.engine is None and rows.height:
        first = min(rows.parts.items(), key=lambda item: int(item[1]["line"][0]))[0]
        run = replace(run, engine=BY_NAME[first].engine)
    report = Report(
        stats=stats,
        run=run,
        rows=rows,
        speculation=found,
        loads=loads,
        arguments=arguments,
        warmup=int(engine["warmup"].sum()),
        diffusion=denoised,
        limits=tuple(_limits(rows, evidence, found)),
    )
    return concluded(report, tables)


def concluded(report: Report, tables: Mapping[str, Any]) -> Report:
    """Return the report with the findings that its figures give."""
    found = msgspec.to_builtins(advice.findings(report, tables))
    safe = msgspec.convert(redaction.value(found), list[Finding])
    return replace(report, stats=replace(report.stats, findings=safe))


def with_benches(report: Report, benches: list[Bench], tables: Mapping[str, Any]) -> Report:
    """Return the report with benchmark results beside it."""
    return concluded(replace(report, benches=tuple(benches)), tables)


def with_counters(report: Report, counters: Counters, tables: Mapping[str, Any]) -> Report:
    """Return the report on a log with how well it agrees with the counters of the same run."""
    compared = tuple(agreement.compare(report, counters))
    return concluded(replace(report, counters=counters, agreement=compared), tables)


def _speculative_tokens(arguments: Mapping[str, Any]) -> int | None:
    config = arguments.get("speculative_config")
    if isinstance(config, dict):
        for name in ("num_speculative_tokens", "num_spec_tokens"):
            if _whole(config.get(name)):
                return _whole(config.get(name))
    if _whole(arguments.get("num_speculative_tokens")):
        return _whole(arguments["num_speculative_tokens"])
    # SGLang counts the token that the target adds among its draft tokens.
    verified = _whole(arguments.get("speculative_num_draft_tokens"))
    return verified - 1 if verified and verified > 1 else None


def _whole(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _startup(evidence: Evidence) -> Startup:
    def first(name: str) -> float | None:
        values = evidence.metrics.get(name)
        return values[0][1] if values else None

    tokens = first("kv_cache_tokens")
    served = [m.seconds for m in evidence.milestones if m.line == evidence.last_ready]
    return Startup(
        milestones=list(evidence.milestones),
        weights_gib=first("model_load_gib"),
        kv_cache_tokens=None if tokens is None else int(tokens),
        max_concurrency=first("max_concurrency"),
        compile_s=first("compile_s"),
        capture_s=first("capture_s"),
        total_s=_total(evidence, served),
    )


def _total(evidence: Evidence, served: list[float | None]) -> float | None:
    """Return the seconds until the server serves; uvicorn's own line often has no time."""
    if served and served[0] is not None:
        return served[0]
    if evidence.last_ready is None:
        return None
    known = [m.seconds for m in evidence.milestones if m.seconds is not None]
    return known[-1] if known else None


def _limits(rows: table.Rows, evidence: Evidence, found: Speculation | None) -> Iterator[str]:
    if evidence.last_ready is None and rows.height:
        yield (
            "the log does not begin where the server began: start-up times are not known, and its "
            "first window may reach back into the start"
        )
    if found is not None and found.estimated:
        yield (
            "SGLang prints no counts: drafts are estimated as the decode batches between two lines "
            "times the running requests"
        )
    parts = rows.parts.values()
    clocks = [c for part in parts if "clock" in part.columns for c in part["clock"].head(50)]
    if not any("at" in part.columns for part in parts) and any(
        c and _YEARLESS.match(c) for c in clocks
    ):
        yield "the log prints no year: times are given as printed"
    if rows.height:
        yield "what was done after the last line of statistics is never printed"
