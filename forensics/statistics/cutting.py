"""The two lines that vLLM prints every ten seconds, cut apart column by column.

A log of days holds millions of them, and a regular expression takes three times as long. Whatever
does not come out whole is handed back, for `table` to try the patterns on. Forms: `formats`.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from forensics.statistics.clocks import yearless

_PIECES = 8
_CLOCK = 14  # 05-02 10:00:00
_HEAD = (
    r"^(?:\([^()]* pid=[0-9]+[^()]*\) )*(?:DEBUG|INFO|WARNING) "
    r"([0-9]{2}-[0-9]{2} [0-9:]{8}) \[[^\]:]*:[0-9]+\] "
)
_SPECULATION = _HEAD + "SpecDecoding metrics$"
_ENGINE = _HEAD + "Engine [0-9]{3}$"


def cut(found: pl.DataFrame) -> tuple[list[pl.DataFrame], pl.DataFrame]:
    """Return the rows of both forms, a frame each, and the lines that are neither.

    Args:
        found: Number (`line`) and `text` of lines.
    """
    pieces = found.select(
        "line", pl.col("text").str.split_exact(": ", _PIECES).struct.unnest()
    ).with_row_index("row")
    done: list[pl.DataFrame] = []
    left = pl.Series([True]).new_from_index(0, found.height)
    for title, parse in (
        ("Mean acceptance length", _speculation),
        ("Avg prompt throughput", _engine),
    ):
        mine = pieces.filter(pl.col("field_1") == title)
        if mine.is_empty():
            continue
        parsed = parse(mine)
        if not parsed.is_empty():
            left = left.scatter(parsed["row"], values=False)
            done.append(parsed.drop("row"))
    return done, found.filter(left)


def _number(piece: int, *suffixes: str, kind: Any = pl.Float64) -> pl.Expr:  # noqa: ANN401
    """Read a number from a piece; null unless the piece is the number and the suffixes."""
    text = pl.col(f"field_{piece}")
    for suffix in suffixes:
        text = text.str.strip_suffix(suffix)
    return text.cast(kind, strict=False)


def _clock(pieces: pl.DataFrame, pattern: str) -> pl.Series:
    """Return the printed clock, null where the head is not as it should be.

    Nearly always all heads are alike but for the clock: then it is cut out of them.
    """
    heads = pieces["field_0"]
    first = str(heads[0])
    match = re.match(pattern, first)
    if match is not None:
        before, after = first[: match.start(1)], first[match.end(1) :]
        alike = heads.str.starts_with(before) & heads.str.ends_with(after)
        if (alike & (heads.str.len_chars() == len(first))).all():
            # Joined to nothing: a slice alone would keep the whole text in memory.
            cut_out = pl.concat_str(pl.col("field_0").str.slice(len(before), _CLOCK), pl.lit(""))
            return pieces.select(cut_out.alias("clock")).to_series()
    return heads.str.extract(pattern).alias("clock")


def _whole(parsed: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return the rows in which none of these is missing."""
    if all(parsed[name].null_count() == 0 for name in names):
        return parsed
    return parsed.drop_nulls(names)


def _speculation(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return `SpecDecoding metrics` lines of 0.10.2 and later."""
    rates = pl.col("field_7").str.strip_suffix(", Avg Draft acceptance rate").str.split(", ")
    clock = _clock(pieces, _SPECULATION)
    parsed = pieces.select(
        "row",
        "line",
        clock,
        yearless(clock).alias("clock_s"),
        pl.lit("vllm.spec").alias("form"),
        _number(2, ", Accepted throughput").alias("printed_length"),
        _number(3, " tokens/s, Drafted throughput").alias("accepted_throughput"),
        _number(4, " tokens/s, Accepted").alias("drafted_throughput"),
        _number(5, " tokens, Drafted", kind=pl.Int64).alias("accepted_tokens"),
        _number(6, " tokens, Per-position acceptance rate", kind=pl.Int64).alias("draft_tokens"),
        rates.cast(pl.List(pl.Float64), strict=False).alias("per_position"),
        _number(8, "%").truediv(100).alias("printed_rate"),
    )
    if parsed["per_position"].explode().null_count():
        parsed = parsed.filter(
            pl.lit(pieces["field_7"].str.contains(r"^[0-9., ]+, Avg Draft acceptance rate$"))
            & ~pl.col("per_position").list.eval(pl.element().is_null()).list.any()
        )
    return _whole(parsed, parsed.columns)


def _engine(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return `Engine 000: Avg prompt throughput` lines without rarer fields."""
    clock = _clock(pieces, _ENGINE)
    usage = (" KV cache usage", "GPU", "CPU", " reqs, ")
    parsed = pieces.select(
        "row",
        "line",
        clock,
        yearless(clock).alias("clock_s"),
        pl.lit("vllm.v1").alias("form"),
        pl.col("field_0").str.extract("([0-9]{3})$").alias("replica"),
        _number(2, " tokens/s, Avg generation throughput").alias("prompt_tokens_per_s"),
        _number(3, " tokens/s, Running").alias("generation_tokens_per_s"),
        _number(4, " reqs, Waiting", kind=pl.Int64).alias("running"),
        _number(5, *usage, kind=pl.Int64).alias("waiting"),
        _number(6, ", Prefix cache hit rate", "%").truediv(100).alias("kv_cache_usage"),
        _number(7, "%").truediv(100).alias("prefix_cache_hit_rate"),
        "field_7",
    )
    if pieces["field_7"].null_count() or parsed["prefix_cache_hit_rate"].null_count():
        parsed = parsed.filter(
            pl.col("field_7").is_null() | pl.col("prefix_cache_hit_rate").is_not_null()
        )
    needed = [n for n in parsed.columns if n not in {"prefix_cache_hit_rate", "field_7"}]
    return _whole(parsed.drop("field_7"), needed)
