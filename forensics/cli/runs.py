"""`forensics runs`: what is in the archive."""

from __future__ import annotations

from typing import Annotated

import typer

from forensics.cli.options import Archive, NoColor, Output, check_format

app = typer.Typer(help="The archive of runs.", no_args_is_help=True, rich_markup_mode=None)

Run = Annotated[
    str,
    typer.Argument(help="Its id or the beginning of it, last, last-failed or last-good."),
]
FORMATS = ("terminal", "text", "json")
Format = Annotated[str, typer.Option("--format", "-f", help="terminal, text or json.")]


@app.command(name="list")
def list_(
    format_: Format = "terminal",
    output: Output = None,
    archive: Archive = None,
    no_color: NoColor = False,
) -> int:
    """List the runs, the newest last."""
    from msgspec.structs import asdict

    from forensics.archive.listing import rows
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.reporters import archived
    from forensics.reporters.view import as_json

    check_format(format_, FORMATS)
    found = rows(opened_archive(archive))
    view = out.view(format_, output, no_color=no_color, verbose=False)
    listed = (
        as_json(found)
        if format_ == "json"
        else archived.listed([asdict(row) for row in found], view)
    )
    out.write(listed, output)
    return 0


@app.command()
def show(
    run: Run = "last",
    format_: Format = "terminal",
    output: Output = None,
    archive: Archive = None,
    no_color: NoColor = False,
) -> int:
    """Show what is known of a run: container, image, exit, log and how complete it is."""
    import msgspec

    from forensics.archive import reading
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.reporters import archived
    from forensics.reporters.view import as_json

    check_format(format_, FORMATS)
    found = opened_archive(archive)
    name = reading.find(found, run)
    record, diagnosis = found.record(name), reading.diagnosis_of(found, name)
    view = out.view(format_, output, no_color=no_color, verbose=False)
    data = msgspec.to_builtins(record)
    text = as_json(record) if format_ == "json" else archived.shown(data, diagnosis, view)
    out.write(text, output)
    return 0


@app.command()
def logs(
    run: Run = "last",
    raw: Annotated[
        bool, typer.Option("--raw", help="As the engine wrote them, in their envelope.")
    ] = False,
    output: Output = None,
    archive: Archive = None,
) -> int:
    """Print the lines of a run as its container wrote them."""
    from forensics.archive import reading
    from forensics.archive.listing import log_lines
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive

    found = opened_archive(archive)
    name = reading.find(found, run)
    log = found.record(name).log
    opened, _ = reading.open_run(found, name)
    try:
        lines = log_lines(opened, "raw" if raw or log is None else log.envelope)
        out.write_lines(lines, output)
    finally:
        opened.file.close()
    return 0
