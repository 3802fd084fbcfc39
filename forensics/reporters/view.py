"""What a reporter may know beside the diagnosis, and how untrusted text is made safe to show."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from forensics.model import Excerpt
from forensics.triage import Considered

#: Control, format, surrogate and private characters, line and paragraph separators.
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


_BLANK, _DELETE, _PICTURES, _BASIC_PLANE, _MIN_CUT = 0x20, 0x7F, 0x2400, 0xFFFF, 12


#: Columns of a letter of Chinese, Japanese or Korean, and of many symbols.
_WIDE = 2


class View(Struct, frozen=True):
    """How to show a diagnosis.

    Attributes:
        width: Columns.
        color: Whether styles may be used.
        excerpts: Neighbours of lines that may be quoted.
        considered: For `--explain`: every rule that was considered; None to leave it out.
        several: Whether more diagnoses follow or went before.
        verbose: Whether to show what is folded by default.
        home: Name of the log that the excerpts are of, where a diagnosis is of several.
    """

    width: int = 80
    color: bool = False
    excerpts: Mapping[int, Excerpt] = {}
    considered: tuple[Considered, ...] | None = None
    several: bool = False
    verbose: bool = False
    home: str | None = None


def visible(text: str) -> str:
    """Return a text in which nothing can drive a terminal or hide: controls become visible.

    Tabs stay (as four blanks); other C0 controls become Unicode control pictures; everything
    else that has no width or changes direction is written as `<U+202E>`.
    """
    return _UNSAFE.sub(_show, text.replace("\t", "    "))


def place(source: str | None, line: int) -> str:
    """Return where a line stands, in words; the file is named where it is not the log itself."""
    return f"line {line}" if source is None else f"{visible(source)} line {line}"


def escaped(json_text: str) -> str:
    """Return JSON text in which what `visible` would mark stands as an escape sequence.

    Line ends and blanks between the values stay: in strings JSON escapes those by itself.
    """
    return _UNSAFE.sub(lambda m: m[0] if m[0] in "\n\r" else _json_escape(ord(m[0])), json_text)


def as_json(value: object, *, one_line: bool = False) -> str:
    """Return a value as JSON that ends its line, indented unless it shall take only one.

    Nothing in it can drive a terminal (see `escaped`).
    """
    encoded = msgspec.json.encode(value)
    if not one_line:
        encoded = msgspec.json.format(encoded, indent=2)
    return escaped(encoded.decode()) + "\n"


def _json_escape(code: int) -> str:
    if code > _BASIC_PLANE:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def _show(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < _BLANK:
        return chr(_PICTURES + code)
    if code == _DELETE:
        return "\u2421"
    return f"<U+{code:04X}>"


def cut(text: str, width: int) -> str:
    """Shorten a text to so many columns; the middle goes, since both ends tell something."""
    if cells(text) <= width:
        return text
    if width < _MIN_CUT:
        return text[:width]
    head = (width - 3) * 2 // 3
    tail = width - 3 - head
    start, end = text[:head], text[-tail:]
    while cells(start) > head:
        start = start[:-1]
    while cells(end) > tail:
        end = end[1:]
    return f"{start} … {end}"


def wrap(text: str, width: int, first: str = "", lead: str = "") -> list[str]:
    """Break untrusted text into lines of so many columns, letters of two columns included.

    Args:
        text: The text; it is made visible here.
        width: Columns.
        first: What the first line begins with.
        lead: What the others begin with.
    """
    shown = visible(text)
    if not shown.isascii():
        # A second place for each wide letter; no visible text holds a NUL. One column is spare,
        # for where a line ends between the two.
        shown = "".join(f"{char}\0" if _width(char) == _WIDE else char for char in shown)
        width -= "\0" in shown
    lines = textwrap.wrap(
        shown, width, initial_indent=first, subsequent_indent=lead, break_on_hyphens=False
    )
    return [line.replace("\0", "") for line in lines]


def cells(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return _WIDE if unicodedata.east_asian_width(char) in {"W", "F"} else 1
