"""How well the totals of a log agree with the counters of the same run.

A log can only fall short: the last, unfinished window is never printed. So a count agrees if the
counter lies between what the printed numbers allow at least, and at most plus what one window can
hold (the largest one printed).
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from forensics.statistics import figures, intervals
from forensics.statistics.model import Agreement, Counters, Report


def compare(report: Report, counters: Counters) -> Iterator[Agreement]:
    """Yield one comparison a count that both sides have.

    Args:
        report: Of the log.
        counters: Of the endpoint, read after the log's last line.
    """
    frame = figures.drafting_rows(report.rows).filter(pl.col("problem").is_null())
    found = report.speculation
    if found is not None and not found.estimated:
        pairs = (
            ("accepted_tokens", counters.accepted_tokens),
            ("draft_tokens", counters.draft_tokens),
        )
        for name, counter in pairs:
            if counter is not None:
                total = float(frame[name].fill_null(0).sum())
                yield _agreement(name, total, (total, total), counter, _largest(frame[name]))
        if (
            counters.drafts is not None
            and found.drafts_low is not None
            and found.drafts_high is not None
        ):
            bounds = (float(found.drafts_low), float(found.drafts_high))
            most = _largest(frame["drafts_high"])
            yield _agreement(
                "drafts", float(found.totals.drafts or 0), bounds, counters.drafts, most
            )
        if counters.per_position and found.drafts_low is not None:
            yield from _positions(frame, counters)
    yield from _tokens(report, counters)


def _positions(frame: pl.DataFrame, counters: Counters) -> Iterator[Agreement]:
    """Compare accepted tokens by position; each printed rate is rounded to 0.001."""
    rows = frame.filter((pl.col("drafts") > 0) & (pl.col("per_position").list.len() > 0))
    for i, counter in enumerate(counters.per_position):
        rate = rows["per_position"].list.get(i, null_on_oob=True).fill_null(0.0)
        error = intervals.RATE_ERROR
        value = float((rate * rows["drafts"]).sum())
        low = float(((rate - error).clip(0) * rows["drafts_low"]).sum())
        high = float(((rate + error) * rows["drafts_high"]).sum())
        most = _largest(rate * rows["drafts_high"])
        yield _agreement(f"accepted_tokens_position_{i + 1}", value, (low, high), counter, most)


def _tokens(report: Report, counters: Counters) -> Iterator[Agreement]:
    """Compare tokens: printed throughput (one decimal) times the window, known to the second.

    The window of the first line reaches back to the start of its clock, which is not printed: it
    counts as a usual one at least, and as all the time since the first line of the log at most.
    """
    rows = figures.engine_rows(report.rows)
    rows = rows.filter(pl.col("span_s").is_not_null())
    if rows.is_empty():
        return
    first = pl.int_range(pl.len()) == 0
    usual = float(rows["span_s"].max() or 0.0)  # type: ignore[arg-type]
    for name, counter in (
        ("generation_tokens", counters.generation_tokens),
        ("prompt_tokens", counters.prompt_tokens),
    ):
        speed = pl.col(f"{name}_per_s").fill_null(0)
        if counter is None or not rows.filter(speed > 0).height:
            continue
        sums = rows.select(
            (speed * pl.col("span_s")).sum().alias("value"),
            ((speed - 0.05).clip(0) * (pl.col("span_s") - 1).clip(0))
            .filter(~first)
            .sum()
            .alias("low"),
            ((speed + 0.05) * (pl.col("span_s") + pl.when(first).then(usual).otherwise(1)))
            .filter(speed > 0)
            .sum()
            .alias("high"),
            (speed.max() * usual).alias("most"),
        ).row(0, named=True)
        yield _agreement(name, sums["value"], (sums["low"], sums["high"]), counter, sums["most"])


def _largest(values: pl.Series) -> float:
    top = values.max()
    return float(top) if isinstance(top, int | float) else 0.0


def _agreement(
    name: str, log: float, bounds: tuple[float, float], counter: float, unlogged: float
) -> Agreement:
    low, high = bounds
    agrees = low - 1e-6 <= counter <= high + unlogged + 1e-6
    return Agreement(name, log, low, high, float(counter), unlogged, agrees)
