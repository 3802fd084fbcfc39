"""What each row of the tidy table counts: the window, the drafts and how far rounding blurs them.

In: rows as printed. Out: the same rows with the columns of `ADDED`. Nothing is assumed that a line
does not say: a window is "since the last such line" and its length is recovered from the printed
throughput; the drafts, which are not printed, from accepted tokens, mean length and per-position
rates. The rounding of each printed number is carried along, so that `drafts_low` and `drafts_high`
always hold the truth.
"""

from __future__ import annotations

import polars as pl

from forensics.statistics.clocks import timed
from forensics.statistics.formats import BY_NAME
from forensics.statistics.table import Rows, completed, filled

#: Decode batches between two lines of SGLang (`--decode-log-interval`).
SGLANG_INTERVAL = 40
_LENGTH_ERROR = 0.005  # two decimals
_RATE_ERROR = 0.0005  # three decimals, also one decimal of a percentage
_SLACK = 1e-9
_ROUNDS = 3
_SLICE = 65_536
_MAX_POSITIONS = 64
_APART = 0.25


def recovered(
    rows: Rows, *, k: int | None, bonus: bool | None, started: bool, interval: int
) -> Rows:
    """Return the rows with the columns of `table.ADDED`.

    `seconds` since the first row; `drafts` with bounds; `emitted`: tokens of the steps that had a
    draft; `problem`: why the line's numbers contradict each other; `warmup`: reaches back into the
    start; `load`: requests running when the line was printed.

    Args:
        rows: As `table` gives them.
        k: Tokens drafted at most in a step, by the arguments, if known.
        bonus: Whether the mean acceptance length counts the bonus token, None if the lines must
            say it themselves (0.8.5 leaves it out, all later versions count it).
        started: Whether the table begins where the server began to serve.
        interval: Decode batches between two lines of SGLang.
    """
    parts = timed(_positions_joined(rows.parts))
    running = Rows(parts).having("running").select("line", "running").drop_nulls()
    done: dict[str, pl.DataFrame] = {}
    for form, part in parts.items():
        counts = _has_bonus(part) if bonus is None and form == "vllm.spec.early" else bonus
        made = _recovered(_with_load(part, running), form, k, bonus=counts is not False)
        if form == "sglang.decode":
            made = _estimated(made, k, interval)
        elif form == "sglang.prefill":
            made = made.with_columns(_hit_rate())
        elif BY_NAME[form].kind == "iteration":
            made = _per_second(made)
        elif BY_NAME[form].kind == "diffusion":
            made = _denoised(made)
        several = "replica" in part.columns and part["replica"].n_unique() > 1
        warmup = _warmup(form, started=started)
        done[form] = filled(made.with_columns(_spans(several=several), warmup.alias("warmup")))
    return Rows(done)


def _recovered(part: pl.DataFrame, form: str, k: int | None, *, bonus: bool) -> pl.DataFrame:
    """Return the rows of one form with all columns, and with drafts if it prints counts."""
    counted = "draft_tokens" in part.columns and part["draft_tokens"].count() > 0
    part = completed(part)
    if not counted:
        return part
    return _bounded(_differences(part) if BY_NAME[form].cumulative else part, k, form, bonus=bonus)


