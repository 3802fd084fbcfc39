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
from forensics.statistics import cutting
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
    "denoising_steps": pl.Int64,
    "canvas_positions": pl.Int64,
    "committed_throughput": pl.Float64,
    "span_s": pl.Float64,
    "request_s": pl.Float64,
    "text": pl.String,
}
_GO = r"^(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<value>[\d.]+)(?P<unit>s|ms|µs|us|ns))?$"
_GO_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
_ANY = "|".join(re.escape(find) for find in FINDS)
#: llama.cpp has no prefix that a dialect splits off: it is part of the message.
_UNSPLIT = PREFIXES["llama-cpp"].replace("?P<clock>", "")


#: What `windows.recovered` adds; it says what each of them is.
ADDED: dict[str, Any] = {
    "seconds": pl.Float64,
    "drafts": pl.Float64,
    "drafts_low": pl.Float64,
    "drafts_high": pl.Float64,
    "emitted": pl.Float64,
    "problem": pl.String,
    "warmup": pl.Boolean,
    "load": pl.Int64,
}
_COLUMNS = SCHEMA | ADDED


def completed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with all columns of the table; those that it lacks cost no memory."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, kind).alias(name)
        for name, kind in _COLUMNS.items()
    )


def filled(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame without the columns in which nothing stands."""
    nulls = frame.select(pl.all().null_count()).row(0, named=True)
    return frame.select(name for name, count in nulls.items() if count < frame.height)


class Rows(Struct, frozen=True):
    """The tidy table, kept apart by form: a form holds those columns only that it prints.

    A log of days has millions of rows, and no form fills half of the columns.

    Attributes:
        parts: Rows by form, each in order of lines.
    """

    parts: dict[str, pl.DataFrame] = {}

    @property
    def height(self) -> int:
        """Number of rows."""
        return sum(part.height for part in self.parts.values())

    def having(self, *names: str) -> pl.DataFrame:
        """Return the rows of the forms that fill one of these columns, in order of lines."""
        return _merged([p for p in self.parts.values() if _fills(p, names)])

    def whole(self) -> pl.DataFrame:
        """Return all rows with all columns, in order of lines."""
        return _merged(list(self.parts.values()))


def _fills(part: pl.DataFrame, names: tuple[str, ...]) -> bool:
    return any(n in part.columns and part[n].null_count() < part.height for n in names)


def _merged(parts: list[pl.DataFrame]) -> pl.DataFrame:
    if not parts:
        return pl.DataFrame(schema=_COLUMNS)
    if len(parts) == 1:
        return completed(parts[0])
    return completed(pl.concat(parts, how="diagonal").sort("line", maintain_order=True))


def gathered(frames: list[pl.DataFrame]) -> Rows:
    """Return the rows of all batches by form.

    Args:
        frames: Each of one form, in order of lines within a form; emptied, so that no row stands
            in memory twice.
    """
    by_form: dict[str, list[pl.DataFrame]] = {}
    for frame in frames:
        by_form.setdefault(str(frame["form"][0]), []).append(frame)
    frames.clear()
    # Whole columns: added ones would make polars copy each that is in pieces.
    return Rows({form: _joined(by_form.pop(form)).rechunk() for form in list(by_form)})


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    if len(frames) == 1:
        return frames[0]
    alike = all(frame.columns == frames[0].columns for frame in frames)
    return pl.concat(frames, how="vertical" if alike else "diagonal")


class Parsed(Struct, frozen=True):
    """What became of a batch: rows, a frame a form, lines counted from 1; and how many lines."""

    frames: list[pl.DataFrame]
    lines: int

    @property
    def height(self) -> int:
        """Number of rows."""
        return sum(frame.height for frame in self.frames)


def parse_block(block: Block, *, texts: bool = True) -> list[pl.DataFrame]:
    """Return the rows of a block out of an envelope, with physical lines and its times.

    Args:
        block: Clean lines that know their numbers and times.
        texts: Whether to keep the lines themselves, to quote them.
    """
    frames = _parsed(block.text, list(_breaks(block)), texts=texts).frames
    return [_placed(frame, block) for frame in frames]


def _placed(rows: pl.DataFrame, block: Block) -> pl.DataFrame:
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
        return Parsed([], 0)
    found, height = _found(raw, breaks)
    newlines = height if raw.endswith(b"\n") else height - 1
    by_form: dict[str, list[pl.DataFrame]] = {}
    for frame in _frames(found) if found.height else ():
        by_form.setdefault(str(frame["form"][0]), []).append(frame)
    frames = [_in_order(frames) for frames in by_form.values()]
    if texts:
        frames = [f.join(found, on="line", how="left", maintain_order="left") for f in frames]
    return Parsed(frames, newlines - len(breaks))


def _in_order(frames: list[pl.DataFrame]) -> pl.DataFrame:
    rows = _joined(frames)
    return rows if rows["line"].is_sorted() else rows.sort("line", maintain_order=True)


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
    done, rest = cutting.cut(found)
    yield from (_shaped(frame) for frame in done)
    for form in FORMATS:
        if rest.is_empty():
            return
        parsed, rest = _by_pattern(rest, form)
        if not parsed.is_empty():
            yield parsed
    if not rest.is_empty():
        yield from _one_by_one(rest)


def _divided(rest: pl.DataFrame, text: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that hold a text, and the others."""
    holds = rest["text"].str.contains(text, literal=True)
    return rest.filter(holds), rest.filter(~holds)


def _shaped(frame: pl.DataFrame) -> pl.DataFrame:
    """Return those columns of a frame that the table has, as what they are there."""
    return frame.select(
        pl.col(name).cast(kind, strict=False)
        for name, kind in (SCHEMA | {"clock_s": pl.Float64}).items()
        if name in frame.columns
    )


def _by_pattern(rest: pl.DataFrame, form: LineFormat) -> tuple[pl.DataFrame, pl.DataFrame]:
    mine, others = _divided(rest, form.find)
    if mine.is_empty():
        return mine, rest
    pattern = f"^{ENVELOPE_TIME}{PREFIXES[form.engine]}{form.pattern}"
    groups = mine.select("line", pl.col("text").str.extract_groups(pattern).struct.unnest())
    matched = groups.select(pl.any_horizontal(pl.exclude("line").is_not_null())).to_series()
    if not matched.any():
        return mine.clear(), rest
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
