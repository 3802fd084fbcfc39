"""Archived runs as sources: by what name, with which facts, and their derived files.

In: an archive and a name (`run:ID`, `run:last`, `run:last-failed`, `run:last-good`). Out: an open
source and what its record knows, ready for a diagnosis or for statistics.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from forensics import inspection
from forensics.analysis import Engine, Examined, examine_opened, prepare
from forensics.archive.model import RunRecord
from forensics.archive.store import DIAGNOSIS, SAMPLES, Archive, ArchiveError
from forensics.archive.writer import LOG
from forensics.beside import Beside
from forensics.errors import SourceError, UsageError
from forensics.launch.forms import Form
from forensics.launch.reading import from_inspect
from forensics.model import FAILED, Context, Diagnosis, Hardware
from forensics.sources import ARCHIVED, Opened, opened_stream
from forensics.unpacking import DEFAULT, Limits

_GOOD = frozenset({"healthy"})


def is_archived(name: str) -> bool:
    """Say whether a source's name means an archived run."""
    return name.startswith(ARCHIVED)


def find(archive: Archive, name: str) -> str:
    """Return the run that a name means.

    Args:
        archive: Where to look.
        name: A run's id or the beginning of it that no other has, `last`, `last-failed` or
            `last-good`; with or without `run:` before it.

    Raises:
        UsageError: No run or several are meant.
    """
    wanted = name.removeprefix(ARCHIVED)
    ids = archive.ids()
    if not ids:
        raise UsageError(f"the archive {archive.folder} holds no run yet")
    if wanted == "last":
        return ids[-1]
    if wanted in {"last-failed", "last-good"}:
        verdicts = FAILED if wanted == "last-failed" else _GOOD
        for run in reversed(ids):
            found = diagnosis_of(archive, run)
            if found is not None and found.verdict in verdicts:
                return run
        raise UsageError(
            f"no run in {archive.folder} {'failed' if verdicts is FAILED else 'is good'}"
        )
    same = [run for run in ids if run.startswith(wanted)] if wanted else []
    # The container's id is what people have at hand.
    same = same or (
        [run for run in ids if run.partition("-")[2].startswith(wanted)] if wanted else []
    )
    if len(same) == 1:
        return same[0]
    if not same:
        raise UsageError(f"there is no run {wanted!r}", "`forensics runs list` has them")
    raise UsageError(
        f"{wanted!r} is the beginning of {len(same)} runs", f"{same[0]}, {same[1]}, ..."
    )


def open_run(archive: Archive, run: str, limits: Limits = DEFAULT) -> tuple[Opened, Context]:
    """Open the log of a run.

    Args:
        archive: Where it is.
        run: Its id.
        limits: What may be read.

    Returns:
        The log, and what the run's record knows beside it.

    Raises:
        SourceError: It has no log, or it cannot be read.
    """
    record = archive.record(run)
    path = archive.path(run) / LOG
    name = f"{ARCHIVED}{run}"
    if record.log is None or not path.is_file() or path.stat().st_size == 0:
        why = record.exit.error or "; ".join(record.reasons) or "nothing was printed"
        raise SourceError(f"{name} has no log", why)
    file = path.open("rb")
    try:
        opened = opened_stream("run", name, file, limits)
    except BaseException:
        file.close()
        raise
    if record.state == "final" and record.completeness != "complete":
        opened.source = replace(opened.source, truncated=[*record.reasons])
    return opened, context_of(record)


def context_of(record: RunRecord) -> Context:
    """Return what a record knows beside its log."""
    known = inspection.context_of(record.inspect) if record.inspect else Context()
    image, container = record.image, record.container
    whole = record.state == "final" and record.completeness == "complete"
    facts: dict[str, Any] = {
        "exit_code": record.exit.code,
        "oom_killed": record.exit.oom_killed,
        "image": image.reference if image else None,
        "digest": image.digest if image else None,
        "container": container.name if container else None,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "auto_remove": container.auto_remove if container else None,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    arch = image.architecture if image else None
    if arch and known.hardware.arch is None:
        arch = inspection.ARCHES.get(arch, arch)
        facts["hardware"] = Hardware(known.hardware.gpu, known.hardware.compute_capability, arch)
    running = record.state == "partial"
    return replace(known, **facts, running=running, whole=whole)


def launch_of(record: RunRecord) -> Form | None:
    """Return what started a run, rebuilt from its inspect data; None where there are none."""
    if not record.inspect:
        return None
    parts = [record.inspect, *([record.image_inspect] if record.image_inspect else [])]
    try:
        return from_inspect(json.dumps(parts), "inspect data of the run")
    except SourceError:
        return None


def examine_run(  # noqa: PLR0913 - what may be known of a run
    archive: Archive,
    run: str,
    engine: Engine,
    *,
    context: Context | None = None,
    launch: Form | None = None,
    limits: Limits = DEFAULT,
    asides: Sequence[Beside] = (),
) -> Examined:
    """Diagnose a run.

    Args:
        archive: Where it is.
        run: Its id.
        engine: Rules made ready.
        context: What is known beside the log; what the run's record knows if None.
        launch: What started it; rebuilt from the record if None.
        limits: What may be read.
        asides: What other files say (see `analysis.read_beside`).

    Raises:
        SourceError: It cannot be read.
    """
    opened, known = open_run(archive, run, limits)
    form = launch or launch_of(archive.record(run))
    found = examine_opened(opened, engine, context or known, form, asides)
    diagnosis, triage, evidence = found[-1]
    named = replace(diagnosis.run, id=run)
    # One start is one run: what looks like several in its log is told as one.
    source = replace(diagnosis.source, name=f"{ARCHIVED}{run}")
    return replace(diagnosis, run=named, source=source), triage, evidence


def diagnose_run(archive: Archive, run: str, engine: Engine | None = None) -> Diagnosis | None:
    """Diagnose a run and keep the result beside its log (`diagnosis.json`, `samples.parquet`).

    Args:
        archive: Where it is.
        run: Its id.
        engine: Rules made ready; the shipped ones if None.

    Returns:
        The diagnosis; None where the run has no log.

    Raises:
        DiskFull: The result cannot be kept.
    """
    engine = engine or prepare()
    try:
        diagnosis = examine_run(archive, run, engine)[0]
    except SourceError:
        return None
    body = msgspec.json.format(msgspec.json.encode(diagnosis), indent=1) + b"\n"
    archive.write_derived(run, DIAGNOSIS, body)
    samples = samples_of(archive, run, engine.rules.tables)
    if samples is not None:
        archive.write_derived(run, SAMPLES, samples)
    return diagnosis


def samples_of(archive: Archive, run: str, tables: dict[str, Any]) -> bytes | None:
    """Return the statistics of a run as a Parquet file, one row a window; None without any."""
    from forensics.reporters import stats_tables
    from forensics.statistics import summary

    try:
        opened, known = open_run(archive, run)
    except SourceError:
        return None
    try:
        report = summary.gather(opened, known).report(tables)
    finally:
        opened.file.close()
    return stats_tables.parquet([report]) if report.frame.height else None


def diagnosis_of(archive: Archive, run: str) -> Diagnosis | None:
    """Return the diagnosis that is kept with a run; None where there is none that can be read."""
    path: Path = archive.path(run) / DIAGNOSIS
    try:
        return msgspec.json.decode(path.read_bytes(), type=Diagnosis)
    except (OSError, msgspec.MsgspecError):
        return None


__all__ = [
    "ArchiveError",
    "context_of",
    "diagnose_run",
    "diagnosis_of",
    "examine_run",
    "find",
    "is_archived",
    "launch_of",
    "open_run",
    "samples_of",
]
