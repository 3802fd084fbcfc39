"""The file tier without an engine: files that are written, rotated and removed as dockerd does it."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.archive.frames import frames
from forensics.archive.model import ContainerFacts, Gap, RunRecord
from forensics.archive.store import Archive, run_id
from forensics.archive.writer import RunWriter
from forensics.collector.clock import nanoseconds, text_of
from forensics.collector.files import Follower, Seam, Tail, compressed
from forensics.collector.hold import Hold, parts_in
from forensics.errors import UsageError
from tests.engines import wait_for

BOX = "ab" * 32
START = nanoseconds("2026-12-01T02:00:00Z") or 0
SECOND = 1_000_000_000


def line(number: int, ns: int, stream: str = "stdout") -> bytes:
    at = text_of(ns).rstrip("Z").rstrip("0") + "Z"  # as Go writes it: without zeros at the end
    said = {"log": f"line {number}\n", "stream": stream, "time": at.replace(".Z", "Z")}
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def nobody(word: str) -> None:
    del word


class Log:
    """Writes a container's log as the engine does: whole lines, rotated by renaming."""

    def __init__(
        self, root: Path, container: str = BOX, *, limit: int = 1 << 40, files: int = 3
    ) -> None:
        self.folder = root / "containers" / container
        self.folder.mkdir(parents=True)
        self.path = self.folder / f"{container}-json.log"
        self.limit, self.files = limit, files
        self.size = 0
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self.number = 0

    def write(self, count: int, ns: int, step: int = 1000) -> bytes:
        out = []
        for place in range(count):
            data = line(self.number, ns + place * step)
            if self.size + len(data) > self.limit:
                self.rotate()
            os.write(self.fd, data)
            self.size += len(data)
            self.number += 1
            out.append(data)
        return b"".join(out)

    def rotate(self) -> None:
        os.close(self.fd)
        for number in range(self.files - 1, 1, -1):
            old = self.path.with_name(f"{self.path.name}.{number - 1}")
            if old.exists():
                old.rename(self.path.with_name(f"{self.path.name}.{number}"))
        if self.files > 1:
            self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        else:
            self.path.unlink()
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self.size = 0

    def remove(self) -> None:
        os.close(self.fd)
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()

    def close(self) -> None:
        os.close(self.fd)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/containers").mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture
def hold(root: Path) -> Iterator[Hold]:
    found = Hold(root, "test", "an archive")
    found.start(nobody)
    yield found
    found.close()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "archive", create=True)


def begun(archive: Archive, ns: int, container: str = BOX) -> RunWriter:
    at = text_of(ns)
    about = ContainerFacts(id=container)
    record = RunRecord(id=run_id(at, container), tier="file", started_at=at, container=about)
    return archive.begin(record, "docker-json")


def stored(writer: RunWriter) -> bytes:
    return b"".join(frame.data for frame in frames(writer.folder / "log.zst"))


def finisher(done: list[RunWriter]) -> Callable[[RunWriter, list[Gap]], None]:
    def left(old: RunWriter, gaps: list[Gap]) -> None:
        assert gaps == []
        old.finish(old.record)
        done.append(old)

    return left


def follower_of(tail: Tail, writer: RunWriter | None, done: list[RunWriter]) -> Follower:
    return Follower(BOX, tail, writer, finisher(done))


def drained(follower: Follower) -> None:
    wait_for(lambda: follower.step() == 0 and not follower.busy)


def opener(writer: RunWriter) -> Callable[[bytes | None], RunWriter]:
    return lambda _: writer


def test_a_log_that_is_removed_at_once_is_kept(root: Path, hold: Hold, archive: Archive) -> None:
    log = Log(root)
    written = log.write(1000, START)
    wait_for(lambda: hold.parts(BOX))
    log.remove()
    assert not hold.exists(BOX)
    assert hold.pinned() > 0
    done: list[RunWriter] = []
    follower = follower_of(Tail(hold.path(BOX)), begun(archive, START), done)
    follower.end()

    drained(follower)

    assert stored(done[0]) == written
    assert [part.first for part in hold.parts(BOX)] == [True]
    hold.drop(BOX)
    assert hold.pinned() == 0


