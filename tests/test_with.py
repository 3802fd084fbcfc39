"""Evidence beside the log: it explains a log that just stops, and never what it does not concern."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.analysis import examine_all, read_beside
from forensics.model import Context, Diagnosis
from forensics.samples import expected
from tests.support import (
    ROOT,
    failed_start,
    loaded,
    logged,
    serving,
    shipped,
    started,
    stopped,
    text,
)
from tests.test_cli import run

ID = "8f1e0b7d2a94c1f8e5d6b3a7f902e1d34c5b6a798897a6b5c4d3e2f101928374"
OTHER = "0d" * 32
END = datetime(2026, 12, 1, 2, 0, 20, tzinfo=UTC)
SILENT = [*started(), *loaded()[:2]]
XID = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def oom(name: str = "VLLM::EngineCor", pid: int = 4711, container: str = ID) -> list[str]:
    """What the kernel writes when a container reaches its limit."""
    group = f"/system.slice/docker-{container}.scope"
    return [
        (
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg={group},"
            f"task_memcg={group},task={name},pid={pid},uid=0"
        ),
        (
            f"Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:91534336kB, "
            "anon-rss:66920448kB, file-rss:58368kB, shmem-rss:0kB, UID:0 pgtables:180000kB oom_score_adj:0"
        ),
    ]


def machine_oom(name: str = "VLLM::EngineCor", pid: int = 4711) -> list[str]:
    """What the kernel writes when the machine is out of memory."""
    return [(f"Out of memory: Killed process {pid} ({name}) total-vm:1kB, anon-rss:1kB, file-rss:0kB, "
            "shmem-rss:0kB, UID:0 pgtables:80kB oom_score_adj:0")]  # fmt: skip


def human(messages: Iterable[str], after_s: float = 5) -> str:
    """`dmesg -T`, so many seconds after the log's last line."""
    at = (END + timedelta(seconds=after_s)).strftime("[%a %b %e %H:%M:%S %Y]")
    return "".join(f"{at} {message}\n" for message in messages)


def plain(messages: Iterable[str]) -> str:
    return "".join(f"[81234.00000{n}] {message}\n" for n, message in enumerate(messages))


def iso(messages: Iterable[str], after_s: float = 5, zone: str = "+00:00") -> str:
    at = (END + timedelta(seconds=after_s)).strftime("%Y-%m-%dT%H:%M:%S")
    return "".join(f"{at}{zone} spark kernel: {message}\n" for message in messages)


def events(*said: tuple[str, float, str], container: str = ID, name: str = "vllm") -> str:
    """Events of a container: action, seconds after the log's last line, details."""
    out = []
    for action, after_s, details in said:
        at = (END + timedelta(seconds=after_s)).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        out.append(
            f"{at} container {action} {container} ({details}image=vllm/vllm-openai:v1, name={name})\n"
        )
    return "".join(out)


def inspect(container: str = ID, **state: object) -> str:
    return json.dumps([{"Id": container, "Name": "/vllm", "State": {
        "Status": "exited", "Running": False, "OOMKilled": False, "ExitCode": 137,
        "StartedAt": "2026-12-01T01:59:50Z", "FinishedAt": "2026-12-01T02:00:26Z", **state}}])  # fmt: skip


