"""Clean text: terminal codes gone, one kind of line end, physical line numbers kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.envelopes.text import clean

ESCAPES = {
    "colour": "\x1b[1;36m",
    "reset": "\x1b[0m",
    "short reset": "\x1b[m",
    "256 colours": "\x1b[38;5;208m",
    "true colour": "\x1b[38:2::255:100:0m",
    "erase line": "\x1b[2K",
    "cursor up": "\x1b[12A",
    "private mode": "\x1b[?25l",
    "intermediate byte": "\x1b[4 q",
    "title, ended by BEL": "\x1b]0;vllm serve\x07",
    "link, ended by ST": "\x1b]8;;https://example.org\x1b\\",
    "device control": "\x1bP1$r0m\x1b\\",
    "privacy message": "\x1b^secret\x1b\\",
    "application command": "\x1b_G1\x1b\\",
    "start of string": "\x1bXtext\x1b\\",
    "character set": "\x1b(B",
    "keypad": "\x1b=",
    "save cursor": "\x1b7",
    "reset terminal": "\x1bc",
}


@pytest.mark.parametrize("code", ESCAPES.values(), ids=list(ESCAPES))
def test_terminal_code_disappears(code: str) -> None:
    assert clean(f"a{code}b\n".encode(), 1).text == b"ab\n"


def test_terminal_codes_do_not_swallow_the_text_between_them() -> None:
    line = "\x1b[0;36m(EngineCore_DP0 pid=7)\x1b[0;0m INFO\n"

    assert clean(line.encode(), 1).text == b"(EngineCore_DP0 pid=7) INFO\n"


@pytest.mark.parametrize("start", ["\x1b]0;never ended", "\x1bPnever ended", "\x1b[12;"])
def test_unended_code_stays_within_its_line(start: str) -> None:
    """A broken code at the end of one line costs no text of the next."""
    block = clean(f"{start}\nValueError: x\n".encode(), 1)

    assert block.text.endswith(b"\nValueError: x\n")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"a\nb\r", b"a\nb"),
        (b"\xef\xbb\xbfa\n", b"a\n"),
        (b"a\x00b\n", b"a\x00b\n"),
        (b"", b""),
        (b"\n\n", b"\n\n"),
        (b"no end", b"no end"),
    ],
    ids=["CRLF", "last CR", "BOM", "NUL", "nothing", "blank lines", "no newline"],
)
def test_bytes_become_clean_text(raw: bytes, text: bytes) -> None:
    block = clean(raw, 1)

    assert block.text == text
    assert block.lines == raw.count(b"\n")
    assert block.breaks == ()


def test_byte_order_mark_is_text_anywhere_but_at_the_start() -> None:
    assert clean(b"\xef\xbb\xbfa\n", 2).text == b"\xef\xbb\xbfa\n"


def test_redrawn_bar_is_one_physical_line() -> None:
    """Each state of a progress bar is a logical line of its own; line numbers count newlines."""
    block = clean(b"start\nload:  0%\rload: 50%\rload: 100%\ndone\n", 41)

    lines = [b"start", b"load:  0%", b"load: 50%", b"load: 100%", b"done"]
    assert block.text.splitlines() == lines
    assert block.lines == 3
    numbers = [block.line_at(n, block.text.index(line)) for n, line in enumerate(lines)]
    assert numbers == [41, 42, 42, 42, 43]


def naive(raw: bytes) -> list[tuple[int, bytes]]:
    """Physical number and text of each logical line, said plainly."""
    out: list[tuple[int, bytes]] = []
    parts = raw.split(b"\n")
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        body = part.rstrip(b"\r") if last else part.removesuffix(b"\r")
        out += [(number, piece) for piece in body.split(b"\r")]
    return out


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n", b"\x00", b"\xff"])).map(b"".join)
)
def test_every_logical_line_knows_its_physical_number(raw: bytes) -> None:
    block = clean(raw, 1)

    got, offset = [], 0
    for count, line in enumerate(block.text.split(b"\n")):
        got.append((block.line_at(count, offset), line))
        offset += len(line) + 1
    assert got == naive(raw)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_cleaning_line_by_line_gives_the_same_text(raw: bytes, cut: int) -> None:
    """Where a source is cut into runs does not show, as long as runs end at line ends."""
    cut = raw.rfind(b"\n", 0, cut) + 1
    whole, first = clean(raw, 1), clean(raw[:cut], 1)
    second = clean(raw[cut:], 1 + first.lines) if cut else clean(raw, 1)

    assert (first.text if cut else b"") + second.text == whole.text
