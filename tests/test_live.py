"""Logs read from a real engine, and from what journalctl prints."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.analysis import examine, examine_all
from forensics.errors import SourceError
from forensics.live import follow_live, open_live
from tests import wraps
from tests.engines import engine_of
from tests.podmans import podman_of
from tests.support import engine, failed_start, shipped, text

LOG = text(failed_start())


@pytest.fixture(scope="module")
def docker_host() -> Iterator[str]:
    """A container engine of our own, with an image made from a static busybox."""
    busybox = shutil.which("busybox")
    if shutil.which("dockerd") is None or busybox is None or os.geteuid() != 0:
        assert not os.environ.get("CI"), "CI has dockerd and busybox, and runs as root"
        pytest.skip("needs root, dockerd and busybox-static")
    # The path of a socket may have at most 107 characters.
    folder = Path(f"/tmp/forensics-docker-{os.getpid()}")  # noqa: S108
    folder.mkdir()
    host = f"unix://{folder}/docker.sock"
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec",
             "-H", host, "--pidfile", f"{folder}/pid", "--bridge", "none", "--iptables=false"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        for _ in range(120):
            if subprocess.run(
                ["docker", "-H", host, "version"], capture_output=True, check=False
            ).returncode == 0:  # fmt: skip
                break
            assert daemon.poll() is None, (folder / "log").read_text()
            time.sleep(0.5)
        image = io.BytesIO()
        with tarfile.open(fileobj=image, mode="w") as archive:
            archive.add(busybox, "bin/busybox")
            archive.add(busybox, "bin/sh")
            info = tarfile.TarInfo("server.log")
            info.size = len(LOG)
            archive.addfile(info, io.BytesIO(LOG.encode()))
        _docker(host, "import", "-", "server:test", data=image.getvalue())
        yield host
    finally:
        daemon.terminate()
        daemon.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _docker(host: str, *words: str, data: bytes | None = None, code: int = 0) -> bytes:
    done = subprocess.run(
        ["docker", "-H", host, *words], input=data, capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.docker
def test_stopped_container_is_read_with_its_state(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    script = "busybox cat /server.log >&2; exit 3"
    run = ["run", "--name", "broken", "--network", "none", "server:test", "/bin/sh", "-c", script]
    _docker(docker_host, *run, code=3)

    found = examine("docker:broken", shipped())[0]

    assert found.source.kind == "docker"
    assert found.source.name == "docker:broken"
    assert found.source.envelope == "cri"
    assert found.run.container == "broken"
    assert found.run.exit_code == 3
    assert found.root_cause is not None
    assert found.root_cause.exception is not None
    assert found.root_cause.exception.type == "ValueError"
    assert found.timeline[0].at is not None


@pytest.mark.docker
@pytest.mark.parametrize("driver", ["json-file", "local"])
def test_files_of_the_engines_drivers_are_read(driver: str, docker_host: str) -> None:
    """What dockerd itself writes, lines of over 16 KiB included."""
    name = f"files-{driver}"
    script = "busybox cat /server.log >&2; busybox head -c 40000 /dev/zero | busybox tr '\\0' x"
    _docker(
        docker_host, "run", "--name", name, "--network", "none", "--log-driver", driver,
        "server:test", "/bin/sh", "-c", script,
    )  # fmt: skip
    state = json.loads(_docker(docker_host, "inspect", name))[0]
    data = Path(docker_host.removeprefix("unix://")).parent / "data" / "containers" / state["Id"]
    path = next(data.glob("*-json.log" if driver == "json-file" else "local-logs/container.log"))

    found = examine(str(path), engine())[0]

    assert found.source.envelope == {"json-file": "docker-json", "local": "docker-local"}[driver]
    assert found.root_cause is not None
    assert found.root_cause.exception is not None
    assert found.root_cause.exception.message == "head size 42 is not supported"
    # The engine copies both streams at once: lines of the other one may stand in between.
    assert found.root_cause.line >= failed_start().index("Process EngineCore:")
    if driver == "json-file":
        lines = path.read_bytes().split(b"\n")
        assert b"head size 42 is not supported" in lines[found.root_cause.line - 1]


@pytest.mark.docker
def test_container_that_does_not_exist_is_one_line(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)

    with pytest.raises(SourceError, match="there is no container nobody: `docker ps --all`"):
        open_live("docker:nobody")


def told(name: str) -> bytes:
    """Return the text of a source that is open_live's."""
    opened, _ = open_live(name)
    try:
        return b"".join(opened.runs())
    finally:
        opened.file.close()


