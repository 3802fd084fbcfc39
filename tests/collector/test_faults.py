"""What happens to engines, containers and collectors in the wild, done to real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.collectors import numbers, watching
from tests.engines import Dockerd, engine_of, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]


def test_fifty_that_remove_themselves_at_once(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        ids = [engine.run("while [ ! -e /go ]; do usleep 20000; done", "--rm") for _ in range(25)]
        # All end in the same moment, half of them killed.
        engine.docker("kill", *ids)
        command = ["docker", "run", "-d", "--rm", "--network", "none", "box:1", "seq", "1", "500"]
        more = [
            subprocess.Popen(command, env=engine.environment, stdout=subprocess.PIPE)
            for _ in range(25)
        ]
        others = [one.communicate(timeout=300)[0].decode().strip() for one in more]
        runs = watcher.final(50)
        assert sorted(run.container.id for run in runs if run.container) == sorted(ids + others)
        for run in runs:
            assert run.completeness == "complete", run.reasons
            assert run.container is not None
            said = numbers(500) if run.container.id in others else b""
            assert watcher.text(run) == said
        watcher.stop()
    # None is stuck on its way out, either.
    assert engine.docker("ps", "-aq").stdout == b""


def test_a_removed_container_of_an_engine_that_died_is_kept(tmp_path: Path) -> None:
    with engine_of("--live-restore") as own, watching(own, tmp_path / "a") as watcher:
        one = own.run("seq 1 200; while true; do usleep 50000; done", "--rm")
        wait_for(lambda: any(watcher.text(run) == numbers(200) for run in watcher.runs(one)))
        own.stop(signal.SIGKILL)
        wait_for(lambda: "does not answer" in watcher.notices())
        subprocess.run(["pkill", "-KILL", "-f", f"containerd-shim.*{own.folder}"], check=False)
        for path in Path("/proc").glob("[0-9]*/cgroup"):
            try:
                inside = one in path.read_text()
            except OSError:
                continue
            if inside:
                os.kill(int(path.parent.name), signal.SIGKILL)
        own.start()
        wait_for(lambda: one not in own.docker("ps", "-aq", "--no-trunc").stdout.decode())
        (run,) = watcher.final(1, one)
        assert watcher.text(run) == numbers(200)
        watcher.stop()


def test_compressed_rotation_is_followed(engine: Dockerd, tmp_path: Path) -> None:
    options = [
        "--log-opt",
        "max-size=200k",
        "--log-opt",
        "max-file=4",
        "--log-opt",
        "compress=true",
    ]
    with watching(engine, tmp_path / "a") as watcher:
        script = (
            "n=1; while [ $n -lt 20000 ]; do seq $n $((n+999)); n=$((n+1000)); usleep 30000; done"
        )
        one = engine.run(script, *options)
        (run,) = watcher.final(1, one)
        if run.completeness == "complete":
            assert watcher.text(run) == numbers(20_000)
        else:
            assert any("rotated" in gap.reason for gap in run.gaps)
        watcher.stop()


def test_what_rotation_has_compressed_before_is_read(engine: Dockerd, tmp_path: Path) -> None:
    options = [
        "--log-opt",
        "max-size=200k",
        "--log-opt",
        "max-file=9",
        "--log-opt",
        "compress=true",
    ]
    one = engine.run("seq 1 10000", *options)
    engine.docker("wait", one)
    folder = engine.data / "containers" / one
    wait_for(lambda: any(folder.glob("*.gz")) and not any(folder.glob("*.tmp")))
    with watching(engine, tmp_path / "a") as watcher:
        (run,) = watcher.final(1, one)
        assert watcher.text(run) == numbers(10_000)
        watcher.stop()


def test_a_broken_line_of_the_engine_is_counted_and_kept(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        one = engine.run("seq 1 100; while [ ! -e /go ]; do usleep 20000; done; seq 101 200")
        path = engine.data / "containers" / one / f"{one}-json.log"
        wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") == 100)
        with path.open("ab") as file:
            file.write(b'{"log":"torn by a crash\n')
        engine.docker("exec", one, "sh", "-c", "echo > /go")
        (run,) = watcher.final(1, one)
        text = watcher.text(run)
        assert text.startswith(numbers(100))
        assert text.endswith(numbers(100, 101))
        assert run.log is not None
        assert run.log.damaged == 1
        watcher.stop()


def _memory_is_limited(engine: Dockerd) -> bool:
    told = engine.docker("info", "--format", "{{.MemoryLimit}}").stdout
    return told.strip() == b"true"


@pytest.mark.parametrize("child", [False, True])
def test_memory_that_ran_out_inside_is_said(
    engine: Dockerd, tmp_path: Path, *, child: bool
) -> None:
    assert _memory_is_limited(engine), "an engine without memory limits cannot show this"
    eats = "head -c 300000000 /dev/zero | tail"
    script = f"echo begin; ({eats}); echo after; exit 0" if child else f"echo begin; exec {EATER}"
    with watching(engine, tmp_path / "a") as watcher:
        one = engine.run(script, "--memory", "32m", "--memory-swap", "32m")
        (run,) = watcher.final(1, one)
        assert run.exit.oom_killed is True
        assert run.exit.code == (0 if child else 137)
        assert run.exit.reading is not None
        assert "memory" in run.exit.reading
        watcher.stop()


#: One process that takes memory until it is stopped.
EATER = "awk 'BEGIN { s = \"x\"; while (1) s = s s }'"


def test_who_killed_it_is_told_from_how(engine: Dockerd, tmp_path: Path) -> None:
    waits = "trap '' TERM; echo ready; while true; do usleep 50000; done"
    with watching(engine, tmp_path / "a") as watcher:
        ids = [engine.run(waits) for _ in range(3)]
        for one in ids:
            wait_for(lambda c=one: any(b"ready" in watcher.text(r) for r in watcher.runs(c)))  # type: ignore[misc]
        outside, killed, stopped = ids
        told = engine.docker("inspect", "-f", "{{.State.Pid}}", outside).stdout
        os.kill(int(told), signal.SIGKILL)
        engine.docker("kill", killed)
        engine.docker("stop", "-t", "1", stopped)
        readings = {}
        for one in ids:
            (run,) = watcher.final(1, one)
            assert run.exit.code == 137
            assert run.exit.oom_killed is False
            readings[one] = (run.exit.signals, run.exit.reading)
        assert [signals for signals, _ in readings.values()] == [[], [9], [15, 9]]
        assert len({reading for _, reading in readings.values()}) == 3
        assert "outside" in (readings[outside][1] or "")
        watcher.stop()


def test_more_happened_than_events_are_kept(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        watcher.stop()
        before = engine.run("seq 1 30")
        busy = engine.run("while true; do usleep 50000; done")
        # An engine remembers 256 events: these push out all that happened before.
        for _ in range(140):
            engine.docker("pause", busy)
            engine.docker("unpause", busy)
        watcher.start()
        (run,) = watcher.final(1, before)
        assert (run.completeness, watcher.text(run)) == ("complete", numbers(30))
        wait_for(lambda: watcher.runs(busy))
        watcher.stop()


@pytest.mark.parametrize("driver", ["json-file", "local"])
def test_a_collector_that_stands_still_slows_nothing(
    engine: Dockerd, tmp_path: Path, driver: str
) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        assert watcher.process is not None
        one = engine.run(
            "seq 1 10; while [ ! -e /go ]; do usleep 20000; done; seq 11 200000; echo > /done;"
            " while [ ! -e /end ]; do usleep 20000; done",
            "--log-driver", driver, "--log-opt", "max-size=100m",
        )  # fmt: skip
        wait_for(lambda: any(watcher.text(run) for run in watcher.runs(one)))
        watcher.process.send_signal(signal.SIGSTOP)
        engine.docker("exec", one, "sh", "-c", "echo > /go")
        # It writes to its end while nobody reads.
        wait_for(
            lambda: engine.docker("exec", one, "test", "-e", "/done", check=False).returncode == 0
        )
        time.sleep(1)
        watcher.process.send_signal(signal.SIGCONT)
        engine.docker("exec", one, "sh", "-c", "echo > /end")
        (run,) = watcher.final(1, one)
        assert watcher.text(run) == numbers(200_000)
        assert run.completeness == "complete", run.reasons
        watcher.stop()


def test_names_and_digests_are_those_of_the_start(engine: Dockerd, tmp_path: Path) -> None:
    engine.docker("tag", "box:1", "server:latest")
    image = engine.docker("inspect", "-f", "{{.Id}}", "server:latest").stdout.decode().strip()
    with watching(engine, tmp_path / "a") as watcher:
        told = engine.docker(
            "run", "-d", "--network", "none", "--name", "before", "server:latest", "sh", "-c",
            "seq 1 20; while [ ! -e /go ]; do usleep 20000; done",
        ).stdout.decode().strip()  # fmt: skip
        wait_for(lambda: any(watcher.text(run) for run in watcher.runs(told)))
        engine.docker("rename", "before", "after")
        engine.docker("rmi", "server:latest")
        engine.docker("exec", told, "sh", "-c", "echo > /go")
        (run,) = watcher.final(1, told)
        assert run.container is not None
        assert run.container.id == told
        assert run.container.name in {"before", "after"}
        names = json.dumps(run.events) + json.dumps(run.inspect)
        assert "before" in names
        assert "after" in names
        assert run.image is not None
        assert run.image.id == image
        assert run.image.reference == "server:latest"
        assert "server:latest" in run.image.repo_tags
        watcher.stop()


def test_none_is_stuck_on_its_way_out_by_the_api(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        command = ["docker", "run", "-d", "--rm", "--network", "none", "--log-driver", "local"]
        for _ in range(5):
            some = [
                subprocess.Popen(
                    [*command, "box:1", "seq", "1", "300"], env=engine.environment,
                    stdout=subprocess.DEVNULL,
                )
                for _ in range(8)
            ]  # fmt: skip
            assert [one.wait(120) for one in some] == [0] * 8
        wait_for(lambda: engine.docker("ps", "-aq").stdout == b"")
        runs = watcher.final(40)
        for run in runs:
            text = watcher.text(run)
            assert run.tier == "api"
            assert text == numbers(300) or run.completeness != "complete"
        assert watcher.notices().count("has --rm and the log driver local") == 1
        watcher.stop()
