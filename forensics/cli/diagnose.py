"""`forensics diagnose`: the verdict on logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from forensics.model import Context

FORMATS = ("terminal", "text", "json", "markdown")


def diagnose(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            help="Log files, folders or archives with logs, docker:NAME, journal:UNIT, "
            "or - for standard input (the default)."
        ),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", help="terminal, text, json or markdown.")
    ] = "terminal",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also say which rules were considered and why they lost."),
    ] = False,
    exit_code: Annotated[
        int | None, typer.Option("--exit-code", help="The container's exit code, if you know it.")
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="The server is still running.")
    ] = False,
    inspect: Annotated[
        Path | None,
        typer.Option("--inspect", help="What `docker inspect NAME` printed, in a file."),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", min=1, help="Read at most so many bytes of a log, unpacked."),
    ] = None,
    rules: Annotated[
        list[Path] | None, typer.Option("--rules", help="A folder with more rules (repeatable).")
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what is folded.")] = False,
) -> int:
    """Name the root cause of a failed run, the lines that prove it, and what to change."""
    from forensics.cli import output as out
    from forensics.errors import SourceError, UsageError

    if format_ not in FORMATS:
        raise UsageError(f"--format {format_} is not known", f"one of {', '.join(FORMATS)}")
    from forensics.analysis import examine_all, load_rules, prepare
    from forensics.cli.output import say
    from forensics.reporters import REPORTERS, View
    from forensics.reporters.runs import failed, kinds, summary
    from forensics.reporters.view import visible
    from forensics.sources import find
    from forensics.unpacking import Limits

    limits = Limits(max_bytes=max_bytes)
    names = find(source or ["-"], limits)
    out.refuse_overwrite(output, names)
    known = _context(exit_code, inspect, running=running)
    engine = prepare(load_rules(rules or []))
    anything, broken, texts = False, False, []
    color = format_ == "terminal" and out.use_color(no_color=no_color, to_file=output is not None)
    for name in names:
        try:
            results = examine_all(name, engine, known, limits)
        except SourceError as error:
            if len(names) == 1:
                raise
            # One bad file among many costs its own line, not the others.
            say(str(error))
            broken = True
            continue
        runs = [diagnosis for diagnosis, _, _ in results]
        anything |= any(failed(one) for one in runs)
        several = len(names) > 1 or len(runs) > 1
        said = summary(runs) if format_ != "json" else ""
        told = range(len(runs)) if format_ == "json" or verbose else kinds(runs)
        for place in told:
            diagnosis, triage, evidence = results[place]
            view = View(
                width=out.width(),
                color=color,
                excerpts=evidence.excerpts,
                considered=triage.considered if explain else None,
                several=several,
                verbose=verbose,
            )
            text = REPORTERS[format_](diagnosis, view)
            if several and format_ in {"terminal", "text"}:
                text = f"== {visible(diagnosis.source.name)}\n{text}"
            if said:
                text, said = f"{said}\n{text}", ""
            if output is None and not quiet:
                out.write(text, None)
            texts.append(text)
    if output is not None:
        out.write("".join(texts), output)
    return 2 if broken else int(anything)


def _context(exit_code: int | None, inspect: Path | None, *, running: bool) -> Context | None:
    """Return what the options state beside the log, None if they state nothing."""
    from msgspec.structs import replace

    from forensics.errors import UsageError
    from forensics.inspection import read
    from forensics.model import Context

    if exit_code is not None and not 0 <= exit_code <= 255:  # noqa: PLR2004 - a byte, by POSIX
        raise UsageError(f"--exit-code {exit_code} is none", "a number from 0 to 255")
    if exit_code is not None and running:
        raise UsageError("--exit-code and --running exclude each other")
    context = None
    if inspect is not None:
        try:
            context = read(inspect.read_bytes(), str(inspect))
        except OSError as error:
            raise UsageError(f"{inspect} cannot be read", error.strerror or str(error)) from None
    if exit_code is not None:
        context = replace(context or Context(), exit_code=exit_code)
    if running:
        context = replace(context or Context(), running=True)
    return context
