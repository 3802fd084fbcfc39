"""Raw bytes to clean bytes: no terminal codes, one kind of line end, physical lines kept.

A carriage return inside a line (progress bars redraw themselves with it) starts a new logical
line: it becomes a newline, and its place is noted so that physical line numbers stay right.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

#: CSI, OSC and two-byte escape sequences (ECMA-48). Bounded, so that an unclosed one costs little.
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,16}[@-~]|\][^\x07\x1b\n]{0,1024}(?:\x07|\x1b\\)"
    rb"|[PX^_][^\x1b\n]{0,1024}\x1b\\|[ -/]{1,4}[0-~]|[0-Z\\^-~])"
)
_BOM = b"\xef\xbb\xbf"


class Block(Struct, frozen=True):
    """A run of whole lines, cleaned (the last line of a source may lack its newline).

    Attributes:
        text: The clean bytes.
        first_line: Physical number of the first line.
        breaks: Offsets in `text` of newlines that were carriage returns, ascending.
        newlines: Number of newlines in `text`, `breaks` included.
        numbers: Physical number of each line where an envelope was taken off; None where lines
            simply follow each other.
        times: Time of each line as the envelope says it; None where none does.
        wrapping: Bytes that it took on disk beyond its text, where that is how it is counted.
    """

    text: bytes
    first_line: int
    breaks: tuple[int, ...]
    newlines: int
    numbers: Sequence[int] | None = None
    times: Sequence[str | None] | None = None
    wrapping: int = 0

    @property
    def lines(self) -> int:
        """Return how many physical newlines the block holds."""
        return self.newlines - len(self.breaks)

    @property
    def size(self) -> int:
        """Return how many bytes it stands for: of clean text, or as it is on disk."""
        return len(self.text) + self.wrapping

    @property
    def uneven(self) -> bool:
        """Return whether lines do not simply follow each other by their physical numbers."""
        return bool(self.breaks) or self.numbers is not None

    def line_at(self, newlines_before: int, offset: int) -> int:
        """Return the physical number of the line at `offset`, after so many newlines."""
        index = newlines_before - bisect_left(self.breaks, offset)
        if not self.numbers:
            return self.first_line + index
        return self.numbers[min(index, len(self.numbers) - 1)]

    def time_at(self, newlines_before: int, offset: int) -> str | None:
        """Return the time of the line at `offset`, after so many newlines."""
        if not self.times:
            return None
        index = newlines_before - bisect_left(self.breaks, offset)
        return self.times[min(index, len(self.times) - 1)]

    def part(self, begin: int, end: int, before: int) -> Block:
        """Return the lines from one offset to another; both begin lines.

        Args:
            begin: Where they begin.
            end: Where they end.
            before: How many newlines stand before `begin`.
        """
        inside = self.text.count(b"\n", begin, end)
        first, last = bisect_left(self.breaks, begin), bisect_left(self.breaks, end)
        here = slice(before - first, before - first + inside - (last - first) + 1)
        return Block(
            text=self.text[begin:end],
            first_line=self.line_at(before, begin),
            breaks=tuple(offset - begin for offset in self.breaks[first:last]),
            newlines=inside,
            numbers=self.numbers[here] if self.numbers else None,
            times=self.times[here] if self.times else None,
        )


def strip_escapes(text: bytes) -> bytes:
    """Take terminal codes out."""
    return _ESCAPES.sub(b"", text) if b"\x1b" in text else text


def clean(
    raw: bytes,
    first_line: int,
    numbers: Sequence[int] | None = None,
    times: Sequence[str | None] | None = None,
) -> Block:
    """Clean a run of lines.

    Args:
        raw: The bytes as they came out of the source or its envelope.
        first_line: Physical number of the first of them.
        numbers: Physical number of each line, where they do not simply follow each other.
        times: Time of each line.
    """
    text = raw
    if first_line == 1 and text.startswith(_BOM):
        text = text[len(_BOM) :]
    text = strip_escapes(text)
    breaks: tuple[int, ...] = ()
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
        if text.endswith(b"\r"):
            text = text.rstrip(b"\r")
        if b"\r" in text:
            breaks = tuple(found.start() for found in re.finditer(rb"\r", text))
            text = text.replace(b"\r", b"\n")
    return Block(text, first_line, breaks, text.count(b"\n"), numbers, times)
