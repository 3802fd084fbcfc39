"""Blocks of clean text to the tidy table: one row a printed line of statistics.

In: clean blocks in order. Out: a polars frame with the columns of `SCHEMA`, in order of lines. The
two forms that current vLLM prints, of which a log of days holds millions, are cut apart column by
column; every other form goes through its regular expression, and what no prefix is known for
(JSON lines, other wrappers) through the same `understand` as in a diagnosis.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import polars as pl
from msgspec import Struct

from forensics.envelopes import Block, clean
from forensics.records import understand
from forensics.statistics.formats import (
    BY_NAME,
    ENVELOPE_TIME,
    FINDS,
    FORMATS,
    PREFIXES,
    LineFormat,
)

#: Bytes that are parsed at once.
BATCH = 16 * 1024 * 1024
_MAX_LINE = 65_536

#: Columns of the tidy table. `line`: physical line. `at`: time from the envelope (RFC 3339).
#: `clock`: time as printed. `replica`: engine or rank. Counts are numbers of tokens or requests,
#: rates 0 to 1, throughputs tokens/s, `span_s` and `request_s` seconds; `printed_…` as printed.
SCHEMA: dict[str, Any] = {
    "line": pl.Int64,
    "at": pl.String,
    "clock": pl.String,
    "form": pl.Enum(list(BY_NAME)),
    "replica": pl.String,
    "running": pl.Int64,
    "waiting": pl.Int64,
    "prompt_tokens_per_s": pl.Float64,
    "generation_tokens_per_s": pl.Float64,
    "kv_cache_usage": pl.Float64,
    "prefix_cache_hit_rate": pl.Float64,
    "accepted_tokens": pl.Int64,
    "draft_tokens": pl.Int64,
    "emitted_tokens": pl.Int64,
    "k": pl.Int64,
    "printed_length": pl.Float64,
    "printed_rate": pl.Float64,
    "efficiency": pl.Float64,
    "accepted_throughput": pl.Float64,
    "drafted_throughput": pl.Float64,
    "per_position": pl.List(pl.Float64),
    "tokens": pl.Int64,
    "new_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "span_s": pl.Float64,
    "request_s": pl.Float64,
    "text": pl.String,
}
_GO = r"^(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<value>[\d.]+)(?P<unit>s|ms|µs|us|ns))?$"
_GO_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
_ANY = "|".join(re.escape(find) for find in FINDS)
_VLLM_PREFIX = (
    r"^(?:\([^()]* pid=[0-9]+[^()]*\) )*(?:DEBUG|INFO|WARNING) [0-9-]{5} [0-9:]{8} "
    r"\[[^\]:]*:[0-9]+\] "
)
#: llama.cpp has no prefix that a dialect splits off: it is part of the message.
_UNSPLIT = PREFIXES["llama-cpp"].replace("?P<clock>", "")
_CLOCK = r"([0-9]{2}-[0-9]{2} [0-9:]{8}) \["


def empty() -> pl.DataFrame:
    """Return a table without rows."""
    return pl.DataFrame(schema=SCHEMA)


def complete(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all batches under each other, with all columns of the table."""
    frames = [frame for frame in frames if frame.height]
    if not frames:
        return empty()
    alike = all(frame.columns == frames[0].columns for frame in frames)
    rows = pl.concat(frames, how="vertical" if alike else "diagonal")
    return rows.select(
        pl.col(name) if name in rows.columns else pl.lit(None, kind).alias(name)
        for name, kind in SCHEMA.items()
    )


class Parsed(Struct, frozen=True):
    """What became of a batch: its rows, lines counted from 1, columns only where it has values."""

    rows: pl.DataFrame
    lines: int


