"""What the archive holds, one row a run; and the lines of a run as its container wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC

from msgspec import Struct

from forensics.archive.model import LogEnvelope
from forensics.archive.reading import diagnosis_of
from forensics.archive.store import Archive, ArchiveError
from forensics.archive.writer import line_time
from forensics.errors import UsageError
from forensics.model import FAILED
from forensics.sources import Opened
from forensics.times import parsed

#: Time, stream, tag, text.
_CRI_PARTS = 4


class Row(Struct, frozen=True):
    """One run of the list; what is not known is None.

    Attributes:
        id: The run.
        started_at: When it began.
        finished_at: When it ended.
        container: The container's name.
        image: What the image was called.
        digest: Its digest.
        engine: The server.
        engine_version: Its version.
        model: What it served.
        state: `partial` or `final`; `damaged` where its record cannot be read.
        tier: Which way its log came.
        completeness: Whether the log is whole.
        exit_code: Its exit code.
        lines: Lines of the log.
        verdict: Of its diagnosis.
        outcome: Of its diagnosis.
        rule: The rule that names the cause.
        cause: The cause in words, or the root line.
        problem: Why the record cannot be read.
    """

    id: str
    started_at: str | None = None
    finished_at: str | None = None
    container: str | None = None
    image: str | None = None
    digest: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    state: str = "damaged"
    tier: str | None = None
    completeness: str | None = None
    exit_code: int | None = None
    lines: int | None = None
    verdict: str | None = None
    outcome: str | None = None
    rule: str | None = None
    cause: str | None = None
    problem: str | None = None


def rows(archive: Archive) -> list[Row]:
    """Return a row for each run, by time; a damaged run has one that says so."""
    return [row_of(archive, run) for run in archive.ids()]


def row_of(archive: Archive, run: str) -> Row:
    """Return the row of one run."""
    try:
        record = archive.record(run)
    except ArchiveError as error:
        return Row(run, problem=str(error))
    found = diagnosis_of(archive, run)
    root = found.root_cause if found is not None else None
    title = None
    if found is not None and root is not None:
        title = next((f.title for f in found.findings if f.rule == root.rule), root.text.strip())
    return Row(
        id=run,
        started_at=record.started_at,
        finished_at=record.finished_at,
        container=record.container.name if record.container else None,
        image=record.image.reference if record.image else None,
        digest=record.image.digest if record.image else None,
        engine=found.run.engine if found else None,
        engine_version=found.run.engine_version if found else None,
        model=found.run.model if found else None,
        state=record.state,
        tier=record.tier,
        completeness=record.completeness,
        exit_code=record.exit.code,
        lines=record.log.lines if record.log else None,
        verdict=found.verdict if found else None,
        outcome=found.outcome if found else None,
        rule=root.rule if root else None,
        cause=title or record.exit.error,
    )


class Filter(Struct, frozen=True):
    """Which runs are wanted; None is any.

    Attributes:
        since: Runs that began then or later (RFC 3339, or its beginning).
        until: Runs that began before.
        engine: The server.
        model: A part of the model's name.
        image: A part of the image's name.
        digest: The beginning of its digest, with or without `sha256:`.
        outcome: Of the diagnosis.
        rule: The rule that names the cause, or the beginning of its id.
        text: A part of anything that the list shows.
        failed: Only those whose diagnosis found a failure.
    """

    since: str | None = None
    until: str | None = None
    engine: str | None = None
    model: str | None = None
    image: str | None = None
    digest: str | None = None
    outcome: str | None = None
    rule: str | None = None
    text: str | None = None
    failed: bool = False


def matching(rows: Iterable[Row], wanted: Filter) -> list[Row]:
    """Return the rows that a filter lets pass, in their order; case does not matter."""

    def has(part: str | None, whole: str | None) -> bool:
        return part is None or part.lower() in (whole or "").lower()

    def begins(part: str | None, whole: str | None) -> bool:
        return part is None or (whole or "").lower().startswith(part.lower())

    since, until = _name_of(wanted.since), _name_of(wanted.until)
    digest = wanted.digest.removeprefix("sha256:") if wanted.digest else None
    return [
        row
        for row in rows
        if (since is None or row.id >= since)
        and (until is None or row.id < until)
        and (wanted.engine is None or (row.engine or "").lower() == wanted.engine.lower())
        and has(wanted.model, row.model)
        and has(wanted.image, row.image)
        and begins(digest, (row.digest or "").removeprefix("sha256:"))
        and (wanted.outcome is None or row.outcome == wanted.outcome)
        and begins(wanted.rule, row.rule)
        and (not wanted.failed or row.verdict in FAILED)
        and has(
            wanted.text,
            "\n".join(filter(None, (row.id, row.container, row.model, row.image, row.cause))),
        )
    ]


def _name_of(time: str | None) -> str | None:
    """Return how the names of runs of a time begin.

    Raises:
        UsageError: It is no time.
    """
    if time is None:
        return None
    moment = parsed(time)
    if moment is None:
        raise UsageError(f"{time!r} is no time", "write 2026-12-01 or 2026-12-01T08:30:00Z")
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%S.%f}"


def since_lines(lines: Iterable[bytes], envelope: LogEnvelope, since: str) -> Iterator[bytes]:
    """Yield wrapped lines from a time on; nothing of a raw log tells its time.

    Args:
        lines: Runs of whole lines in their envelope.
        envelope: How they are wrapped.
        since: RFC 3339.

    Raises:
        UsageError: It is no time, or the log has none.
    """
    begin = parsed(since)
    if begin is None:
        raise UsageError(f"--since {since!r} is no time", "write 2026-12-01T08:30:00Z")
    if envelope == "raw":
        raise UsageError("the lines of this log have no time of their own", "leave --since out")
    begin = begin.replace(tzinfo=UTC) if begin.tzinfo is None else begin
    going = False
    for run in lines:
        kept = []
        for line in _lines(run):
            told = None if going else line_time(line, envelope)
            moment = parsed(told) if told is not None else None
            going = going or (moment is not None and moment >= begin)
            if going:
                kept.append(line)
        yield b"".join(kept)


def log_lines(opened: Opened, envelope: LogEnvelope, since: str | None = None) -> Iterator[bytes]:
    """Yield what the container wrote, out of the envelope that the archive keeps it in.

    Args:
        opened: The log.
        envelope: How it is wrapped; `raw` gives the bytes as they are.
        since: Leave out what comes before the first line of this time (RFC 3339).

    Raises:
        UsageError: That is no time, or the log has none.
    """
    rest: dict[bytes, bytes] = {}
    runs = opened.runs()
    for run in runs if since is None else since_lines(runs, envelope, since):
        if envelope == "raw":
            yield run
            continue
        out = (
            _from_json(line) if envelope == "docker-json" else _from_cri(line, rest)
            for line in _lines(run)
        )
        yield b"".join(out)
    yield from rest.values()


def _lines(run: bytes) -> list[bytes]:
    # Not splitlines: only a line feed ends a line of a log.
    *whole, rest = run.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _from_json(line: bytes) -> bytes:
    try:
        said = json.loads(line)["log"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return line  # damaged: better shown as it is than not at all
    return str(said).encode("utf-8", "backslashreplace")


def _from_cri(line: bytes, rest: dict[bytes, bytes]) -> bytes:
    parts = line.split(b" ", 3)
    if len(parts) != _CRI_PARTS or parts[2] not in {b"F", b"P"}:
        return line
    _, stream, tag, text = parts
    if tag == b"P":
        rest[stream] = rest.get(stream, b"") + text.removesuffix(b"\n")
        return b""
    return rest.pop(stream, b"") + text
