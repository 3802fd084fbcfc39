"""The log file: what is durable, what is torn, and that nothing is ever there twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.archive.disk import DiskFull
from forensics.archive.frames import FrameFile, frames

LINES = [f"line {n} of the log, with some words in it\n".encode() for n in range(40)]


def content(path: Path) -> bytes:
    return b"".join(frame.data for frame in frames(path))


def foreign(path: Path) -> bytes:
    """What another zstd reader makes of it."""
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()


def test_other_readers_pass_over_the_positions(tmp_path: Path) -> None:
    path = tmp_path / "log.zst"
    file = FrameFile(path)
    for place, line in enumerate(LINES):
        file.write(line, {"offset": place})
    file.close()

    assert foreign(path) == content(path) == b"".join(LINES)
    assert [frame.position["offset"] for frame in frames(path)] == list(range(40))


def test_a_file_cut_anywhere_gives_every_whole_frame_and_goes_on(tmp_path: Path) -> None:
    path, torn = tmp_path / "log.zst", tmp_path / "torn.zst"
    file = FrameFile(path)
    ends = []
    for place, line in enumerate(LINES[:4]):
        file.write(line, {"offset": place})
        ends.append(file.packed)
    file.close()
    raw = path.read_bytes()

    for size in range(len(raw) + 1):
        torn.write_bytes(raw[:size])
        whole = sum(end <= size for end in ends)
        again = FrameFile(torn)
        assert again.bytes == sum(map(len, LINES[:whole]))
        assert again.position == ({"offset": whole - 1} if whole else None)
        again.write(b"more\n", {"offset": 99})
        again.close()
        assert foreign(torn) == b"".join(LINES[:whole]) + b"more\n"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10_000), value=st.integers(1, 255))
def test_damage_in_the_middle_costs_what_stands_behind_it_only(
    tmp_path: Path, place: int, value: int
) -> None:
    path = tmp_path / "log.zst"
    path.unlink(missing_ok=True)
    file = FrameFile(path)
    ends = []
    for number, line in enumerate(LINES):
        file.write(line, {"offset": number})
        ends.append(file.packed)
    file.close()
    raw = bytearray(path.read_bytes())
    place %= len(raw)
    raw[place] ^= value
    path.write_bytes(raw)

    found = content(path)

    before = sum(end <= place for end in ends)
    assert found.startswith(b"".join(LINES[:before]))
    # A damaged position may still be JSON; data that is damaged is never given.
    assert b"".join(LINES).startswith(found)


def test_counts_survive_a_new_start_and_a_new_end(tmp_path: Path) -> None:
    path = tmp_path / "log.zst"
    file = FrameFile(path)
    starts = []
    for line in LINES:
        starts.append(file.packed)
        file.write(line, {})
    file.rewrite(starts[30], LINES[30] * 2)
    told = (file.bytes, file.lines, file.packed)
    file.close()

    again = FrameFile(path)

    assert told == (again.bytes, again.lines, again.packed)
    assert again.lines == 32
    assert content(path) == b"".join(LINES[:30]) + LINES[30] * 2
    again.close()


@pytest.mark.parametrize("small_disk", ["1m"], indirect=True)
def test_a_full_disk_leaves_the_file_as_it_was(small_disk: Path) -> None:
    file = FrameFile(small_disk / "log.zst")
    written: list[bytes] = []

    def fill() -> None:
        for number in range(100):
            data = os.urandom(100_000)
            file.write(data, {"offset": number})
            written.append(data)

    with pytest.raises(DiskFull, match=r"log\.zst cannot be written: the disk is full"):
        fill()
    assert 5 < len(written) < 11
    assert content(file.path) == b"".join(written)

    small = os.urandom(1000)
    file.write(small, {"offset": 1000})
    file.close()
    assert content(file.path) == b"".join(written) + small


_WRITES = """
import sys
from pathlib import Path
from forensics.archive.frames import FrameFile
file = FrameFile(Path(sys.argv[1]))
number = file.position["next"] if file.position else 0
while True:
    lines = b"".join(b"%d\\n" % n for n in range(number, number + 7))
    number += 7
    file.write(lines, {"next": number})
    if number % 1400 == 0:
        start = next(iter(file.last())).start
        file.rewrite(start, lines)
"""


def test_a_writer_killed_at_any_moment_goes_on_without_a_gap_or_a_double(tmp_path: Path) -> None:
    path = tmp_path / "log.zst"
    script = textwrap.dedent(_WRITES)
    for round_ in range(8):
        process = subprocess.Popen([sys.executable, "-c", script, str(path)])
        before = path.stat().st_size if path.exists() else 0
        while process.poll() is None and (
            not path.exists() or path.stat().st_size < before + 4000 * (round_ + 1)
        ):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()

    file = FrameFile(path)
    file.close()
    numbers = content(path).split()
    assert numbers == [b"%d" % n for n in range(len(numbers))]
    assert len(numbers) > 500
