"""Where bytes come from: files plain and packed, folders, standard input; and what is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest
import zstandard

from forensics import sources
from forensics.analysis import Engine, examine
from forensics.errors import SourceError
from forensics.model import Context
from forensics.sources import find, open_source
from tests.support import engine, failed_start, rule, text

LOG = text(failed_start()).encode()
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.compress,
    "zst without a size": lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
    "gz of two members": lambda data: gzip.compress(data[:200]) + gzip.compress(data[200:]),
    "zst of two frames": lambda data: zstandard.compress(data[:200]) + zstandard.compress(data[200:]),
}  # fmt: skip


def content(name: str) -> bytes:
    opened = open_source(name)
    with closing(opened.file):
        return b"".join(opened.runs())


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Standard input as a pipe, which cannot be sought in."""

    def put(data: bytes) -> None:
        reading, writing = os.pipe()

        def write() -> None:
            with os.fdopen(writing, "wb") as file:
                file.write(data)

        threading.Thread(target=write, daemon=True).start()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reading, "rb")))

    return put


@pytest.fixture(scope="module")
def small() -> Engine:
    return engine(rule("a.b", {"line": "needle in the hay"}))


# -------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("packer", PACKERS.values(), ids=list(PACKERS))
@pytest.mark.parametrize("size", [len(LOG), 200_000, 9_000_000])
def test_packed_log_is_read_by_its_content_not_its_name(
    packer: Callable[[bytes], bytes], size: int, tmp_path: Path
) -> None:
    data = (LOG * (size // len(LOG)))[:size]
    path = tmp_path / "log.txt"
    path.write_bytes(packer(data))

    assert content(str(path)) == data


@pytest.mark.parametrize("packer", PACKERS.values(), ids=list(PACKERS))
def test_standard_input_may_be_packed_too(
    packer: Callable[[bytes], bytes], stdin: Callable[[bytes], None]
) -> None:
    stdin(packer(LOG * 50))

    assert content("-") == LOG * 50


def test_head_of_a_pipe_is_as_long_as_that_of_a_file(
    stdin: Callable[[bytes], None], small: Engine
) -> None:
    """The envelope is recognised by many lines, not by the first bytes that arrive."""
    wrapped = b"".join(
        b"2026-12-01T02:00:00.123456789Z " + x for x in LOG.splitlines(keepends=True)
    )
    stdin(wrapped)

    diagnosis = examine("-", small)[0]

    assert diagnosis.source.envelope == "docker-timestamps"
    assert (diagnosis.source.kind, diagnosis.source.name) == ("stdin", "-")


def test_source_is_counted(tmp_path: Path, small: Engine) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(LOG))

    found = examine(str(path), small)[0].source

    assert (found.kind, found.name, found.bytes) == ("file", str(path), len(LOG))
    assert found.lines == LOG.count(b"\n")


@pytest.mark.parametrize(
    "size", [1, 100, sources.CHUNK - 1, sources.CHUNK, sources.CHUNK + 1, 9_000_000]
)
def test_runs_end_at_line_ends(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    data = (b"x" * 97 + b"\n") * (size // 98) + b"y" * (size % 98)
    path.write_bytes(data)

    opened = open_source(str(path))
    with closing(opened.file):
        runs = list(opened.runs())

    assert b"".join(runs) == data
    assert all(run.endswith(b"\n") for run in runs[:-1])
    assert all(runs)
    assert opened.consumed == size


# ------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty: nothing was logged"),
        (b"\x7fELF" + b"\0" * 100, r"is a program \(ELF\), not a log"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "is a picture"),
        (b"PK\x03\x04rest", "is a zip archive"),
        (b"PAR1rest", "is a parquet file"),
        (b"SQLite format 3\0", "is an SQLite database"),
        (b"%PDF-1.7", "is a PDF document"),
        (bytes(range(64)) * 20, "is not text"),
        (b"\0" * 5_000, "is not text"),
        (gzip.compress(LOG)[:12], "cannot be read: "),
        (gzip.compress(b""), "is empty"),
        (lzma.compress(LOG)[:20], "cannot be read: "),
        (bz2.compress(LOG)[:-20], "cannot be read: "),
        (b"\x28\xb5\x2f\xfd" + b"\xff" * 100, "is damaged"),
        (gzip.compress(b"\x7fELF" + b"\0" * 50), "is a program"),
    ],
    ids=["empty", "elf", "png", "zip", "parquet", "sqlite", "pdf", "bytes", "nul", "gz head", "gz of nothing", "xz cut", "bz2 cut", "zst damaged", "gz of elf"],
)  # fmt: skip
def test_what_is_no_log_is_refused_in_one_sentence(
    data: bytes, why: str, tmp_path: Path, small: Engine
) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(data)

    with pytest.raises(SourceError, match=why) as caught:
        examine(str(path), small, Context())

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist: check the path"):
        open_source(str(tmp_path / "none.log"))


def test_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is a folder"):
        open_source(str(tmp_path))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5_000])