@pytest.mark.docker
def test_long_lines_of_both_streams_stay_apart(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine cuts at 16 KiB: in the middle of one stream's line stands the other's."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    script = (
        "busybox head -c 40000 /dev/zero | busybox tr '\\0' x; busybox sleep 1; "
        "echo between >&2; busybox sleep 1; echo; echo last"
    )
    run = ["run", "--name", "mixed", "--network", "none", "server:test", "/bin/sh", "-c", script]
    _docker(docker_host, *run)

    pieces = [line.split(b" ", 3) for line in told("docker:mixed").splitlines()]

    for stream, said in ((b"stdout", b"x" * 40_000 + b"last"), (b"stderr", b"between")):
        assert b"".join(piece[3] for piece in pieces if piece[1] == stream) == said
    ends = [piece[2] for piece in pieces if piece[1] == b"stdout"]
    assert ends == [b"P", b"P", b"F", b"F"]


@pytest.mark.docker
def test_a_long_line_of_a_terminal_is_one(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    script = "busybox head -c 40000 /dev/zero | busybox tr '\\0' x; echo; printf end"
    run = ["run", "-t", "--name", "term", "--network", "none", "server:test", "/bin/sh", "-c"]
    _docker(docker_host, *run, script)

    lines = told("docker:term").splitlines()

    assert [line.split(b" ", 3)[3] for line in lines] == [b"x" * 40_000, b"end"]


@pytest.mark.docker
def test_a_driver_that_keeps_nothing_is_one_line(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    run = ["run", "--name", "unkept", "--log-driver", "none", "--network", "none", "server:test"]
    _docker(docker_host, *run, "/bin/sh", "-c", "echo lost")

    with pytest.raises(SourceError, match=r"docker:unkept cannot be read: .*not support reading"):
        open_live("docker:unkept")


@pytest.mark.docker
def test_podmans_log_is_known_by_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine's API tells whole seconds, which `docker logs -t` never does."""
    with podman_of() as podman:
        monkeypatch.setenv("DOCKER_HOST", podman.host)
        podman.run("i=0; while [ $i -lt 9 ]; do echo line $i; i=$((i+1)); done", "--name", "nine")
        podman.podman("wait", "nine")

        found = examine("docker:nine", engine())[0]
        lines = told("docker:nine").splitlines()

    assert found.source.envelope == "cri"
    said = b"".join(line.split(b" ", 3)[3] + b"\n" * (b" F " in line) for line in lines)
    assert said == b"".join(b"line %d\n" % n for n in range(9))


@pytest.mark.docker
def test_an_engine_that_dies_is_not_the_end_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_of() as dockerd:
        monkeypatch.setenv("DOCKER_HOST", dockerd.host)
        name = dockerd.run("echo begun; sleep 600")
        stream, context = follow_live(f"docker:{name}")
        try:
            assert context.running
            assert stream.read(4096).endswith(b" stdout F begun\n")
            dockerd.stop(signal.SIGKILL)
            with pytest.raises(OSError, match="the container engine went away"):
                stream.read(4096)
        finally:
            stream.close()


@pytest.mark.docker
def test_following_ends_without_error_where_it_is_closed(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    run = ["run", "-d", "--name", "closed", "--network", "none", "server:test", "/bin/sh", "-c"]
    _docker(docker_host, *run, "echo begun; busybox sleep 600")
    stream, _ = follow_live("docker:closed")
    assert stream.read(4096).endswith(b" begun\n")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(stream.read(4096)))
    reader.start()

    stream.close()

    reader.join(60)
    assert not reader.is_alive()
    assert found == [b""]
    _docker(docker_host, "rm", "-f", "closed")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("unix://{}/none", r"there is no container engine at .*/none: is it installed and running"),
        ("tcp://127.0.0.1:1", "does not answer: it has crashed, or is not running"),
        ("foo://x", "Invalid bind address protocol: foo://x"),
        ("ssh://nobody@127.0.0.1", "needs an ssh client: pip install"),
    ],
)
def test_engine_out_of_reach_is_one_line(
    host: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", host.format(tmp_path))

    with pytest.raises(SourceError, match=why) as found:
        open_live("docker:any")

    assert "\n" not in str(found.value)


def journalctl(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of that name first on the path: a journal needs a machine of its own."""
    program = folder / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_unit_is_read_from_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "entries").write_bytes(wraps.journal_json(LOG.encode())[0])
    journalctl(tmp_path, f'echo "$@" > {tmp_path}/words; cat {tmp_path}/entries', monkeypatch)

    found = examine_all("journal:vllm.service", engine())

    assert [one[0].source.envelope for one in found] == ["journal-json"]
    assert found[0][0].root_cause is not None
    assert "--unit=vllm.service --output=json --all" in (tmp_path / "words").read_text()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'No journal files were opened.' >&2; exit 1", "No journal files were opened"),
        ("exit 0", "journal:x is empty"),
    ],
)
def test_unit_without_a_journal_is_one_line(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journalctl(tmp_path, script, monkeypatch)

    with pytest.raises(SourceError, match=why):
        open_live("journal:x")
