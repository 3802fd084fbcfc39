"""A real engine: what it is asked, how its streams are read, and what is said where it is not."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.collector.engine import Chunks, Engine, EngineError, Gone, LogsUnreadable
from forensics.containers.streams import _Chunked
from tests.engines import Dockerd, engine_of, wait_for


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    with engine_of() as found:
        yield found


@pytest.fixture
def engine(dockerd: Dockerd) -> Iterator[Engine]:
    found = Engine.connect(dockerd.host)
    yield found
    found.close()


@pytest.mark.docker
def test_the_engine_says_what_it_is(dockerd: Dockerd, engine: Engine) -> None:
    assert engine.kind == "docker"
    assert engine.version
    assert engine.facts.kernel
    assert engine.facts.arch
    assert engine.ping()
    assert engine.data_root == dockerd.data


@pytest.mark.docker
def test_a_log_comes_whole_by_stream(dockerd: Dockerd, engine: Engine) -> None:
    name = dockerd.run("seq 1 5000; echo oops >&2; printf end", "--name", "whole")
    assert engine.wait(name) == 0

    for follow in (True, False):
        with engine.logs("whole", tty=False, follow=follow) as log:
            pieces = list(log)
        text = {s: b"".join(p.split(b" ", 1)[1] for t, p in pieces if t == s) for s, _ in pieces}
        assert text["stdout"] == b"".join(b"%d\n" % n for n in range(1, 5001)) + b"end"
        assert text["stderr"] == b"oops\n"
        assert all(len(p.split(b" ", 1)[0]) == 30 for _, p in pieces)
    last = pieces[-1][1].split(b" ")[0].decode()
    assert last.endswith("Z")
    assert list(engine.logs(name, tty=False, follow=False, since="4999999999.000000000")) == []
    assert engine.inspect(name)["State"]["Status"] == "exited"  # type: ignore[index]
    assert engine.remove(name)
    assert engine.remove(name), "gone is gone"
    assert engine.inspect(name) is None


@pytest.mark.docker
def test_a_terminal_has_one_stream(dockerd: Dockerd, engine: Engine) -> None:
    name = dockerd.run("echo one; echo two >&2", "-t")
    engine.wait(name)
    pieces = list(engine.logs(name, tty=True, follow=False, timestamps=False))
    assert b"".join(piece for _, piece in pieces) == b"one\r\ntwo\r\n"
    assert {stream for stream, _ in pieces} == {"stdout"}


@pytest.mark.docker
def test_what_cannot_be_read_says_so(dockerd: Dockerd, engine: Engine) -> None:
    with pytest.raises(Gone, match="is gone"):
        engine.logs("0123456789ab", tty=False, follow=True)
    name = dockerd.run("echo x", "--log-driver", "none")
    with pytest.raises(LogsUnreadable, match="does not support reading"):
        engine.logs(name, tty=False, follow=False)
    assert engine.image("sha256:" + "0" * 64) is None


@pytest.mark.docker
def test_streams_end_when_another_thread_closes_them(dockerd: Dockerd, engine: Engine) -> None:
    name = dockerd.run("echo begun; sleep 600")
    events, log = engine.events(), engine.logs(name, tty=False, follow=True)
    seen: list[Any] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(e["Action"] for e in events)),
        threading.Thread(target=lambda: seen.extend(p for _, p in log)),
    ]
    for thread in threads:
        thread.start()
    dockerd.docker("kill", name)
    wait_for(lambda: "die" in seen)
    events.close()
    log.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert any(isinstance(p, bytes) and p.endswith(b" begun\n") for p in seen)


@pytest.mark.docker
def test_an_engine_that_dies_ends_every_stream_and_is_named() -> None:
    with engine_of() as dockerd:
        engine = Engine.connect(dockerd.host)
        name = dockerd.run("sleep 600")
        events, log = engine.events(), engine.logs(name, tty=False, follow=True)
        dockerd.stop(signal.SIGKILL)
        assert list(events) == []
        assert list(log) == []
        assert not engine.ping()
        with pytest.raises(EngineError, match="does not answer: it has crashed"):
            engine.containers()
        dockerd.start()
        assert [one["Id"] for one in engine.containers()] == [name]
        engine.close()


def test_an_engine_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "stale"))
    stale.close()

    for host, why in (
        (f"unix://{tmp_path}/none", "there is no container engine at"),
        (f"unix://{tmp_path}/stale", "does not answer: it has crashed"),
        ("tcp://127.0.0.1:1", "does not answer"),
        ("foo://x", "Invalid bind address protocol"),
        ("ssh://nobody@127.0.0.1", "needs an ssh client: pip install"),
        ("tcp://", "cannot be reached"),
    ):
        with pytest.raises(EngineError) as found:
            Engine.connect(host)
        assert why in str(found.value)
        assert "\n" not in str(found.value)
    with pytest.raises(EngineError, match="no Docker context 'nope'"):
        Engine.connect(context="nope")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with pytest.raises(EngineError, match="TLS"):
        Engine.connect("tcp://127.0.0.1:1")


class _Said:
    """A response that gives bytes in pieces of any size."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.raw, self._fp, self._connection = self, self, None
        self.chunked, self.fp = False, self
        self._pieces = iter(pieces)

    def read1(self, _size: int) -> bytes:
        return next(self._pieces, b"")

    def close(self) -> None:
        """Nothing is open."""


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=20),
    st.lists(st.integers(1, 30), max_size=200),
)
def test_frames_cut_anywhere_come_out_whole(
    frames: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    data = b"".join(
        bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text for stream, text in frames
    )
    pieces, place = [], 0
    for size in sizes:
        if place < len(data):
            pieces.append(data[place : place + size])
            place += size
    pieces += [data[place:]] if place < len(data) else []

    found = list(Chunks(_Said(pieces), tty=False))

    assert found == [("stdout" if stream == 1 else "stderr", text) for stream, text in frames]


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=20),
    st.lists(st.integers(1, 30), max_size=300),
)
def test_chunks_cut_anywhere_come_out_whole(chunks: list[bytes], sizes: list[int]) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    taken, out = _Chunked(), b""
    for size in sizes:
        out += taken.feed(body[:size])
        body = body[size:]
        if taken.ended:
            break
    out += b"" if taken.ended else taken.feed(body)
    assert out == b"".join(chunks)
    assert taken.ended
