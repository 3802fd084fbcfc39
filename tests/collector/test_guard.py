"""`forensics guard` on a real engine: nothing is lost, and the command behaves as if unguarded."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forensics.archive.store import Archive
from tests.collector.test_api import text_of
from tests.engines import Dockerd, engine_of, wait_for

pytestmark = pytest.mark.docker

RUN = ["docker", "run", "--rm", "--network", "none"]
FORENSICS = [sys.executable, "-m", "forensics"]


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    with engine_of() as found:
        yield found


def guard(dockerd: Dockerd, archive: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*FORENSICS, "guard", "--archive", str(archive), "--", *words],
        env=dockerd.environment, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


def runs(archive: Path) -> list[dict[str, Any]]:
    found = Archive.open(archive)
    return [json.loads((found.path(r) / "run.json").read_bytes()) for r in found.ids()]


def containers(dockerd: Dockerd) -> str:
    return dockerd.docker("ps", "-aq").stdout.decode()


def test_a_run_is_kept_diagnosed_and_then_removed(dockerd: Dockerd, tmp_path: Path) -> None:
    script = "echo hello $HF_TOKEN; echo err >&2; exit 3"
    done = guard(
        dockerd, tmp_path / "a", *RUN, "-e", "HF_TOKEN=totallysecret", "box:1", "sh", "-c", script
    )

    assert done.returncode == 3
    assert done.stdout == b"hello totallysecret\n", "what the container prints is the user's"
    assert b"err\n" in done.stderr
    (found,) = runs(tmp_path / "a")
    assert (found["tier"], found["completeness"], found["state"]) == ("guard", "complete", "final")
    assert (found["exit"]["code"], found["log"]["lines"]) == (3, 2)
    assert f"run {found['id']}: 2 lines kept, whole".encode() in done.stderr
    assert containers(dockerd) == ""
    stored = b"".join(p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert b"totallysecret" not in stored
    folder = tmp_path / "a" / "runs" / found["id"]
    assert text_of(folder, "stdout") == b"hello *************\n"
    assert text_of(folder, "stderr") == b"err\n"
    assert [event["action"] for event in found["events"]][-1] in {"die", "destroy"}
    assert {probe["name"] for probe in found["host"]} >= {"memory", "kernel", "gpu", "room"}


@pytest.mark.parametrize("lines", [1, 100_000])
def test_whatever_it_prints_is_kept(dockerd: Dockerd, tmp_path: Path, lines: int) -> None:
    done = guard(dockerd, tmp_path / "a", *RUN, "box:1", "seq", "1", str(lines))
    assert done.returncode == 0
    (found,) = runs(tmp_path / "a")
    assert found["completeness"] == "complete"
    text = text_of(tmp_path / "a" / "runs" / found["id"])
    assert text == b"".join(b"%d\n" % n for n in range(1, lines + 1))


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        (["nosuchcommand"], 127, "executable file not found"),
        (["/bin"], 126, "permission denied"),
    ],
)
def test_what_could_not_start_says_why(
    dockerd: Dockerd, tmp_path: Path, command: list[str], code: int, why: str
) -> None:
    done = guard(dockerd, tmp_path / "a", *RUN, "box:1", *command)
    assert done.returncode == code
    (found,) = runs(tmp_path / "a")
    assert why in found["exit"]["error"]
    assert found["started_at"] is None
    assert containers(dockerd) == ""


def test_nothing_is_kept_of_what_never_was(dockerd: Dockerd, tmp_path: Path) -> None:
    done = guard(dockerd, tmp_path / "a", *RUN, "--nosuchflag", "box:1", "true")
    assert done.returncode == 125
    assert runs(tmp_path / "a") == []
    done = guard(dockerd, tmp_path / "a", "ls")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_without_rm_the_container_stays(dockerd: Dockerd, tmp_path: Path) -> None:
    words = ["docker", "run", "--network", "none", "--name", "stays", "box:1", "echo", "x"]
    assert guard(dockerd, tmp_path / "a", *words).returncode == 0
    assert runs(tmp_path / "a")[0]["container"]["name"] == "stays"
    assert dockerd.docker("rm", "stays").stdout == b"stays\n"


def test_a_detached_container_is_kept_in_the_background(dockerd: Dockerd, tmp_path: Path) -> None:
    words = [*RUN[:2], "-d", *RUN[2:], "box:1", "sh", "-c", "sleep 1; echo late; exit 5"]
    done = guard(dockerd, tmp_path / "a", *words)
    assert done.returncode == 0
    assert len(done.stdout.strip()) == 64
    wait_for(lambda: containers(dockerd) == "")
    (found,) = runs(tmp_path / "a")
    assert (found["state"], found["exit"]["code"]) == ("final", 5)
    assert text_of(tmp_path / "a" / "runs" / found["id"]) == b"late\n"
    wait_for((tmp_path / "a" / "runs" / found["id"] / "diagnosis.json").is_file)


def started(dockerd: Dockerd, archive: Path, *words: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*FORENSICS, "guard", "--archive", str(archive), "--", *words],
        env=dockerd.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


TRAP = "trap 'echo bye; exit 7' TERM INT; echo up; while :; do usleep 100000; done"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_signals_go_through(dockerd: Dockerd, tmp_path: Path, how: signal.Signals) -> None:
    process = started(dockerd, tmp_path / "a", *RUN, "box:1", "sh", "-c", TRAP)
    process.send_signal(how)
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, out) == (7, b"bye\n")
    (found,) = runs(tmp_path / "a")
    assert text_of(tmp_path / "a" / "runs" / found["id"]) == b"up\nbye\n"


def test_a_stop_through_the_engine_is_told_from_a_kill(dockerd: Dockerd, tmp_path: Path) -> None:
    process = started(
        dockerd, tmp_path / "a", *RUN, "--name", "tostop", "box:1", "sh", "-c",
        "trap '' TERM; echo up; while :; do usleep 100000; done",
    )  # fmt: skip
    dockerd.docker("stop", "-t", "1", "tostop")
    process.communicate(timeout=120)
    assert process.returncode == 137
    (found,) = runs(tmp_path / "a")
    assert found["exit"]["signals"] == [15, 9]
    assert "did not end in time" in found["exit"]["reading"]


def test_a_guard_that_is_killed_leaves_everything_for_the_next(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    process = started(
        dockerd, tmp_path / "a", *RUN, "--name", "orphan", "box:1", "sh", "-c",
        "echo up; sleep 2; echo end",
    )  # fmt: skip
    process.kill()
    process.communicate(timeout=120)
    state = ["inspect", "-f", "{{.State.Status}}", "orphan"]
    wait_for(lambda: dockerd.docker(*state).stdout == b"exited\n")
    assert runs(tmp_path / "a") == []

    done = guard(dockerd, tmp_path / "a", *RUN, "box:1", "true")

    assert b"kept what an earlier guard left behind" in done.stderr
    first, _ = runs(tmp_path / "a")
    assert first["container"]["name"] == "orphan"
    assert text_of(tmp_path / "a" / "runs" / first["id"]) == b"up\nend\n"
    assert containers(dockerd) == ""


def test_a_terminal_goes_through(dockerd: Dockerd, tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    script = "test -t 0 && test -t 1 && echo terminal; read line; echo got $line"
    with subprocess.Popen(
        [*FORENSICS, "guard", "--archive", str(tmp_path / "a"), "--",
         "docker", "run", "-it", "--rm", "--network", "none", "box:1", "sh", "-c", script],
        env=dockerd.environment, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(inner)
        said = b""
        while b"terminal" not in said:
            said += os.read(outer, 4096)
        os.write(outer, b"words\n")
        while b"got words" not in said:
            said += os.read(outer, 4096)
        while True:
            try:
                if not os.read(outer, 4096):
                    break
            except OSError:
                break
        assert process.wait(120) == 0
    os.close(outer)
    (found,) = runs(tmp_path / "a")
    assert found["completeness"] == "complete"
    assert b"got words\r\n" in text_of(tmp_path / "a" / "runs" / found["id"])


def test_a_full_archive_leaves_the_container_alone(dockerd: Dockerd, small_disk: Path) -> None:
    archive = small_disk / "a"
    Archive.open(archive, create=True)
    (small_disk / "filler").write_bytes(os.urandom(15 * 1024 * 1024))
    script = "head -c 4000000 /dev/urandom | od -An -tx1"
    words = [*RUN, "--name", "big", "box:1", "sh", "-c", script.replace("od", "busybox od")]

    done = guard(dockerd, archive, *words)

    assert done.returncode == 0
    assert b"the disk is full; container" in done.stderr
    assert b"Traceback" not in done.stderr
    assert dockerd.docker("inspect", "-f", "{{.State.Status}}", "big").stdout == b"exited\n"
    dockerd.docker("rm", "big")


def test_compose_is_kept_service_by_service_and_start_by_start(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("needs docker-compose")
    service = "image: box:1\n    network_mode: none\n    command: sh -c"
    (tmp_path / "compose.yml").write_text(
        f'version: "2.4"\nservices:\n  one:\n    {service} "seq 1 5; exit 2"\n'
        f'  two:\n    {service} "echo two"\n'
    )
    words = ["docker-compose", "--no-ansi", "-f", "compose.yml", "up"]
    for _ in range(2):
        done = subprocess.run(
            [*FORENSICS, "guard", "--archive", str(tmp_path / "a"), "--", *words],
            env=dockerd.environment, capture_output=True, timeout=300, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
    found = runs(tmp_path / "a")
    texts = sorted(text_of(tmp_path / "a" / "runs" / one["id"]) for one in found)
    # The second time the same containers start again: each start has its own lines.
    assert texts == [b"1\n2\n3\n4\n5\n"] * 2 + [b"two\n"] * 2
    assert sorted(one["exit"]["code"] for one in found) == [0, 0, 2, 2]
    ids = containers(dockerd).split()
    assert len(ids) == 2, "compose keeps its containers"
    dockerd.docker("rm", "-f", *ids)