class Case:
    """A folder with a log and files beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, log: list[str], *beside: str | bytes, context: Context | None = None
    ) -> Diagnosis:
        path = self.folder / "server.log"
        path.write_text(text(log))
        names = []
        for number, content in enumerate(beside):
            other = self.folder / f"beside{number}.txt"
            other.write_bytes(content if isinstance(content, bytes) else content.encode())
            names.append(str(other))
        engine = shipped()
        asides = read_beside(names, engine)
        return examine_all(str(path), engine, context, asides=asides)[-1][0]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def rule_of(found: Diagnosis) -> str | None:
    return found.root_cause.rule if found.root_cause else None


ALONE = "vllm.log-ends-while-loading"

# ------------------------------------------------------------------------- a log that just stops


@pytest.mark.parametrize(
    ("content", "rule", "line"),
    [
        (human(oom()), "host.container-out-of-memory", 2),
        (human(machine_oom()), "host.machine-out-of-memory", 1),
        (human([XID]), "xid.fallen-off-bus", 1),
        (human(["usb 1-1: new device", *oom()], -1), "host.container-out-of-memory", 3),
        (iso(oom()), "host.container-out-of-memory", 2),
        (plain(oom()), "host.container-out-of-memory", 2),
    ],
)
def test_the_kernel_explains_it(case: Case, content: str, rule: str, line: int) -> None:
    alone = case(SILENT)

    found = case(SILENT, content)

    assert alone.root_cause is not None
    assert alone.root_cause.source is None
    assert found.root_cause is not None
    assert (rule_of(found), found.root_cause.line) == (rule, line)
    assert found.root_cause.source is not None
    assert found.root_cause.source.endswith("beside0.txt")
    assert found.root_cause.text == content.split("\n")[line - 1]
    assert found.outcome == ("killed" if "memory" in rule else "failed_startup")
    root = found.findings[0]
    assert (root.role, root.rule) == ("root_cause", rule)
    assert any(c.source is None and c.line == len(SILENT) for c in root.evidence)
    # What the log alone was taken for only followed.
    assert rule_of(alone) in {f.rule for f in found.findings if f.role == "symptom"}
    entries = [m for m in found.timeline if m.source is not None]
    assert [m.milestone for m in entries] == [rule]
    assert found.last_milestone == alone.last_milestone


def test_how_sure_it_is_depends_on_what_the_line_says(case: Case) -> None:
    sure = case(SILENT, human(oom())).verdict
    no_time = case(SILENT, plain(machine_oom())).verdict
    other_name = case(SILENT, human(machine_oom("python3"))).verdict

    assert (sure, no_time, other_name) == ("diagnosed", "suspected", "diagnosed")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_packed_files_are_read(case: Case, pack: object) -> None:
    assert callable(pack)

    assert rule_of(case(SILENT, pack(human(oom()).encode()))) == "host.container-out-of-memory"


# ----------------------------------------------------------------------------------- near misses


@pytest.mark.parametrize(
    "content",
    [
        human([XID], -3 * 3600),
        human([XID], 3 * 3600),
        human(oom("postgres")),
        human(machine_oom("java")),
        human(oom(), -3600),
        plain([XID]),
        human(["NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.95.05"]),
        human(["sglang"]),
        iso([XID], 3600, "+00:00"),
    ],
)
def test_what_does_not_concern_the_run_changes_nothing(case: Case, content: str) -> None:
    alone, found = case(SILENT), case(SILENT, content)

    assert found.root_cause == alone.root_cause
    assert found.verdict == alone.verdict
    assert [f for f in found.findings if f.severity == "fatal"] == [
        f for f in alone.findings if f.severity == "fatal"
    ]


def test_the_kill_of_another_container_is_not_the_cause_and_is_said(case: Case) -> None:
    found = case(SILENT, inspect(), human(oom(container=OTHER)))
    mine = case(SILENT, inspect(), human(oom()))

    assert (found.root_cause and found.root_cause.source) is None
    assert any(f"another container ({OTHER[:12]})" in limit for limit in found.limits)
    assert rule_of(mine) == "host.container-out-of-memory"
    assert "container.killed-from-outside" in {f.rule for f in mine.findings if f.role == "symptom"}


def test_another_program_in_the_same_container_may_be_the_cause(case: Case) -> None:
    found = case(SILENT, inspect(), human(oom("cc1plus")))

    assert rule_of(found) == "host.container-out-of-memory"


@pytest.mark.parametrize("hours", [-5, 1, 2, 5.5])
def test_zones_may_differ_where_the_container_is_the_same(case: Case, hours: float) -> None:
    same = case(SILENT, inspect(), human(oom(), 5 + hours * 3600))
    unknown = case(SILENT, human([XID], 5 + hours * 3600))

    assert rule_of(same) == "host.container-out-of-memory"
    assert (unknown.root_cause and unknown.root_cause.source) is None


def test_a_healthy_log_stays_healthy(case: Case) -> None:
    healthy = [*started(), *loaded(), *serving(), *stopped()]

    found = case(healthy, human(oom()), human([XID]))

    assert (found.verdict, found.root_cause) == ("healthy", None)
    assert not [f for f in found.findings if f.severity in {"fatal", "error"}]


def test_a_server_that_runs_was_not_killed(case: Case) -> None:
    log = [*started(), *loaded(), *serving()]

    found = case(log, human(oom()), context=Context(running=True))

    assert found.verdict == "healthy"


def test_a_failure_of_its_own_stays_the_cause(case: Case) -> None:
    log = failed_start("ValueError: head size 42 is not supported")
    alone, found = case(log), case(log, human([XID], -30))

    assert found.root_cause == alone.root_cause
    assert "xid.fallen-off-bus" in {f.rule for f in found.findings if f.role == "contributing"}


def test_a_failed_gpu_explains_the_cuda_error_that_followed(case: Case) -> None:
    log = [
        *started(),
        *loaded(),
        *serving(),
        *logged(
            "EngineCore", "EngineCore encountered a fatal error.", "ERROR", clock="12-01 02:00:22"
        ),
        *logged(
            "EngineCore",
            "Traceback (most recent call last):\n"
            '  File "/usr/local/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 1, in run\n'
            "    run(self)\n"
            "torch.AcceleratorError: CUDA error: unspecified launch failure",
            "ERROR",
            clock="12-01 02:00:22",
        ),
    ]

    found = case(log, human([XID], 1))
    later = case(log, human([XID], 400))

    assert rule_of(found) == "xid.fallen-off-bus"
    assert found.outcome == "crashed"
    assert (later.root_cause and later.root_cause.source) is None


# ------------------------------------------------------------------------------- the engine's events


def test_a_stop_that_took_too_long_is_told_by_the_events(case: Case) -> None:
    found = case(SILENT, events(("start", -30, ""), ("kill", 5, "signal=15, "), ("kill", 15, "signal=9, "),
                                ("die", 15.2, "exitCode=137, ")))  # fmt: skip

    assert rule_of(found) == "container.stop-timed-out"
    assert (found.run.exit_code, found.run.container, found.run.oom_killed) == (137, "vllm", False)
    assert found.outcome == "killed"


def test_a_kill_without_a_stop_is_told(case: Case) -> None:
    found = case(SILENT, events(("kill", 5, "signal=9, "), ("die", 5.2, "exitCode=137, ")))

    assert rule_of(found) == "container.killed-by-engine"


def test_an_oom_event_beats_the_kill(case: Case) -> None:
    found = case(SILENT, events(("start", -30, ""), ("oom", 5, ""), ("die", 5.2, "exitCode=137, ")))

    assert rule_of(found) == "container.oom-killed"
    assert found.run.oom_killed is True
    assert found.root_cause is not None
    assert found.root_cause.source is not None


def test_an_orderly_stop_is_none(case: Case) -> None:
    log = [*started(), *loaded(), *serving(), *stopped()]
    found = case(log, events(("kill", 5, "signal=15, "), ("die", 6, "exitCode=0, ")))

    assert (found.verdict, found.run.exit_code) == ("healthy", 0)


def test_events_of_other_containers_are_left_alone(case: Case) -> None:
    mine = events(("die", 5, "exitCode=1, "))
    other = events(("oom", 5, ""), ("die", 6, "exitCode=137, "), container=OTHER, name="db")

    known = case(SILENT, inspect(ExitCode=1), mine + other)
    unknown = case(SILENT, mine + other)

    assert (known.run.exit_code, known.run.container) == (1, "vllm")
    assert unknown.run.exit_code is None
    assert any("2 containers" in limit for limit in unknown.limits)


def test_each_run_has_the_end_that_followed_it(tmp_path: Path) -> None:
    first = [line.replace("12-01 02:", "12-01 01:") for line in SILENT]
    (tmp_path / "log").write_text(text(first, SILENT))
    (tmp_path / "events").write_text(
        events(
            ("die", 3 - 3600, "exitCode=1, "),
            ("start", -30, ""),
            ("oom", 5, ""),
            ("die", 5.2, "exitCode=137, "),
        )
    )
    engine = shipped()

    found = examine_all(
        str(tmp_path / "log"), engine, asides=read_beside([str(tmp_path / "events")], engine)
    )

    assert [(d.run.exit_code, d.run.oom_killed) for d, _, _ in found] == [(1, None), (137, True)]


# ------------------------------------------------------------------------------------ all of it


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    after_s=st.integers(-20_000, 20_000),
    name=st.sampled_from(["VLLM::EngineCor", "python3", "java", "cc1plus", "llama-server"]),
    container=st.sampled_from([ID, OTHER]),
)
def test_only_what_concerns_the_run_becomes_the_cause(
    case: Case, after_s: int, name: str, container: str
) -> None:
    found = case(
        SILENT,
        inspect(FinishedAt="2026-12-01T02:00:20Z"),
        iso(oom(name, container=container), after_s),
    )

    concerns = container == ID and -120 <= after_s <= 10
    assert (rule_of(found) == "host.container-out-of-memory") == concerns


@given(st.lists(st.sampled_from([XID, *oom(), *oom(container=OTHER), *machine_oom("java"), "", "x"]), max_size=12),
       st.integers(-4000, 4000))  # fmt: skip
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_cited_lines_stand_where_it_says(case: Case, messages: list[str], after_s: int) -> None:
    content = human(["first", *messages], after_s)
    found = case(SILENT, content)
    lines = {None: text(SILENT).split("\n"), str(case.folder / "beside0.txt"): content.split("\n")}

    cited = [(c.source, c.line, c.text) for f in found.findings for c in f.evidence]
    if found.root_cause is not None:
        cited.append((found.root_cause.source, found.root_cause.line, found.root_cause.text))
    for source, number, said in cited:
        assert lines[source][number - 1] == said


CASES = sorted((ROOT / "samples").rglob("with.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.parent.name)
def test_samples_with_files_beside_their_log(path: Path) -> None:
    want = yaml.safe_load(path.read_text())
    base = expected(path.parent)
    engine = shipped()
    names = [str(path.parent / name) for name in want["with"]]
    context = Context(exit_code=base.exit_code) if base.exit_code is not None else None

    found = examine_all(
        str(path.parent / base.log), engine, context, asides=read_beside(names, engine)
    )[-1][0]

    assert want["made"] in {"real", "reconstructed", "synthetic"}
    assert want["redacted"] is True
    root = found.root_cause
    assert root is not None
    assert (found.verdict, found.outcome, root.rule) == (
        want["verdict"],
        want["outcome"],
        want["rule"],
    )
    assert (root.source and Path(root.source).name, root.line) == (want["file"], want["line"])


# ---------------------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.log").write_text(text(SILENT))
    (tmp_path / "dmesg.txt").write_text(human(oom()))
    (tmp_path / "inspect.txt").write_text(inspect())
    (tmp_path / "prose.txt").write_text("nothing of use\n")
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


@pytest.mark.parametrize("format_", ["terminal", "markdown", "sarif", "json"])
def test_every_report_names_the_file(folder: Path, format_: str) -> None:
    found = run(
        "diagnose",
        "server.log",
        "--with",
        "dmesg.txt",
        "--with",
        "inspect.txt",
        "-f",
        format_,
        cwd=folder,
    )

    assert found.returncode == 1
    assert found.stderr == b""
    assert b"dmesg.txt" in found.stdout


@pytest.mark.parametrize("name", ["prose.txt", "empty.txt", "missing.txt", "."])
def test_a_file_of_no_use_is_one_line_and_2(folder: Path, name: str) -> None:
    found = run("diagnose", "server.log", "--with", name, cwd=folder)

    assert (found.returncode, found.stdout) == (2, b"")
    assert found.stderr.count(b"\n") == 1
    assert found.stderr.startswith(f"forensics: {name} ".encode())


def test_a_report_is_not_written_over_the_evidence(folder: Path) -> None:
    found = run("diagnose", "server.log", "--with", "dmesg.txt", "-o", "dmesg.txt", cwd=folder)

    assert found.returncode == 2
    assert (folder / "dmesg.txt").read_text() == human(oom())


def test_nothing_from_such_a_file_drives_a_terminal_or_shows_a_secret(folder: Path) -> None:
    name = "\x1b[31m\u202eVLLM"
    token = "hf_" + "a" * 34
    (folder / "dmesg.txt").write_text(
        human([oom()[1].replace("VLLM::EngineCor", name) + f" {token}"])
    )

    for format_ in ("terminal", "markdown", "json", "sarif"):
        found = run("diagnose", "server.log", "--with", "dmesg.txt", "-f", format_, cwd=folder)
        assert b"\x1b" not in found.stdout
        assert "\u202e".encode() not in found.stdout
        assert token.encode() not in found.stdout
