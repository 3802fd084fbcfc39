"""What `watch` tells when a run has ended: messages, numbers, and nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from forensics.archive.model import ContainerFacts, ExitFacts, RunRecord
from forensics.archive.store import run_id
from forensics.collector.announce import Announcer, line_of
from forensics.errors import UsageError
from tests.collectors import watching
from tests.engines import Dockerd, wait_for

#: Apprise imports what Python 3.13 has no more.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

FAILS = "echo 'RuntimeError: boom'; exit 1"


@contextmanager
def listening() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Give a port, and what is sent to it."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return server.server_port


def numbers_at(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


@pytest.mark.docker
@pytest.mark.slow
def test_failures_are_sent_once_a_loop_and_everything_is_counted(
    engine: Dockerd, tmp_path: Path
) -> None:
    port = free_port()
    with listening() as (other, seen):
        options = ("--notify", f"json://127.0.0.1:{other}", "--metrics", f"127.0.0.1:{port}")
        with watching(engine, tmp_path / "a", *options) as watcher:
            engine.run("seq 1 50")  # a run that did not fail is no news
            loop = engine.run(FAILS, "--restart", "on-failure:2", "--name", "loop")
            engine.run(f"seq 1 10; {FAILS}", "--log-driver", "local", "--name", "other")
            watcher.final(3, loop)
            watcher.final(5)
            wait_for(lambda: len(watcher.told()) == 5)
            found = numbers_at(port)
            watcher.stop()
    titles = sorted(one["title"].partition(":")[0] for one in seen)
    assert titles == ["loop", "other"], "a restart loop is told once"
    assert all("forensics why" in one["message"] for one in seen)
    assert found["forensics_restarts_total"] == 2
    assert found["forensics_engine_up"] == 1
    assert found["forensics_disk_full"] == 0
    assert found['forensics_log_lines_total{tier="file"}'] == 53
    assert found['forensics_log_lines_total{tier="api"}'] == 11
    assert found['forensics_containers{tier="file"}'] == 0
    assert sum(v for k, v in found.items() if k.startswith("forensics_runs_total")) == 5
    assert sum(v for k, v in found.items() if k.startswith("forensics_failures_total")) == 4


@pytest.mark.docker
def test_an_address_that_is_none_is_refused_before_anything_is_done(
    engine: Dockerd, tmp_path: Path
) -> None:
    for option, value, why in (
        ("--metrics", "nowhere", "is no address"),
        ("--metrics", "127.0.0.1:99999", "is no address"),
        ("--notify", "nosuch://x", "is no address that Apprise knows"),
        ("--exec", "'open", "cannot be understood"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "forensics", "watch", option, value, "--archive",
             str(tmp_path / "a")],
            env=engine.environment, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert why.encode() in done.stderr


def record(code: int | None, name: str = "vllm", container: str = "0123456789abcdef") -> RunRecord:
    return RunRecord(
        id=run_id("2026-12-01T00:00:00Z", container),
        tier="file",
        completeness="complete",
        container=ContainerFacts(container, name),
        exit=ExitFacts(code=code, reading="killed from outside\x1b[31m the engine"),
    )


def test_a_line_cannot_drive_a_terminal_or_show_a_secret() -> None:
    line = line_of(record(137, "x\x1b[2J\nhf_" + "a1" * 20), None)
    assert "\x1b" not in line
    assert "\n" not in line
    assert "a1a1" not in line


def test_the_same_failure_is_news_once_until_it_was_good(tmp_path: Path) -> None:
    with listening() as (port, seen):
        told = Announcer([f"json://127.0.0.1:{port}"], None, tmp_path, lambda _: None)
        for code in (1, 1, 1, 0, 1, 2):
            told.tell(record(code), None)
            told.close()
        told.tell(record(1, container="f" * 16), None)
        told.close()
    assert len(seen) == 4


def test_a_service_that_is_away_costs_a_notice(tmp_path: Path) -> None:
    said: list[str] = []
    told = Announcer([f"json://127.0.0.1:{free_port()}"], None, tmp_path, said.append)
    told.tell(record(1), None)
    told.close()
    assert said == ["a notification could not be sent"]


def test_an_empty_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--exec is empty"):
        Announcer([], " ", tmp_path, lambda _: None)