@pytest.mark.parametrize("files", [1, 2, 5])
def test_rotation_at_full_speed_loses_and_doubles_nothing(
    root: Path, hold: Hold, archive: Archive, files: int
) -> None:
    log = Log(root, limit=20_000, files=files)
    done: list[RunWriter] = []
    follower = follower_of(Tail(hold.path(BOX)), begun(archive, START), done)
    written = []
    for part in range(60):
        written.append(log.write(200, START + part * SECOND))
        # The process has its own pace; a rotation that it cannot have seen is no rotation to test.
        wait_for(lambda: _held(hold, log), every=0.001)
        follower.step()
        follower.drop()
    log.remove()
    follower.end()

    drained(follower)

    assert stored(done[0]) == b"".join(written)
    assert len(hold.parts(BOX)) <= 3, "what is safe in the archive was let go"


def _held(hold: Hold, log: Log) -> bool:
    inode = os.fstat(log.fd).st_ino
    return any(part.name.split("-")[1] == str(inode) for part in hold.parts(BOX))


def test_a_rotation_that_was_missed_is_a_gap(root: Path, archive: Archive) -> None:
    log = Log(root, limit=10_000, files=2)
    first = Hold(root, "test")
    first.start(nobody)
    wait_for(lambda: first.parts(BOX))
    log.write(50, START)
    first.close()
    log.write(1000, START + SECOND)
    again = Hold(root, "test")
    again.start(nobody)
    wait_for(lambda: len(again.parts(BOX)) == 3)
    gaps: list[Gap] = []
    follower = Follower(
        BOX, Tail(again.path(BOX)), begun(archive, START), lambda _, g: gaps.extend(g)
    )
    follower.end()

    drained(follower)

    assert [part.gap for part in again.parts(BOX)] == [False, True, False]
    assert ["rotated" in gap.reason for gap in gaps] == [True]
    again.close()


def test_files_that_were_copied_are_not_taken_for_new_ones(root: Path, archive: Archive) -> None:
    log = Log(root, limit=10_000, files=4)
    hold = Hold(root, "test")
    hold.start(nobody)
    written = log.write(10, START)
    wait_for(lambda: hold.parts(BOX))
    for part in range(1, 4):
        written += log.write(100, START + part * SECOND)
        wait_for(lambda: _held(hold, log))
    writer = begun(archive, START)
    follower = Follower(BOX, Tail(hold.path(BOX)), writer, lambda *_: None)
    while follower.step():
        pass
    follower.drop()
    follower.close()
    hold.close()
    assert len(hold.parts(BOX)) == 1
    written += log.write(5, START + 9 * SECOND)

    again = Hold(root, "test")
    again.start(nobody)
    resumed = archive.resume(writer.id)
    assert resumed is not None
    done: list[RunWriter] = []
    follower = follower_of(Tail(again.path(BOX), resumed.position), resumed, done)
    log.rotate()
    written += log.write(5, START + 10 * SECOND)
    wait_for(lambda: _held(again, log))
    follower.end()
    drained(follower)

    assert stored(done[0]) == written
    again.close()


def test_a_file_that_gets_the_inode_of_an_old_one_is_new(root: Path) -> None:
    """Numbers, not inodes, tell files apart: file systems give numbers away again at once."""
    hold = Hold(root, "test")
    hold.start(nobody)
    log = Log(root, limit=1 << 30, files=2)
    seen = set()
    for part in range(40):
        log.write(3, START + part * SECOND)
        wait_for(lambda: _held(hold, log), every=0.001)
        seen.add(hold.parts(BOX)[-1].number)
        for old in hold.parts(BOX)[:-1]:
            (hold.path(BOX) / old.name).unlink()
        log.rotate()
    wait_for(lambda: _held(hold, log))
    assert hold.parts(BOX)[-1].number == 41
    assert not any(part.gap for part in hold.parts(BOX))
    hold.close()