def parse_block(block: Block, *, texts: bool = True) -> pl.DataFrame:
    """Return the rows of a block out of an envelope, with physical lines and its times.

    Args:
        block: Clean lines that know their numbers and times.
        texts: Whether to keep the lines themselves, to quote them.
    """
    rows = _parsed(block.text, list(_breaks(block)), texts=texts).rows
    if rows.is_empty():
        return rows
    places = [line - 1 for line in rows["line"]]
    numbers = block.numbers
    lines = [numbers[min(i, len(numbers) - 1)] if numbers else block.first_line + i for i in places]
    rows = rows.with_columns(pl.Series("line", lines, pl.Int64))
    if block.times:
        times = block.times
        at = [times[min(i, len(times) - 1)] for i in places]
        rows = rows.with_columns(pl.Series("at", at, pl.String))
    return rows


def parse(raw: bytes, *, texts: bool = True) -> Parsed:
    """Return the rows of some whole lines that nothing wraps.

    Args:
        raw: The bytes as they came out of the source.
        texts: Whether to keep the lines themselves, to quote them.
    """
    breaks: list[int] = []
    if b"\r" in raw or b"\x1b" in raw:
        block = clean(raw, 2)  # not the first of the source: its mark is gone already
        raw, breaks = block.text, list(_breaks(block))
    return _parsed(raw, breaks, texts=texts)


def _parsed(raw: bytes, breaks: list[int], *, texts: bool) -> Parsed:
    if not raw:
        return Parsed(empty(), 0)
    found, height = _found(raw, breaks)
    newlines = height if raw.endswith(b"\n") else height - 1
    frames = list(_frames(found)) if found.height else []
    if not frames:
        return Parsed(empty(), newlines - len(breaks))
    rows = pl.concat(frames, how="diagonal").sort("line", maintain_order=True)
    if texts:
        rows = rows.join(found, on="line", how="left", maintain_order="left")
    return Parsed(rows, newlines - len(breaks))


def _found(text: bytes, breaks: list[int]) -> tuple[pl.DataFrame, int]:
    """Return line number and text of every line that may be one of statistics, and all rows."""
    lines = pl.read_csv(
        io.BytesIO(text),
        has_header=False,
        separator="\x1f",  # a control character: the whole line is one column
        quote_char=None,
        schema={"text": pl.String},
        row_index_name="line",
        row_index_offset=1,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    )
    found = lines.filter(pl.col("text").str.contains(_ANY)).cast({"line": pl.Int64})
    if breaks and found.height:
        # Carriage returns inside a line begin no physical line.
        before = pl.Series(breaks).search_sorted(found["line"] - 1, side="left")
        found = found.with_columns(pl.col("line") - before.cast(pl.Int64))
    return found.filter(pl.col("text").str.len_bytes() <= _MAX_LINE), lines.height


def _breaks(block: Block) -> Iterator[int]:
    """Yield the rows (from 0) that end in a carriage return instead of a newline."""
    at, row = 0, 0
    for place in block.breaks:
        row += block.text.count(b"\n", at, place)
        at = place
        yield row


def _frames(found: pl.DataFrame) -> Iterator[pl.DataFrame]:
    rest = found
    for fast in (_fast_speculation, _fast_engine):
        done, rest = fast(rest)
        if not done.is_empty():
            yield done
    for form in FORMATS:
        if rest.is_empty():
            return
        done, rest = _by_pattern(rest, form)
        if not done.is_empty():
            yield done
    if not rest.is_empty():
        yield from _one_by_one(rest)


