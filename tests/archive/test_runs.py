"""Archived runs on the command line: diagnosed as their logs are, listed, shown, printed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from forensics.archive import reading
from forensics.archive.model import ContainerFacts, ExitFacts, ImageFacts, LogEnvelope, RunRecord
from forensics.archive.store import Archive, run_id
from forensics.cli import app
from forensics.model import Diagnosis
from tests.support import ROOT

FAILED = "vllm/v032-spec-mtp-nemotron-h"
SERVED = "vllm/v032-happy-spec-long"
CONTAINER = "0123456789abcdef" * 4


def wrapped(raw: bytes, envelope: LogEnvelope) -> bytes:
    lines = raw.decode("utf-8", "replace").split("\n")
    at = "2026-12-01T02:00:00.123456789Z"
    if envelope == "docker-json":
        said = [{"log": f"{line}\n", "stream": "stderr", "time": at} for line in lines if line]
        return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in said)
    return b"".join(f"{at} stderr F {line}\n".encode() for line in lines if line)


def add(
    archive: Archive,
    sample: str,
    day: int = 1,
    envelope: LogEnvelope = "docker-json",
    code: int | None = 0,
) -> str:
    started = f"2026-12-{day:02}T02:00:00Z"
    record = RunRecord(
        id=run_id(started, CONTAINER),
        tier="file",
        completeness="complete",
        started_at=started,
        exit=ExitFacts(code=code, oom_killed=False, status="exited"),
        container=ContainerFacts(CONTAINER, "vllm\x1b[31m", arguments=["--model", "x"]),
        image=ImageFacts("vllm/vllm-openai:latest", digest="sha256:" + "ab" * 32),
    )
    writer = archive.begin(record, envelope)
    writer.append(wrapped((ROOT / "samples" / sample / "log.txt").read_bytes(), envelope), {})
    writer.finish(record)
    reading.diagnose_run(archive, record.id)
    return record.id


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    found = Archive.open(tmp_path_factory.mktemp("a") / "archive", create=True)
    add(found, SERVED, 1)
    add(found, FAILED, 2)
    add(found, SERVED, 3, "cri")
    return found


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["forensics", *words])
        code = app.run()
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("envelope", ["docker-json", "cri"])
def test_a_run_is_diagnosed_as_its_log_is(
    tmp_path: Path, envelope: LogEnvelope, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    name = add(archive, FAILED, envelope=envelope)
    path = tmp_path / "log.txt"
    path.write_bytes((ROOT / "samples" / FAILED / "log.txt").read_bytes())
    _, direct, _ = run(capsys, "diagnose", str(path), "--exit-code", "0", "-f", "json")

    code, out, _ = run(
        capsys, "diagnose", f"run:{name}", "--archive", str(archive.folder), "-f", "json"
    )

    said, known = json.loads(out), json.loads(direct)
    assert code == 1
    assert said["run"]["id"] == name
    assert said["source"]["name"] == f"run:{name}"
    assert said["run"]["digest"] == "sha256:" + "ab" * 32
    assert said["root_cause"]["rule"] == known["root_cause"]["rule"]
    assert said["root_cause"]["text"] == known["root_cause"]["text"]
    kept = msgspec.json.decode((archive.path(name) / "diagnosis.json").read_bytes(), type=Diagnosis)
    assert msgspec.to_builtins(kept) == said


def test_why_is_the_newest_failure(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "why", "--archive", str(archive.folder))
    assert code == 1
    assert "Prefix caching of Mamba layers" in out


def test_names_of_runs(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--archive", str(archive.folder)]
    ids = archive.ids()
    for name, place in (("last", 2), ("last-failed", 1), ("last-good", 2), ("20261201", 0)):
        assert reading.find(archive, name) == ids[place]
        assert reading.find(archive, f"run:{name}") == ids[place]
    for name, why in (("", "no run"), ("2026", "beginning of 3 runs"), ("2027", "no run '2027'")):
        code, out, err = run(capsys, "diagnose", f"run:{name}", *folder)
        assert (code, out) == (2, "")
        assert why in err
        assert err.count("\n") == 1


def test_the_list_says_what_each_run_came_to(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "runs", "list", "--archive", str(archive.folder))
    assert code == 0
    assert "\x1b" not in out
    lines = out.splitlines()
    assert [line.split()[0] for line in lines if "20261" in line] == ["ok", "FAILED", "ok"]
    assert lines[-1] == "3 runs, 1 of them failed"

    code, out, _ = run(capsys, "runs", "list", "--archive", str(archive.folder), "-f", "json")
    rows = json.loads(out)
    assert [row["verdict"] for row in rows] == ["healthy", "diagnosed", "healthy"]
    assert rows[1]["rule"] is not None


def test_one_run_in_full(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "runs", "show", "last", "--archive", str(archive.folder))
    assert code == 0
    assert "\x1b" not in out
    assert "sha256:" + "ab" * 32 in out.replace("\n", "").replace(" ", "")
    assert "file, complete" in out


@pytest.mark.parametrize(("name", "sample"), [("20261202", FAILED), ("last", SERVED)])
def test_lines_come_back_as_they_were_written(
    archive: Archive, name: str, sample: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "log"
    words = ["runs", "logs", name, "--archive", str(archive.folder)]
    assert run(capsys, *words, "-o", str(target))[0] == 0
    raw = (ROOT / "samples" / sample / "log.txt").read_bytes()
    assert target.read_bytes() == b"".join(line + b"\n" for line in raw.split(b"\n") if line)
    assert run(capsys, *words, "--raw", "-o", str(target))[0] == 0
    assert target.read_bytes().startswith((b'{"log":', b"2026-"))


def test_statistics_of_a_run(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "stats", "run:last", "--archive", str(archive.folder), "-f", "json")
    assert code == 0
    assert json.loads(out)["speculative"]["drafts"] > 0
    assert (archive.path(archive.ids()[-1]) / "samples.parquet").stat().st_size > 0


def test_what_may_be_truncated_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    record = RunRecord(
        id=run_id("2026-12-01T00:00:00Z", CONTAINER),
        tier="api",
        reasons=["the container was removed before its log was read to the end"],
        container=ContainerFacts(CONTAINER),
    )
    writer = archive.begin(record, "cri")
    writer.append(wrapped((ROOT / "samples" / SERVED / "log.txt").read_bytes()[:9000], "cri"), {})
    writer.finish(record)

    _, out, _ = run(capsys, "diagnose", "run:last", "--archive", str(archive.folder), "-f", "json")

    assert record.reasons[0] in json.loads(out)["source"]["truncated"]


def test_a_run_without_a_log_and_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = Archive.open(tmp_path / "a", create=True)
    record = RunRecord(
        id=run_id("2026-12-01T00:00:00Z", CONTAINER),
        tier="api",
        exit=ExitFacts(code=127, status="created", error="exec: no such file"),
        container=ContainerFacts(CONTAINER),
    )
    archive.begin(record, "cri").finish(record)
    (archive.runs / "20261202T000000.000000000Z-0123456789ab").mkdir()
    folder = ["--archive", str(archive.folder)]

    code, _, err = run(capsys, "diagnose", "run:20261201", *folder)
    assert (code, err.count("\n")) == (2, 1)
    assert "has no log: exec: no such file" in err
    code, out, _ = run(capsys, "runs", "list", *folder)
    assert code == 0
    assert "DAMAGED" in out
    code, _, err = run(capsys, "diagnose", "run:last", *folder)
    assert (code, err.count("\n")) == (2, 1)


def test_no_archive_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["why"], ["runs", "list"], ["runs", "show"], ["diagnose", "run:last"]):
        code, out, err = run(capsys, *words, "--archive", str(tmp_path / "none"))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "is no archive of runs" in err
