"""A report without a log: on the counters of an endpoint, or on benchmark results alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forensics import redaction
from forensics.model import Run, Source
from forensics.statistics import figures, intervals, summary
from forensics.statistics.model import (
    SCHEMA,
    Counters,
    Distribution,
    Estimate,
    Point,
    Position,
    Report,
    Speculation,
    Speculative,
    Startup,
    Stats,
    Throughput,
)
from forensics.statistics.table import Rows


def report_on_counters(
    counters: Counters, name: str, size: int, tables: Mapping[str, Any]
) -> Report:
    """Return the same figures from the counters of an endpoint: exact, without windows.

    Args:
        counters: What it counted.
        name: Its address or file.
        size: Bytes of its answer.
        tables: Tables of the rule packs.
    """
    source = Source(kind="metrics", name=redaction.text(name), bytes=size)
    found = _counted(counters)
    points = [
        Point(None, None, name, value, scope="total")
        for name, value in (
            ("running", counters.running),
            ("waiting", counters.waiting),
            ("kv_cache_usage", counters.kv_cache_usage),
            ("prompt_tokens", counters.prompt_tokens),
            ("generation_tokens", counters.generation_tokens),
            ("preemptions", counters.preemptions),
            ("mean_time_to_first_token_s", _mean(counters.ttft)),
            ("mean_inter_token_latency_s", _mean(counters.inter_token)),
        )
        if value is not None
    ]
    hits, queries = counters.prefix_hits, counters.prefix_queries
    rate = hits / queries if hits is not None and queries else None
    stats = Stats(
        schema=SCHEMA,
        source=source,
        speculative=found.totals if found else None,
        throughput=Throughput(prefix_cache_hit_rate=Distribution(median=rate)),
        startup=Startup(),
        series=[*figures.totals_points(found), *points],
        findings=[],
    )
    report = Report(
        stats=stats,
        run=Run(engine=counters.engine, model=counters.model),
        rows=Rows(),
        speculation=found,
        loads=(),
        counters=counters,
    )
    return summary.concluded(report, tables)


def report_on_nothing() -> Report:
    """Return a report without a log, for benchmark results alone."""
    stats = Stats(
        schema=SCHEMA,
        source=Source(kind="none", name=""),
        speculative=None,
        throughput=Throughput(),
        startup=Startup(),
        series=[],
        findings=[],
    )
    return Report(stats=stats, run=Run(), rows=Rows(), speculation=None, loads=())


def _mean(histogram: tuple[float, int] | None) -> float | None:
    return histogram[0] / histogram[1] if histogram and histogram[1] else None


def _counted(counters: Counters) -> Speculation | None:
    drafted, accepted, drafts = counters.draft_tokens, counters.accepted_tokens, counters.drafts
    if not drafted and counters.acceptance_length is None:
        return None
    rates = [count / drafts for count in counters.per_position] if drafts else []
    length = (
        1 + accepted / drafts if drafts and accepted is not None else counters.acceptance_length
    )
    totals = Speculative(
        method=None,
        num_speculative_tokens=len(rates) or None,
        windows=0,
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        acceptance_rate=accepted / drafted if drafted and accepted is not None else None,
        mean_acceptance_length=length,
        per_position=[round(rate, 6) for rate in rates],
        accepted_throughput=None,
        drafted_throughput=None,
        excluded_warmup=0,
        first_at=None,
        last_at=None,
    )
    if not drafts:
        return Speculation(totals)
    exact = (float(drafts), float(drafts))
    positions: tuple[Position, ...] = intervals.positions(rates, drafts, exact)
    spread: Estimate = intervals.length((accepted or 0) / drafts, drafts, exact, rates)
    return Speculation(
        totals,
        drafts_low=drafts,
        drafts_high=drafts,
        rate=intervals.rate(totals, drafts, rates),
        length=spread,
        positions=positions,
    )
