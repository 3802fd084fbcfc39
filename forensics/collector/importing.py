"""Old logs into the archive: any envelope, an engine's own data folder, a node's `/var/log/pods`.

What a record needs and a bare log does not say (when it began, which container it was) is guessed
from the log, its path and the file's time, and named among the `guessed`. A log has the same name
in the archive however often it is imported: it is told by its bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from forensics import __version__, redaction
from forensics.archive.model import ContainerFacts, ExitFacts, LogEnvelope, RunRecord
from forensics.archive.reading import diagnose_run
from forensics.archive.store import Archive, RunExists, run_id
from forensics.archive.writer import line_time
from forensics.collector import snapshot
from forensics.collector.hold import state_in
from forensics.collector.records import state_of
from forensics.envelopes import pipeline
from forensics.errors import ForensicsError, SourceError
from forensics.sources import Opened, Rotated, find, open_source
from forensics.times import parsed, with_year
from forensics.unpacking import DEFAULT, Limits

_ENVELOPES: dict[str | None, LogEnvelope] = {"docker-json": "docker-json", "cri": "cri"}
_CONTAINER = re.compile(r"([0-9a-f]{64})-json\.log(?:\.\d{1,4})?(?:\.gz)?\Z")
#: /var/log/pods/<namespace>_<pod>_<uid>/<container>/<restarts>.log (kubelet's layout).
_POD = re.compile(
    r"(?P<namespace>[a-z0-9.-]+)_(?P<pod>[a-z0-9.-]+)_(?P<uid>[0-9a-f-]{32,36})/"
    r"(?P<container>[a-z0-9.-]+)/(?P<count>\d+)\.log"
)
_FULL = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
#: vLLM's clock has no year.
_YEARLESS = re.compile(rb"\b\d\d-\d\d \d\d:\d\d:\d\d\b")
_LINES_LOOKED_AT = 200


class Imported(Struct, frozen=True):
    """What became of one log.

    Attributes:
        name: Where it came from.
        run: The run that it is now; None where it could not be read.
        new: Whether it was not there before.
        verdict: Of its diagnosis, None where it was there before or could not be made.
        problem: Why it could not be imported.
    """

    name: str
    run: str | None = None
    new: bool = False
    verdict: str | None = None
    problem: str | None = None


def logs_in(paths: Sequence[str], limits: Limits = DEFAULT) -> Iterator[str]:
    """Yield the logs that paths mean; the files of a rotated log are one.

    Args:
        paths: Files, folders of logs, an engine's data folder, `/var/log/pods`, bundles.
        limits: What may be read of an archive.

    Raises:
        SourceError: One of them does not exist, or holds no log.
    """
    for path in paths:
        folder = Path(path)
        own = sorted(folder.rglob("*-json.log")) if folder.is_dir() else []
        own = [one for one in own if _CONTAINER.match(one.name)]
        if own:
            # Beside each stand its settings, which are no logs.
            for one in own:
                yield from find([str(p) for p in _with_rotated(one)], limits)
        else:
            yield from find([path], limits)


def _with_rotated(log: Path) -> list[Path]:
    found = [p for p in log.parent.iterdir() if p.name.startswith(log.name)]
    return sorted(p for p in found if _CONTAINER.match(p.name))


def import_logs(
    archive: Archive,
    names: Sequence[str],
    limits: Limits = DEFAULT,
    *,
    diagnose: Callable[[Archive, str], str | None] | None = None,
) -> Iterator[Imported]:
    """Import logs, one run each; what cannot be read is said, and the others go on.

    Args:
        archive: Where to.
        names: As `logs_in` yields them.
        limits: What may be read.
        diagnose: Makes the diagnosis of a run and returns its verdict; the shipped rules if None.
    """
    verdict = diagnose or _verdict
    for name in names:
        try:
            yield _one(archive, name, limits, verdict)
        except ForensicsError as error:
            yield Imported(name, problem=str(error))


def _verdict(archive: Archive, run: str) -> str | None:
    found = diagnose_run(archive, run)
    return found.verdict if found is not None else None


def _one(
    archive: Archive, name: str, limits: Limits, verdict: Callable[[Archive, str], str | None]
) -> Imported:
    digest, head, envelope = _read_over(name, limits)
    inspect = _inspect_beside(name)
    record = _record(name, digest, head, envelope, inspect)
    secrets = snapshot.secrets(inspect) if inspect is not None else []
    if archive.has(record.id) and archive.record(record.id).state == "final":
        return Imported(name, record.id)
    try:
        writer = archive.begin(record, envelope, secrets)
    except RunExists:
        # One that was cut off on the way: it is made anew.
        archive.remove(record.id)
        writer = archive.begin(record, envelope, secrets)
    try:
        opened = open_source(name, limits)
        place = 0
        try:
            for run in opened.runs():
                place += len(run)
                writer.append(run, {"offset": place})
        finally:
            opened.file.close()
        writer.finish(record)
    except BaseException:
        writer.close()
        with suppress(ForensicsError):
            archive.remove(record.id)
        raise
    return Imported(name, record.id, new=True, verdict=verdict(archive, record.id))


def _read_over(name: str, limits: Limits) -> tuple[str, bytes, LogEnvelope]:
    """Return the digest of a log, its first bytes, and how it is wrapped."""
    opened: Opened = open_source(name, limits)
    digest, size = hashlib.sha256(), 0
    try:
        for run in opened.runs():
            digest.update(run)
            size += len(run)
    finally:
        opened.file.close()
    if not size:
        raise SourceError(f"{name} is empty", "there is nothing to import")
    return digest.hexdigest(), opened.head, _ENVELOPES.get(pipeline(opened.head).name, "raw")


def _inspect_beside(name: str) -> dict[str, Any] | None:
    """Return what stands beside a log: the engine's own records, or `inspect.json`."""
    log = Path(name)
    found = _CONTAINER.match(log.name)
    if found is not None:
        return state_in(log.parent, found[1])
    with suppress(OSError, ValueError, RecursionError):
        data = json.loads((log.parent / "inspect.json").read_bytes()[: 16 << 20])
        data = data[0] if isinstance(data, list) and data else data
        if isinstance(data, dict) and re.fullmatch(r"[0-9a-f]{12,64}", str(data.get("Id"))):
            return data
    return None


