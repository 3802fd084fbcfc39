"""The command as people and programs run it: exit codes, one line for each error, whole output."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import failed_start, loaded, rule_text, serving, started, stopped, text

COMMAND = (sys.executable, "-m", "forensics")
FAILED = text(failed_start("ValueError: nobody has ever printed this"))
HEALTHY = text(started(), loaded(), serving(), stopped())
VERDICTS = {"diagnosed", "suspected", "inconclusive", "healthy", "no_evidence"}


def run(
    *arguments: str | Path, stdin: bytes | None = None, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command with its output kept."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin if stdin is not None else b"",
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **env},
        check=False,
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log of each kind."""
    folder = tmp_path_factory.mktemp("logs")
    (folder / "failed.log").write_text(FAILED)
    (folder / "healthy.log").write_text(HEALTHY)
    (folder / "empty.log").write_bytes(b"")
    (folder / "binary.log").write_bytes(b"\x7fELF" + bytes(500))
    (folder / "cut.log.gz").write_bytes(gzip.compress(FAILED.encode() * 50)[:-30])
    (folder / "nothing").mkdir()
    (folder / "two").mkdir()
    (folder / "two" / "a.log").write_text(FAILED)
    (folder / "two" / "b.log").write_text(HEALTHY)
    pack = folder / "pack" / "mine"
    pack.mkdir(parents=True)
    (pack / "own.yaml").write_text(rule_text("mine.own", {"line": "nobody has ever printed this"}))
    typo = folder / "typo" / "mine"
    typo.mkdir(parents=True)
    (typo / "own.yaml").write_text(rule_text("mine.own", {"lin": "x"}))
    return folder


# --------------------------------------------------------------------------------------- exit codes


def test_healthy_log_ends_with_0(logs: Path) -> None:
    done = run("diagnose", logs / "healthy.log")

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"HEALTHY")


def test_failure_ends_with_1_known_or_not(logs: Path) -> None:
    unknown = run("diagnose", logs / "failed.log")
    known = run("diagnose", logs / "failed.log", "--rules", logs / "pack")

    assert (unknown.returncode, known.returncode) == (1, 1)
    assert unknown.stdout.startswith(b"SUSPECTED")
    assert known.stdout.startswith(b"DIAGNOSED")


def test_one_failure_among_several_sources_is_enough(logs: Path) -> None:
    assert run("diagnose", logs / "healthy.log", logs / "failed.log", "-q").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["diagnose", "none.log"], "none.log does not exist"),
        (["diagnose", "nothing"], "nothing holds no log"),
        (["diagnose", "binary.log"], "binary.log is a program"),
        (["diagnose", "empty.log"], "empty.log is empty"),
        (["diagnose"], "is empty"),
        (["diagnose", "failed.log", "--no-such-option"], "--no-such-option"),
        (["diagnose", "failed.log", "--format", "yaml"], "--format yaml is not known"),
        (["diagnose", "failed.log", "--exit-code", "many"], "--exit-code"),
        (["diagnose", "failed.log", "--exit-code", "1", "--running"], "exclude each other"),
        (["diagnose", "failed.log", "--rules", "none"], "no such folder of rules"),
        (["diagnose", "failed.log", "--rules", "typo"], "typo/mine/own.yaml:6: match.lin: unknown condition"),
        (["diagnose", "failed.log", "-o", "none/out.txt"], "none/out.txt cannot be written"),
        (["diagnose", "failed.log", "-o", "two"], "two is a folder"),
        (["diagnose", "failed.log", "--inspect", "none.json"], "none.json cannot be read"),
        (["diagnose", "failed.log", "--inspect", "failed.log"], "failed.log is not JSON"),
        (["no-such-command"], "no-such-command"),
        (["rules", "show", "no.rule"], "no rule no.rule"),
        (["rules", "list", "no-family"], "no rule begins with no-family"),
        (["rules", "list", "--format", "yaml"], "--format yaml is not known"),
        (["rules", "test", "no.rule"], "no rule no.rule"),
        (["rules", "test", "--samples", "none"], "no folder of samples"),
        (["rules", "lint", "none.yaml"], "none.yaml cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_bad_input_is_one_line_on_stderr_and_2(
    arguments: Sequence[str], words: str, logs: Path
) -> None:
    done = run(*arguments, cwd=logs)

    said = done.stderr.decode()
    assert done.returncode == 2
    assert said.startswith("forensics: ")
    assert said.count("\n") == 1
    assert words in said
    assert "Traceback" not in said


def test_error_line_cannot_drive_the_terminal(tmp_path: Path) -> None:
    done = run("diagnose", tmp_path / "a\x1b[31m\u202eb.log")

    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert "\u202e" not in done.stderr.decode()


def test_name_of_a_source_cannot_drive_the_terminal(tmp_path: Path) -> None:
    for name in ("a\x1b[31m.log", "b.log"):
        (tmp_path / name).write_text(HEALTHY)

    assert b"\x1b" not in run("diagnose", tmp_path).stdout


