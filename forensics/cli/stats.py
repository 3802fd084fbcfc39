"""`forensics stats`: what speculation and the server achieved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forensics.cli.options import Archive, NoColor, Output, Quiet, Verbose, check_format

if TYPE_CHECKING:
    from forensics.reporters.view import View
    from forensics.statistics.follow import Growing
    from forensics.statistics.model import Counters, Report

FORMATS = ("terminal", "text", "json", "csv", "parquet", "html")


def stats(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            help="Log files, folders with logs, docker:NAME, journal:UNIT, run:ID of the archive, "
            "the address of a metrics endpoint or what it answered in a file, or - for standard "
            "input (the default)."
        ),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", help="terminal, text, json, csv, parquet or html.")
    ] = "terminal",
    output: Output = None,
    bench: Annotated[
        list[Path] | None,
        typer.Option("--bench", help="A benchmark result to read beside the log (repeatable)."),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option("--max-num-batched-tokens", help="Prefill chunk, if no log tells it."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on reading one growing log, and show it anew."),
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks (--follow).")
    ] = 2.0,
    archive: Archive = None,
    no_color: NoColor = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Show acceptance, throughput and start-up times of a log, and what to do about them."""
    from forensics.analysis import load_rules
    from forensics.cli import output as out

    check_format(format_, FORMATS)
    view = out.view(format_, output, no_color=no_color, verbose=verbose)
    tables = load_rules([]).tables
    names = source or ([] if bench else ["-"])
    out.refuse_overwrite(output, [*names, *map(str, bench or [])])
    if follow:
        _follow(names, format_, interval, tables, view)
        return 0
    reports = _reports(names, bench or [], chunk, tables, archive)
    data = _rendered(reports, format_, view)
    if not quiet or output is not None:
        out.write_data(data, output)
    return 0


def _reports(
    names: list[str],
    bench: list[Path],
    chunk: int | None,
    tables: dict[str, Any],
    archive: Path | None,
) -> list[Report]:
    """Read everything that was named; counters beside logs are compared with them."""
    from msgspec.structs import replace

    from forensics.sources import find
    from forensics.statistics import benchfiles, comparison, counted, summary

    benches = [benchfiles.read(path) for path in bench]
    reports: list[Report] = []
    endpoints: list[tuple[str, Counters, int]] = []
    addresses = [name for name in names if name.startswith(("http://", "https://"))]
    paths = [name for name in names if name not in addresses]
    for name in [*addresses, *(find(paths) if paths else [])]:
        found = _read(name, archive)
        if isinstance(found, tuple):
            endpoints.append((name, *found))
        else:
            reports.append(found.report(tables))
    if not reports:
        reports = [counted.report_on_counters(c, name, size, tables) for name, c, size in endpoints]
        endpoints = []
    if not reports:
        reports = [counted.report_on_nothing()]
    if chunk is not None:
        arguments = {"max_num_batched_tokens": chunk}
        reports = [replace(r, arguments=r.arguments | arguments) for r in reports]
    if benches:
        reports[0] = summary.with_benches(reports[0], benches, tables)
    for _, counters, _size in endpoints[:1]:
        reports[0] = summary.with_counters(reports[0], counters, tables)
    return comparison.compared(reports, tables)


def _read(name: str, archive: Path | None):  # type: ignore[no-untyped-def] # noqa: ANN202 - a gatherer, or counters and size
    """Read one source: a log, or the text of a metrics endpoint."""
    from forensics.analysis import context_beside
    from forensics.sources import ARCHIVED, LIVE, open_source
    from forensics.statistics import counters, summary

    if counters.is_address(name):
        data = counters.fetch(name)
        return counters.read(data, name), len(data)
    if name.startswith(ARCHIVED):
        from forensics.archive import reading
        from forensics.cli.archived import opened_archive

        found = opened_archive(archive)
        opened, known = reading.open_run(found, reading.find(found, name))
        try:
            return summary.gather(opened, known)
        finally:
            opened.file.close()
    if name.startswith(LIVE):
        from forensics import live
        from forensics.model import Context

        opened, stated = live.open_live(name)
        try:
            return summary.gather(opened, stated or Context())
        finally:
            opened.file.close()
    opened = open_source(name)
    try:
        if counters.looks_like_metrics(opened.head):
            data = b"".join(opened.runs())
            return counters.read(data, name), len(data)
        return summary.gather(opened, context_beside(name))
    finally:
        opened.file.close()


def _rendered(reports: list[Report], format_: str, view: View) -> bytes:
    """Return all reports in one format."""
    if format_ == "json":
        from forensics.reporters import stats_json

        return stats_json.render(reports).encode()
    if format_ in {"csv", "parquet"}:
        from forensics.reporters import stats_tables

        if format_ == "parquet":
            return stats_tables.parquet(reports)
        return stats_tables.csv(reports).encode()
    if format_ == "html":
        from forensics.reporters import stats_html

        return stats_html.render(reports).encode()
    from forensics.reporters import stats_terminal

    return "\n".join(stats_terminal.render(r, view) for r in reports).encode(
        "utf-8", "backslashreplace"
    )


def _follow(
    names: list[str], format_: str, interval: float, tables: dict[str, Any], view: View
) -> None:
    """Show one growing log again and again, in place on a terminal, until its end or Ctrl-C."""
    import sys
    import time

    from forensics.cli.output import write
    from forensics.errors import UsageError
    from forensics.reporters import stats_terminal

    if len(names) != 1 or names[0].startswith(("http://", "https://", "run:")):
        raise UsageError("--follow reads one log", "give a file, docker:NAME, or - for a pipe")
    if format_ not in {"terminal", "text"}:
        raise UsageError(f"--follow shows text, not {format_}", "leave --format out")
    follower = _follower(names[0], interval)
    in_place = sys.stdout.isatty()
    try:
        shown = False
        while not (shown and follower.ended):
            if follower.look() or follower.ended:
                text = stats_terminal.render(follower.report(tables), view)
                write(f"\x1b[H\x1b[2J{text}" if in_place else f"{text}\n", None)
                shown = True
            if not follower.waits:
                time.sleep(interval)
    finally:
        follower.close()


def _follower(name: str, interval: float) -> Growing:
    """Return what follows a log of this name."""
    import sys

    from forensics.model import Source
    from forensics.sources import LIVE
    from forensics.statistics.follow import FileFollower, PipeFollower, StreamFollower

    if name == "-":
        return PipeFollower(sys.stdin.fileno(), interval)
    if name.startswith(LIVE):
        from forensics import live

        stream, context = live.follow_live(name)
        kind = name.partition(":")[0]
        return StreamFollower(Source(kind=kind, name=name), stream, context, interval)
    return FileFollower(Path(name))