def test_impossible_name_is_refused(name: str) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        open_source(name)


def test_a_few_control_characters_do_not_make_a_log_binary(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"\x00\x01" + LOG)

    assert content(str(path)).endswith(LOG)


def test_packed_log_that_is_cut_is_read_as_far_as_it_goes(tmp_path: Path, small: Engine) -> None:
    """The end is lost: it is said, and what is there is diagnosed."""
    path = tmp_path / "log.txt"
    path.write_bytes(gzip.compress(LOG * 60 + os.urandom(4_000).hex().encode())[:-60])

    diagnosis, _, _ = examine(str(path), small, Context())

    assert "tail" in diagnosis.source.truncated
    assert any("the packed file is damaged or cut" in text for text in diagnosis.limits)


def test_failure_while_reading_on_is_told(tmp_path: Path) -> None:
    """The head was fine; the disk fails later."""
    path = tmp_path / "log.txt"
    path.write_bytes(LOG * 30_000)
    opened = open_source(str(path))

    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error", size)

        def readline(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error", size)

    opened.file.close()
    broken: IO[bytes] = Broken()  # type: ignore[assignment]
    opened.file = broken
    with pytest.raises(SourceError, match="cannot be read: Input/output error"):
        list(opened.runs())


# ------------------------------------------------------------------------------------------ folders


def test_folder_becomes_the_logs_in_it(tmp_path: Path) -> None:
    wanted = [
        "a.log",
        "b.txt",
        "sub/c.out",
        "sub/d.log.gz",
        "sub/e.log.1",
        "sub/f.log.2.zst",
        "g.LOG",
        "h.console",
    ]
    others = [".hidden.log", "x.json", "y.yaml", "noext", "z.gz", "i.parquet"]
    for name in [*wanted, *others]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")

    assert find([str(tmp_path)]) == sorted(str(tmp_path / name) for name in wanted)


def test_order_of_sources_is_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.log").write_text("x")
    last = tmp_path / "z.log"
    last.write_text("x")

    assert find([str(last), str(tmp_path / "d"), "-"]) == [
        str(last),
        str(tmp_path / "d" / "a.log"),
        "-",
    ]


@pytest.mark.parametrize("files", [[], ["a.json", ".hidden.log"]])
def test_folder_without_logs_is_refused(files: list[str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text("x")

    with pytest.raises(SourceError, match="holds no log: give a file"):
        find([str(tmp_path)])


# ------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_hundred_megabytes_on_one_line(end: bytes, tmp_path: Path, small: Engine) -> None:
    """It is handed on in pieces, so that memory stays bounded, and nothing after it is lost."""
    path = tmp_path / "log.txt"
    with path.open("wb") as file:
        file.write(b"start\n")
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(end + b"needle in the hay" + end)

    opened = open_source(str(path))
    with closing(opened.file):
        longest = max(len(run) for run in opened.runs())
    triage = examine(str(path), small)[1]

    assert longest <= sources.CHUNK + sources.MAX_LINE
    # At the end of such a line a pattern is out of sight; on a line of its own it is not.
    assert ("a.b" in triage.held) is bool(end)


def test_inspect_beside_the_log_is_read(tmp_path: Path, small: Engine) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(LOG)
    (tmp_path / "inspect.json").write_text('[{"State": {"ExitCode": 137, "OOMKilled": true}}]')

    assert examine(str(path), small)[0].run.exit_code == 137
    assert examine(str(path), small, Context())[0].run.exit_code is None
