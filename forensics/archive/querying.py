"""Read-only SQL over the archive's tables: `runs`, `findings`, `samples`, `launch_arguments`.

The SQL is that of polars. It can read these tables and nothing else: statements that are no query
and functions that read files are refused before anything is looked at.
"""

from __future__ import annotations

import re

import polars as pl

from forensics.archive.catalog import Catalog, load
from forensics.archive.store import SAMPLES, Archive
from forensics.errors import UsageError
from forensics.reporters.stats_tables import COLUMNS

TABLES = ("runs", "findings", "samples", "launch_arguments")
#: Texts, comments and quoted names, which may hold anything.
_QUOTED = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMENT = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_READS = re.compile(r"[\"`]?\b(?:read|scan)_\w+\b[\"`]?\s*\(", re.IGNORECASE)
_QUERY = re.compile(r"(?:select|with|from|show\s+tables)\b", re.IGNORECASE)
_SCAN = re.compile(r"\bSCAN\s+\[?([^\]\n,]*)")


def query(archive: Archive, sql: str) -> pl.DataFrame:
    """Answer a query.

    Args:
        archive: The archive.
        sql: One SELECT statement.

    Returns:
        Its rows.

    Raises:
        UsageError: It is no query, names what is not there, or would read files.
    """
    _refuse(sql)
    context = pl.SQLContext(_tables(archive, sql), eager=False)
    try:
        plan = context.execute(sql)
        if any(not found.startswith(str(archive.runs)) for found in _SCAN.findall(plan.explain())):
            raise UsageError("a query cannot read files", f"its tables are {', '.join(TABLES)}")
        return plan.collect()
    except pl.exceptions.PolarsError as error:
        raise UsageError("the query cannot be answered", _first_line(error)) from None
    except pl.exceptions.PanicException as error:  # a defect of the SQL engine is no crash of ours
        raise UsageError("the query cannot be answered", _first_line(error)) from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]


def _refuse(sql: str) -> None:
    start = _COMMENT.match(sql)
    body = sql[start.end() if start else 0 :].lstrip("( \n\t")
    if not _QUERY.match(body):
        raise UsageError("only a query can be given", "it begins with SELECT or WITH")
    bare = _QUOTED.sub(" ", sql)
    if _READS.search(bare):
        raise UsageError("a query cannot read files", f"its tables are {', '.join(TABLES)}")


def _tables(archive: Archive, sql: str) -> dict[str, pl.LazyFrame]:
    """Return the tables; those that the text does not name are left empty."""
    catalog, named = load(archive), sql.lower()
    return {
        name: _table(name, archive, catalog) if name in named else _empty(catalog)
        for name in TABLES
    }


def _table(name: str, archive: Archive, catalog: Catalog) -> pl.LazyFrame:
    if name == "samples":
        return samples(archive, catalog)
    frame: pl.DataFrame = getattr(catalog, name)
    return frame.lazy()


def _empty(catalog: Catalog) -> pl.LazyFrame:
    return catalog.frame.select(pl.col("id").alias("run")).limit(0).collect().lazy()


def samples(archive: Archive, catalog: Catalog | None = None) -> pl.LazyFrame:
    """Return the windows of statistics of all runs: `run`, then what `stats --format csv` has.

    Args:
        archive: The archive.
        catalog: Its catalogue, if it was loaded.
    """
    catalog = catalog or load(archive)
    runs = catalog.columns("id", "windows", "speculative_windows")
    with_windows = runs.filter(pl.col("windows").is_not_null())["id"]
    paths = [path for run in with_windows if (path := archive.path(run) / SAMPLES).is_file()]
    if not paths:
        empty = pl.DataFrame(schema={"run": pl.String, **dict.fromkeys(COLUMNS, pl.Null)})
        return empty.lazy()
    found = pl.scan_parquet(paths, include_file_paths="run", missing_columns="insert")
    name = pl.col("run").str.extract(r"([^/\\]+)[/\\][^/\\]+$")
    return found.select(name.alias("run"), *COLUMNS)
