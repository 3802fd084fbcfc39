"""What stays in an archive: runs removed one by one or by age, size and number, and all verified.

The last run that went well of each container and the first of each failure are never pruned: they
are what later runs are compared with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from forensics.archive import listing
from forensics.archive.frames import frames, lines_in
from forensics.archive.listing import Row
from forensics.archive.reading import diagnose_run, diagnosis_of
from forensics.archive.store import Archive
from forensics.archive.writer import LOG
from forensics.errors import ForensicsError
from forensics.model import FAILED


class Candidate(Struct, frozen=True):
    """A run that may go.

    Attributes:
        row: What is known of it.
        bytes: What its folder takes on the disk.
        why: Which limit it is beyond.
    """

    row: Row
    bytes: int
    why: str


def size_of(archive: Archive, run: str) -> int:
    """Return the bytes that the files of a run take."""
    return sum(p.stat().st_size for p in archive.path(run).iterdir() if p.is_file())


def prunable(
    archive: Archive,
    *,
    older_than: timedelta | None = None,
    max_bytes: int | None = None,
    keep: int | None = None,
    now: datetime | None = None,
) -> list[Candidate]:
    """Return the runs that limits would have removed, the oldest first.

    Args:
        archive: The archive.
        older_than: Runs that began longer ago than this.
        max_bytes: What all runs together may take.
        keep: How many runs may stay.
        now: The present, if another one.
    """
    now = now or datetime.now(UTC)
    rows = listing.rows(archive)
    sizes = {row.id: size_of(archive, row.id) for row in rows}
    kept = _kept(rows)
    total, count = sum(sizes.values()), len(rows)
    found = []
    for row in rows:
        why = None
        began = datetime.strptime(row.id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        if older_than is not None and now - began > older_than:
            why = f"older than {older_than.days} days"
        elif max_bytes is not None and total > max_bytes:
            why = f"the archive takes more than {max_bytes:,} bytes"
        elif keep is not None and count > keep:
            why = f"there are more than {keep} runs"
        if why is not None and row.id not in kept and row.state != "partial":
            found.append(Candidate(row, sizes[row.id], why))
            total -= sizes[row.id]
            count -= 1
    return found


def _kept(rows: Sequence[Row]) -> set[str]:
    """Return the last success of each container, and the first run of each failure."""
    good: dict[str, str] = {}
    first: dict[tuple[str, str], str] = {}
    for row in rows:
        who = row.container or row.model or ""
        if row.verdict == "healthy":
            good[who] = row.id
        elif row.verdict in FAILED:
            first.setdefault((who, row.rule or row.cause or ""), row.id)
    return {*good.values(), *first.values()}


class Verified(Struct, frozen=True):
    """What became of the verification of one run.

    Attributes:
        run: Its id.
        problem: What is damaged and cannot be repaired; None if nothing is.
        repaired: What of its derived files was made anew.
    """

    run: str
    problem: str | None = None
    repaired: list[str] = []


def verify(archive: Archive) -> Iterator[Verified]:
    """Check every run: its record, each frame of its log, size, lines and digest.

    Derived files that are missing or damaged are made anew.

    Args:
        archive: The archive.
    """
    for run in archive.ids():
        try:
            problem = _damage(archive, run)
            repaired = _repaired(archive, run) if problem is None else []
        except (ForensicsError, OSError) as error:
            problem, repaired = str(error), []
        yield Verified(run, problem, repaired)


def _damage(archive: Archive, run: str) -> str | None:
    record = archive.record(run)
    log = record.log
    path = archive.path(run) / LOG
    if log is None or (not log.bytes and not path.exists()):
        return None
    digest, size, lines, last, end = hashlib.sha256(), 0, 0, b"", 0
    for frame in frames(path):
        digest.update(frame.data)
        size += len(frame.data)
        lines += lines_in(frame.data)
        last, end = frame.data[-1:] or last, frame.end
    if record.state != "final":
        return None  # it is being written, or will be taken up
    if path.stat().st_size != end:
        return f"its log is damaged at byte {end:,} of {path.stat().st_size:,}"
    if size != log.bytes or digest.hexdigest() != log.sha256:
        return f"its log holds {size:,} bytes, which are not the {log.bytes:,} that were written"
    if lines + (last not in {b"", b"\n"}) != log.lines:
        return "its log has another number of lines than its record says"
    return None


def _repaired(archive: Archive, run: str) -> list[str]:
    record = archive.record(run)
    if record.state != "final" or record.log is None or not record.log.bytes:
        return []
    if diagnosis_of(archive, run) is not None:
        return []
    return ["diagnosis"] if diagnose_run(archive, run) is not None else []
