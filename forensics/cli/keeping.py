"""`forensics runs import|prune|rm|verify`: what comes into the archive from elsewhere, and goes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from forensics.cli.options import Archive, Quiet

_AGE = re.compile(r"(\d{1,6})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([kMGT]?)i?B?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]


def import_(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Logs, folders of logs, Docker's data folder, /var/log/pods, bundles.",
            metavar="PATH...",
        ),
    ],
    archive: Archive = None,
    quiet: Quiet = False,
) -> int:
    """Take old logs into the archive, one run each, and diagnose them."""
    from forensics.analysis import prepare
    from forensics.archive.reading import diagnose_run
    from forensics.archive.store import Archive as Store
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.collector.importing import import_logs, logs_in
    from forensics.reporters.view import visible

    store = opened_archive(archive, create=True)
    engine = prepare()

    def verdict(where: Store, run: str) -> str | None:
        found = diagnose_run(where, run, engine)
        return found.verdict if found is not None else None

    new = known = bad = 0
    for one in import_logs(store, list(logs_in(paths)), diagnose=verdict):
        if one.problem is not None:
            bad += 1
            out.say(f"not imported: {visible(one.problem)}")
            continue
        new, known = new + one.new, known + (not one.new)
        if not quiet:
            state = (one.verdict or "not diagnosed") if one.new else "there already"
            out.write(visible(f"run:{one.run}  {state}  {one.name}") + "\n", None)
    out.say(f"{new} imported, {known} there already, {bad} not readable")
    return 2 if bad else 0


def rm(
    runs: Annotated[
        list[str], typer.Argument(help="Ids or the beginnings of them.", metavar="RUN...")
    ],
    archive: Archive = None,
) -> int:
    """Remove runs from the archive."""
    from forensics.archive import reading
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive

    store = opened_archive(archive)
    # All names first: a wrong one removes nothing.
    for run in dict.fromkeys(reading.find(store, name) for name in runs):
        store.remove(run)
        out.write(f"removed {run}\n", None)
    return 0


def prune(
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Age: 30d, 12h, 8w.", metavar="AGE")
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", help="What all may take: 20GB, 500MB.", metavar="SIZE"),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, help="How many runs may stay.")
    ] = None,
    yes: Yes = False,
    archive: Archive = None,
) -> int:
    """Remove old runs; the last success and the first of each failure stay."""
    from forensics.archive.keeping import prunable
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.errors import UsageError
    from forensics.reporters.view import visible

    if older_than is None and max_size is None and keep is None:
        raise UsageError("no limit was given", "--older-than 30d, --max-size 20GB or --keep 500")
    age = _age(older_than) if older_than is not None else None
    size = _size(max_size) if max_size is not None else None
    store = opened_archive(archive)
    found = prunable(store, older_than=age, max_bytes=size, keep=keep)
    for one in found:
        if yes:
            store.remove(one.row.id)
        done = "removed" if yes else "would remove"
        named = f" {one.row.container}" if one.row.container else ""
        out.write(visible(f"{done} {one.row.id}{named}: {one.why}") + "\n", None)
    freed = sum(one.bytes for one in found)
    out.say(
        f"{len(found)} runs, {freed / 1e6:.1f} MB" + ("" if yes or not found else "; --yes does it")
    )
    return 0


def _age(text: str) -> timedelta:
    from forensics.errors import UsageError

    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--older-than {text!r} is no age", "write 30d, 12h or 8w")
    return timedelta(hours=int(found[1]) * _HOURS[found[2]])


def _size(text: str) -> int:
    from forensics.errors import UsageError

    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--max-size {text!r} is no size", "write 20GB or 500MB")
    return int(float(found[1]) * 1000 ** _POWERS[found[2].lower()])


def verify(archive: Archive = None, quiet: Quiet = False) -> int:
    """Check every run of the archive, and make anew what is derived and missing."""
    from forensics.archive.keeping import verify as verified
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.reporters.view import visible

    store = opened_archive(archive)
    count = bad = mended = 0
    for one in verified(store):
        count += 1
        if one.problem is not None:
            bad += 1
            out.write(visible(f"damaged  {one.run}: {one.problem}") + "\n", None)
        elif one.repaired:
            mended += 1
            if not quiet:
                out.write(f"repaired {one.run}: {', '.join(one.repaired)}\n", None)
    out.say(f"{count} runs, {bad} damaged, {mended} repaired")
    return int(bad > 0)
