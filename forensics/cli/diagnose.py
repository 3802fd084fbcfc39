"""`forensics diagnose`: the verdict on logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli.options import (
    REPORTS,
    ApplyTo,
    Archive,
    NoColor,
    Output,
    Quiet,
    Report,
    Rules,
    Verbose,
    check_format,
)

if TYPE_CHECKING:
    from forensics.analysis import Examined
    from forensics.launch.forms import Form
    from forensics.model import Context
    from forensics.reporters import View
    from forensics.unpacking import Limits


def diagnose(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            help="Log files, folders or archives with logs, docker:NAME, journal:UNIT, run:ID "
            "(run:last, run:last-failed, run:last-good), or - for standard input (the default)."
        ),
    ] = None,
    format_: Report = "terminal",
    output: Output = None,
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
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="What else was saved of the run: docker inspect or docker events output, a kernel "
            "log (dmesg, journalctl -k), nvidia-smi output (repeatable).",
        ),
    ] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="The logs are those of one deployment (head and workers, all ranks, router and "
            "engine): one diagnosis, with the log in which it began.",
        ),
    ] = False,
    launch: Annotated[
        str | None,
        typer.Option(
            "--launch",
            help="What started it: shell script, compose file, systemd unit, manifest, inspect "
            "JSON, or docker:NAME.",
        ),
    ] = None,
    apply_to: ApplyTo = None,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", min=1, help="Read at most so many bytes of a log, unpacked."),
    ] = None,
    archive: Archive = None,
    rules: Rules = None,
    no_color: NoColor = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Name the root cause of a failed run, the lines that prove it, and what to change."""
    from forensics.cli import output as out
    from forensics.errors import SourceError

    check_format(format_, REPORTS)
    from forensics.analysis import corrected, load_rules, prepare, read_beside
    from forensics.cli.archived import examined
    from forensics.cli.launches import write_new
    from forensics.reporters.runs import failed
    from forensics.sources import find
    from forensics.unpacking import Limits

    limits = Limits(max_bytes=max_bytes)
    names = find(source or ["-"], limits)
    out.refuse_overwrite(output, [*names, *(beside or [])])
    if together:
        _check_together(names, stated=[exit_code, inspect, launch, apply_to, running or None])
    form = _launch(launch, apply_to, len(names))
    known = _with_launch(_context(exit_code, inspect, running=running), form, names[0])
    engine = prepare(load_rules(rules or []))
    asides = read_beside(beside or [], engine, limits)
    several = len(names) > 1 and not together
    view = out.view(format_, output, no_color=no_color, verbose=verbose, several=several)
    if together:
        each = {n: examined(n, archive, engine, known, limits, form, asides)[-1] for n in names}
        return _as_one(each, limits, format_, view, output, quiet=quiet, explain=explain)
    anything, broken, texts, last = False, False, [], None
    for name in names:
        try:
            results = examined(name, archive, engine, known, limits, form, asides)
        except SourceError as error:
            if len(names) == 1:
                raise
            # One bad file among many costs its own line, not the others.
            out.say(str(error))
            broken = True
            continue
        anything |= any(failed(diagnosis) for diagnosis, _, _ in results)
        last = results[-1]
        for text in _told(results, format_, view, explain=explain):
            if output is None and not quiet:
                out.write(text, None)
            texts.append(text)
    if output is not None:
        out.write("".join(texts), output)
    if apply_to is not None:
        correction = corrected(last[0], last[2], form) if last is not None else None
        write_new(correction, apply_to, Path(launch or ""))
    return 2 if broken else int(anything)


def _check_together(names: list[str], stated: list[object]) -> None:
    """Refuse one log, and what says something of one log where there are several."""
    from forensics.errors import UsageError

    if len(set(names)) == 1:
        raise UsageError("--together takes the logs of a whole deployment", "name two or more")
    if any(one is not None for one in stated):
        raise UsageError(
            "--together takes no --exit-code, --inspect, --launch, --apply-to or --running",
            "these speak of one container; an inspect.json beside each log is read",
        )


def _as_one(
    each: dict[str, Examined],
    limits: Limits,
    format_: str,
    view: View,
    output: Path | None,
    *,
    quiet: bool,
    explain: bool,
) -> int:
    """Report on the logs of one deployment; return the exit code."""
    from msgspec.structs import replace

    from forensics.analysis import examine_together
    from forensics.cli import output as out
    from forensics.reporters.runs import failed

    found, first = examine_together(each, limits)
    told = "".join(_told([found], format_, replace(view, home=first), explain=explain))
    if output is not None or not quiet:
        out.write(told, output)
    return int(failed(found[0]))


def _told(results: list[Examined], format_: str, view: View, *, explain: bool) -> Iterator[str]:
    """Yield the reports on the runs of one source: for people each kind of failure once."""
    from msgspec.structs import replace

    from forensics.reporters import REPORTERS
    from forensics.reporters.runs import kinds, summary
    from forensics.reporters.view import visible

    runs = [diagnosis for diagnosis, _, _ in results]
    several = view.several or len(runs) > 1
    said = summary(runs) if format_ != "json" else ""
    for place in range(len(runs)) if format_ == "json" or view.verbose else kinds(runs):
        diagnosis, triage, evidence = results[place]
        here = replace(
            view,
            excerpts=evidence.excerpts,
            considered=triage.considered if explain else None,
            several=several,
        )
        text = REPORTERS[format_](diagnosis, here)
        if several and format_ in {"terminal", "text"}:
            text = f"== {visible(diagnosis.source.name)}\n{text}"
        if said:
            text, said = f"{said}\n{text}", ""
        yield text


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


def _with_launch(known: Context | None, form: Form | None, source: str) -> Context | None:
    """Lay what a launch says under what else is known (the engine's own word wins)."""
    if form is None:
        return known
    from msgspec.structs import asdict, replace

    from forensics.analysis import context_beside
    from forensics.launch.facts import context_of
    from forensics.model import Context
    from forensics.sources import ARCHIVED

    if known is None:
        known = Context() if source.startswith(ARCHIVED) else context_beside(source)
    said, have, nothing = asdict(context_of(form.launch)), asdict(known), asdict(Context())
    missing = {k: v for k, v in said.items() if have[k] == nothing[k] and v != nothing[k]}
    return replace(known, **missing)
