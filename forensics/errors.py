"""Errors a person can act on.

::

    ForensicsError          what failed, on what, and what to do: printed as one line, exit code 2
    ├── SourceError         a source is missing, unreadable, empty or not a log
    ├── RuleError           a rule file or table breaks the schema (has file, line, key)
    └── UsageError          the call itself makes no sense

A strange log line is never an error.
"""

from __future__ import annotations


class ForensicsError(Exception):
    """Root of all errors that end a command with exit code 2.

    Args:
        message: What failed and on what.
        hint: What to do about it; printed after the message.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}" if self.hint else self.message


class SourceError(ForensicsError):
    """A source cannot be read or holds no log."""


class UsageError(ForensicsError):
    """The options given do not make sense together."""


class RuleError(ForensicsError):
    """A rule file breaks the schema.

    Args:
        message: What is wrong.
        file: Path of the file as the user knows it.
        line: 1-based line in that file, if known.
        key: Dotted path of the key within the document, if known.
    """

    def __init__(
        self, message: str, file: str = "", line: int | None = None, key: str | None = None
    ) -> None:
        place = file + (f":{line}" if line is not None else "")
        full = f"{place}: " if place else ""
        full += f"{key}: {message}" if key else message
        super().__init__(full)
        self.problem, self.file, self.line, self.key = message, file, line, key
