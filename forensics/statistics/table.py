"""Blocks of clean text to the tidy table: one row a printed line of statistics.

In: clean blocks in order. Out: a polars frame with the columns of `SCHEMA`, in order of lines. The
two forms that current vLLM prints, of which a log of days holds millions, are cut apart column by
column; every other form goes through its regular expression, and what no prefix is known for
(JSON lines, other wrappers) through the same `understand` as in a diagnosis.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from forensics.envelopes import Block, Envelope
from forensics.records import understand
from forensics.statistics.formats import BY_NAME, ENVELOPE_TIME, FINDS, FORMATS, PREFIXES, LineFormat

#: Clean text that is parsed at once.
BATCH = 24 * 1024 * 1024
_MAX_LINE = 65_536

#: Columns of the tidy table. `line`: physical line. `at`: time from the envelope (RFC 3339).
#: `clock`: time as printed. `replica`: engine or rank. Counts are numbers of tokens or requests,
#: rates 0 to 1, throughputs tokens/s, `span_s` seconds; `printed_…` as printed.
SCHEMA: dict[str, Any] = {
    "line": pl.Int64,
    "at": pl.String,
    "clock": pl.String,
    "form": pl.String,
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
    "text": pl.String,
}
_VLLM_PREFIX = (
    r"^(?:\([^()]* pid=[0-9]+[^()]*\) )*(?:DEBUG|INFO|WARNING) ([0-9-]{5} [0-9:]{8}) "
    r"\[[^\]:]*:[0-9]+\] "
)


def empty() -> pl.DataFrame:
    """Return a table without rows."""
    return pl.DataFrame(schema=SCHEMA)


class Batch:
    """Clean blocks gathered until they are worth parsing.

    Args:
        envelope: What wraps each line.
    """

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._blocks: list[Block] = []
        self._bytes = 0

    def add(self, block: Block) -> bool:
        """Take a block; say whether it is time to parse."""
        self._blocks.append(block)
        self._bytes += len(block.text)
        return self._bytes >= BATCH

    def take(self) -> tuple[list[Block], Envelope]:
        """Return what was gathered and begin anew."""
        blocks, self._blocks, self._bytes = self._blocks, [], 0
        return blocks, self._envelope


def parse(blocks: Iterable[Block], envelope: Envelope, *, texts: bool = True) -> pl.DataFrame:
    """Return the rows of some blocks that follow each other.

    Args:
        blocks: Clean text of whole lines.
        envelope: What wraps each line.
        texts: Whether to keep the lines themselves, to quote them.
    """
    kept = [block for block in blocks if block.text]
    if not kept:
        return empty()
    found = _found(kept)
    if found.is_empty():
        return empty()
    frames = list(_frames(found, envelope))
    if not frames:
        return empty()
    rows = pl.concat(frames).sort("line", maintain_order=True)
    if texts:
        rows = rows.drop("text").join(found, on="line", how="left", maintain_order="left")
    return rows


def _found(blocks: list[Block]) -> pl.DataFrame:
    """Return line number and text of every line that may be one of statistics."""
    text = b"".join(block.text for block in blocks)
    lines = pl.read_csv(
        io.BytesIO(text),
        has_header=False,
        separator="\x1f",  # a control character: the whole line is one column
        quote_char=None,
        schema={"text": pl.String},
        row_index_name="line",
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    )
    found = lines.filter(pl.col("text").str.contains_any(list(FINDS)))
    first = blocks[0].first_line
    found = found.with_columns(pl.col("line").cast(pl.Int64) + first)
    breaks = list(_breaks(blocks))
    if breaks and not found.is_empty():
        # Carriage returns inside a line begin no physical line.
        before = pl.Series(breaks).search_sorted(found["line"] - first, side="left")
        found = found.with_columns(pl.col("line") - before.cast(pl.Int64))
    return found.filter(pl.col("text").str.len_bytes() <= _MAX_LINE)


def _breaks(blocks: list[Block]) -> Iterator[int]:
    """Yield the rows that end in a carriage return instead of a newline."""
    row = 0
    for block in blocks:
        at, counted = 0, 0
        for place in block.breaks:
            counted += block.text.count(b"\n", at, place)
            at = place
            yield row + counted
        row += block.newlines


def _frames(found: pl.DataFrame, envelope: Envelope) -> Iterator[pl.DataFrame]:
    rest = found
    if envelope.name is None:
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
        yield from _one_by_one(rest, envelope)


def _split_off(
    rest: pl.DataFrame, mine: pl.DataFrame, parsed: pl.DataFrame, good: pl.Expr
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that came out well, and the rest with those that did not."""
    done = parsed.filter(good)
    if done.is_empty():
        return empty(), rest
    if done.height == rest.height:
        return _shaped(done), rest.clear()
    if done.height == mine.height:
        return _shaped(done), rest.join(mine.select("line"), on="line", how="anti")
    return _shaped(done), rest.join(done.select("line"), on="line", how="anti")


