"""Where lines of a log are missing or cut, as the log itself gives it away.

Silence proves nothing: a server without requests prints nothing for hours. What is taken as proof
are things that no program prints by itself: a traceback without its head or without its end,
another process under a name that only one can have, a note that lines were left out, and many
lines that end at the same column.
"""

from __future__ import annotations

import re

from msgspec import Struct

from forensics.engines import ENGINES
from forensics.model import Record
from forensics.tracebacks import Raised, Unended

#: A frame as CPython prints it: outside of a traceback, that one's head is missing.
FRAME = r'File "[^"]{1,500}", line \d{1,7}, in '
#: What people and tools put in place of lines: `[...]`, `<snip>`, `... 120 lines omitted ...`; and
#: what journald says when a unit writes too fast (`journald-server.c`).
LEFT_OUT = (
    r"\[\.\.\.\]|[<\[](?:snip|snipped|truncated|omitted)[>\]]",
    r"\d lines? (?:omitted|truncated|skipped|snipped)",
    r"^Suppressed \d{1,12} messages from ",
)
#: Such a note is a line of its own.
_NOTE = re.compile(
    r"[\s.-]{0,40}(?:\[\.\.\.\]|[<\[](?:snip|snipped|truncated|omitted)[>\]]"
    r"|[\[(<]?[.\s]{0,8}\d{1,9} lines? (?:omitted|truncated|skipped|snipped)[.\s]{0,8}[\])>]?)"
    r"[\s.-]{0,40}|Suppressed \d{1,12} messages from .*"
)
#: Widths at which programs cut: terminals, syslog, journald's LINE_MAX, buffers of 8 and 16 KiB.
_LIMITS = {
    size - less for size in (1024, 2048, 4096, 8192, 16_384, 32_768, 49_152) for less in (0, 1)
}
_MIN_KNOWN = 2
_MIN_ANY = 6
_MIN_WIDTH = 60
_MAX_FORMS = 16
_DIGITS = re.compile(rb"[\d.,:]+")
#: At the very beginning it is the log's head that is missing.
_HEAD_LINES = 3
#: How often lines of two processes of one name must take turns: one may outlive its server a bit.
_TURNS = 4
#: Depths of processes of which a server has one by each name (see `Dialect.depth`).
_SINGLE = {1, 2}


class Missing(Struct, frozen=True):
    """What is missing from a log.

    Attributes:
        lines: Before which lines something is missing, in order.
        width: The length in bytes at which lines are cut, None where they are not.
        limits: What to say about it.
    """

    lines: tuple[int, ...] = ()
    width: int | None = None
    limits: tuple[str, ...] = ()


class _Turns(Struct):
    """Processes that print under one name."""

    pid: int
    line: int
    changes: int = 0
    seen: frozenset[int] = frozenset()
    left: tuple[int, int] | None = None


class Holes:
    """Lines in, what is missing between them out."""

    def __init__(self) -> None:
        self._places: dict[int, str] = {}
        self._turns: dict[str, _Turns] = {}
        self._spoke: dict[tuple[str | None, int | None], int] = {}
        self._width = 0
        self._forms: set[bytes] = set()
        self._ready = False

    def line(self, record: Record, raw: bytes, *, noted: bool = False) -> None:
        """Take a line that was read for what it says.

        Args:
            record: The line.
            raw: Its bytes.
            noted: Whether it may say that others were left out.
        """
        self._measure(raw)
        if noted and record.kind == "raw" and _NOTE.fullmatch(record.message):
            self._places[record.line] = "as the log says"
        if record.pid is None or record.process is None:
            return
        self._spoke[record.process, record.pid] = record.line
        if max(e.depth(record.process) for e in ENGINES) not in _SINGLE:
            return
        known = self._turns.get(record.process)
        if known is None:
            self._turns[record.process] = _Turns(record.pid, record.line)
        elif known.pid != record.pid and record.line > known.line:
            again = record.pid in known.seen
            left = None if again or not self._ready else (record.line, known.pid)
            known.seen |= {known.pid}
            known.pid, known.changes, known.left = record.pid, known.changes + 1, left
        known = self._turns[record.process]
        known.line = max(known.line, record.line)

    def ready(self) -> None:
        """Note that the server is ready: it begins no further processes of its own."""
        self._ready = True

    def raised(self, one: Raised, first_line: int) -> None:
        """Take an exception; one with frames and no head is what a hole left of a traceback.

        Args:
            one: The exception.
            first_line: Where the log begins.
        """
        if one.first_frame is not None and one.first_frame > first_line + _HEAD_LINES:
            self._places[one.first_frame] = "the head of a traceback"

    def _measure(self, raw: bytes) -> None:
        """Note the longest lines, each form once: repeated ones have one length by nature."""
        size = len(raw.rstrip(b"\r\n"))
        if size < max(self._width, _MIN_WIDTH):
            return
        if size > self._width:
            self._width = size
            self._forms.clear()
        if len(self._forms) < _MAX_FORMS and raw[-1:].isalnum():
            self._forms.add(_DIGITS.sub(b"0", raw[-400:])[:200])

    def _cut(self) -> int | None:
        enough = _MIN_KNOWN if self._width in _LIMITS else _MIN_ANY
        return self._width if len(self._forms) >= enough else None

    def finish(self, unended: list[Unended]) -> Missing:
        """Return what is missing.

        Args:
            unended: Tracebacks whose exception line never came.
        """
        for one in unended:
            # Of a process that prints on, the end was printed, too.
            if self._spoke.get((one.process, one.pid), 0) > one.line:
                self._places.setdefault(one.line + 1, "the end of a traceback")
        limits = []
        for name, turns in sorted(self._turns.items()):
            pids = sorted({turns.pid, *turns.seen})
            if turns.changes >= _TURNS:
                limits.append(
                    f"lines of {len(pids)} processes {name} are mixed (pids "
                    f"{', '.join(map(str, pids[:4]))}): more than one server printed this log, "
                    "and they cannot be told apart for certain"
                )
            elif turns.left is not None:
                line, pid = turns.left
                self._places.setdefault(line, f"a start: {name} was pid {pid} before")
        limits += [
            f"lines are missing before line {line} ({what}): what they held is not known"
            for line, what in sorted(self._places.items())[:_MAX_FORMS]
        ]
        width = self._cut()
        if width is not None:
            limits.append(f"lines are cut at {width} bytes: what stood beyond is not known")
        return Missing(tuple(sorted(self._places)), width, tuple(limits))

    @property
    def mixed(self) -> bool:
        """Whether processes of several servers printed the log."""
        return any(turns.changes >= _TURNS for turns in self._turns.values())