def _split_off(
    mine: pl.DataFrame, others: pl.DataFrame, parsed: pl.DataFrame, good: pl.Expr
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that came out well, and all others.

    Args:
        mine: Rows that were tried.
        others: Rows that were not.
        parsed: What became of `mine`, row for row.
        good: Whether a row of `parsed` came out well.
    """
    well = parsed.select(good.fill_null(False).alias("well")).to_series()  # noqa: FBT003
    if well.all():
        return _shaped(parsed), others
    return _shaped(parsed.filter(well)), pl.concat([others, mine.filter(~well)])


def _divided(rest: pl.DataFrame, text: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that hold a text, and the others."""
    holds = rest["text"].str.contains(text, literal=True)
    return rest.filter(holds), rest.filter(~holds)


def _shaped(frame: pl.DataFrame) -> pl.DataFrame:
    """Return those columns of a frame that the table has, as what they are there."""
    return frame.select(
        pl.col(name).cast(kind, strict=False)
        for name, kind in SCHEMA.items()
        if name in frame.columns
    )


def _number(piece: int, suffix: str, kind: Any = pl.Float64) -> pl.Expr:  # noqa: ANN401
    """Read a number from a piece; null unless the piece is the number and the suffix."""
    return pl.col(f"field_{piece}").str.strip_suffix(suffix).cast(kind, strict=False)


def _fast_speculation(rest: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut `SpecDecoding metrics` lines of 0.10.2 and later at their colons."""
    mine, others = _divided(rest, "SpecDecoding metrics: Mean acceptance length: ")
    if mine.is_empty():
        return empty(), rest
    pieces = mine.select("line", pl.col("text").str.split_exact(": ", 8).struct.unnest())
    head = pl.col("field_0")
    parsed = pieces.select(
        "line",
        head.str.extract(_CLOCK).alias("clock"),
        pl.lit("vllm.spec").alias("form"),
        _number(2, ", Accepted throughput").alias("printed_length"),
        _number(3, " tokens/s, Drafted throughput").alias("accepted_throughput"),
        _number(4, " tokens/s, Accepted").alias("drafted_throughput"),
        _number(5, " tokens, Drafted", pl.Int64).alias("accepted_tokens"),
        _number(6, " tokens, Per-position acceptance rate", pl.Int64).alias("draft_tokens"),
        pl.col("field_7")
        .str.strip_suffix(", Avg Draft acceptance rate")
        .str.split(", ")
        .cast(pl.List(pl.Float64), strict=False)
        .alias("per_position"),
        _number(8, "%").truediv(100).alias("printed_rate"),
    )
    prefixed = pieces["field_0"].str.contains(_VLLM_PREFIX + "SpecDecoding metrics$")
    good = (
        pl.all_horizontal(pl.all().is_not_null())
        & pl.lit(pieces["field_7"].str.contains(r"^[0-9., ]+, Avg Draft acceptance rate$"))
        & pl.lit(prefixed)
    )
    return _split_off(mine, others, parsed, good)


def _fast_engine(rest: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut `Engine 000: Avg prompt throughput` lines without rarer fields at their colons."""
    mine, others = _divided(rest, ": Avg prompt throughput: ")
    if mine.is_empty():
        return empty(), rest
    pieces = mine.select("line", pl.col("text").str.split_exact(": ", 7).struct.unnest())
    head = pl.col("field_0")
    usage = pl.col("field_5").str
    hits = pl.col("field_7")
    parsed = pieces.select(
        "line",
        head.str.extract(_CLOCK).alias("clock"),
        pl.lit("vllm.v1").alias("form"),
        head.str.tail(3).alias("replica"),
        _number(2, " tokens/s, Avg generation throughput").alias("prompt_tokens_per_s"),
        _number(3, " tokens/s, Running").alias("generation_tokens_per_s"),
        _number(4, " reqs, Waiting", pl.Int64).alias("running"),
        usage.extract(r"^([0-9]+) reqs, [A-Z]+ KV cache usage$").cast(pl.Int64).alias("waiting"),
        pl.col("field_6")
        .str.strip_suffix(", Prefix cache hit rate")
        .str.strip_suffix("%")
        .cast(pl.Float64, strict=False)
        .truediv(100)
        .alias("kv_cache_usage"),
        hits.str.strip_suffix("%")
        .cast(pl.Float64, strict=False)
        .truediv(100)
        .alias("prefix_cache_hit_rate"),
        (hits.is_null() | hits.str.contains(r"^[0-9.]+%$")).alias("whole"),
    )
    needed = [name for name in parsed.columns if name not in {"prefix_cache_hit_rate", "whole"}]
    prefixed = pieces["field_0"].str.contains(_VLLM_PREFIX + r"Engine [0-9]{3}$")
    good = pl.all_horizontal(pl.col(needed).is_not_null()) & pl.col("whole") & pl.lit(prefixed)
    return _split_off(mine, others, parsed, good)


def _by_pattern(rest: pl.DataFrame, form: LineFormat) -> tuple[pl.DataFrame, pl.DataFrame]:
    mine, others = _divided(rest, form.find)
    if mine.is_empty():
        return empty(), rest
    pattern = f"^{ENVELOPE_TIME}{PREFIXES[form.engine]}{form.pattern}"
    groups = mine.select("line", pl.col("text").str.extract_groups(pattern).struct.unnest())
    matched = groups.select(pl.any_horizontal(pl.exclude("line").is_not_null())).to_series()
    if not matched.any():
        return empty(), rest
    parsed = groups.filter(matched).with_columns(pl.lit(form.name).alias("form"))
    rest = others if matched.all() else pl.concat([others, mine.filter(~matched)])
    return _shaped(_converted(parsed)), rest


def _converted(frame: pl.DataFrame) -> pl.DataFrame:
    """Return captured texts as the numbers that their names say."""
    found: list[pl.Expr] = []
    for name in frame.columns:
        column = pl.col(name)
        if name.endswith("_pct"):
            number = column.cast(pl.Float64, strict=False).truediv(100)
            found.append(number.alias(name.removesuffix("_pct")))
        elif name.endswith("_ms"):
            number = column.cast(pl.Float64, strict=False).truediv(1000)
            found.append(number.alias(name.removesuffix("_ms") + "_s"))
        elif name.endswith("_go"):
            found.append(_go_seconds(column).alias(name.removesuffix("_go") + "_s"))
        elif name.endswith("_list"):
            texts = column.str.replace_all(" ", "").str.split(",")
            found.append(
                texts.cast(pl.List(pl.Float64), strict=False).alias(name.removesuffix("_list"))
            )
        elif name == "ranks":
            found.append(column.str.strip_chars().replace("", None).alias("replica"))
        elif name == "aggregated":
            found.append((pl.lit("all ") + column).alias("aggregated"))
        else:
            found.append(column)
    frame = frame.select(found)
    for old, new in (("aggregated", "replica"), ("running_old", "running")):
        if old in frame.columns:
            frame = frame.with_columns(pl.coalesce(new, old).alias(new))
    return frame


def _go_seconds(column: pl.Expr) -> pl.Expr:
    """Return the seconds of a duration as Go writes it: `1m2.5s`, `350.2ms`, `12µs`."""
    parts = column.str.extract_groups(_GO)

    def number(name: str) -> pl.Expr:
        return parts.struct.field(name).cast(pl.Float64, strict=False).fill_null(0)

    scale = parts.struct.field("unit").replace_strict(
        _GO_UNITS, default=1.0, return_dtype=pl.Float64
    )
    return number("h") * 3600 + number("m") * 60 + number("value") * scale


def _one_by_one(rest: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Parse lines that no known prefix fits: their messages are found as in a diagnosis."""
    understood = (understand(text.encode(), line) for line, text in rest.iter_rows())
    messages = pl.DataFrame(
        [
            (r.line, r.at, r.clock, r.message.strip())
            for r in understood
            if r.kind in {"log", "raw"}
        ],
        schema={"line": pl.Int64, "at": pl.String, "clock": pl.String, "text": pl.String},
        orient="row",
    )
    for form in FORMATS:
        mine, others = _divided(messages, form.find.strip())
        if mine.is_empty():
            continue
        # llama.cpp has no prefix that a dialect splits off: it is part of the message.
        before = (
            PREFIXES["llama-cpp"].replace("?P<clock>", "") if form.engine == "llama-cpp" else ""
        )
        groups = mine.select(
            "line",
            "at",
            "clock",
            pl.col("text").str.extract_groups(f"^{before}{form.pattern}").struct.unnest(),
        )
        matched = groups.select(
            pl.any_horizontal(pl.exclude("line", "at", "clock").is_not_null())
        ).to_series()
        if matched.any():
            parsed = groups.filter(matched).with_columns(pl.lit(form.name).alias("form"))
            yield _shaped(_converted(parsed))
            messages = pl.concat([others, mine.filter(~matched)])
