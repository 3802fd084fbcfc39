"""A real Podman: by its socket as any engine, and guarded by its own command."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forensics.archive.store import Archive
from forensics.collector import records
from forensics.collector.api import ApiReader
from forensics.collector.clock import nanoseconds
from forensics.collector.engine import Engine
from tests.collector.test_api import text_of
from tests.podmans import Podman, podman_of

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with podman_of() as found:
        yield found


def forensics(podman: Podman, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "forensics", *words],
        env=podman.environment, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


def runs(folder: Path) -> list[dict[str, Any]]:
    archive = Archive.open(folder)
    return [json.loads((archive.path(r) / "run.json").read_bytes()) for r in archive.ids()]


def test_a_log_is_followed_over_breaks(podman: Podman, tmp_path: Path) -> None:
    engine = Engine.connect(podman.host)
    assert engine.kind == "podman"
    assert engine.data_root is None
    script = "i=0; while [ $i -lt 400 ]; do echo same; echo line $i; i=$((i+1)); usleep 5000; done"
    name = podman.run(script)
    inspect = engine.inspect(name)
    assert inspect is not None
    started = nanoseconds(inspect["State"]["StartedAt"])
    assert started is not None
    archive = Archive.open(tmp_path / "a", create=True)
    writer = archive.begin(records.begun(inspect, None, engine.facts, "api", started), "cri")

    def reader() -> ApiReader:
        stop = threading.Event()
        return ApiReader(engine, name, writer, started=started, since=0, tty=False, stop=stop)

    for _ in range(3):
        one = reader()
        timer = threading.Timer(0.6, one.close)
        timer.start()
        one.run()
        timer.cancel()
    end = reader().run()
    assert end is not None
    assert end.completeness == "complete"
    writer.finish(writer.record)
    # Its times are whole seconds: only counting tells what came twice.
    assert text_of(writer.folder) == b"".join(b"same\nline %d\n" % n for n in range(400))
    engine.close()


def test_collect_takes_what_has_ended(podman: Podman, tmp_path: Path) -> None:
    name = podman.run("echo hello; echo err >&2; exit 4", "--name", "ended")
    podman.podman("wait", name)
    done = forensics(podman, "collect", "ended", "--archive", str(tmp_path / "a"))
    assert done.returncode in {0, 1}, done.stderr.decode()
    (found,) = runs(tmp_path / "a")
    assert (found["exit"]["code"], found["engine"]["name"]) == (4, "podman")
    assert found["image"]["reference"] == "localhost/box:1"
    folder = tmp_path / "a" / "runs" / found["id"]
    assert (text_of(folder, "stdout"), text_of(folder, "stderr")) == (b"hello\n", b"err\n")


def test_guard_runs_podman_itself(podman: Podman, tmp_path: Path) -> None:
    # Podman cuts lines where its reads end: only its API tells them whole.
    script = "seq 1 2000; exit 6"
    done = forensics(
        podman, "guard", "--archive", str(tmp_path / "a"), "--", *podman.words, "run", "--rm",
        "--network", "none", "--name", "guarded", "box:1", "sh", "-c", script,
    )  # fmt: skip
    assert done.returncode == 6, done.stderr.decode()
    expected = b"".join(b"%d\n" % n for n in range(1, 2001))
    assert done.stdout == expected
    (found,) = runs(tmp_path / "a")
    assert (found["tier"], found["completeness"]) == ("guard", "complete")
    assert (found["exit"]["code"], found["engine"]["name"]) == (6, "podman")
    assert text_of(tmp_path / "a" / "runs" / found["id"]) == expected
    assert b"guarded" not in podman.podman("ps", "--all")
