"""Raw bytes to clean bytes: no terminal codes, one kind of line end, physical lines kept.

A carriage return inside a line (progress bars redraw themselves with it) starts a new logical
line: it becomes a newline, and its place is noted so that physical line numbers stay right.
"""

from __future__ import annotations

import re
from bisect import bisect_left

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
    """

    text: bytes
    first_line: int
    breaks: tuple[int, ...]
    newlines: int

    @property
    def lines(self) -> int:
        """Return how many physical newlines the block holds."""
        return self.newlines - len(self.breaks)

    def line_at(self, newlines_before: int, offset: int) -> int:
        """Return the physical number of the line at `offset`, after so many newlines."""
        return self.first_line + newlines_before - bisect_left(self.breaks, offset)


def clean(raw: bytes, first_line: int) -> Block:
    """Clean a run of lines.

    Args:
        raw: The bytes as they came out of the source.
        first_line: Physical number of the first of them.
    """
    text = raw
    if first_line == 1 and text.startswith(_BOM):
        text = text[len(_BOM) :]
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    breaks: tuple[int, ...] = ()
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
        if text.endswith(b"\r"):
            text = text.rstrip(b"\r")
        if b"\r" in text:
            breaks = tuple(found.start() for found in re.finditer(rb"\r", text))
            text = text.replace(b"\r", b"\n")
    return Block(text, first_line, breaks, text.count(b"\n"))
