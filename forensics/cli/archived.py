"""Archived runs named on the command line, beside sources of any other kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forensics.cli.options import archive_folder

if TYPE_CHECKING:
    from forensics.analysis import Engine, Examined
    from forensics.archive.store import Archive
    from forensics.beside import Beside
    from forensics.launch.forms import Form
    from forensics.model import Context
    from forensics.unpacking import Limits


def opened_archive(folder: Path | None, *, create: bool = False) -> Archive:
    """Return the archive that an option names, or the user's own.

    Raises:
        UsageError: It is not there, or cannot be used.
    """
    from forensics.archive.store import Archive

    return Archive.open(archive_folder(folder), create=create)


def examined(
    name: str,
    folder: Path | None,
    engine: Engine,
    known: Context | None,
    limits: Limits,
    form: Form | None,
    asides: Sequence[Beside] = (),
) -> list[Examined]:
    """Diagnose one source, archived or not.

    Raises:
        SourceError: It cannot be read.
        UsageError: It names no run of the archive.
    """
    from forensics.analysis import examine_all
    from forensics.sources import ARCHIVED

    if not name.startswith(ARCHIVED):
        return examine_all(name, engine, known, limits, form, asides)
    from msgspec.structs import asdict, replace

    from forensics.archive import reading
    from forensics.model import Context

    archive = opened_archive(folder)
    run = reading.find(archive, name)
    context = reading.context_of(archive.record(run))
    if known is not None:
        # What was stated on the command line wins over what was recorded.
        nothing = asdict(Context())
        context = replace(context, **{k: v for k, v in asdict(known).items() if v != nothing[k]})
    return [
        reading.examine_run(
            archive, run, engine, context=context, launch=form, limits=limits, asides=asides
        )
    ]