def _positions_joined(parts: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Give llama.cpp's rates by position to the draft line that stands before them."""
    if "llama-cpp.positions" not in parts:
        return parts
    mine = {name: part for name, part in parts.items() if BY_NAME[name].engine == "llama-cpp"}
    table, form = Rows(mine).whole(), pl.col("form")
    follows = form.shift(-1) == "llama-cpp.positions"
    joined = table.with_columns(
        pl.when((form == "llama-cpp.spec") & follows)
        .then(pl.col("per_position").shift(-1))
        .otherwise("per_position")
        .alias("per_position")
    ).filter(form == "llama-cpp.spec")
    rest = {name: part for name, part in parts.items() if name != "llama-cpp.positions"}
    return rest | ({"llama-cpp.spec": joined} if joined.height else {})


def _with_load(part: pl.DataFrame, running: pl.DataFrame) -> pl.DataFrame:
    """Add the requests running at each line: its own, else those of the line before it."""
    if "running" in part.columns and part["running"].null_count() == 0:
        return part.with_columns(pl.col("running").alias("load"))
    lines = part.select(pl.col("line").set_sorted())
    found = lines.join_asof(running.with_columns(pl.col("line").set_sorted()), on="line")
    return part.with_columns(found["running"].alias("load"))


def _spans(*, several: bool) -> pl.Expr:
    """Return the length of each window in seconds.

    Of speculation: drafted tokens / drafted throughput, as the program divided them. Of the
    engine: the time since its last line, but at most the usual one, since the clock of the window
    runs on while a server without work is silent.
    """
    printed = pl.col("draft_tokens") / pl.col("drafted_throughput")
    since = pl.col("seconds").diff()
    if several:
        since = since.over("replica")
    usual = since.filter(since > 0).median()
    return pl.coalesce(
        "span_s",
        pl.when(pl.col("drafted_throughput") > 0).then(printed),
        pl.when(pl.col("generation_tokens_per_s").is_not_null()).then(
            pl.min_horizontal(since, usual).fill_null(usual)
        ),
    ).alias("span_s")


def _warmup(form: str, *, started: bool) -> pl.Expr:
    """Return whether a window reaches back into the start: the first one of each engine."""
    if not started or BY_NAME[form].engine not in {"vllm", "sglang"}:
        return pl.lit(False)  # noqa: FBT003
    return pl.col("replica").is_first_distinct()


# --- counts -------------------------------------------------------------------------------------


def _differences(part: pl.DataFrame) -> pl.DataFrame:
    """Turn counts since the start into counts of windows (V0); a smaller count is a new start."""
    counts = ("accepted_tokens", "draft_tokens", "emitted_tokens")
    restarted = pl.any_horizontal(
        (pl.col(name).diff() < 0).fill_null(value=False) for name in counts
    )
    first = pl.int_range(pl.len()) == 0
    return part.with_columns(
        pl.when(~first & ~restarted).then(pl.col(name).diff()).otherwise(pl.col(name)).alias(name)
        for name in counts
    )


def _has_bonus(table: pl.DataFrame) -> bool:
    """Tell from the lines themselves whether the mean length counts the bonus token."""
    rows = completed(table).filter(
        pl.col("printed_length").is_finite() & (pl.col("per_position").list.len() > 0)
    )
    if rows.is_empty():
        return True
    apart = (rows["printed_length"] - rows["per_position"].list.sum()).abs()
    without = int((apart < _APART).sum())
    return without * 2 < rows.height


def _bounded(table: pl.DataFrame, k: int | None, form: str, *, bonus: bool) -> pl.DataFrame:
    """Add drafts, their bounds, and what is wrong with a line, for lines that print counts."""
    without = form == "vllm.spec.early" and not bonus
    extra = pl.col("printed_length") - (0 if without else 1)
    positions = pl.col("per_position").list.len()
    tokens = pl.coalesce(pl.when(positions > 0).then(positions), "k", pl.lit(k)).cast(pl.Float64)
    table = table.with_columns(tokens.alias("_k"), extra.alias("_extra"))
    # Slice by slice: what is computed on the way is many times as wide as what comes out.
    needed = table.select("accepted_tokens", "draft_tokens", "per_position", "_k", "_extra")
    bounds = pl.concat([_bounds(part) for part in needed.iter_slices(_SLICE)])
    return _settled(table.with_columns(bounds))


def _bounds(table: pl.DataFrame) -> pl.DataFrame:
    """Return the fewest and most drafts that each line's numbers allow."""
    accepted, drafted = pl.col("accepted_tokens"), pl.col("draft_tokens")
    counted = drafted.is_not_null()
    extra, tokens = pl.col("_extra"), pl.col("_k")
    usable = extra.is_finite() & (accepted > 0)
    table = table.with_columns(
        pl.when(counted)
        .then(
            pl.max_horizontal(
                (drafted / tokens - _SLACK)
                .ceil()
                .fill_null(pl.when(drafted > 0).then(1).otherwise(0)),
                pl.when(usable).then((accepted / (extra + _LENGTH_ERROR) - _SLACK).ceil()),
            )
        )
        .alias("drafts_low"),
        pl.when(counted)
        .then(
            pl.min_horizontal(
                drafted.cast(pl.Float64),
                pl.when(usable & (extra > _LENGTH_ERROR)).then(
                    (accepted / (extra - _LENGTH_ERROR) + _SLACK).floor()
                ),
            )
        )
        .alias("drafts_high"),
    )
    low, high = pl.col("drafts_low"), pl.col("drafts_high")
    table = _narrowed(table.with_columns(low.alias("_low"), high.alias("_high")))
    # Where rates were not rounded as they should be, only the wider bounds can be trusted.
    crossed = low > high
    return table.select(
        pl.when(crossed).then("_low").otherwise(low).alias("drafts_low"),
        pl.when(crossed).then("_high").otherwise(high).alias("drafts_high"),
    )


def _narrowed(table: pl.DataFrame) -> pl.DataFrame:
    """Narrow the bounds: what each position accepted is a whole number, and they add up.

    A position's printed rate bounds its accepted tokens for given bounds of the drafts; their sum
    is printed exactly, which bounds each of them by the others; and that bounds the drafts again.
    """
    widths = table["per_position"].list.len().max()
    count = min(int(str(widths or 0)), _MAX_POSITIONS)
    if not count:
        return table
    names = [f"_p{i}" for i in range(count)]
    table = table.with_columns(
        pl.col("per_position").list.get(i, null_on_oob=True).alias(name)
        for i, name in enumerate(names)
    )
    low, high, total = pl.col("drafts_low"), pl.col("drafts_high"), pl.col("accepted_tokens")
    # All positions together first: where the drafts are many, the rounds below reach this slowly.
    summed = pl.col("per_position").list.sum()
    blur = _RATE_ERROR * pl.col("per_position").list.len()
    known = (blur > 0) & summed.is_finite() & (total > 0)
    table = table.with_columns(
        pl.max_horizontal(
            low, pl.when(known).then((total / (summed + blur) - _SLACK).ceil())
        ).alias("drafts_low"),
        pl.min_horizontal(
            high,
            pl.when(known & (summed > blur)).then((total / (summed - blur) + _SLACK).floor()),
        ).alias("drafts_high"),
    )
    for _ in range(_ROUNDS):
        table = table.with_columns(
            *(
                (low * (pl.col(p) - _RATE_ERROR) - _SLACK)
                .ceil()
                .clip(0)
                .fill_null(0)
                .alias(f"_l{p}")
                for p in names
            ),
            *(
                (high * (pl.col(p) + _RATE_ERROR) + _SLACK).floor().fill_null(0).alias(f"_h{p}")
                for p in names
            ),
        )
        table = table.with_columns(
            pl.sum_horizontal(f"_l{p}" for p in names).alias("_least"),
            pl.sum_horizontal(f"_h{p}" for p in names).alias("_most"),
        )
        least = {
            p: pl.max_horizontal(f"_l{p}", total - pl.col("_most") + pl.col(f"_h{p}"))
            for p in names
        }
        most = {
            p: pl.min_horizontal(f"_h{p}", total - pl.col("_least") + pl.col(f"_l{p}"))
            for p in names
        }
        table = table.with_columns(
            pl.max_horizontal(
                low, *((least[p] / (pl.col(p) + _RATE_ERROR) - _SLACK).ceil() for p in names)
            ).alias("drafts_low"),
            pl.min_horizontal(
                high,
                *(
                    pl.when(pl.col(p) > _RATE_ERROR).then(
                        (most[p] / (pl.col(p) - _RATE_ERROR) + _SLACK).floor()
                    )
                    for p in names
                ),
            ).alias("drafts_high"),
        )
    return table.drop(
        [*names, *(f"_l{p}" for p in names), *(f"_h{p}" for p in names), "_least", "_most"]
    )


def _settled(table: pl.DataFrame) -> pl.DataFrame:
    """Name the likeliest number of drafts, and the lines that contradict themselves."""
    accepted, drafted = pl.col("accepted_tokens"), pl.col("draft_tokens")
    low, high, k = pl.col("drafts_low"), pl.col("drafts_high"), pl.col("_k")
    rate = pl.col("printed_rate")
    summed = pl.col("per_position").list.sum()
    positions = pl.col("per_position").list.len()
    identity = (summed - pl.col("_extra")).abs() > _LENGTH_ERROR + _RATE_ERROR * positions + _SLACK
    rated = (accepted / drafted - rate).abs() > _RATE_ERROR + _SLACK
    problem = (
        pl.when(drafted.is_null())
        .then(None)
        .when(accepted > drafted)
        .then(pl.lit("more accepted than drafted"))
        .when((drafted > 0) & rate.is_finite() & rated)
        .then(pl.lit("accepted / drafted is not the printed rate"))
        .when((positions > 0) & pl.col("_extra").is_finite() & identity)
        .then(pl.lit("the per-position rates do not add up to the mean length"))
        .when(low > high)
        .then(pl.lit("no number of drafts gives this mean length"))
    )
    v0 = pl.col("form") == "vllm.spec.v0"
    exact = (low == high) & (drafted > 0) & (k > 0)
    # How full a draft is on average, where it is known: n-gram drafts may be shorter than k.
    fill = (
        (drafted.filter(exact).sum() / (k * low).filter(exact).sum()).fill_nan(1.0).fill_null(1.0)
    )
    extra = pl.col("_extra")
    likely = (
        pl.when(summed > 0)
        .then(accepted / summed)
        .when(extra.is_finite() & (extra > 0))
        .then(accepted / extra)
        .otherwise(drafted / k / fill)
    )
    full = drafted / k
    whole = (full == full.floor()) & (full >= low) & (full <= high)
    # If that holds for every line, the drafter always drafts k tokens, and this is exact.
    always = (whole | (drafted == 0)).filter(drafted.is_not_null()).all()
    best = pl.when(whole & always).then(full).otherwise(likely.round().clip(low, high))
    best = pl.when(low == high).then(low).otherwise(best)
    table = table.with_columns(
        pl.when(v0).then(None).otherwise(problem).alias("problem"),
        pl.when(v0).then(full.floor()).otherwise(low).alias("drafts_low"),
        pl.when(v0).then(full.ceil()).otherwise(high).alias("drafts_high"),
        pl.when(v0).then(full.round()).otherwise(best).alias("drafts"),
    )
    return table.with_columns(
        pl.coalesce(pl.col("emitted_tokens").cast(pl.Float64), accepted + pl.col("drafts")).alias(
            "emitted"
        )
    ).drop("_k", "_extra")


def _per_second(table: pl.DataFrame) -> pl.DataFrame:
    """Give iterations the throughput that their tokens and time are."""
    mine = pl.col("span_s") > 0
    return table.with_columns(
        pl.when(mine & (pl.col(tokens) > 0))
        .then(pl.col(tokens) / pl.col("span_s"))
        .otherwise(pl.col(name))
        .alias(name)
        for name, tokens in (
            ("generation_tokens_per_s", "tokens"),
            ("prompt_tokens_per_s", "new_tokens"),
        )
    )


def _denoised(table: pl.DataFrame) -> pl.DataFrame:
    """Name the lines of diffusion that contradict themselves, and the length of each window."""
    tokens, steps = pl.col("tokens"), pl.col("denoising_steps")
    each = pl.col("printed_length")
    wrong = (
        each.is_finite() & (steps > 0) & ((tokens / steps - each).abs() > _LENGTH_ERROR + _SLACK)
    )
    throughput = pl.col("committed_throughput")
    return table.with_columns(
        pl.when(wrong)
        .then(pl.lit("committed / denoising steps is not the printed mean"))
        .otherwise("problem")
        .alias("problem"),
        pl.when(throughput > 0).then(tokens / throughput).alias("span_s"),
    )


def _hit_rate() -> pl.Expr:
    """Return the share of a prefill batch's tokens that the cache held (SGLang)."""
    cached, new = pl.col("cached_tokens"), pl.col("new_tokens")
    return pl.when(cached + new > 0).then(cached / (cached + new)).alias("prefix_cache_hit_rate")


def _estimated(table: pl.DataFrame, k: int | None, interval: int) -> pl.DataFrame:
    """Estimate counts where only a mean length is printed (SGLang).

    A line covers `interval` decode batches; each running request is one draft in each of them.
    """
    mine = pl.col("printed_length").is_finite()
    drafts = (pl.col("running") * interval).cast(pl.Float64)
    gained = drafts * (pl.col("printed_length") - 1)
    given = {
        "drafts": drafts,
        "emitted": drafts + gained,
        "accepted_tokens": gained.round().cast(pl.Int64),
        "draft_tokens": (drafts * k).round().cast(pl.Int64) if k else pl.lit(None, pl.Int64),
    }
    return table.with_columns(
        pl.when(mine).then(value).otherwise(pl.col(name)).alias(name)
        for name, value in given.items()
    )
