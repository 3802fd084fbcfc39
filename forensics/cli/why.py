"""`forensics why`: the newest failed run of the archive on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from forensics.cli.options import (
    REPORTS,
    Archive,
    NoColor,
    Output,
    Quiet,
    Report,
    Rules,
    Verbose,
    check_format,
)


def why(
    run: Annotated[
        str, typer.Argument(help="A run: its id, the beginning of it, last or last-failed.")
    ] = "last-failed",
    format_: Report = "terminal",
    output: Output = None,
    archive: Archive = None,
    rules: Rules = None,
    no_color: NoColor = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Say why the newest failed run of the archive failed: the command to type after a crash."""
    from msgspec.structs import replace

    from forensics.analysis import load_rules, prepare
    from forensics.archive import reading
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.reporters import REPORTERS
    from forensics.reporters.runs import failed

    check_format(format_, REPORTS)
    found = opened_archive(archive)
    engine = prepare(load_rules(rules or []))
    name = reading.find(found, run)
    diagnosis, _, evidence = reading.examine_run(found, name, engine)
    view = out.view(format_, output, no_color=no_color, verbose=verbose)
    text = REPORTERS[format_](diagnosis, replace(view, excerpts=evidence.excerpts))
    if not quiet or output is not None:
        out.write(text, output)
    return int(failed(diagnosis))
