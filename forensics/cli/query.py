"""`forensics query`: read-only SQL over the archive."""

from __future__ import annotations

from typing import Annotated

import typer

from forensics.cli.options import Archive, Output, check_format

FORMATS = ("table", "csv", "json", "parquet")


def query(
    sql: Annotated[
        str,
        typer.Argument(
            help="A SELECT over the tables runs, findings, samples and launch_arguments."
        ),
    ],
    format_: Annotated[
        str, typer.Option("--format", "-f", help="table, csv, json or parquet.")
    ] = "table",
    output: Output = None,
    archive: Archive = None,
) -> int:
    """Ask the archive's tables in SQL."""
    from forensics.archive.querying import query as answer
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.reporters import rows

    check_format(format_, FORMATS)
    found = answer(opened_archive(archive), sql)
    out.write_data(rows.render(found, format_, out.width()), output)
    return 0
