"""Runs come in from elsewhere, are found by what they are, verified, and go."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.archive import keeping, listing
from forensics.archive.listing import Filter, log_lines, matching
from forensics.archive.reading import open_run
from forensics.archive.store import Archive
from forensics.collector.importing import import_logs, logs_in
from forensics.errors import ForensicsError, UsageError
from tests.support import ROOT

FAILED = ROOT / "samples/vllm/v032-spec-mtp-nemotron-h/log.txt"
GOOD = ROOT / "samples/vllm/v032-happy-spec-long/log.txt"
ID = "ab" * 32


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "archive", create=True)


def imported(archive: Archive, *paths: Path, diagnose: bool = False) -> list[Any]:
    how = None if diagnose else (lambda _a, _r: None)
    return list(import_logs(archive, list(logs_in([str(p) for p in paths])), diagnose=how))


def text_of(archive: Archive, run: str) -> bytes:
    opened, _ = open_run(archive, run)
    log = archive.record(run).log
    try:
        return b"".join(log_lines(opened, log.envelope if log else "raw"))
    finally:
        opened.file.close()


def json_file(lines: list[bytes], second: int = 0) -> bytes:
    return b"".join(
        json.dumps(
            {
                "log": line.decode() + "\n",
                "stream": "stdout",
                "time": f"2026-03-04T05:06:{second + i % 50:02}.{i:09}Z",
            },
            separators=(",", ":"),  # as the engine writes it
        ).encode()
        + b"\n"
        for i, line in enumerate(lines)
    )


def test_a_log_is_a_run_however_often_it_is_imported(archive: Archive) -> None:
    (one,) = imported(archive, FAILED, diagnose=True)
    assert (one.new, one.verdict, one.problem) == (True, "diagnosed", None)
    (again,) = imported(archive, FAILED)
    assert (again.run, again.new) == (one.run, False)
    record = archive.record(one.run)
    assert record.tier == "import"
    assert record.completeness == "possibly_truncated"
    assert set(record.guessed) == {"started_at", "container.id", "container.name"}
    assert record.container is not None
    assert record.container.name == "v032-spec-mtp-nemotron-h"
    assert text_of(archive, one.run) == FAILED.read_bytes()
    assert len(archive.ids()) == 1


def test_an_engine_folder_tells_what_its_containers_were(tmp_path: Path, archive: Archive) -> None:
    folder = tmp_path / "docker/containers" / ID
    folder.mkdir(parents=True)
    state = {
        "StartedAt": "2026-03-04T05:06:00.5Z",
        "FinishedAt": "2026-03-04T05:07:00Z",
        "ExitCode": 3,
    }
    config = {
        "ID": ID, "Name": "/server", "Image": "sha256:" + "cd" * 32, "State": state,
        "Config": {"Image": "vllm/vllm-openai:v0.20.0", "Env": ["API_KEY=correct-horse-battery"]},
    }  # fmt: skip
    (folder / "config.v2.json").write_text(json.dumps(config))
    (folder / "hostconfig.json").write_text("{}")
    lines = [b"line %d correct-horse-battery" % n for n in range(30)]
    (folder / f"{ID}-json.log").write_bytes(json_file(lines[20:]))
    (folder / f"{ID}-json.log.1").write_bytes(json_file(lines[10:20]))
    (folder / f"{ID}-json.log.2.gz").write_bytes(gzip.compress(json_file(lines[:10])))

    (one,) = imported(archive, tmp_path / "docker")

    record = archive.record(one.run)
    assert record.container is not None
    assert record.container.name == "server"
    assert record.image is not None
    assert record.image.reference == "vllm/vllm-openai:v0.20.0"
    assert (record.exit.code, record.started_at) == (3, state["StartedAt"])
    assert record.log is not None
    assert record.log.envelope == "docker-json"
    assert text_of(archive, one.run) == b"".join(
        b"line %d *********************\n" % n for n in range(30)
    )
    for path in archive.path(one.run).iterdir():
        assert b"correct-horse" not in path.read_bytes()


def test_the_logs_of_a_node_are_named_by_their_pods(tmp_path: Path, archive: Archive) -> None:
    folder = tmp_path / "pods/ml_vllm-0_0a1b2c3d-1111-2222-3333-444455556666/server"
    folder.mkdir(parents=True)
    for count in range(2):
        line = b"2026-03-04T05:06:0%d.000000001Z stdout F start %d\n" % (count, count)
        (folder / f"{count}.log").write_bytes(line)
    runs = imported(archive, tmp_path / "pods")
    assert [text_of(archive, run.run) for run in runs] == [b"start 0\n", b"start 1\n"]
    for run in runs:
        record = archive.record(run.run)
        assert record.container is not None
        assert record.container.name == "ml/vllm-0/server"


@pytest.mark.parametrize(
    ("line", "written", "began"),
    [
        (b"INFO 12-31 23:59:58 [a.py:1] x", "2026-01-01", "20251231T235958"),
        (b"INFO 02-03 04:05:06 [a.py:1] x", "2026-03-01", "20260203T040506"),
        (b"2026-02-03T04:05:06.5+02:00 hello", "2026-03-01", "20260203T020506"),
        (b"nothing", "2026-03-01", "20260301T000000"),
        (b"INFO 02-30 04:05:06 [a.py:1] x", "2026-03-01", "20260301T000000"),
    ],
)
def test_when_a_log_began_is_guessed(
    tmp_path: Path, archive: Archive, line: bytes, written: str, began: str
) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(line + b"\n")
    stamp = datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()
    os.utime(log, (stamp, stamp))
    (one,) = imported(archive, log)
    assert one.run.startswith(began)
    assert "started_at" in archive.record(one.run).guessed


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_kept_or_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    archive = Archive.open(tmp_path / "any", create=True)
    log = tmp_path / "any.log"
    log.write_bytes(data)
    (one,) = imported(archive, log)
    if one.problem is not None:
        assert "\n" not in one.problem
        assert not [p for p in archive.runs.iterdir() if p.name.startswith(".new")]
    else:
        found, _ = open_run(archive, one.run)
        assert b"".join(found.runs()) != b""
        found.file.close()
    shutil.rmtree(archive.folder)


def test_what_cannot_be_read_does_not_stop_the_others(tmp_path: Path, archive: Archive) -> None:
    (tmp_path / "empty.log").touch()
    found = imported(archive, tmp_path / "empty.log", FAILED)
    assert [one.problem is None for one in found] == [False, True]
    with pytest.raises(ForensicsError):
        imported(archive, tmp_path / "nothing")


def test_runs_are_found_by_what_they_are(archive: Archive) -> None:
    imported(archive, FAILED, GOOD, diagnose=True)
    rows = listing.rows(archive)
    assert len(matching(rows, Filter())) == 2

    def names(**wanted: Any) -> list[str | None]:  # noqa: ANN401 - the fields of a filter
        return [row.container for row in matching(rows, Filter(**wanted))]

    assert names(failed=True) == ["v032-spec-mtp-nemotron-h"]
    assert names(engine="VLLM", model="nemotron") == ["v032-spec-mtp-nemotron-h"]
    assert names(text="happy-spec") == ["v032-happy-spec-long"]
    assert names(rule=rows[0].rule or rows[1].rule) == ["v032-spec-mtp-nemotron-h"]
    assert names(outcome="never") == []
    assert names(digest="sha256:00") == []
    assert len(names(since="2020-01-01")) == 2
    assert names(until="2020-01-01T00:00:00Z") == []
    with pytest.raises(UsageError, match="no time"):
        matching(rows, Filter(since="yesterday"))


def test_lines_from_a_time_on(tmp_path: Path, archive: Archive) -> None:
    log = tmp_path / "x-json.log"
    log.write_bytes(json_file([b"a", b"b", b"c"]))
    (one,) = imported(archive, log)
    opened, _ = open_run(archive, one.run)
    got = b"".join(log_lines(opened, "docker-json", "2026-03-04T05:06:01Z"))
    opened.file.close()
    assert got == b"b\nc\n"


def test_what_others_are_compared_with_is_never_pruned(archive: Archive) -> None:
    imported(archive, FAILED, GOOD, diagnose=True)
    assert keeping.prunable(archive, keep=0) == []
    later = sorted((ROOT / "samples/ollama").rglob("log.txt"))[:3]
    imported(archive, *later)  # without a diagnosis they are nobody's first
    found = keeping.prunable(archive, keep=2)
    assert len(found) == 3
    assert {one.row.verdict for one in found} == {None}
    assert keeping.prunable(archive, max_bytes=10**12) == []
    assert len(keeping.prunable(archive, max_bytes=1)) == 3
    future = datetime.now(UTC) + timedelta(days=4000)
    assert len(keeping.prunable(archive, older_than=timedelta(days=30), now=future)) == 3


def test_a_run_goes_as_a_whole_and_not_while_it_is_written(archive: Archive) -> None:
    (one,) = imported(archive, FAILED)
    record = archive.record(one.run)
    archive.remove(one.run)
    assert archive.ids() == []
    assert list(archive.runs.iterdir()) == []
    with pytest.raises(ForensicsError, match="there is no run"):
        archive.remove(one.run)
    writer = archive.begin(record, "raw")
    with pytest.raises(UsageError, match="is being written"):
        archive.remove(one.run)
    writer.close()


def test_damage_is_found_and_what_is_derived_is_made_anew(archive: Archive) -> None:
    first, second = imported(archive, FAILED, GOOD, diagnose=True)
    (archive.path(second.run) / "diagnosis.json").unlink()
    found = {one.run: one for one in keeping.verify(archive)}
    assert found[first.run].problem is None
    assert found[second.run].repaired == ["diagnosis"]
    log = archive.path(first.run) / "log.zst"
    whole = log.read_bytes()
    for damaged in (
        whole[:-3], whole[: len(whole) // 2], b"", whole + b"x",
        whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],
    ):  # fmt: skip
        log.write_bytes(damaged)
        problems = {one.run: one.problem for one in keeping.verify(archive)}
        assert problems[first.run] is not None
        assert problems[second.run] is None
    log.write_bytes(whole)
    (archive.path(first.run) / "run.json").write_text("{")
    assert "damaged" in str(next(o.problem for o in keeping.verify(archive) if o.run == first.run))


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "forensics", "runs", *words, "--archive", folder],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip

    assert "no archive of runs" in command("list").stderr
    empty = tmp_path / "empty.log"
    empty.touch()
    done = command("import", str(FAILED), str(empty))
    assert done.returncode == 2
    assert "1 imported, 0 there already, 1 not readable" in done.stderr
    name = done.stdout.split()[0].removeprefix("run:")
    assert "diagnosed" in done.stdout
    done = command("list", "--failed", "--model", "nemotron", "--format", "json")
    assert [row["id"] for row in json.loads(done.stdout)] == [name]
    assert command("logs", name, "--grep", "TypeError").stdout.count("TypeError") >= 2
    for words, says in (
        (("logs", name, "--grep", "(("), "no regular expression"),
        (("logs", name, "--since", "2026-01-01"), "no time of their own"),
        (("list", "--since", "yesterday"), "no time"),
        (("prune",), "no limit was given"),
        (("prune", "--older-than", "1y"), "no age"),
        (("prune", "--max-size", "much"), "no size"),
        (("rm", "2031"), "there is no run"),
        (("import", str(tmp_path / "gone")), "does not exist"),
    ):
        done = command(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), words
        assert says in done.stderr
    done = command("prune", "--keep", "0", "--yes")
    assert (done.returncode, "0 runs" in done.stderr) == (0, True)
    done = command("verify")
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "archive/runs" / name / "log.zst").write_bytes(b"")
    assert command("verify").returncode == 1
    assert command("rm", name).stdout == f"removed {name}\n"
    assert "0 runs" in command("verify").stderr
