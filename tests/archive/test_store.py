"""The folder of runs: one writer a run, nothing half-written, one start only once."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.archive.disk import DiskFull
from forensics.archive.frames import frames
from forensics.archive.model import ContainerFacts, RunRecord
from forensics.archive.store import Archive, ArchiveError, RunExists, run_id
from forensics.errors import UsageError

CONTAINER = "0123456789abcdef" * 4
STARTED = "2026-12-01T02:23:18.123456789Z"


def record(started: str = STARTED, container: str = CONTAINER) -> RunRecord:
    return RunRecord(
        id=run_id(started, container),
        tier="file",
        started_at=started,
        container=ContainerFacts(id=container, name="vllm"),
    )


def line(text: str, second: int = 1, stream: str = "stdout") -> bytes:
    said = {"log": f"{text}\n", "stream": stream, "time": f"2026-12-01T02:00:{second:02}.5Z"}
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def log_of(folder: Path) -> bytes:
    return b"".join(frame.data for frame in frames(folder / "log.zst"))


def test_a_run_is_partial_until_it_is_finished(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    writer = archive.begin(record(), "docker-json")
    for second in range(3):
        writer.append(line("hello", second), {"offset": second})

    assert archive.partial() == [writer.id]
    assert archive.resume(writer.id) is None, "it has a writer"
    writer.finish(writer.record)
    writer.finish(writer.record)  # twice is once

    found = archive.record(writer.id)
    assert archive.partial() == []
    assert found.state == "final"
    assert found.log is not None
    assert found.log.lines == 3
    assert found.log.damaged == 0
    assert (found.log.first_at, found.log.last_at) == (
        "2026-12-01T02:00:00.5Z",
        "2026-12-01T02:00:02.5Z",
    )
    assert log_of(writer.folder) == b"".join(line("hello", s) for s in range(3))
    assert archive.resume(writer.id) is None, "it is final"
    assert [r.id for r in archive.starts_of(CONTAINER)] == [writer.id]


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    writer = archive.begin(record(), "docker-json")
    writer.append(line("x"), {})
    writer.finish(writer.record)
    archive.write_derived(writer.id, "diagnosis.json", b"{}")

    for path in [archive.folder, *archive.folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_one_start_is_stored_once(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    archive.begin(record(), "docker-json").close()

    with pytest.raises(RunExists, match="in the archive already"):
        archive.begin(record(), "docker-json")
    assert [p.name for p in archive.runs.iterdir()] == [record().id]


def test_damaged_and_foreign_records_are_refused_in_one_line(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    archive.begin(record(), "docker-json").close()
    path = archive.runs / record().id / "run.json"
    good = path.read_bytes()
    for bad in (
        b"", b"{", b"[]", b"\xff", good[:50], good.replace(b"run/1", b"run/9"),
        good.replace(b'"id": "2026', b'"id": "2025', 1), b"[" * 100_000,
    ):  # fmt: skip
        path.write_bytes(bad)
        with pytest.raises(ArchiveError) as found:
            archive.record(record().id)
        assert "\n" not in str(found.value).strip("\n")
    for name in ("../x", "/etc", "", "a\nb", record().id + "/.."):
        with pytest.raises(ArchiveError):
            archive.record(name)
        assert not archive.has(name)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="no archive of runs"):
            Archive.open(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        Archive.open(tmp_path / "file", create=True)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "runs").symlink_to("/etc")
    with pytest.raises(UsageError, match="no archive of runs"):
        Archive.open(tmp_path / "link")


def test_a_second_watcher_is_refused(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    again = Archive.open(tmp_path / "a").watch_lock()
    with (
        archive.watch_lock(),
        pytest.raises(UsageError, match=rf"another .*pid {os.getpid()}, since 20"),
        again,
    ):
        pass
    with archive.watch_lock():
        pass


def test_the_end_goes_to_the_next_start(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    writer = archive.begin(record(), "docker-json")
    lines = [line(f"number {n}", n) for n in range(60)]
    for n, one in enumerate(lines):
        writer.append(one, {"offset": n})
        if n % 7 == 0:
            writer.flush()
    durable: list[bytes] = []

    later = writer.take_back(lambda one: one in lines[40:], durable.append)
    assert later == b"".join(lines[40:]) == b"".join(durable)
    assert writer.take_back(lambda _: False) == b""
    assert writer.position == {"offset": 59}
    writer.finish(writer.record)

    assert log_of(writer.folder) == b"".join(lines[:40])
    found = archive.record(writer.id).log
    assert found is not None
    assert found.lines == 40


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(0, 31))
def test_any_end_can_be_taken_back(sizes: list[int], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive.open(Path(folder) / "a", create=True)
        writer = archive.begin(record(), "docker-json")
        lines = [line("x" * size, n) for n, size in enumerate(sizes)]
        for n, one in enumerate(lines):
            writer.append(one, {"n": n})
            if sizes[n] > 5:
                writer.flush()
        numbers = {one: n for n, one in enumerate(lines)}
        later = writer.take_back(lambda one: numbers[one] >= cut)
        writer.finish(writer.record)

        assert later == b"".join(lines[cut:])
        assert log_of(writer.folder) == b"".join(lines[:cut])


_WRITES = """
import sys, time
from pathlib import Path
from forensics.archive.store import Archive
archive = Archive.open(Path(sys.argv[1]), create=True)
writer = archive.resume(sys.argv[2])
number = writer.position["next"] if writer.position else 0
while True:
    data = b"".join(b'{"log":"%d\\\\n","stream":"stdout","time":"2026-12-01T02:00:00Z"}\\n' % n
                    for n in range(number, number + 50))
    number += 50
    writer.append(data, {"next": number})
    writer.tick(time.monotonic())
    if number % 5000 == 0:
        writer.update(writer.record)
