"""CRI lines from what an engine tells: whole again, whatever was written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.containers.cri import Cri
from forensics.envelopes import pipeline

STAMP = b"2026-12-01T02:15:59.123456789Z"
_LINE = re.compile(rb"(\S+) (stdout|stderr) ([FP]) ?([^\n]*)\n")


def written(lines: bytes) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    end = 0
    for found in _LINE.finditer(lines):
        assert found.start() == end, "every byte belongs to a line"
        end = found.end()
        stream = found[2].decode()
        text = found[4] + (b"\n" if found[3] == b"F" else b"")
        out[stream] = out.get(stream, b"") + text
    assert end == len(lines)
    return out


def entries(data: bytes) -> list[bytes]:
    """Cut what a process wrote as the engine does: at line feeds, and at 16 KiB."""
    out = []
    for line in data.split(b"\n")[:-1]:
        rest = line + b"\n"
        while rest:
            out.append(rest[:16384])
            rest = rest[16384:]
    last = data.rpartition(b"\n")[2]
    while last:
        out.append(last[:16384])
        last = last[16384:]
    return out


def frames(*pieces: tuple[str, bytes]) -> bytes:
    """Return pieces as the engine's API frames them."""
    return b"".join(
        bytes([1 if stream == "stdout" else 2, 0, 0, 0]) + len(text).to_bytes(4, "big") + text
        for stream, text in pieces
    )


TEXT = st.lists(
    st.binary(max_size=30) | st.integers(16380, 16390).map(lambda n: b"x" * n)
    | st.integers(32766, 32770).map(lambda n: b"y" * n),
    max_size=6,
).map(b"\n".join)  # fmt: skip


@given(TEXT, TEXT, st.lists(st.integers(1, 5000), max_size=20))
def test_what_was_written_comes_back_by_stream(out: bytes, err: bytes, sizes: list[int]) -> None:
    pieces = [("stdout", STAMP + b" " + e) for e in entries(out)]
    pieces += [("stderr", STAMP + b" " + e) for e in entries(err)]
    cri, raw, lines = Cri(tty=False), frames(*pieces), b""
    for size in sizes:
        lines += cri.feed(raw[:size])
        raw = raw[size:]
    found = written(lines + cri.feed(raw) + cri.rest())
    assert found.get("stdout", b"") == out
    assert found.get("stderr", b"") == err


@given(TEXT, st.lists(st.integers(1, 5000), max_size=20))
def test_a_terminal_is_put_together_over_its_seams(text: bytes, sizes: list[int]) -> None:
    text += b"\n"
    raw = b"".join(STAMP + b" " + e for e in entries(text))
    cri, lines = Cri(tty=True), b""
    for size in sizes:
        lines += cri.feed(raw[:size])
        raw = raw[size:]
    lines += cri.feed(raw) + cri.rest()
    assert written(lines).get("stdout", b"") == text


@pytest.mark.parametrize("stamp", [b"2026-12-01T02:15:59+00:00", b"2026-12-01T02:15:59.5Z", STAMP])
def test_times_of_other_engines(stamp: bytes) -> None:
    lines = Cri(tty=False).feed(frames(("stderr", stamp + b" hello\n")))
    assert lines == stamp + b" stderr F hello\n"


def test_an_engine_without_times_keeps_the_order() -> None:
    lines = Cri(tty=False).feed(frames(("stdout", b"no time\n"), ("stdout", STAMP + b" x\n")))
    assert written(lines) == {"stdout": b"no time\nx\n"}


def test_it_is_the_envelope_that_is_read() -> None:
    lines = Cri(tty=False).feed(
        frames(("stdout", STAMP + b" hello\n"), ("stdout", STAMP + b" you\n"))
    )
    taken = pipeline(lines)
    blocks = [block for _, block in (*taken.feed(lines), *taken.finish())]
    assert taken.name == "cri"
    assert b"".join(block.text for block in blocks) == b"hello\nyou\n"
