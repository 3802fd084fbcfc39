"""Where text goes: standard output or a file, with or without colour."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from forensics.errors import UsageError

if TYPE_CHECKING:
    from forensics.reporters.view import View


def use_color(*, no_color: bool, to_file: bool) -> bool:
    """Say whether styles may be written (`NO_COLOR`, no terminal and files say no)."""
    if no_color or to_file or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return _on_terminal()


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def width() -> int:
    """Return the columns to use: the terminal's up to 100, 80 where there is none."""
    if not _on_terminal() and "COLUMNS" not in os.environ:
        return 80
    return max(40, min(100, shutil.get_terminal_size((80, 24)).columns))


def view(
    format_: str, target: Path | None, *, no_color: bool, verbose: bool, several: bool = False
) -> View:
    """Return how a report is shown that goes to a file, or to standard output where None."""
    from forensics.reporters.view import View

    color = format_ == "terminal" and use_color(no_color=no_color, to_file=target is not None)
    return View(width=width(), color=color, several=several, verbose=verbose)


def write(text: str, target: Path | None) -> None:
    """Write text to a file in one step, or to standard output.

    Raises:
        UsageError: The file cannot be written.
    """
    write_data(text.encode("utf-8", "backslashreplace"), target)


def write_data(data: bytes, target: Path | None) -> None:
    """Write bytes to a file in one step, or to standard output.

    Raises:
        UsageError: The file cannot be written.
    """
    if target is None:
        if sys.stdout is None:
            raise UsageError("standard output is closed", "write to a file with --output")
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    if target.exists() and not target.is_file():
        # A device or a pipe is written to, never replaced.
        _write_through(data, target)
        return
    target = target.resolve() if target.is_symlink() else target
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise UsageError(f"{target} cannot be written", error.strerror or str(error)) from None


def write_lines(pieces: Iterable[bytes], target: Path | None) -> None:
    """Write the bytes of a log: as they are to a file or a pipe, made visible on a terminal.

    Args:
        pieces: Whole lines each.
        target: The file; standard output if None.

    Raises:
        UsageError: The file cannot be written.
    """
    if target is not None:
        write_data(b"".join(pieces), target)
        return
    if sys.stdout is None:
        raise UsageError("standard output is closed", "write to a file with --output")
    from forensics.reporters.view import visible

    for piece in pieces:
        shown = piece
        if _on_terminal():
            lines = piece.decode("utf-8", "backslashreplace").split("\n")
            shown = "\n".join(visible(line) for line in lines).encode("utf-8", "backslashreplace")
        sys.stdout.buffer.write(shown)
    sys.stdout.flush()


def say(text: str) -> None:
    """Write one line to standard error, safe to show."""
    from forensics.reporters.view import visible

    sys.stderr.write(f"forensics: {visible(text)}\n")


def _write_through(data: bytes, target: Path) -> None:
    if target.is_dir():
        raise UsageError(f"{target} is a folder", "give the name of a file")
    try:
        with target.open("wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"{target} cannot be written", error.strerror or str(error)) from None


def refuse_overwrite(target: Path | None, sources: list[str]) -> None:
    """Refuse to write a report over the evidence.

    Raises:
        UsageError: The target is one of the sources.
    """
    for name in sources if target is not None and target.exists() else ():
        if name != "-" and Path(name).exists() and target is not None and target.samefile(name):
            raise UsageError(f"{target} is what is read here", "write the report somewhere else")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