@pytest.mark.parametrize("how", ["empty", "empty and filled anew"])
def test_a_file_that_is_cut_by_someone_is_a_gap(
    root: Path, hold: Hold, archive: Archive, how: str
) -> None:
    log = Log(root)
    first = log.write(100, START)
    wait_for(lambda: hold.parts(BOX))
    gaps: list[Gap] = []
    writer = begun(archive, START)
    follower = Follower(BOX, Tail(hold.path(BOX)), writer, lambda _, g: gaps.extend(g))
    while follower.step():
        pass
    os.truncate(log.path, 0)
    if how == "empty":
        follower.step()
    second = log.write(300 if how != "empty" else 5, START + SECOND)
    follower.end()
    drained(follower)
    writer.finish(writer.record)

    assert stored(writer) == first + second
    assert ["cut" in gap.reason for gap in gaps] == [True]


def test_restarts_are_runs_of_their_own_wherever_the_reader_is(
    root: Path, hold: Hold, archive: Archive
) -> None:
    """The seam may lie behind, in, or ahead of what has been read."""
    rng = random.Random(7)  # noqa: S311 - reproducible
    for round_ in range(8):
        container = f"{round_:02x}" * 32
        log = Log(root, container)
        wait_for(lambda c=container: hold.parts(c))  # type: ignore[misc]
        done: list[RunWriter] = []
        starts = [START + n * 100 * SECOND for n in range(4)]
        follower = Follower(
            container, Tail(hold.path(container)), begun(archive, starts[0], container),
            finisher(done),
        )  # fmt: skip
        written = [log.write(rng.randint(0, 300), starts[0])]
        for start in starts[1:]:
            if rng.random() < 0.5:
                follower.step(budget=rng.choice([1, 10_000, 1 << 22]))
            early = log.write(rng.randint(0, 300), start)
            if rng.random() < 0.5:
                follower.step()
            new = begun(archive, start, container)
            follower.follow(Seam(start - 50 * SECOND, opener(new)))
            written.append(early + log.write(rng.randint(0, 5), start + SECOND))
        follower.end()
        drained(follower)
        assert [stored(w) for w in done] == written
        log.remove()


def test_lines_of_starts_that_nobody_saw_become_a_run_if_there_are_any(
    root: Path, hold: Hold, archive: Archive
) -> None:
    for number, unseen in enumerate([0, 40]):
        container = f"{number:02x}" * 32
        log = Log(root, container)
        wait_for(lambda c=container: hold.parts(c))  # type: ignore[misc]
        log.write(30, START)  # in the archive already
        between = log.write(unseen, START + 100 * SECOND)
        last = log.write(20, START + 200 * SECOND)
        done: list[RunWriter] = []
        follower = Follower(
            container, Tail(hold.path(container)), None,
            finisher(done),
        )  # fmt: skip
        now = begun(archive, START + 199 * SECOND, container)

        def earlier(first: bytes | None, c: str = container) -> RunWriter:
            assert first is not None
            return begun(archive, START + 100 * SECOND, c)

        follower.follow(
            Seam(START + 50 * SECOND, earlier, needs_lines=True),
            Seam(START + 150 * SECOND, opener(now)),
        )
        follower.end()
        drained(follower)
        assert [stored(w) for w in done] == ([between, last] if unseen else [last])


def test_compressed_files_from_before_are_read_first(
    root: Path, hold: Hold, archive: Archive
) -> None:
    log = Log(root)
    written = []
    for number in (2, 1):
        data = b"".join(line(n, START + n) for n in range(50))
        path = log.path.with_name(f"{log.path.name}.{number}.gz")
        path.write_bytes(gzip.compress(data))
        written.append(data)
    written.append(log.write(10, START + SECOND))
    wait_for(lambda: hold.parts(BOX))
    done: list[RunWriter] = []
    tail = Tail(hold.path(BOX), older=compressed(log.folder, BOX))
    follower = follower_of(tail, begun(archive, START), done)
    follower.end()

    drained(follower)

    assert stored(done[0]) == b"".join(written)


