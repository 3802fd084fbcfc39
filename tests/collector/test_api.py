"""The API tier on a real engine: what it calls complete is complete, whatever breaks on the way."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forensics.archive.frames import frames
from forensics.archive.store import Archive
from forensics.archive.writer import RunWriter
from forensics.collector import records
from forensics.collector.api import ApiReader, End
from forensics.collector.clock import nanoseconds
from forensics.collector.engine import Engine
from tests.engines import Dockerd, engine_of, wait_for

pytestmark = pytest.mark.docker

_CRI = re.compile(rb"(\S+) (stdout|stderr) ([FP]) ?([^\n]*)\n")


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    with engine_of("--live-restore") as found:
        yield found


@pytest.fixture
def engine(dockerd: Dockerd) -> Iterator[Engine]:
    found = Engine.connect(dockerd.host)
    yield found
    found.close()


def began(engine: Engine, archive: Archive, container: str) -> tuple[RunWriter, int]:
    inspect = wait_for(lambda: engine.inspect(container))
    assert isinstance(inspect, dict)
    started = nanoseconds(inspect["State"]["StartedAt"])
    assert started is not None
    record = records.begun(inspect, None, engine.facts, "api", started)
    return archive.begin(record, "cri"), started


def reader(
    engine: Engine, writer: RunWriter, container: str, started: int, *, tty: bool = False
) -> ApiReader:
    return ApiReader(
        engine, container, writer, started=started, since=0, tty=tty, stop=threading.Event()
    )


def text_of(folder: Path, stream: str | None = None) -> bytes:
    """What the container wrote, by stream, put together from the archive."""
    raw = b"".join(frame.data for frame in frames(folder / "log.zst"))
    out = []
    for found in _CRI.finditer(raw):
        if stream is None or found[2].decode() == stream:
            out += [found[4], b"\n" if found[3] == b"F" else b""]
    return b"".join(out)


def finished(writer: RunWriter, end: End | None) -> bytes:
    assert end is not None
    writer.finish(writer.record)
    return text_of(writer.folder)


def test_a_log_is_read_from_its_start_to_its_end(
    dockerd: Dockerd, engine: Engine, tmp_path: Path
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    script = "seq 1 20000; sleep 0.3; seq 20001 40000; printf 'no end'"
    name = dockerd.run(script)
    writer, started = began(engine, archive, name)
    end = reader(engine, writer, name, started).run()

    assert finished(writer, end) == b"".join(b"%d\n" % n for n in range(1, 40001)) + b"no end"
    assert end is not None
    assert end.completeness == "complete"
    assert "read again" in end.reasons[0]
    assert end.gaps == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("head -c 40000 /dev/zero | tr '\\0' x; echo", b"x" * 40000 + b"\n"),
        ("head -c 16384 /dev/zero | tr '\\0' y; echo; echo after", b"y" * 16384 + b"\nafter\n"),
        ("printf 'a\\rb\\rc\\n\\n\\033[31mred\\033[0m\\n'", b"a\rb\rc\n\n\x1b[31mred\x1b[0m\n"),
        ("true", b""),
    ],
)
def test_lines_of_any_shape(
    dockerd: Dockerd, engine: Engine, tmp_path: Path, script: str, expected: bytes
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    for tty in (False, True):
        name = dockerd.run(script.replace("tr '\\0'", "busybox tr '\\0'"), *(["-t"] if tty else []))
        writer, started = began(engine, archive, name)
        found = finished(writer, reader(engine, writer, name, started, tty=tty).run())
        assert found.replace(b"\r\n", b"\n") == expected


def test_breaks_of_the_connection_lose_and_double_nothing(
    dockerd: Dockerd, engine: Engine, tmp_path: Path
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    # Two streams at once, many lines alike: only their number tells whether one is missing.
    script = (
        "(i=0; while [ $i -lt 1500 ]; do echo same; echo $i; i=$((i+1)); done) &"
        " (i=0; while [ $i -lt 1500 ]; do echo same >&2; echo $i >&2; i=$((i+1)); done); wait"
    )
    name = dockerd.run(script)
    writer, started = began(engine, archive, name)
    end = None
    for round_ in range(12):
        one = reader(engine, writer, name, started)
        timer = threading.Timer(0.05 + 0.02 * round_, one.close)
        timer.start()
        end = one.run()
        timer.cancel()
        # What a killed process had not made durable is not there afterwards.
        writer.close()
        again = archive.resume(writer.id)
        assert again is not None
        writer = again
    end = reader(engine, writer, name, started).run()

    expected = b"".join(b"same\n%d\n" % n for n in range(1500))
    assert end is not None
    assert end.completeness == "complete"
    writer.finish(writer.record)
    for stream in ("stdout", "stderr"):
        assert text_of(writer.folder, stream) == expected


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("secret", [b"", b" hf_" + b"Abcdefghij" * 4])
def test_a_clock_that_is_set_back_costs_no_line(
    dockerd: Dockerd, engine: Engine, tmp_path: Path, secret: bytes, *, seen: bool
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    name = dockerd.run("while [ ! -e /end ]; do usleep 20000; done")
    writer, started = began(engine, archive, name)
    log = dockerd.data / "containers" / name / f"{name}-json.log"
    expected = b""

    def hour(hour: int, first: int) -> None:
        """Write lines into the engine's own file, as it does, at an hour of a day."""
        nonlocal expected
        with log.open("ab") as file:
            for n in range(first, first + 2000):
                line = b"line %d%b" % (n, secret if n % 500 == 0 else b"")
                time = b"2026-01-31T%02d:%02d:%02d.%09dZ" % (hour, n // 600, n // 10 % 60, n)
                file.write(b'{"log":"%b\\n","stream":"stdout","time":"%b"}\n' % (line, time))
                expected += line + b"\n"

    def read(*steps: tuple[int, Callable[[], None]]) -> None:
        """Follow until so many lines are there, do something, and so on; break off."""
        nonlocal writer
        one = reader(engine, writer, name, started)
        thread = threading.Thread(target=one.run)
        thread.start()
        try:
            for until, then in steps:
                wait_for(lambda n=until: one.lines >= n)  # type: ignore[misc]
                then()
        finally:
            one.close()
            thread.join(60)
        writer.close()
        again = archive.resume(writer.id)
        assert again is not None
        writer = again

    hour(12, 0)
    if seen:
        read((2000, lambda: hour(9, 2000)), (4000, lambda: None))
        read((4000, lambda: hour(10, 4000)), (6000, lambda: None))
    else:
        read((2000, lambda: None))
        hour(9, 2000)
        hour(10, 4000)
    hour(8, 6000)
    dockerd.docker("exec", name, "sh", "-c", "echo > /end")
    end = reader(engine, writer, name, started).run()

    found = finished(writer, end)
    masked = b" " + b"*" * (len(secret) - 1)
    assert found == (expected.replace(secret, masked) if secret else expected)
    assert end is not None
    assert end.completeness == "complete"


def test_the_engine_dies_and_comes_back(dockerd: Dockerd, engine: Engine, tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    name = dockerd.run("i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); usleep 50000; done")
    writer, started = began(engine, archive, name)
    one = reader(engine, writer, name, started)
    ends: list[End | None] = []
    thread = threading.Thread(target=lambda: ends.append(one.run()))
    thread.start()
    wait_for(lambda: one.last)
    for how in (signal.SIGKILL, signal.SIGTERM):
        dockerd.stop(how)
        dockerd.start()
    thread.join(120)

    assert not thread.is_alive()
    assert finished(writer, ends[0]) == b"".join(b"line %d\n" % n for n in range(200))
    assert ends[0] is not None
    assert ends[0].completeness == "complete"


@pytest.mark.parametrize("lines", [1, 1000])
def test_containers_that_are_removed_at_once_are_whole_or_said_not_to_be(
    dockerd: Dockerd, engine: Engine, tmp_path: Path, lines: int
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    events = engine.events()
    starts: list[str] = []
    thread = threading.Thread(
        target=lambda: starts.extend(e["id"] for e in events if e.get("Action") == "start")
    )
    thread.start()
    whole = 0
    for number in range(8):
        dockerd.run(f"seq 1 {lines}", "--rm")
        wait_for(lambda count=number: len(starts) > count)  # type: ignore[misc]
        inspect = engine.inspect(starts[number])
        if inspect is None or nanoseconds(inspect["State"]["StartedAt"]) is None:
            continue
        started = nanoseconds(inspect["State"]["StartedAt"]) or 0
        record = records.begun(inspect, None, engine.facts, "api", started)
        writer = archive.begin(record, "cri")
        end = reader(engine, writer, starts[number], started).run()
        found = finished(writer, end)
        expected = b"".join(b"%d\n" % n for n in range(1, lines + 1))
        assert end is not None
        assert expected.startswith(found)
        if end.completeness == "complete":
            assert found == expected
            whole += 1
        else:
            assert end.reasons
    events.close()
    thread.join(30)


def test_a_restart_ends_a_run_and_its_lines_stay_apart(
    dockerd: Dockerd, engine: Engine, tmp_path: Path
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    name = dockerd.run("echo begun; sleep 1; echo done; exit 3", "--restart", "on-failure:2")
    writer, started = began(engine, archive, name)
    found = finished(writer, reader(engine, writer, name, started).run())
    assert found == b"begun\ndone\n"

    def over() -> bool:
        inspect = engine.inspect(name)
        return inspect is not None and inspect["State"]["Status"] == "exited"

    wait_for(over)
    inspect = engine.inspect(name)
    assert inspect is not None
    assert inspect["RestartCount"] == 2
    last = nanoseconds(inspect["State"]["StartedAt"])
    assert last is not None
    record = records.begun(inspect, None, engine.facts, "api", last)
    writer = archive.begin(record, "cri")
    since = last - 20_000_000
    end = ApiReader(
        engine, name, writer, started=last, since=since, tty=False, stop=threading.Event()
    ).run()
    assert finished(writer, end) == b"begun\ndone\n"


def test_what_cannot_be_read_is_said(dockerd: Dockerd, engine: Engine, tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    name = dockerd.run("echo x", "--log-driver", "none")
    writer, started = began(engine, archive, name)
    end = reader(engine, writer, name, started).run()
    assert end is not None
    assert end.completeness == "possibly_truncated"
    assert "does not support reading" in end.reasons[0]
    assert end.gaps


def test_rotation_is_never_called_complete(
    dockerd: Dockerd, engine: Engine, tmp_path: Path
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    name = dockerd.run("seq 1 60000", "--log-opt", "max-size=100k", "--log-opt", "max-file=2")
    writer, started = began(engine, archive, name)
    end = reader(engine, writer, name, started).run()
    assert end is not None
    assert end.completeness == "possibly_truncated"
    assert "rotated" in end.reasons[0]


def test_a_silent_container_does_not_hold_back_what_it_said(
    dockerd: Dockerd, engine: Engine, tmp_path: Path
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    name = dockerd.run("echo waiting; sleep 600")
    writer, started = began(engine, archive, name)
    one = reader(engine, writer, name, started)
    thread = threading.Thread(target=one.run)
    thread.start()

    def durable() -> bool:
        one.tick(time.monotonic())
        return text_of(writer.folder) == b"waiting\n"

    wait_for(durable)
    one.close()
    thread.join(30)
    assert not thread.is_alive()
    dockerd.docker("rm", "-f", name)
