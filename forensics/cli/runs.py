"""`forensics runs`: what is in the archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from forensics.cli import keeping
from forensics.cli.options import Archive, NoColor, Output, check_format

app = typer.Typer(help="The archive of runs.", no_args_is_help=True, rich_markup_mode=None)
app.command(name="import")(keeping.import_)
app.command()(keeping.rm)
app.command()(keeping.prune)
app.command()(keeping.verify)

Run = Annotated[
    str,
    typer.Argument(help="Its id or the beginning of it, last, last-failed or last-good."),
]
FORMATS = ("terminal", "text", "json")
Format = Annotated[str, typer.Option("--format", "-f", help="terminal, text or json.")]


def _option(name: str, text: str, metavar: str = "TEXT") -> Any:  # noqa: ANN401 - typer's
    return typer.Option(name, help=text, metavar=metavar)


@app.command(name="list")
def list_(
    since: Annotated[str | None, _option("--since", "Begun then or later.", "TIME")] = None,
    until: Annotated[str | None, _option("--until", "Begun before.", "TIME")] = None,
    engine: Annotated[str | None, _option("--engine", "The server, e.g. vllm.")] = None,
    model: Annotated[str | None, _option("--model", "A part of the model's name.")] = None,
    image: Annotated[str | None, _option("--image", "A part of the image's name.")] = None,
    digest: Annotated[str | None, _option("--digest", "How the digest begins.")] = None,
    outcome: Annotated[str | None, _option("--outcome", "E.g. crashed, failed_start.")] = None,
    rule: Annotated[str | None, _option("--rule", "How the cause's rule begins.")] = None,
    text: Annotated[str | None, _option("--text", "A part of what the list shows.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    format_: Format = "terminal",
    output: Output = None,
    archive: Archive = None,
    no_color: NoColor = False,
) -> int:
    """List the runs, the newest last."""
    from msgspec.structs import asdict

    from forensics.archive.listing import Filter, matching, rows
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.reporters import archived
    from forensics.reporters.view import as_json

    check_format(format_, FORMATS)
    wanted = Filter(since, until, engine, model, image, digest, outcome, rule, text, failed)
    found = matching(rows(opened_archive(archive)), wanted)
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
    since: Annotated[str | None, _option("--since", "From this time on.", "TIME")] = None,
    grep: Annotated[
        str | None, _option("--grep", "Only lines that this regular expression matches.", "REGEX")
    ] = None,
    output: Output = None,
    archive: Archive = None,
) -> int:
    """Print the lines of a run as its container wrote them."""
    from forensics.archive import reading
    from forensics.archive.listing import log_lines, since_lines
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive

    found = opened_archive(archive)
    name = reading.find(found, run)
    log = found.record(name).log
    opened, _ = reading.open_run(found, name)
    try:
        envelope = log.envelope if log is not None else "raw"
        if raw and since is not None:
            lines = since_lines(opened.runs(), envelope, since)
        else:
            lines = log_lines(opened, "raw" if raw else envelope, since)
        out.write_lines(lines if grep is None else _matching(lines, grep), output)
    finally:
        opened.file.close()
    return 0


def _matching(pieces: Iterable[bytes], pattern: str) -> Iterator[bytes]:
    """Yield the lines in which a pattern is found."""
    import regex

    from forensics.errors import UsageError

    try:
        wanted = regex.compile(pattern.encode())
    except regex.error as error:
        raise UsageError(f"--grep {pattern!r} is no regular expression", str(error)) from None
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield b"".join(line + b"\n" for line in whole if _found(wanted, line))
    if rest and _found(wanted, rest):
        yield rest


def _found(wanted: Any, line: bytes) -> bool:  # noqa: ANN401 - regex's
    from forensics.errors import UsageError

    try:
        return wanted.search(line, timeout=1.0) is not None
    except TimeoutError:
        raise UsageError(
            "--grep takes too long on a line", "write it without nested repeats"
        ) from None