def _shaped(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with all columns of the table, in order."""
    return frame.select(
        pl.col(name).cast(kind, strict=False) if name in frame.columns else pl.lit(None, kind).alias(name)
        for name, kind in SCHEMA.items()
    )


def _number(piece: int, suffix: str, kind: Any = pl.Float64) -> pl.Expr:  # noqa: ANN401
    """Read a number from a piece; null unless the piece is the number and the suffix."""
    return pl.col(f"field_{piece}").str.strip_suffix(suffix).cast(kind, strict=False)


def _fast_speculation(rest: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut `SpecDecoding metrics` lines of 0.10.2 and later at their colons."""
    mine = rest.filter(
        pl.col("text").str.contains("SpecDecoding metrics: Mean acceptance length: ", literal=True)
    )
    if mine.is_empty():
        return empty(), rest
    pieces = mine.select("line", pl.col("text").str.split_exact(": ", 8).struct.unnest())
    head = pl.col("field_0")
    parsed = pieces.select(
        "line",
        head.str.extract(_VLLM_PREFIX + "SpecDecoding metrics$").alias("clock"),
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
    good = pl.all_horizontal(pl.all().is_not_null()) & ~pl.col("per_position").list.contains(None)
    return _split_off(rest, mine, parsed, good)


def _fast_engine(rest: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut `Engine 000: Avg prompt throughput` lines without rarer fields at their colons."""
    mine = rest.filter(
        pl.col("text").str.contains(": Avg prompt throughput: ", literal=True)
    )
    if mine.is_empty():
        return empty(), rest
    pieces = mine.select("line", pl.col("text").str.split_exact(": ", 7).struct.unnest())
    head = pl.col("field_0")
    usage = pl.col("field_5").str
    hits = pl.col("field_7")
    parsed = pieces.select(
        "line",
        head.str.extract(_VLLM_PREFIX + r"Engine [0-9]{3}$").alias("clock"),
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
        hits.str.strip_suffix("%").cast(pl.Float64, strict=False).truediv(100).alias("prefix_cache_hit_rate"),
        (hits.is_null() | hits.str.contains(r"^[0-9.]+%$")).alias("whole"),
    )
    needed = [name for name in parsed.columns if name not in {"prefix_cache_hit_rate", "whole"}]
    good = pl.all_horizontal(pl.col(needed).is_not_null()) & pl.col("whole")
    return _split_off(rest, mine, parsed, good)


def _by_pattern(rest: pl.DataFrame, form: LineFormat) -> tuple[pl.DataFrame, pl.DataFrame]:
    mine = rest.filter(pl.col("text").str.contains(form.find, literal=True))
    if mine.is_empty():
        return empty(), rest
    pattern = f"^{ENVELOPE_TIME}{PREFIXES[form.engine]}{form.pattern}"
    groups = mine.select("line", pl.col("text").str.extract_groups(pattern).struct.unnest())
    matched = groups.filter(pl.any_horizontal(pl.exclude("line").is_not_null()))
    if matched.is_empty():
        return empty(), rest
    parsed = matched.with_columns(pl.lit(form.name).alias("form"))
    return _split_off(rest, mine, _converted(parsed), pl.lit(True))  # noqa: FBT003


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
        elif name.endswith("_list"):
            texts = column.str.replace_all(" ", "").str.split(",")
            found.append(
                texts.cast(pl.List(pl.Float64), strict=False).alias(name.removesuffix("_list"))
            )
        elif name == "ranks":
            found.append(column.str.strip_chars().alias("replica"))
        elif name == "aggregated":
            found.append((pl.lit("all ") + column).alias("aggregated"))
        else:
            found.append(column)
    frame = frame.select(found)
    for old, new in (("aggregated", "replica"), ("running_old", "running")):
        if old in frame.columns:
            frame = frame.with_columns(pl.coalesce(new, old).alias(new))
    return frame


def _one_by_one(rest: pl.DataFrame, envelope: Envelope) -> Iterator[pl.DataFrame]:
    """Parse lines that no known prefix fits, as a diagnosis would understand them."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for line, text in rest.iter_rows():
        record = understand(text.encode(), line, envelope)
        if record.kind not in {"log", "raw"}:
            continue
        message = record.message.strip()
        for name, pattern in _PATTERNS.items():
            match = pattern.match(message) if BY_NAME[name].find.strip() in message else None
            if match:
                row = {"line": line, "at": record.at, "clock": record.clock, "form": name}
                rows.setdefault(name, []).append(row | match.groupdict())
                break
    for group in rows.values():
        frame = pl.DataFrame(group, infer_schema_length=None)
        texts = [name for name in frame.columns if name != "line"]
        yield _shaped(_converted(frame.cast(dict.fromkeys(texts, pl.String))))


#: llama.cpp's messages keep what the server says before them when no prefix is split off.
_PATTERNS = {
    form.name: re.compile(
        (PREFIXES["llama_cpp"].replace("?P<clock>", "") if form.engine == "llama_cpp" else "")
        + form.pattern
    )
    for form in FORMATS
}
