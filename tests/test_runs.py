"""Several runs and services in one log: each has its own diagnosis, and a loop is said once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forensics.analysis import Examined, examine_all, examine_runs
from forensics.cli.app import app
from forensics.model import Context, Diagnosis, Source
from forensics.reporters.runs import kinds, summary
from forensics.scanning import Memory
from forensics.sources import Rotated, find, missing_parts
from tests import wraps
from tests.support import ROOT, failed_start, loaded, serving, shipped, started, stopped, text

START = failed_start()
SERVED = [*started(), *loaded(), *serving(), *stopped()]


def runs_of(log: str | bytes, context: Context | None = None) -> list[Examined]:
    data = log.encode() if isinstance(log, str) else log
    return examine_runs(Memory(data, Source("text", "log")), shipped(), context or Context())


def test_each_start_has_its_own_diagnosis_and_lines() -> None:
    found = [one[0] for one in runs_of(text(START, START, SERVED))]

    assert [one.source.name for one in found] == ["log#1", "log#2", "log#3"]
    assert [one.outcome for one in found] == ["failed_startup", "failed_startup", "stopped"]
    lines = [one.root_cause.line if one.root_cause else None for one in found]
    assert lines[0] is not None
    assert lines == [lines[0], lines[0] + len(START), None]
    assert found[0].timeline[0].line == 1
    assert found[1].timeline[0].line == len(START) + 1


@pytest.mark.parametrize("wrap", ["docker-json", "cri", "docker-timestamps", "compose"])
def test_runs_are_told_apart_within_an_envelope(wrap: str) -> None:
    log = text(START, SERVED).encode()
    plain, wrapped = runs_of(log), runs_of(wraps.ENVELOPES[wrap](log)[0])

    assert [o[0].outcome for o in wrapped] == [o[0].outcome for o in plain]
    assert [o[0].root_cause for o in wrapped] == [o[0].root_cause for o in plain]


def test_exit_code_speaks_of_the_last_run_only() -> None:
    found = [one[0] for one in runs_of(text(START, START), Context(exit_code=1))]

    assert [one.run.exit_code for one in found] == [None, 1]


def test_restart_loop_is_said_once() -> None:
    found = [one[0] for one in runs_of(text(*[START] * 7))]

    assert len(found) == 7
    assert kinds(found) == [6]
    assert "restart loop: 7 starts, all the same cause" in summary(found)
    assert len(summary(found).splitlines()) == 1


def test_summary_says_which_run_last_served() -> None:
    found = [one[0] for one in runs_of(text(START, SERVED, START))]

    assert "#2 is the last that served" in summary(found)
    assert summary(found[:1]) == ""


def test_one_run_prints_one_object_and_several_print_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(text(START, START))

    done = CliRunner().invoke(app, ["diagnose", "--format", "json", str(path)])

    names = [json.loads(line)["source"]["name"] for line in done.stdout.splitlines()]
    assert names == [f"{path}#1", f"{path}#2"]


def test_services_of_a_compose_log_are_told_apart() -> None:
    """Lines of a proxy, a broken and a healthy server stand between each other."""
    logs = {"vllm-1": START, "proxy-1": ["GET / 200"] * len(SERVED), "vllm-2": SERVED}
    mixed = [
        f"{name:<8} | {lines[i]}"
        for i in range(max(map(len, logs.values())))
        for name, lines in logs.items()
        if i < len(lines)
    ]
    root = next(i for i, x in enumerate(mixed, 1) if "vllm-1" in x and "ValueError: head" in x)

    found = {one[0].source.name: one[0] for one in runs_of(text(mixed))}

    assert set(found) == {"log#vllm-1", "log#vllm-2"}
    assert found["log#vllm-1"].root_cause is not None
    assert found["log#vllm-1"].root_cause.line == root
    assert found["log#vllm-2"].verdict == "healthy"


def test_exit_code_that_compose_prints_is_known() -> None:
    log = text([f"vllm-1  | {line}" for line in START], ["vllm-1 exited with code 137"])

    assert runs_of(log)[-1][0].run.exit_code == 137


def test_missing_file_of_a_rotated_log_is_said(tmp_path: Path) -> None:
    log = text(START).encode()
    half = log.index(b"\n") + 1
    (tmp_path / "x.log.3").write_bytes(log[:half])
    (tmp_path / "x.log.1").write_bytes(log[half:])

    def told() -> Diagnosis:
        (name,) = find([str(tmp_path)])
        return examine_all(name, shipped())[-1][0]

    holed = told()
    (tmp_path / "x.log.1").rename(tmp_path / "x.log.2")
    whole = told()

    assert "middle" in holed.source.truncated
    assert "x.log.2 is missing before line 2: what it held is not known" in holed.limits
    assert "middle" not in whole.source.truncated
    assert whole.root_cause
    assert holed.root_cause
    assert holed.root_cause.line == whole.root_cause.line
    for a, b in zip(whole.findings, holed.findings, strict=True):
        assert b.confidence == pytest.approx(a.confidence / 2, abs=0.001)


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["x.log.2", "x.log.1", "x.log"], {}),
        (["x.log.2", "x.log"], {"x.log": "x.log.1"}),
        (["d/x.log.7.gz", "d/x.log.3", "d/x.log.2"], {"d/x.log.3": "x.log.6 to x.log.4"}),
        (["0.log.20261201-020000.gz", "0.log.20261204-020000", "0.log"], {}),
        (["x.log"], {}),
    ],
)
def test_only_gaps_in_numbers_are_missing_files(names: list[str], want: dict[str, str]) -> None:
    assert missing_parts(names) == want


def test_rotated_files_are_one_log_in_order(tmp_path: Path) -> None:
    lines = wraps.docker_json(text(SERVED[:4], START[4:]).encode())[0].splitlines(keepends=True)
    (tmp_path / "x-json.log").write_bytes(b"".join(lines[8:]))
    (tmp_path / "x-json.log.1").write_bytes(b"".join(lines[4:8]))
    (tmp_path / "x-json.log.2.gz").write_bytes(wraps.PACKED["gzip"](b"".join(lines[:4])))

    (name,) = find([str(tmp_path)])
    found = examine_all(name, shipped())

    assert isinstance(name, Rotated)
    assert [Path(part).name for part in name.parts] == [
        "x-json.log.2.gz",
        "x-json.log.1",
        "x-json.log",
    ]
    assert len(found) == 1
    assert found[0][0].run.engine_version == "0.32.0"
    assert found[0][0].source.lines == len(lines)
    assert any("x-json.log.1 from line 5" in limit for limit in found[0][0].limits)


def test_a_start_that_somebody_quotes_splits_nothing() -> None:
    log = (ROOT / "samples/vllm/v032-happy-spec-long/log.txt").read_bytes()
    lines = log.split(b"\n")
    quotes = [
        (
            b"(APIServer pid=1) INFO 12-01 02:10:00 [logger.py:39] Received request a-1: prompt: 'it "
            b"says vLLM API server version 0.9.1, what now?', params: SamplingParams(n=1)"
        ),
        "(APIServer pid=1) INFO 12-01 02:10:00 [x.py:3] someone's log: █ █ ▀▄▀ █  version 0.32.0".encode(),
    ]
    middle = len(lines) // 2
    mixed = b"\n".join([*lines[:middle], *quotes, *lines[middle:]])
    engine = shipped()
    found = examine_runs(Memory(mixed, Source(kind="text", name="text")), engine, Context())
    assert len(found) == 1
