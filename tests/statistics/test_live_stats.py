"""Statistics of a container while it runs, from a real engine, and of a unit from its journal."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.errors import SourceError
from forensics.model import Context, Source
from forensics.statistics.follow import StreamFollower
from tests import wraps
from tests.engines import Dockerd, engine_of, wait_for
from tests.stat_lines import log, served, start
from tests.test_live import journalctl

LINES = [*start(1), *served(1, [(0.9, 0.95)], {1: 20.0})]
FIRST, LATER = log(LINES[:10]).decode(), log(LINES[10:]).decode()
#: Prints the first part, then waits until it is told to go on.
SCRIPT = 'printf %s "$FIRST"; until test -e /go; do usleep 50000; done; printf %s "$LATER"'


@pytest.fixture(scope="module")
def engine() -> Iterator[Dockerd]:
    with engine_of() as one:
        yield one


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "forensics", "stats", *words]


def started(engine: Dockerd, name: str, *options: str) -> None:
    environment = ("--env", f"FIRST={FIRST}", "--env", f"LATER={LATER}")
    engine.run(SCRIPT, "--name", name, *environment, *options)


class Shown:
    """What a command that goes on has printed so far."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.text = ""
        self.process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def until(self, words: str) -> None:
        wait_for(lambda: words in self.text or self.process.poll() is not None)
        wait_for(lambda: words in self.text, seconds=10)

    def end(self) -> int:
        code = self.process.wait(120)
        self._reader.join(120)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.mark.docker
@pytest.mark.parametrize("terminal", [(), ("--tty",)], ids=["plain", "tty"])
def test_a_running_container_is_followed_to_its_end(
    terminal: tuple[str, ...], engine: Dockerd
) -> None:
    name = f"served{len(terminal)}"
    started(engine, name, *terminal)
    words = command("--follow", "--interval", "0.2", f"docker:{name}")
    shown = Shown(words, engine.environment)

    shown.until("Speculation: mtp, 1 token a draft, 3 windows")
    assert "8 windows" not in shown.text
    engine.docker("exec", name, "sh", "-c", ": > /go")

    assert shown.end() == 0, shown.text
    assert "Speculation: mtp, 1 token a draft, 8 windows" in shown.text
    # Where the container stands still, nothing is left to follow: the same figures at once.
    done = subprocess.run(
        command(f"docker:{name}", "--format", "json"),
        env=engine.environment, capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["source"]["kind"] == "docker"
    assert found["source"]["envelope"] == "cri"
    assert found["speculative"]["windows"] == 8
    assert found["speculative"]["first_at"] is not None


@pytest.mark.docker
def test_following_ends_with_an_interrupt(engine: Dockerd) -> None:
    started(engine, "endless")
    shown = Shown(command("--follow", "--interval", "0.2", "docker:endless"), engine.environment)
    shown.until("3 windows")
    shown.process.send_signal(signal.SIGINT)
    assert shown.end() == 130
    assert "Traceback" not in shown.text


@pytest.mark.docker
@pytest.mark.parametrize("words", [("--follow",), ()], ids=["followed", "read"])
def test_a_container_that_is_not_there_is_one_line(words: tuple[str, ...], engine: Dockerd) -> None:
    done = subprocess.run(
        command(*words, "docker:nobody"),
        env=engine.environment, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert "there is no container nobody" in done.stderr.decode()


@pytest.mark.docker
def test_a_container_that_said_nothing_is_one_line(engine: Dockerd) -> None:
    engine.run("true", "--name", "silent")
    done = subprocess.run(
        command("--follow", "--interval", "0.2", "docker:silent"),
        env=engine.environment, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "docker:silent is empty" in done.stderr.decode()


def test_a_unit_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "entries").write_bytes(wraps.journal_json(log(LINES))[0])
    journalctl(tmp_path, f'echo "$@" > {tmp_path}/words; cat {tmp_path}/entries', monkeypatch)
    done = subprocess.run(
        command("--follow", "--interval", "0.2", "journal:vllm"),
        env=dict(os.environ), capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "8 windows" in done.stdout.decode()
    assert "--follow" in (tmp_path / "words").read_text()


class _Cut(io.BytesIO):
    """A stream that fails after its first read."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if not data:
            raise OSError("the engine went away")
        return data


def test_a_stream_that_breaks_is_one_line() -> None:
    source = Source(kind="docker", name="docker:x")
    follower = StreamFollower(source, _Cut(log(LINES)), Context(), 60.0)
    with pytest.raises(SourceError, match="docker:x cannot be read: the engine went away"):
        follower.look()
    follower.close()
