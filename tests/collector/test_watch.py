"""`forensics watch` on a real engine, files read from its disk: nothing is lost, nothing is doubled.

What a container wrote is known (numbers, by `seq`); what the archive has is compared with it whole.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forensics.collector.hold import name_of
from tests.collectors import Watcher, numbers, watching
from tests.engines import Dockerd, engine_of, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("nothing_left")]
FULL = (pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(3600))


def rm_containers(engine: Dockerd, count: int, lines: int, *, at_once: int = 8) -> list[str]:
    """Run containers that are gone as soon as they have printed their lines; return their ids."""
    script = f"seq 1 {lines}"
    waiting: list[subprocess.Popen[bytes]] = []
    ids = []
    for _ in range(count):
        if len(waiting) >= at_once:
            ids.append(finished(waiting.pop(0)))
        waiting.append(
            subprocess.Popen(
                ["docker", "run", "-d", "--rm", "--network", "none", "box:1", "sh", "-c", script],
                env=engine.environment, stdout=subprocess.PIPE,
            )
        )  # fmt: skip
    return ids + [finished(one) for one in waiting]


def finished(process: subprocess.Popen[bytes]) -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return out.decode().strip()


@pytest.mark.parametrize(
    ("count", "lines"),
    [
        (12, 1),
        (8, 1000),
        pytest.param(3, 100_000, marks=pytest.mark.slow),
        pytest.param(200, 1, marks=FULL),
        pytest.param(200, 1000, marks=FULL),
        pytest.param(200, 100_000, marks=FULL),
    ],
)
def test_containers_that_remove_themselves_at_once_are_whole(
    engine: Dockerd, tmp_path: Path, count: int, lines: int
) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        ids = rm_containers(engine, count, lines)
        runs = watcher.final(count)
        assert sorted(run.container.id for run in runs if run.container) == sorted(ids)
        for run in runs:
            assert run.completeness == "complete", run.reasons
            assert run.tier == "file"
            assert run.exit.code == 0
            assert watcher.text(run) == numbers(lines)
        wait_for(lambda: not held(engine, tmp_path / "a"), every=0.2)
        watcher.stop()


def held(engine: Dockerd, archive: Path | None = None) -> list[Path]:
    """What the watcher of an archive (or any `collect`) holds: each has a folder of its own."""
    name = name_of(archive) if archive is not None else "collect-*"
    return list((engine.data / "forensics-hold").glob(f"{name}/*/0*"))


@pytest.mark.slow
def test_each_start_of_a_container_is_a_run_of_its_own(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        # What it prints tells which start it was: a file that lives as long as the container.
        script = "echo x >> /starts; n=$(cat /starts | seq 1 9 | head -n $(awk 'END{print NR}' /starts) | tail -n 1); echo start $n; exit $n"
        one = engine.run(script, "--restart", "on-failure:2")
        watcher.final(3, one)
        engine.docker("start", one)
        runs = watcher.final(6, one)
        assert [watcher.text(run) for run in runs] == [b"start %d\n" % n for n in range(1, 7)]
        assert [run.exit.code for run in runs] == [1, 2, 3, 4, 5, 6]
        assert all(run.completeness == "complete" for run in runs), [run.reasons for run in runs]
        wait_for(lambda: len(watcher.told()) >= 6)  # diagnosed behind the collecting
        assert len(watcher.told()) == 6
        watcher.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "kills"),
    [
        ("json-file", 5),
        ("local", 5),
        pytest.param("json-file", 20, marks=FULL),
        pytest.param("local", 20, marks=FULL),
    ],
)
def test_a_watcher_that_is_killed_goes_on_without_a_gap_or_a_double(
    engine: Dockerd, tmp_path: Path, driver: str, kills: int
) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        script = "n=0; while [ ! -e /end ]; do seq $n $((n+499)); n=$((n+500)); usleep 20000; done; echo end $n"
        one = engine.run(script, "--log-driver", driver)
        for number in range(kills):
            size = sum(run.stat().st_size for run in tmp_path.glob("a/runs/*/log.zst"))
            wait_for(
                lambda s=size: sum(p.stat().st_size for p in tmp_path.glob("a/runs/*/log.zst")) > s,  # type: ignore[misc]
                every=0.01,
            )
            watcher.kill()
            if number % 2:
                engine.docker("exec", one, "sleep", "0.3")
            watcher.start()
        engine.docker("exec", one, "sh", "-c", "echo > /end")
        (run,) = watcher.final(1, one)
        *lines, last = watcher.text(run).split(b"\n")[:-1]
        assert [int(n) for n in lines] == list(range(len(lines)))
        assert last == b"end %d" % len(lines)
        assert run.completeness == "complete", run.reasons
        assert run.tier == ("file" if driver == "json-file" else "api")
        watcher.stop()


@pytest.mark.slow
def test_what_ends_while_nobody_watches_is_found_in_the_hold_folder(
    engine: Dockerd, tmp_path: Path
) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        one = engine.run(
            "seq 1 500; while [ ! -e /end ]; do usleep 50000; done; seq 501 1000; exit 7", "--rm"
        )
        wait_for(lambda: watcher.runs(one))
        watcher.kill()
        engine.docker("exec", one, "sh", "-c", "echo > /end")
        wait_for(lambda: one not in engine.docker("ps", "-aq", "--no-trunc").stdout.decode())
        watcher.start()
        (run,) = watcher.final(1, one)
        assert watcher.text(run) == numbers(1000)
        assert run.completeness == "complete", run.reasons
        assert run.container is not None
        assert run.container.auto_remove
        wait_for(lambda: not held(engine, tmp_path / "a"), every=0.2)
        watcher.stop()


@pytest.mark.slow
def test_what_was_there_before_is_caught_up_with_once(engine: Dockerd, tmp_path: Path) -> None:
    ended = engine.run("seq 1 300; exit 3")
    runs = engine.run("seq 1 400; while [ ! -e /end ]; do usleep 50000; done; seq 401 500")
    wait_for(lambda: b"false" in engine.docker("inspect", "-f", "{{.State.Running}}", ended).stdout)
    with watching(engine, tmp_path / "a") as watcher:
        (first,) = watcher.final(1, ended)
        assert (watcher.text(first), first.exit.code) == (numbers(300), 3)
        wait_for(lambda: watcher.runs(runs))
        watcher.stop()
        between = engine.run("seq 1 50")
        engine.docker("exec", runs, "sh", "-c", "echo > /end")
        engine.docker("start", ended)
        wait_for(
            lambda: (
                b"true"
                not in engine.docker(
                    "inspect", "-f", "{{.State.Running}}", runs, ended, between
                ).stdout
            )
        )
        watcher.start()
        (second,) = watcher.final(1, runs)
        assert watcher.text(second) == numbers(500)
        (third,) = watcher.final(1, between)
        assert watcher.text(third) == numbers(50)
        again = watcher.final(2, ended)
        assert [watcher.text(run) for run in again] == [numbers(300)] * 2
        for run in (second, third, *again):
            assert run.completeness == "complete", run.reasons
        watcher.stop()
        watcher.start()
        watcher.stop()
        assert len(watcher.runs()) == 4
    engine.docker("rm", ended, runs, between)


def test_a_second_watcher_of_one_archive_is_refused(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        words = [sys.executable, "-m", "forensics", "watch", "--archive", str(tmp_path / "a")]
        done = subprocess.run(words, env=engine.environment, capture_output=True, check=False)
        assert done.returncode == 2
        assert b"another `forensics watch` (pid " in done.stderr
        assert done.stderr.count(b"\n") == 1
        watcher.stop()


def test_what_could_not_start_says_why(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        engine.docker("run", "--network", "none", "box:1", "/nothing", check=False)
        engine.docker("run", "--rm", "--network", "none", "box:1", "/nothing", check=False)
        runs = watcher.final(2)
        for run in runs:
            assert run.exit.code == 127
            assert run.exit.error
            assert "/nothing" in run.exit.error
            assert run.started_at is None
        watcher.stop()


def test_bytes_of_every_kind_are_kept_as_the_engine_wrote_them(
    engine: Dockerd, tmp_path: Path
) -> None:
    script = (
        "head -c 1000000 /dev/zero | sed s/./x/g; echo; head -c 16384 /dev/zero; echo;"
        "printf 'a\\0b\\377\\302\\n'; printf '\\303\\244\\r50%%\\r100%%\\n\\n'; printf 'no end'"
    )
    with watching(engine, tmp_path / "a") as watcher:
        for options in ([], ["-t"]):
            one = engine.run(script, *options)
            (run,) = watcher.final(1, one)
            said = engine.docker("logs", one).stdout
            assert watcher.text(run) == said
            assert len(said) > 1_000_000 or "-t" in options
            path = engine.data / "containers" / one / f"{one}-json.log"
            raw = subprocess.run(
                [sys.executable, "-m", "forensics", "runs", "logs", "--raw", run.id, "--archive", str(tmp_path / "a")],
                capture_output=True, check=True,
            ).stdout  # fmt: skip
            assert raw == path.read_bytes()
            engine.docker("rm", one)
        watcher.stop()


def test_no_secret_is_stored(engine: Dockerd, tmp_path: Path) -> None:
    secret = "hf_" + "Abcdefghij" * 4
    with watching(engine, tmp_path / "a") as watcher:
        one = engine.run(
            f"echo token {secret}; echo $PASSWORD", "-e", f"HF_TOKEN={secret}",
            "-e", "PASSWORD=correct-horse-battery", "-l", f"api_key={secret}",
        )  # fmt: skip
        (run,) = watcher.final(1, one)
        assert b"token ***" in watcher.text(run)
        watcher.stop()
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
            assert b"correct-horse" not in path.read_bytes(), path
    assert secret.encode() not in watcher.text(run)
    assert b"correct-horse" not in watcher.text(run)


@pytest.mark.slow
def test_rotation_at_full_speed_is_followed(engine: Dockerd, tmp_path: Path) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        one = engine.run(
            "seq 1 150000", "--log-opt", "max-size=1m", "--log-opt", "max-file=3", "--rm"
        )
        (run,) = watcher.final(1, one)
        text = watcher.text(run)
        if run.completeness == "complete":
            assert text == numbers(150_000)
        else:
            # A machine so slow that files were gone before they were seen: it must be said.
            assert any("rotated" in gap.reason for gap in run.gaps)
        watcher.stop()


@pytest.mark.slow
def test_a_full_disk_stops_nothing_for_good(engine: Dockerd, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        ballast = disk / "ballast"
        with watching(engine, disk / "a") as watcher:
            with ballast.open("wb") as file:
                file.write(b"x" * (2 << 20))
            script = "n=0; while [ $n -lt 60 ]; do head -c 50000 /dev/urandom | od; n=$((n+1)); done; echo end"
            one = engine.run(script, "--rm")
            wait_for(lambda: "is full" in watcher.notices())
            wait_for(lambda: one not in engine.docker("ps", "-aq", "--no-trunc").stdout.decode())
            assert held(engine, disk / "a")
            ballast.unlink()
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            (run,) = watcher.final(1, one)
            assert run.completeness == "complete", run.reasons
            assert watcher.text(run).endswith(b"end\n")
            assert run.log is not None
            assert run.log.damaged == 0
            assert "has room again" in watcher.notices()
            watcher.stop()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.slow
def test_an_engine_that_stops_or_is_killed_costs_no_line(tmp_path: Path) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with engine_of() as own, watching(own, tmp_path / how.name) as watcher:
            script = "n=0; while true; do n=$((n+1)); echo $n; usleep 20000; done"
            one = own.run(script, "--restart", "always")
            wait_for(lambda w=watcher, c=one: any(w.text(r).count(b"\n") > 10 for r in w.runs(c)))  # type: ignore[misc]
            own.stop(how)
            wait_for(lambda w=watcher: "does not answer" in w.notices())  # type: ignore[misc]
            own.start()
            wait_for(lambda w=watcher, c=one: len(w.runs(c)) >= 2)  # type: ignore[misc]
            own.docker("stop", "-t", "1", one)
            runs = watcher.final(2, one)
            for run in runs:
                lines = watcher.text(run).split()
                assert [int(n) for n in lines] == list(range(1, len(lines) + 1))
            whole = own.docker("logs", one).stdout
            assert b"".join(watcher.text(run) for run in runs) == whole
            watcher.stop()


@pytest.mark.slow
def test_an_engine_that_is_replaced_under_a_running_container_ends_no_run(tmp_path: Path) -> None:
    with engine_of("--live-restore") as own, watching(own, tmp_path / "a") as watcher:
        one = own.run("n=0; while [ ! -e /end ]; do n=$((n+1)); echo $n; usleep 20000; done")
        wait_for(lambda: any(watcher.text(r) for r in watcher.runs(one)))
        own.stop(signal.SIGKILL)
        wait_for(lambda: "does not answer" in watcher.notices())
        own.start()
        wait_for(lambda: "answers again" in watcher.notices())
        own.docker("exec", one, "sh", "-c", "echo > /end")
        (run,) = watcher.final(1, one)
        lines = watcher.text(run).split()
        assert [int(n) for n in lines] == list(range(1, len(lines) + 1))
        assert watcher.text(run) == own.docker("logs", one).stdout
        assert run.exit.code == 0
        watcher.stop()


def collect(engine: Dockerd, archive: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "forensics", *words, "--archive", str(archive)]
    return subprocess.run(command, env=engine.environment, capture_output=True, check=False)


def test_collect_keeps_what_is_there_and_goes_on_later(engine: Dockerd, tmp_path: Path) -> None:
    one = engine.run(
        "seq 1 100; while [ ! -e /end ]; do usleep 50000; done; seq 101 200; exit 5",
        "--name",
        "one",
    )
    wait_for(lambda: engine.docker("logs", one).stdout.count(b"\n") == 100)
    done = collect(engine, tmp_path / "a", "collect", "one")
    assert done.returncode in {0, 1}, done.stderr
    watcher = Watcher(engine, tmp_path / "a")
    assert [(run.state, watcher.text(run)) for run in watcher.runs()] == [("partial", numbers(100))]
    engine.docker("exec", one, "sh", "-c", "echo > /end")
    engine.docker("wait", one)
    done = collect(engine, tmp_path / "a", "collect", one[:12])
    (run,) = watcher.runs()
    assert (run.state, run.completeness, watcher.text(run)) == ("final", "complete", numbers(200))
    assert run.exit.code == 5
    assert done.returncode == 1
    assert not held(engine)
    done = collect(engine, tmp_path / "a", "collect", "nobody")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    engine.docker("rm", one)


def test_a_command_is_run_for_each_run_that_ended(engine: Dockerd, tmp_path: Path) -> None:
    script = tmp_path / "told.sh"
    script.write_text(f"#!/bin/sh\nenv | grep ^FORENSICS_ | sort > {tmp_path}/told\n")
    script.chmod(0o755)
    with watching(engine, tmp_path / "a", "--exec", f"{script} $HOME") as watcher:
        one = engine.run("echo hello; exit 2")
        (run,) = watcher.final(1, one)
        wait_for(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text())
        told = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines())
        assert told["FORENSICS_RUN"] == run.id
        assert Path(told["FORENSICS_RUN_PATH"], "run.json").exists()
        assert (
            json.loads(Path(told["FORENSICS_RUN_PATH"], "diagnosis.json").read_text())["run"][
                "exit_code"
            ]
            == 2
        )
        assert told["FORENSICS_EXIT_CODE"] == "2"
        watcher.stop()
    engine.docker("rm", one)