"""


def test_a_killed_writer_loses_and_doubles_nothing_that_was_durable(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    archive.begin(record(), "docker-json").close()
    folder = archive.runs / record().id
    for round_ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITES, str(archive.folder), record().id]
        )
        log = folder / "log.zst"
        before = log.stat().st_size
        while process.poll() is None and log.stat().st_size < before + 3000 * (round_ + 1):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()

    writer = archive.resume(record().id)
    assert writer is not None
    assert writer.position is not None
    count = writer.position["next"]
    writer.finish(writer.record)
    numbers = [json.loads(one)["log"] for one in log_of(folder).splitlines()]
    assert numbers == [f"{n}\n" for n in range(count)]
    assert count > 5000
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []


def test_what_never_had_a_name_is_cleared(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    (archive.runs / ".new-x-1").mkdir()
    archive.clear()
    assert list(archive.runs.iterdir()) == []
    assert archive.ids() == []


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        (STARTED, "20261201T022318.123456789Z-0123456789ab"),
        ("2026-12-01T02:23:18Z", "20261201T022318.000000000Z-0123456789ab"),
        ("2026-12-01T03:23:18.5+01:00", "20261201T022318.500000000Z-0123456789ab"),
        ("2026-12-31T20:30:00-04:00", "20270101T003000.000000000Z-0123456789ab"),
    ],
)
def test_names_sort_by_time(started: str, expected: str) -> None:
    assert run_id(started, CONTAINER) == expected


def test_names_are_made_of_nothing_else() -> None:
    for started, container in (
        ("now", CONTAINER),
        (STARTED, "../../etc"),
        (STARTED, "ABCDEF012345"),
    ):
        with pytest.raises(ValueError, match="is no"):
            run_id(started, container)


def test_a_full_disk_leaves_room_for_the_end(small_disk: Path) -> None:
    archive = Archive.open(small_disk / "a", create=True)
    writer = archive.begin(record(), "raw")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(os.urandom(65536)):
            pass
    data = os.urandom(300_000)

    with pytest.raises(DiskFull):
        writer.append(data, {"offset": 1})
    with pytest.raises(DiskFull):
        writer.flush()
    assert writer.held == len(data)
    writer.update(record())  # in the reserve
    assert archive.record(record().id).state == "partial"
    filler.unlink()
    writer.append(b"end\n", {"offset": 2})
    writer.finish(record())

    assert log_of(writer.folder) == data + b"end\n"
