"""Launch files in and out of the command line: read by name, written as a new file only."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from forensics import surroundings
from forensics.errors import SourceError, UsageError
from forensics.launch.common import Beside, nothing_beside
from forensics.launch.forms import Form
from forensics.launch.reading import MAX_CHARS, from_inspect, read_all
from forensics.launch.suggesting import Correction


def read(name: str) -> tuple[list[Form], Beside]:
    """Return the launches of a file, `docker:NAME` or `-`, and what reads files beside them.

    Raises:
        SourceError: It cannot be read or starts nothing.
        UsageError: The engine is out of reach.
    """
    if name.startswith("docker:"):
        return [
            from_inspect(surroundings.inspect_text(name.removeprefix("docker:")), name)
        ], nothing_beside
    if name == "-":
        raw = sys.stdin.buffer.read(MAX_CHARS + 1)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise SourceError("standard input is no UTF-8 text", "give a launch command") from None
        return read_all(text, "standard input"), surroundings.beside(Path.cwd() / "-")
    path = Path(name)
    if path.is_dir():
        raise SourceError(f"{name} is a folder", "give the launch file itself")
    beside = surroundings.beside(path)
    return read_all(surroundings.read_text(path), name, beside), beside


def write_new(correction: Correction | None, target: Path, source: Path) -> None:
    """Write a corrected launch to a new file, readable by its owner only where it holds secrets.

    Raises:
        UsageError: There is nothing to correct, or the file is there already.
    """
    if correction is None or not correction.shown.changes:
        raise UsageError("there is no change to apply", "the report says why")
    mode = 0o600
    if source.is_file() and target.resolve() == source.resolve():
        raise UsageError(f"{target} is the launch itself", "give the name of a new file")
    if source.is_file():
        mode = stat.S_IMODE(source.stat().st_mode)
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise UsageError(f"{target} is there already", "give the name of a new file") from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written", error.strerror or str(error)) from None
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(correction.text)
