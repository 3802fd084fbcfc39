"""Rows of a table as text for people, CSV, JSON or Parquet."""

from __future__ import annotations

import io

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from forensics.reporters.view import escaped, visible, wrap

#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SHOWN = 1000
#: With less room for a column a table is no help.
_NARROWEST = 11


def render(frame: pl.DataFrame, format_: str, width: int = 80) -> bytes:
    """Return rows in a format.

    Args:
        frame: The rows.
        format_: `table`, `csv`, `json` (one array of objects) or `parquet`.
        width: Columns of the table.
    """
    if format_ == "parquet":
        out = io.BytesIO()
        frame.write_parquet(out)
        return out.getvalue()
    if format_ == "json":
        return (escaped(_flat(frame, nested=False).write_json()) + "\n").encode()
    if format_ == "csv":
        return _safe(_flat(frame)).write_csv().encode()
    return _table(frame, width).encode("utf-8", "backslashreplace")


def _flat(frame: pl.DataFrame, *, nested: bool = True) -> pl.DataFrame:
    """Return rows whose times are RFC 3339 and, for CSV, whose lists are JSON."""
    columns = []
    for name, kind in frame.schema.items():
        column = pl.col(name)
        if isinstance(kind, pl.Datetime):
            column = column.dt.strftime(
                "%Y-%m-%dT%H:%M:%S%.6f%:z" if kind.time_zone else "%FT%T%.6f"
            )
        elif nested and isinstance(kind, pl.List | pl.Array | pl.Struct):
            column = pl.struct(name).struct.json_encode().str.slice(len(name) + 4).str.head(-1)
        columns.append(column.alias(name))
    return frame.select(columns)


def _safe(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows that no spreadsheet takes for formulas, and no terminal for commands."""
    return frame.with_columns(
        pl.col(name).map_elements(_cell, return_dtype=pl.String)
        for name, kind in frame.schema.items()
        if kind == pl.String
    )


def _cell(text: str) -> str:
    text = visible(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _table(frame: pl.DataFrame, width: int) -> str:
    rows = _flat(frame.head(_SHOWN))
    lines = _wide(rows, width) if len(rows.columns) <= width // _NARROWEST else _long(rows, width)
    more = f"{frame.height} rows" + (f", {_SHOWN} shown" if frame.height > _SHOWN else "")
    return "\n".join([*lines, more, ""])


def _wide(rows: pl.DataFrame, width: int) -> list[str]:
    """Return a table; a cell that does not fit goes over several lines, nothing is left out."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, kind in rows.schema.items():
        justify: JustifyMethod = "right" if kind.is_numeric() else "left"
        table.add_column(Text(visible(name)), justify=justify, overflow="fold")
    for row in rows.iter_rows():
        table.add_row(*(Text(_shown(value)) for value in row))
    out = io.StringIO()
    Console(file=out, width=width, no_color=True, legacy_windows=False).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def _long(rows: pl.DataFrame, width: int) -> list[str]:
    """Return a block of lines for each row, one line a value: for more columns than fit."""
    lines = []
    wide = max(len(visible(name)) for name in rows.columns)
    for row in rows.iter_rows(named=True):
        for name, value in row.items():
            first, rest = f"{visible(name):<{wide}}  ", " " * (wide + 2)
            lines += wrap(_shown(value), width, first, rest) or [first.rstrip()]
        lines.append("")
    return lines


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(str(value))