def test_a_folder_that_is_removed_at_any_moment_has_no_compressed_files(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            folder.mkdir()
            folder.rmdir()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert all(compressed(folder, "c") == [] for _ in range(3000))
    finally:
        stop.set()
        thread.join()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    counts=st.lists(st.integers(0, 40), min_size=2, max_size=5),
    stops=st.lists(st.integers(1, 3000), max_size=6),
)
def test_a_reader_that_dies_anywhere_goes_on_where_its_bytes_end(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], stops: list[int]
) -> None:
    """Bytes that were not durable are read again; durable ones are not; seams stay where they are."""
    tmp = tmp_path_factory.mktemp("dies")
    archive, folder = Archive.open(tmp / "a", create=True), tmp / "hold"
    folder.mkdir()
    written = []
    number = itertools.count()
    starts = [START + n * 100 * SECOND for n in range(len(counts))]
    for start, count in zip(starts, counts, strict=True):
        written.append(b"".join(line(next(number), start + n) for n in range(count)))
    whole = b"".join(written)
    half = len(whole) // 2
    (folder / "00000001-1-new").write_bytes(whole[: whole.rfind(b"\n", 0, half) + 1])
    (folder / "00000002-2").write_bytes(whole[whole.rfind(b"\n", 0, half) + 1 :])
    for part in parts_in(folder):
        path = folder / part.name
        path.rename(folder / f"{part.number:08d}-{path.stat().st_ino}")
    first = [begun(archive, start) for start in starts]
    names = [writer.id for writer in first]
    for writer in first:
        writer.close()

    for stop in [*stops, None]:
        writers = [w for name in names if (w := archive.resume(name)) is not None]
        # As the watcher does it: what is durable says where to go on. A run that has nothing yet
        # begins behind those that are final.
        place = max((w.position for w in writers if w.position), key=_order, default=None)
        first_writer = writers.pop(0) if place or len(writers) == len(names) else None
        follower = Follower(BOX, Tail(folder, place), first_writer, _finish)
        follower.follow(
            *(
                Seam((nanoseconds(w.record.started_at) or 0) - 50 * SECOND, opener(w))
                for w in writers
            )
        )
        if first_writer is not None:
            writers.insert(0, first_writer)
        if stop is None:
            follower.end()
            drained(follower)
            break
        follower.tail.read = _small(follower.tail, stop)  # type: ignore[method-assign]
        follower.step(budget=stop)
        for writer in writers:
            if writer.size % 3:
                writer.flush()
            writer.close()  # what it held is lost, as with SIGKILL

    assert [b"".join(f.data for f in frames(archive.path(n) / "log.zst")) for n in names] == written


def _finish(writer: RunWriter, gaps: list[Gap]) -> None:
    assert gaps == []
    writer.finish(writer.record)


def _order(position: dict[str, int]) -> tuple[int, int]:
    return position["part"], position["offset"]


def _small(tail: Tail, size: int) -> Callable[..., bytes]:
    real = type(tail).read
    return lambda *_, last=False: real(tail, size, last=last)


def test_one_hold_folder_has_one_collector(root: Path) -> None:
    first = Hold(root, "test", "/one")
    with pytest.raises(UsageError, match="another collector uses"):
        Hold(root, "test", "/one")
    other = Hold(root, "other", "/two")
    (other.folder / BOX).mkdir()
    (other.folder / BOX / "00000001-1").touch()
    assert first.others() == []
    other.close()
    assert first.others() == [("/two", 1)]
    first.close()


def test_a_container_that_is_not_wanted_is_let_go(root: Path, hold: Hold) -> None:
    log = Log(root, limit=2000)
    wait_for(lambda: hold.parts(BOX))
    hold.ignore(BOX)
    log.write(200, START)
    other = Log(root, "cd" * 32)
    wait_for(lambda: hold.parts("cd" * 32))
    assert hold.parts(BOX) == []
    other.remove()


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        ("yesterday", None),
        ("2026-13-01T00:00:00Z", None),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, ns: int | None) -> None:
    assert nanoseconds(text) == ns


@given(st.integers(0, 4_000_000_000 * SECOND))
def test_times_come_back(ns: int) -> None:
    assert nanoseconds(text_of(ns)) == ns
