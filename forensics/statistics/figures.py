"""Totals and distributions over the rows that `windows` made, and the series of the contract.

In: rows with counts. Out: the figures of the report. Rates are sums divided by sums, never means
of means; `intervals` says how well each is known.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from forensics.statistics import intervals
from forensics.statistics.formats import FORMATS
from forensics.statistics.model import (
    Diffusion,
    Distribution,
    Load,
    Point,
    Speculation,
    Speculative,
    Throughput,
)
from forensics.statistics.table import Rows, completed

#: Points of a series over time; more windows than that are joined with their neighbours.
MAX_POINTS = 400
_BROKEN_SHOWN = 20
#: Engines of one server print their lines within so many seconds.
_MOMENT_S = 2
#: What is looked at of each kind of rows: a log of days has millions of them.
_SPECULATION = (
    "line", "at", "form", "accepted_tokens", "draft_tokens", "drafts", "drafts_low", "drafts_high",
    "emitted", "per_position", "problem", "span_s", "warmup",
)  # fmt: skip
_ENGINE = (
    "line", "at", "clock", "seconds", "form", "replica", "running", "waiting", "span_s", "warmup",
    "prompt_tokens_per_s", "generation_tokens_per_s", "kv_cache_usage", "prefix_cache_hit_rate",
)  # fmt: skip


def drafting_rows(rows: Rows) -> pl.DataFrame:
    """Return the rows of `windows.recovered` that may speak of drafts."""
    return rows.having("draft_tokens", "emitted")


def speculation(
    frame: pl.DataFrame, arguments: dict[str, Any], k: int | None
) -> Speculation | None:
    """Return what speculation did, None where no line speaks of it.

    Args:
        frame: Of `drafting_rows`.
        arguments: The server's arguments (for the method).
        k: `num_speculative_tokens`, if known.
    """
    frame = frame.select(_SPECULATION)
    rows = frame.filter(pl.col("draft_tokens").is_not_null() | pl.col("emitted").is_not_null())
    if rows.is_empty():
        return None
    broken = rows.filter(pl.col("problem").is_not_null())
    rows = rows.filter(pl.col("problem").is_null() & (pl.col("draft_tokens").fill_null(1) > 0))
    shown = tuple(broken.select("line", "problem").head(_BROKEN_SHOWN).iter_rows())
    estimated = bool(rows.filter(pl.col("form") == "sglang.decode").height)
    counted = rows.filter(pl.col("drafts").is_not_null())
    sums = rows.select(
        pl.col("accepted_tokens", "draft_tokens").sum(),
        pl.col("draft_tokens").null_count().alias("unknown"),
    ).row(0, named=True)
    drafts, low, high, emitted = (
        float(counted[name].fill_null(0).sum())
        for name in ("drafts", "drafts_low", "drafts_high", "emitted")
    )
    accepted, drafted = sums["accepted_tokens"], None if sums["unknown"] else sums["draft_tokens"]
    known_drafts = drafts > 0 and counted.height == rows.height
    rates = _position_rates(counted)
    if k is None and rates:
        k = len(rates)
    timed = rows.filter(~pl.col("warmup") & (pl.col("span_s") > 0))
    seconds = float(timed["span_s"].sum())
    timed_sums = timed.select(pl.col("accepted_tokens", "draft_tokens").sum()).row(0)
    totals = Speculative(
        method=_method(arguments),
        num_speculative_tokens=k,
        windows=rows.height,
        drafts=round(drafts) if known_drafts else None,
        draft_tokens=drafted,
        accepted_tokens=accepted if rows.height else None,
        acceptance_rate=_ratio(accepted, drafted),
        mean_acceptance_length=_ratio(emitted, drafts) if known_drafts else None,
        per_position=[round(rate, 6) for rate in rates],
        accepted_throughput=_ratio(timed_sums[0], seconds),
        drafted_throughput=_ratio(timed_sums[1], seconds),
        excluded_warmup=int(rows["warmup"].sum()),
        first_at=rows["at"].drop_nulls().first() if rows.height else None,  # type: ignore[arg-type]
        last_at=rows["at"].drop_nulls().last() if rows.height else None,  # type: ignore[arg-type]
    )
    if not known_drafts:
        return Speculation(totals, broken=shown, estimated=estimated)
    bounds = (drafts, drafts) if estimated else (low, high)
    return Speculation(
        totals,
        drafts_low=None if estimated else round(low),
        drafts_high=None if estimated else round(high),
        rate=intervals.rate(totals, drafts, rates),
        length=intervals.length(emitted / drafts - 1, drafts, bounds, rates),
        positions=intervals.positions(rates, drafts, bounds),
        estimated=estimated,
        broken=shown,
    )


def diffusion(rows: Rows) -> Diffusion | None:
    """Return what a diffusion model did, None where no line speaks of it.

    Args:
        rows: Of `windows.recovered`.
    """
    part = rows.parts.get("vllm.diffusion")
    if part is None:
        return None
    part = completed(part)
    broken = part.filter(pl.col("problem").is_not_null())
    part = part.filter(pl.col("problem").is_null() & (pl.col("denoising_steps") > 0))
    names = ("tokens", "denoising_steps", "canvas_positions")
    tokens, steps, positions = (int(part[name].sum()) for name in names)
    timed = part.filter(~pl.col("warmup").fill_null(value=False) & (pl.col("span_s") > 0))
    return Diffusion(
        windows=part.height,
        committed_tokens=tokens,
        denoising_steps=steps,
        canvas_positions=positions,
        tokens_per_step=_ratio(tokens, steps),
        steps_per_canvas=_ratio(positions, tokens),
        committed_throughput=_ratio(int(timed["tokens"].sum()), float(timed["span_s"].sum())),
        broken=tuple(broken.select("line", "problem").head(_BROKEN_SHOWN).iter_rows()),
    )


def diffusion_points(found: Diffusion | None) -> list[Point]:
    """Return the totals of diffusion as points of the series."""
    if found is None:
        return []
    named = {
        "committed_tokens": found.committed_tokens,
        "denoising_steps": found.denoising_steps,
        "canvas_positions": found.canvas_positions,
        "committed_tokens_per_denoising_step": found.tokens_per_step,
        "denoising_steps_per_canvas": found.steps_per_canvas,
        "committed_tokens_per_s": found.committed_throughput,
    }
    return [
        Point(None, None, name, value, scope="total")
        for name, value in named.items()
        if value is not None
    ]


def _method(arguments: dict[str, Any]) -> str | None:
    """Return the method that the arguments name."""
    config = arguments.get("speculative_config")
    if isinstance(config, dict) and config.get("method"):
        return str(config["method"])
    if isinstance(config, dict) and config.get("model"):
        return "draft_model"
    for name in ("speculative_algorithm", "speculative_method"):
        if arguments.get(name):
            return str(arguments[name])
    return None


def _ratio(above: float | None, below: float | None) -> float | None:
    """Divide, None where nothing is below."""
    return above / below if above is not None and below else None


def _position_rates(rows: pl.DataFrame) -> list[float]:
    """Return accepted at each position / drafts over all windows that print them."""
    rows = rows.filter((pl.col("per_position").list.len() > 0) & (pl.col("drafts") > 0))
    if rows.is_empty():
        return []
    widths = rows["per_position"].list.len().max()
    assert isinstance(widths, int)  # noqa: S101 - the list is not empty
    total = float(rows["drafts"].sum())
    return [
        float(
            (rows["per_position"].list.get(i, null_on_oob=True).fill_null(0) * rows["drafts"]).sum()
        )
        / total
        for i in range(widths)
    ]


# --- throughput ----------------------------------------------------------------------------------


_ITERATIONS = [form.name for form in FORMATS if form.kind == "iteration"]


def engine_rows(table: Rows) -> pl.DataFrame:
    """Return one row a moment for the whole server: engines that log for themselves are added up.

    Engines print one after the other, so a new moment begins where an engine's number does not
    rise. Throughputs and requests are summed, cache figures averaged.
    """
    rows = table.having("generation_tokens_per_s", "prompt_tokens_per_s").select(_ENGINE)
    rows = rows.filter(
        pl.col("generation_tokens_per_s").is_not_null()
        | pl.col("prompt_tokens_per_s").is_not_null()
    )
    iterations = pl.col("form").cast(pl.String).is_in(_ITERATIONS)
    if not rows.filter(~iterations).is_empty():
        rows = rows.filter(~iterations)  # the windows of the engine have counted them
    if rows["replica"].n_unique() < 2:  # noqa: PLR2004 - one engine
        return rows
    rank = pl.col("replica").rank("dense").fill_null(0)
    new = (rank.diff() <= 0) | (pl.col("seconds").diff() > _MOMENT_S)
    moment = new.fill_null(True).cum_sum().over("form")  # noqa: FBT003
    averaged = ("kv_cache_usage", "prefix_cache_hit_rate")
    summed = ("generation_tokens_per_s", "prompt_tokens_per_s", "running", "waiting")
    return (
        rows.with_columns(moment.alias("_moment"))
        .group_by("form", "_moment", maintain_order=True)
        .agg(
            pl.col("line", "seconds", "at", "clock").last(),
            *(pl.when(pl.col(n).count() > 0).then(pl.col(n).sum()).alias(n) for n in summed),
            pl.col(*averaged).mean(),
            pl.col("span_s").max(),
            pl.col("warmup").any(),
        )
    )


def throughput(rows: pl.DataFrame) -> Throughput:
    """Return the distributions over windows in which something was done, warm-up left out.

    Args:
        rows: Of `engine_rows`.
    """
    generated, prompted = pl.col("generation_tokens_per_s"), pl.col("prompt_tokens_per_s")
    rows = rows.filter(~pl.col("warmup"))
    active = rows.filter((generated > 0) | (prompted > 0))
    made = active.filter(generated > 0)
    return Throughput(
        generation_tokens_per_s=_distribution(made["generation_tokens_per_s"]),
        prompt_tokens_per_s=_distribution(active.filter(prompted > 0)["prompt_tokens_per_s"]),
        running=_distribution(active["running"]),
        waiting=_distribution(active["waiting"]),
        kv_cache_usage=_distribution(active["kv_cache_usage"]),
        prefix_cache_hit_rate=_distribution(active["prefix_cache_hit_rate"]),
        windows=active.height,
    )


def _distribution(values: pl.Series) -> Distribution:
    values = values.cast(pl.Float64).drop_nulls().drop_nans()
    if values.is_empty():
        return Distribution()
    found = [values.quantile(q, interpolation="linear") for q in (0.5, 0.1, 0.9)]
    top = values.max()
    return Distribution(*(round(float(v), 6) for v in (*found, top) if isinstance(v, int | float)))


def loads(frame: pl.DataFrame, rows: pl.DataFrame) -> tuple[Load, ...]:
    """Return throughput and acceptance at 1, 2, 4, 8 … running requests.

    Args:
        frame: Of `drafting_rows`, for the acceptance.
        rows: Of `engine_rows`.
    """
    made = (
        rows.select("warmup", "generation_tokens_per_s", "running")
        .filter(
            ~pl.col("warmup") & (pl.col("generation_tokens_per_s") > 0) & (pl.col("running") > 0)
        )
        .with_columns(_power("running"))
    )
    if made.is_empty():
        return ()
    by_load = made.group_by("_load").agg(
        pl.len().alias("windows"),
        pl.col("generation_tokens_per_s").median().alias("generation"),
        (pl.col("generation_tokens_per_s") / pl.col("running")).median().alias("per_request"),
    )
    drafted = (
        frame.select("drafts", "problem", "load", "emitted")
        .filter((pl.col("drafts") > 0) & pl.col("problem").is_null() & (pl.col("load") > 0))
        .with_columns(_power("load"))
    )
    lengths = drafted.group_by("_load").agg(
        (pl.col("emitted").sum() / pl.col("drafts").sum()).alias("length")
    )
    joined = by_load.join(lengths, on="_load", how="left").sort("_load")
    return tuple(
        Load(
            int(row["_load"]), row["windows"], row["generation"], row["per_request"], row["length"]
        )
        for row in joined.iter_rows(named=True)
    )


def _power(name: str) -> pl.Expr:
    """Return the smallest power of two that is not below a number of requests."""
    return (2 ** (pl.col(name).cast(pl.Float64).log(2) - 1e-9).ceil()).cast(pl.Int64).alias("_load")


# --- series --------------------------------------------------------------------------------------


def series(
    frame: pl.DataFrame, rows: pl.DataFrame, found: Speculation | None, by_load: tuple[Load, ...]
) -> list[Point]:
    """Return acceptance and throughput over time, then totals with their intervals, then loads."""
    return [
        *_acceptance_points(frame),
        *_throughput_points(rows),
        *totals_points(found),
        *_load_points(by_load),
    ]


def totals_points(found: Speculation | None) -> list[Point]:
    """Return the totals of speculation with the ends of their intervals."""
    points: list[Point] = []
    if found is not None:
        named = {"acceptance_rate": found.rate, "mean_acceptance_length": found.length}
        for i, position in enumerate(found.positions, 1):
            named[f"acceptance_rate_position_{i}"] = position.rate
            named[f"conditional_acceptance_rate_position_{i}"] = position.conditional
        points += [
            Point(None, None, name, e.value, e.low, e.high, "total")
            for name, e in named.items()
            if e
        ]
        if found.drafts_low is not None and found.drafts_high is not None and found.totals.drafts:
            points.append(
                Point(
                    None,
                    None,
                    "drafts",
                    found.totals.drafts,
                    found.drafts_low,
                    found.drafts_high,
                    "total",
                )
            )
    return points


def _load_points(by_load: tuple[Load, ...]) -> list[Point]:
    points: list[Point] = []
    for load in by_load:
        values = {
            "generation_tokens_per_s": load.generation,
            "generation_tokens_per_s_per_request": load.per_request,
            "mean_acceptance_length": load.length,
        }
        points += [
            Point(None, None, name, value, scope="load", running=load.running)
            for name, value in values.items()
            if value is not None
        ]
    return points


def _joined(frame: pl.DataFrame, sums: list[pl.Expr]) -> pl.DataFrame:
    """Join neighbouring windows so that at most `MAX_POINTS` remain."""
    step = -(-frame.height // MAX_POINTS)
    return frame.group_by(pl.int_range(pl.len()) // step, maintain_order=True).agg(
        pl.col("line", "at", "clock", "seconds").last(), *sums
    )


def accepting(frame: pl.DataFrame) -> pl.DataFrame:
    """Return consistent windows with drafts, joined to few, with counts."""
    counts = ("accepted_tokens", "draft_tokens", "drafts", "emitted")
    rows = frame.select("line", "at", "clock", "seconds", "problem", *counts).filter(
        (pl.col("drafts") > 0) & pl.col("problem").is_null()
    )
    return (
        _joined(rows, [pl.col(*counts).sum()])
        if rows.height
        else rows.select("line", "at", "clock", "seconds", *counts)
    )


def _acceptance_points(frame: pl.DataFrame) -> list[Point]:
    points = []
    for row in accepting(frame).iter_rows(named=True):
        place = {
            "at": row["at"],
            "line": row["line"],
            "clock": row["clock"],
            "seconds": row["seconds"],
        }
        if row["draft_tokens"]:
            rate = intervals.wilson(
                row["accepted_tokens"] / row["draft_tokens"], row["draft_tokens"]
            )
            points.append(
                Point(
                    name="acceptance_rate", value=rate.value, low=rate.low, high=rate.high, **place
                )
            )
        points.append(
            Point(name="mean_acceptance_length", value=row["emitted"] / row["drafts"], **place)
        )
    return points


def _throughput_points(rows: pl.DataFrame) -> list[Point]:
    names = ("generation_tokens_per_s", "prompt_tokens_per_s", "running", "kv_cache_usage")
    rows = rows.filter(~pl.col("warmup"))
    if rows.is_empty():
        return []
    joined = _joined(rows, [pl.col(*names).mean()])
    return [
        Point(row["at"], row["line"], name, row[name], clock=row["clock"], seconds=row["seconds"])
        for row in joined.iter_rows(named=True)
        for name in names
        if row[name] is not None
    ]
