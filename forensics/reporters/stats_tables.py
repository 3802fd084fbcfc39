"""The tidy table as CSV or Parquet: one row a window, every window."""

from __future__ import annotations

import io
from collections.abc import Sequence

import polars as pl

from forensics.statistics.model import Report

COLUMNS = (
    "line",
    "at",
    "clock",
    "seconds",
    "form",
    "replica",
    "span_s",
    "running",
    "waiting",
    "prompt_tokens_per_s",
    "generation_tokens_per_s",
    "kv_cache_usage",
    "prefix_cache_hit_rate",
    "drafts",
    "drafts_low",
    "drafts_high",
    "draft_tokens",
    "accepted_tokens",
    "acceptance_rate",
    "mean_acceptance_length",
    "per_position",
    "accepted_throughput",
    "drafted_throughput",
    "tokens",
    "new_tokens",
    "cached_tokens",
    "request_s",
    "warmup",
    "problem",
)


def tidy(reports: Sequence[Report]) -> pl.DataFrame:
    """Return the windows of all reports under each other, `source` first.

    `mean_acceptance_length` and `acceptance_rate` are computed from the counts of the row; what
    was printed differs by rounding only, and by the bonus token in vLLM 0.8.5.
    """
    frames = []
    for report in reports:
        frame = report.frame.with_columns(
            (pl.col("accepted_tokens") / pl.col("draft_tokens"))
            .fill_nan(None)
            .alias("acceptance_rate"),
            (pl.col("emitted") / pl.col("drafts")).fill_nan(None).alias("mean_acceptance_length"),
            *(pl.col(name).cast(pl.Int64) for name in ("drafts", "drafts_low", "drafts_high")),
            pl.col("form").cast(pl.String),
        )
        frames.append(frame.select(pl.lit(report.stats.source.name).alias("source"), *COLUMNS))
    return pl.concat(frames)


def csv(reports: Sequence[Report]) -> str:
    """Return the table as CSV; rates by position are joined with `;`."""
    frame = tidy(reports).with_columns(
        pl.col("per_position").list.eval(pl.element().cast(pl.String)).list.join(";")
    )
    return frame.write_csv()


def parquet(reports: Sequence[Report]) -> bytes:
    """Return the table as a Parquet file."""
    out = io.BytesIO()
    tidy(reports).write_parquet(out)
    return out.getvalue()