def _record(
    name: str, digest: str, head: bytes, envelope: LogEnvelope, inspect: dict[str, Any] | None
) -> RunRecord:
    guessed: list[str] = []
    state = state_of(inspect) if inspect is not None else None
    started = state.started_at if state is not None else None
    container = snapshot.container_facts(inspect) if inspect is not None else None
    if started is None or isinstance(name, Rotated):
        # Of a container that was started again its log holds all starts.
        started = _began(name, head, envelope) if started is None else started
        guessed.append("started_at")
    if container is None:
        container = ContainerFacts(digest, name=_name(name))
        guessed += ["container.id", "container.name"]
    where = redaction.text(str(Path(name).absolute()))
    return RunRecord(
        id=run_id(started, container.id if inspect is not None else digest),
        tier="import",
        reasons=["imported: whether the log is whole is not known"],
        started_at=started,
        finished_at=_finished(inspect),
        exit=snapshot.exit_facts(inspect, []) if inspect is not None else ExitFacts(),
        container=container,
        image=snapshot.image_facts(inspect, None) if inspect is not None else None,
        inspect=snapshot.redacted_inspect(inspect) if inspect is not None else None,
        guessed=guessed,
        collector={"version": __version__, "host": platform.node()},
        source=where,
    )


def _finished(inspect: dict[str, Any] | None) -> str | None:
    state = (inspect or {}).get("State")
    finished = state.get("FinishedAt") if isinstance(state, dict) else None
    return finished if isinstance(finished, str) and not finished.startswith("0001") else None


def _name(name: str) -> str:
    """Guess what the container was called, from the path."""
    found = _POD.search(name.replace("\\", "/"))
    if found is not None:
        return f"{found['namespace']}/{found['pod']}/{found['container']}"
    path = Path(name)
    stem = path.name.split(".", 1)[0] or path.name
    plain = stem in {"log", "stdout", "stderr", "server", "output", "container", "docker"}
    return redaction.text(path.absolute().parent.name if plain else stem)[:200]


def _began(name: str, head: bytes, envelope: LogEnvelope) -> str:
    """Guess when a log began: its wrapper's time, a full time in it, its clock, the file's time."""
    lines = head.split(b"\n")[:_LINES_LOOKED_AT]
    for line in lines[:-1] or lines:
        told = line_time(line, envelope)
        if told is not None:
            return told
    with suppress(OSError, ValueError, OverflowError):
        written = datetime.fromtimestamp(_first_path(name).stat().st_mtime, UTC)
        for line in lines:
            full = _FULL.search(line[:200])
            if full is not None:
                moment = _moment(full[0].decode())
                if moment is not None:
                    return moment
            clock = _YEARLESS.search(line[:200])
            if clock is not None:
                told = with_year(clock[0].decode(), written.isoformat())
                return f"{told}Z" if told is not None else _rfc3339(written)
        return _rfc3339(written)
    return "1970-01-01T00:00:00Z"


def _first_path(name: str) -> Path:
    return Path(name.parts[0] if isinstance(name, Rotated) else name.split("::", 1)[0])


def _moment(text: str) -> str | None:
    moment = parsed(text.replace(",", "."))
    if moment is None:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return _rfc3339(moment.astimezone(UTC), "microseconds")


def _rfc3339(moment: datetime, precision: str = "seconds") -> str:
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
