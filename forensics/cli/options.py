"""Options that several commands have, and what is checked of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from forensics.errors import UsageError

#: Formats of a diagnosis.
REPORTS = ("terminal", "text", "json", "markdown", "sarif")

Report = Annotated[
    str, typer.Option("--format", "-f", help="terminal, text, json, markdown or sarif.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")]
ApplyTo = Annotated[
    Path | None, typer.Option("--apply-to", help="Write the corrected launch to this new file.")
]
Rules = Annotated[
    list[Path] | None, typer.Option("--rules", help="A folder with more rules (repeatable).")
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what is folded.")]

Archive = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        envvar="FORENSICS_ARCHIVE",
        show_envvar=True,
        help="The folder with the archived runs (default: in the user's data folder).",
    ),
]


def archive_folder(given: Path | None) -> Path:
    """Return the archive's folder: the one given, else the platform's place for a user's data."""
    if given is not None:
        return given
    from platformdirs import user_data_path

    return user_data_path("llm-forensics", appauthor=False) / "archive"


def check_format(given: str, known: Sequence[str]) -> None:
    """Refuse a format that a command does not have.

    Raises:
        UsageError: It has none of that name.
    """
    if given not in known:
        raise UsageError(f"--format {given} is not known", f"one of {', '.join(known)}")
