"""What a watcher does with a container that it sees for the first time.

The archive says which of its starts are recorded, and how far; the engine's files say the rest.
Nothing else is remembered: lines are told apart by the times of starts and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from forensics.archive.model import RunRecord
from forensics.archive.store import RunExists
from forensics.archive.writer import RunWriter
from forensics.collector import records, snapshot
from forensics.collector.clock import nanoseconds, text_of
from forensics.collector.files import Follower, Seam, Tail, compressed, line_ns
from forensics.collector.hold import Hold
from forensics.collector.subjects import Subject

if TYPE_CHECKING:
    from forensics.collector.watch import Watch

_BEHIND = 1_000_000
EARLIER = "starts that nobody saw: how many they are and how they ended is not known"
ROTATED = "log files may have been rotated away before the collector came"


def adopt(watch: Watch, subject: Subject) -> None:
    """Take up what the archive has of a container, and prepare for the rest.

    Args:
        watch: The watcher.
        subject: The container; its follower is made here, in the file tier.
    """
    runs = [r for r in watch.archive.starts_of(subject.id) if r.started_at is not None]
    secret = snapshot.secrets(subject.inspect)
    writers: list[RunWriter] = []
    try:
        for run in runs:
            subject.start = max(subject.start or 0, nanoseconds(run.started_at) or 0)
            writer = watch.archive.resume(run.id, secret) if run.state == "partial" else None
            if writer is not None:
                writers.append(writer)
        if subject.tier == "file" and watch.hold is not None:
            _files(watch, watch.hold, subject, runs, writers)
        else:
            for writer in writers:
                opened = watch.opened(subject, writer, nanoseconds(writer.record.started_at) or 0)
                watch.readers.start(subject, opened)
    except BaseException:
        for writer in writers:
            writer.close()
        raise


def _files(
    watch: Watch, hold: Hold, subject: Subject, runs: list[RunRecord], writers: list[RunWriter]
) -> None:
    """Go on in the files where the archive's bytes end."""
    for writer in writers:
        # Of what came out of compressed files it cannot be said where it stood.
        if writer.size and not (writer.position or {}).get("part"):
            writer.take_back(lambda _: True)
    place = max((w.position for w in writers if _known(w)), key=_order, default=None)
    older = [] if runs else compressed(hold.containers / subject.id, subject.id)
    tail = Tail(hold.path(subject.id), place, older)
    first = writers[0] if writers and (place is not None or len(writers) == len(runs)) else None
    follower = Follower(subject.id, tail, first, watch.left(subject.id))
    subject.follower = follower
    if not runs:
        subject.doubt = _doubt(subject.inspect, tail, len(older) + len(hold.parts(subject.id)))
    started = subject.state.started
    new = started is None or started > (subject.start or 0)
    seams: list[Seam] = []
    if first is None and new:
        seams.append(_earlier(watch, subject, runs))
    for writer in writers:
        begin = nanoseconds(writer.record.started_at) or 0
        before = subject.current
        opened = watch.opened(subject, writer, begin)
        if before is not None:
            before.over = before.unseen = True
        if writer is not first:
            finished = nanoseconds(before.record.finished_at) if before else None
            at = records.boundary(None, finished, begin)
            seams.append(Seam(at, _giver(writer)))
        del opened
    if seams:
        follower.follow(*seams)


def _known(writer: RunWriter) -> bool:
    return bool(writer.size and (writer.position or {}).get("part"))


def _order(position: dict[str, Any] | None) -> tuple[int, int]:
    found = position or {}
    return int(found.get("part", 0)), int(found.get("offset", 0))


def _giver(writer: RunWriter) -> Callable[[bytes | None], RunWriter]:
    return lambda _: writer


def _earlier(watch: Watch, subject: Subject, runs: list[RunRecord]) -> Seam:
    """Return where lines begin that belong to no start that is known, if there are any."""
    ends = [
        nanoseconds(text)
        for run in runs
        for text in (run.finished_at, run.log.last_at if run.log else None)
    ]
    at = max((ns for ns in ends if ns is not None), default=-_BEHIND) + _BEHIND
    end = subject.state.before

    def begin(line: bytes | None) -> RunWriter | None:
        """Begin a run for such lines; called by the copier's thread."""
        started = line_ns(line or b"")
        if started is None:
            return None
        described = subject.inspect.get("Config")
        record = (
            records.begun(
                subject.inspect, subject.image, watch.engine.facts, "file", started, watch.kept
            )
            if described
            else records.unknown(subject.id, watch.engine.facts, "file", started)
        )
        record = replace(
            record,
            guessed=["started_at"],
            finished_at=text_of(end) if end is not None else None,
            reasons=[EARLIER],
        )
        try:
            writer = watch.archive.begin(record, "docker-json", snapshot.secrets(subject.inspect))
        except RunExists:
            return None
        watch.inbox.put(("opened", subject.id, writer, started))
        return writer

    return Seam(at, begin, needs_lines=True)


def _doubt(inspect: dict[str, Any], tail: Tail, files: int) -> str | None:
    """Return why the beginning of a log may be missing; None if it is surely there."""
    first = tail.first()
    if first is None or first.first:
        return None
    host = inspect.get("HostConfig")
    logs = host.get("LogConfig") if isinstance(host, dict) else None
    options = logs.get("Config") if isinstance(logs, dict) else None
    options = options if isinstance(options, dict) else {}
    if not options.get("max-size"):
        return None
    most = str(options.get("max-file", "1"))
    return ROTATED if not most.isdecimal() or files >= int(most) else None
