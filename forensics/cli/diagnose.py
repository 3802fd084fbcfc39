"""`forensics diagnose`: the verdict on logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from forensics.launch.forms import Form
    from forensics.model import Context

FORMATS = ("terminal", "text", "json", "markdown", "sarif")


def diagnose(
    source: Annotated[
        list[str] | None,
        typer.Argument(help="Log files, folders with logs, or - for standard input (the default)."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", help="terminal, text, json, markdown or sarif.")
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
    launch: Annotated[
        str | None,
        typer.Option(
            "--launch",
            help="What started it: shell script, compose file, systemd unit, manifest, inspect "
            "JSON, or docker:NAME.",
        ),
    ] = None,
    apply_to: Annotated[
        Path | None,
        typer.Option("--apply-to", help="Write the corrected launch to this new file."),
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
    from forensics.analysis import corrected, examine, load_rules, prepare
    from forensics.cli.launches import write_new
    from forensics.cli.output import say
    from forensics.reporters import REPORTERS, View
    from forensics.reporters.view import visible
    from forensics.sources import find

    names = find(source or ["-"])
    out.refuse_overwrite(output, names)
    form = _launch(launch, apply_to, len(names))
    known = _context(exit_code, inspect, running=running)
    if form is not None:
        known = _with_launch(known, form, names[0])
    engine = prepare(load_rules(rules or []))
    failed, broken, texts, correction = False, False, [], None
    color = format_ == "terminal" and out.use_color(no_color=no_color, to_file=output is not None)
    for name in names:
        try:
            diagnosis, triage, evidence = examine(name, engine, known, form)
        except SourceError as error:
            if len(names) == 1:
                raise
            # One bad file among many costs its own line, not the others.
            say(str(error))
            broken = True
            continue
        failed |= diagnosis.verdict in {"diagnosed", "suspected", "inconclusive"}
        view = View(
            width=out.width(),
            color=color,
            excerpts=evidence.excerpts,
            considered=triage.considered if explain else None,
            several=len(names) > 1,
            verbose=verbose,
        )
        text = REPORTERS[format_](diagnosis, view)
        if len(names) > 1 and format_ in {"terminal", "text"}:
            text = f"== {visible(name)}\n{text}"
        if output is None and not quiet:
            out.write(text, None)
        texts.append(text)
        correction = corrected(diagnosis, evidence, form) if apply_to is not None else None
    if output is not None:
        out.write("".join(texts), output)
    if apply_to is not None:
        write_new(correction, apply_to, Path(launch or ""))
    return 2 if broken else int(failed)


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


def _launch(name: str | None, apply_to: Path | None, sources: int) -> Form | None:
    """Return the launch that the options name, None if they name none."""
    from forensics.cli.launches import read
    from forensics.errors import UsageError

    if apply_to is not None and sources != 1:
        raise UsageError("--apply-to takes one log", f"these are {sources}")
    return read(name)[0][0] if name is not None else None


def _with_launch(known: Context | None, form: Form, source: str) -> Context:
    """Lay what a launch says under what else is known (the engine's own word wins)."""
    from msgspec.structs import asdict, replace

    from forensics.analysis import context_beside
    from forensics.launch.facts import context_of
    from forensics.model import Context

    known = known if known is not None else context_beside(source)
    said, have, nothing = asdict(context_of(form.launch)), asdict(known), asdict(Context())
    missing = {k: v for k, v in said.items() if have[k] == nothing[k] and v != nothing[k]}
    return replace(known, **missing)