@pytest.mark.parametrize(
    "command",
    [
        ("preflight", "--offline"),
        ("preflight", "--offline", "--format", "json"),
        ("preflight", "--offline", "--format", "sarif"),
        ("preflight", "--offline", "--format", "markdown"),
        ("stats",),
        ("stats", "--format", "json"),
        ("diagnose", "--format", "json"),
        ("diagnose", "--format", "sarif"),
        ("diagnose", "--format", "markdown"),
    ],
)
def test_no_format_lets_a_name_drive_the_terminal(tmp_path: Path, command: tuple[str, ...]) -> None:
    for name in ("a\x1b[31m\x9b1m\u202e.log", "b.log"):
        content = "vllm serve model\n" if command[0] == "preflight" else FAILED
        (tmp_path / name).write_text(content)

    said = run(*command, *sorted(tmp_path.iterdir())).stdout.decode()

    assert said
    assert not {"\x1b", "\x9b", "\u202e"} & set(said)


@pytest.mark.parametrize(
    "command",
    [
        ("list", "mine"),
        ("list", "mine", "--format", "json"),
        ("show", "mine.own"),
        ("lint",),
        ("test", "mine.own"),
    ],
)
def test_a_pack_of_rules_cannot_drive_the_terminal(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    pack = tmp_path / "mine"
    pack.mkdir()
    drives = "\x1b[31m\x9b1m\u202e"
    text = rule_text("mine.own", {"line": "printed by nobody"}, title=f"T {drives}")
    (pack / "own.yaml").write_text(text)

    said = run("rules", *command, "--rules", pack).stdout.decode()

    assert "mine" in said
    assert not {"\x1b", "\x9b", "\u202e"} & set(said)


# ------------------------------------------------------------------------------------------- output


@pytest.mark.parametrize("format_", ["terminal", "text", "json", "markdown"])
def test_every_format_is_written_to_a_file_whole(format_: str, logs: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old content")

    shown = run("diagnose", logs / "failed.log", "--format", format_)
    written = run("diagnose", logs / "failed.log", "--format", format_, "-o", target)

    assert (written.returncode, written.stdout) == (1, b"")
    assert target.read_bytes() == shown.stdout != b""
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_failed_run_leaves_the_old_file(logs: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old content")

    done = run("diagnose", logs / "failed.log", logs / "none.log", "-o", target)

    assert done.returncode == 2
    assert target.read_text() == "old content"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_json_of_one_source_is_a_document(logs: Path) -> None:
    data = json.loads(run("diagnose", logs / "failed.log", "--format", "json").stdout)

    assert data["verdict"] in VERDICTS
    assert data["source"]["name"].endswith("failed.log")


def test_json_of_several_sources_is_one_line_each(logs: Path) -> None:
    done = run("diagnose", logs / "two", "--format", "json")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(line["source"]["name"]).name for line in lines] == ["a.log", "b.log"]
    assert [line["verdict"] for line in lines] == ["suspected", "healthy"]


def test_several_reports_say_which_is_which(logs: Path) -> None:
    shown = run("diagnose", "two", cwd=logs).stdout.decode()

    assert "== two/a.log\n" in shown
    assert "== two/b.log\n" in shown


def test_quiet_gives_the_exit_code_alone(logs: Path) -> None:
    done = run("diagnose", logs / "failed.log", "-q")

    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_explain_names_the_rules_that_were_considered(logs: Path) -> None:
    shown = run("diagnose", logs / "failed.log", "--rules", logs / "pack", "--explain").stdout

    assert b"Rules considered" in shown
    assert b"mine.own: root cause" in shown


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("arguments", "env", "coloured"),
    [
        ([], {}, True),
        (["--no-color"], {}, False),
        ([], {"NO_COLOR": "1"}, False),
        ([], {"TERM": "dumb"}, False),
        (["--format", "text"], {}, False),
        (["--format", "json"], {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    arguments: list[str], env: dict[str, str], coloured: bool, logs: Path
) -> None:
    import pty  # noqa: PLC0415 - not there on every system

    ours, theirs = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    with subprocess.Popen(
        [*COMMAND, "diagnose", str(logs / "failed.log"), *arguments],
        stdout=theirs,
        stdin=subprocess.DEVNULL,
        env={**clean, "TERM": "xterm", **env},
    ) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)

    assert process.returncode == 1
    assert (b"\x1b[" in shown) is coloured


def _read(handle: int) -> bytes:
    """Read from a pseudo-terminal; Linux reports its end as an error."""
    try:
        return os.read(handle, 65_536)
    except OSError:
        return b""


def test_output_that_is_no_terminal_has_no_colour(logs: Path) -> None:
    assert b"\x1b" not in run("diagnose", logs / "failed.log", TERM="xterm").stdout


# -------------------------------------------------------------------------------------------- input


def test_standard_input_is_the_default() -> None:
    for arguments in (["diagnose"], ["diagnose", "-"]):
        done = run(*arguments, "--format", "json", stdin=FAILED.encode())

        assert done.returncode == 1
        assert json.loads(done.stdout)["source"]["kind"] == "stdin"


def test_what_is_known_beside_the_log_is_used(logs: Path, tmp_path: Path) -> None:
    inspect = tmp_path / "inspect.json"
    inspect.write_text('[{"State": {"ExitCode": 137, "OOMKilled": true}}]')

    stated = run("diagnose", logs / "healthy.log", "--exit-code", "137", "--format", "json")
    inspected = run("diagnose", logs / "healthy.log", "--inspect", inspect, "--format", "json")

    assert json.loads(stated.stdout)["run"]["exit_code"] == 137
    assert json.loads(inspected.stdout)["run"]["oom_killed"] is True


def test_server_said_to_run_is_healthy(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(text(started(), loaded(), serving()))

    assert run("diagnose", log, "--running", "-q").returncode == 0
    assert run("diagnose", log, "-q").returncode == 1


# ------------------------------------------------------------------------------- rough surroundings


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_interrupt_ends_with_130_and_without_a_traceback() -> None:
    with subprocess.Popen(
        [*COMMAND, "diagnose", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        # More than a pipe holds: when this is written, the command is reading.
        process.stdin.write(b"x\n" * 500_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()

    assert (process.returncode, out) == (130, b"")
    assert err in {b"", b"forensics: interrupted\n"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("redirection", "words"),
    [("<&-", "standard input is closed"), (">&-", "standard output is closed")],
)
def test_closed_stream_is_one_line(redirection: str, words: str, logs: Path) -> None:
    source = "-" if redirection == "<&-" else "failed.log"
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m forensics diagnose {source} {redirection}', sys.executable],
        cwd=logs,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith(b"forensics: " + words.encode())
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("arguments", ["rules list", "rules schema", "diagnose failed.log -f json"])
def test_reader_that_leaves_early_is_no_error(arguments: str, logs: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m forensics {arguments} | head -c 10', sys.executable],
        cwd=logs,
        capture_output=True,
        check=False,
    )

    assert done.stderr == b""
    assert len(done.stdout) == 10


def test_bytes_that_are_no_text_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(FAILED.replace("nobody", "n\udcffbody").encode("utf-8", "surrogateescape"))

    done = run("diagnose", log, PYTHONIOENCODING="ascii", LC_ALL="C")

    assert (done.returncode, done.stderr) == (1, b"")
    assert "\ufffd".encode() in done.stdout


def test_working_folder_and_home_may_be_missing(logs: Path) -> None:
    """Nothing but time depends on the cache."""
    done = run("diagnose", logs / "healthy.log", FORENSICS_CACHE="/proc/nowhere")

    assert done.returncode == 0


# ------------------------------------------------------------------------------------------ start-up

HEAVY = {
    "polars",
    "docker",
    "rich",
    "hyperscan",
    "regex",
    "yaml",
    "msgspec",
    "packaging",
    "zstandard",
}


def imported(*arguments: str) -> set[str]:
    """Top-level packages that a run imports."""
    code = (
        "import sys; from forensics.cli import main; sys.argv[0] = 'forensics'\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert "forensics.cli" in done.stderr
    assert done.stdout
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["diagnose", "--help"], ["rules", "--help"], ["rules", "list", "--help"]],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert (
        imported(*arguments) & {"polars", "docker", "rich", "hyperscan", "regex", "yaml"} == set()
    )


def test_version_imports_nothing_at_all() -> None:
    assert imported("--version") & (HEAVY | {"typer", "click", "json", "subprocess"}) == set()


def test_package_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import forensics, sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert {name.partition(".")[0] for name in done.stdout.split()} & HEAVY == set()


# --------------------------------------------------------------------------------------------- rules


def test_rules_are_listed_for_people_and_programs() -> None:
    people = run("rules", "list", "vllm").stdout.decode().splitlines()
    programs = json.loads(run("rules", "list", "vllm", "--format", "json").stdout)

    assert len(programs) == len(people) - 1 > 20
    assert all(row["id"].startswith("vllm") for row in programs)
    assert people[-1] == f"{len(programs)} rules"


def test_rule_is_shown_and_a_near_name_is_suggested() -> None:
    shown = run("rules", "show", "vllm.unrecognized-arguments")
    near = run("rules", "show", "vllm.unrecognised-arguments")

    assert shown.stdout.startswith(b"vllm.unrecognized-arguments\n")
    assert b"did you mean vllm.unrecognized-arguments" in near.stderr


def test_lint_reports_every_problem_at_once(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("id: x\n")

    done = run("rules", "lint", logs / "typo" / "mine" / "own.yaml", tmp_path / "bad.yaml")

    assert done.returncode == 2
    assert b"unknown condition" in done.stdout
    assert b"bad.yaml" in done.stdout
    assert b"2 problems" in done.stdout


def test_own_rule_is_tested_with_the_shipped_ones(logs: Path) -> None:
    done = run("rules", "test", "mine.own", "--rules", logs / "pack", cwd=logs)

    assert done.returncode == 1
    assert b"mine.own, match[1]: it does not hold" in done.stdout
