"""A launch before its start: findings at its lines, corrected scripts, formats and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forensics.analysis import Engine, prepare
from forensics.errors import SourceError
from forensics.launch import grammar
from forensics.launch.facts import context_of, version_of_image
from forensics.launch.reading import read_one
from forensics.model import Hardware
from forensics.preflight import Checked, Known, check

SAMPLES = Path(__file__).parents[2] / "samples" / "launch"
PINNED = "vllm/vllm-openai@sha256:3dbe092ec5b2cef63b6104d33fa75d6ce53a7870962529ada69f78bbbc38e776"


@cache
def engine() -> Engine:
    return prepare()


def checked(text: str, name: str = "run.sh", known: Known | None = None) -> Checked:
    return check(read_one(text, name), engine(), known)


def rules(one: Checked) -> list[str]:
    return [f.rule for f in one.diagnosis.findings]


@pytest.mark.parametrize("name", ["script/nemotron-spark.sh", "script/nemotron-nightly.sh"])
@pytest.mark.parametrize("gpu", ["NVIDIA GB10", None])
def test_the_launch_of_a_spark_is_corrected_in_one_go(name: str, gpu: str | None) -> None:
    text = (SAMPLES / name).read_text()

    one = checked(text, known=Known(hardware=Hardware(gpu=gpu, arch="aarch64")))

    suggested = one.diagnosis.suggested_launch
    assert suggested is not None
    launch = read_one(suggested.text, "run.sh").launch
    assert launch.image == PINNED
    assert launch.option("--rm") is None
    config = launch.argument("--speculative-config")
    assert config is not None
    assert json.loads(config.value or "") == {"method": "mtp", "num_speculative_tokens": 1}
    # Each change says what and why, and everything else is as it was.
    assert all(c.text and c.why for c in suggested.changes)
    assert {c.action for c in suggested.changes} <= {
        "remove_argument", "switch_image", "pin_digest", "set_argument",
    }  # fmt: skip
    changed = [row for row in suggested.diff.splitlines()[2:] if row[:1] == "-"]
    assert len(changed) == 3
    before = read_one(text, "run.sh").launch
    assert [a.name for a in launch.arguments] == [a.name for a in before.arguments]


def test_a_finding_stands_at_its_line() -> None:
    text = "#!/bin/sh\n\ndocker run --gpus all \\\n  vllm/vllm-openai:v0.20.0 \\\n  m/x --swap-space 4\n"
    one = checked(text)
    root = one.diagnosis.root_cause
    assert root is not None
    assert (root.line, root.text, root.rule) == (
        5, "  m/x --swap-space 4", "preflight.argument-removed",
    )  # fmt: skip
    assert one.diagnosis.verdict == "diagnosed"
    assert one.diagnosis.run.engine_version == "0.20.0"


def test_every_mistake_of_one_kind_is_found() -> None:
    one = checked(
        "docker run --gpus all vllm/vllm-openai:v0.20.0 m/x --fooo 1 --baar 2 --swap-space 4\n"
    )
    named = [f.captures["option"] for f in one.diagnosis.findings if f.severity == "fatal"]
    assert sorted(named) == ["--baar", "--fooo", "--swap-space"]
    assert [f.role for f in one.diagnosis.findings][:3] == [
        "root_cause",
        "contributing",
        "contributing",
    ]


def test_nothing_is_said_of_options_where_the_release_is_not_known() -> None:
    one = checked("docker run --gpus all vllm/vllm-openai:nightly m/x --swap-space 4\n")
    assert "preflight.argument-removed" not in rules(one)
    assert any("--engine-version" in text for text in one.diagnosis.limits)
    again = checked(
        "docker run --gpus all vllm/vllm-openai:nightly m/x --swap-space 4\n",
        known=Known(versions={"vllm": "0.20.0"}),
    )
    assert "preflight.argument-removed" in rules(again)


def test_a_release_newer_than_the_tables_is_not_judged_by_them() -> None:
    one = checked("docker run --gpus all vllm/vllm-openai:v9.9.9 m/x --brand-new-option 4\n")
    assert "preflight.unknown-argument" not in rules(one)


@pytest.mark.parametrize(
    ("short", "config"),
    [
        ("-O3", {"level": 3}),
        ("-O 3", {"level": 3}),
        ("-O.level=3", {"level": 3}),
        ("-O '{\"level\":3}'", {"level": 3}),
    ],
)
def test_a_short_option_means_what_it_meant_in_that_release(
    short: str, config: dict[str, int]
) -> None:
    text = f"docker run --gpus all vllm/vllm-openai:v0.11.0 --model org/m {short}\n"
    launch = read_one(text, "run.sh").launch

    old = context_of(launch, versions={"vllm": "0.11.0"}).arguments or {}
    new = context_of(launch, versions={"vllm": "0.12.0"}).arguments or {}

    assert old["compilation_config"] == config
    assert "optimization_level" not in old
    assert "optimization_level" in new
    assert checked(text).diagnosis.verdict == "healthy"


def test_a_launch_without_fault_has_no_root_cause() -> None:
    one = checked(
        f"docker run -d --name a --gpus all --ipc=host -p 8000:8000 "
        f"-v /srv/hf:/root/.cache/huggingface {PINNED} --model m/x\n"
    )
    assert one.diagnosis.verdict == "healthy"
    assert one.diagnosis.root_cause is None
    assert one.diagnosis.findings == []
    assert one.correction is None


def test_what_stands_in_a_quoted_script_of_a_unit_is_checked_and_not_changed() -> None:
    text = "[Service]\nExecStart=/bin/sh -c 'vllm serve m/x --gpu-memory-utilization 90'\n"
    one = checked(text, "a.service")
    assert rules(one) == ["preflight.memory-utilization-above-one"]
    assert one.diagnosis.suggested_launch is None
    assert any("not written into the launch" in text for text in one.diagnosis.limits)


def test_every_sample_is_checked_without_an_error() -> None:
    for path in sorted(SAMPLES.glob("*/*")):
        one = checked(path.read_bytes().decode(), path.name)
        for finding in one.diagnosis.findings:
            lines = path.read_text().splitlines()
            for citation in finding.evidence:
                if one.evidence.source.name.endswith(".json"):
                    continue
                assert citation.text == lines[citation.line - 1]


def test_the_same_launch_gives_the_same_bytes() -> None:
    text = (SAMPLES / "script/nemotron-spark.sh").read_text()
    assert msgspec.json.encode(checked(text).diagnosis) == msgspec.json.encode(
        checked(text).diagnosis
    )


def test_a_secret_is_masked_in_the_report_and_kept_in_the_file() -> None:
    token = "hf_" + "Ab1" * 12
    one = checked(
        f"docker run --rm -e HF_TOKEN={token} --gpus all vllm/vllm-openai:v0.20.0 --model /m\n"
    )
    assert token not in msgspec.json.encode(one.diagnosis).decode()
    assert "preflight.secret-on-command-line" in rules(one)
    assert one.correction is not None
    # The fix passes the variable through, so here even the file loses it.
    assert "-e HF_TOKEN " in one.correction.text


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:v0.20.0-cu130", {"vllm": "0.20.0"}),
        (PINNED, {"vllm": "0.19.2rc1.dev134+gfe9c3d6c5"}),
        ("vllm/vllm-openai:v0.99.1", {"vllm": "0.99.1"}),
        ("registry.example/mirror/vllm-openai:v0.22.1", {"vllm": "0.22.1"}),
        ("lmsysorg/sglang:v0.5.6-cu130", {"sglang": "0.5.6"}),
        ("vllm/vllm-openai:nightly", {}),
        ("vllm/vllm-openai:cu130-nightly", {}),
        ("nvcr.io/nvidia/vllm:25.12-py3", {"vllm": "0.11.1"}),
        ("nginx:1.29", {}),
        (None, {}),
    ],
)
def test_the_version_of_an_image(image: str | None, expected: dict[str, str]) -> None:
    assert version_of_image(image, engine().rules.tables) == expected


def test_short_options_are_those_of_the_table() -> None:
    flags: dict[str, Any] = engine().rules.tables["flags"]["flags"]
    table = {short: name for name, entry in flags.items() for short in entry.get("short") or []}
    # -O was --compilation-config once and is a level of optimization now.
    assert {k: v for k, v in table.items() if k != "-O"} == {
        k: v for k, v in grammar.SHORT["vllm"].items() if k in table and k != "-O"
    }


def test_options_that_take_json_are_options() -> None:
    table = engine().rules.tables["flags"]
    assert [name for name in table["json_options"] if name not in table["flags"]] == []


def test_a_context_for_a_diagnosis_cites_no_line_of_the_launch() -> None:
    context = context_of(read_one("docker run --rm vllm/vllm-openai:v0.20.0 m/x\n", "r.sh").launch)
    assert context.auto_remove is True
    assert context.image == "vllm/vllm-openai:v0.20.0"
    assert context.facts is not None
    assert context.facts.before_start is False
    assert context.whole is False


def test_a_file_that_starts_nothing_is_refused() -> None:
    with pytest.raises(SourceError, match="starts no container"):
        read_one("echo hello\n", "x.sh")


# --- the command -------------------------------------------------------------------------------


def forensics(*words: str, data: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forensics", *words],
        capture_output=True, text=True, input=data, check=False, timeout=60,
    )  # fmt: skip


def test_the_command_says_why_it_will_fail_and_writes_a_copy(tmp_path: Path) -> None:
    script = SAMPLES / "script/ngc.sh"
    fixed = tmp_path / "fixed.sh"
    original = script.read_bytes()

    done = forensics(
        "preflight",
        str(script),
        "--offline",
        "--engine-version",
        "0.20.0",
        "--apply-to",
        str(fixed),
    )

    assert done.returncode == 1
    assert done.stderr == ""
    assert done.stdout.startswith("WILL FAIL  1 fatal")
    assert "--swap-space is gone from this release [fatal]" in done.stdout
    assert "Corrected launch: " in done.stdout
    assert "--swap-space" not in fixed.read_text()
    assert script.read_bytes() == original
    again = forensics(
        "preflight",
        str(script),
        "--offline",
        "--engine-version",
        "0.20.0",
        "--apply-to",
        str(fixed),
    )
    assert again.returncode == 2
    assert "is there already" in again.stderr


def test_standard_input_json_and_exit_codes() -> None:
    good = f"docker run -d --gpus all --ipc=host -p 1:1 -v /h:/root/.cache {PINNED} --model m/x\n"
    done = forensics("preflight", "-", "--offline", "--format", "json", data=good)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["schema"] == "forensics/diagnosis/1"
    assert document["source"]["kind"] == "launch"
    assert document["suggested_launch"] is None
    assert forensics("preflight", "-", "--offline", data="echo\n").returncode == 2
    assert forensics("preflight", "/nowhere/x.sh").returncode == 2
    assert forensics("preflight").returncode == 2


def test_sarif_for_several_files_is_one_log() -> None:
    names = [str(SAMPLES / "script/nemotron-spark.sh"), str(SAMPLES / "systemd/docker.service")]
    done = forensics("preflight", *names, "--offline", "--format", "sarif")
    log = json.loads(done.stdout)
    results = log["runs"][0]["results"]
    assert log["version"] == "2.1.0"
    assert {
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results
    } == set(names)
    described = [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]]
    assert all(described[r["ruleIndex"]] == r["ruleId"] for r in results)
    assert all(r["locations"][0]["physicalLocation"]["region"]["startLine"] > 0 for r in results)


def test_a_diagnosis_with_its_launch_hands_back_the_corrected_script(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("vllm: error: unrecognized arguments: --swap-space 4\n")
    script = SAMPLES / "script/ngc.sh"
    fixed = tmp_path / "fixed.sh"

    done = forensics(
        "diagnose", str(log), "--launch", str(script), "--apply-to", str(fixed), "--format", "json"
    )

    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["image"] == "nvcr.io/nvidia/vllm:26.03.post1-py3"
    suggested = document["suggested_launch"]
    assert suggested["kind"] == "script"
    assert "--swap-space" not in suggested["text"]
    assert fixed.read_text() == suggested["text"]
    assert '-  vllm serve "nvidia/Llama-3.1-8B-Instruct-FP8" --swap-space 4' in suggested["diff"]
    shown = forensics("diagnose", str(log), "--launch", str(script))
    assert "Corrected launch: " in shown.stdout


def test_an_inspect_file_beside_the_log_is_rebuilt(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("vllm: error: unrecognized arguments: --swap-space 4\n")
    (tmp_path / "inspect.json").write_text((SAMPLES / "inspect/container-alone.json").read_text())
    done = forensics("diagnose", str(tmp_path / "log.txt"), "--format", "json")
    suggested = json.loads(done.stdout)["suggested_launch"]
    assert suggested["kind"] == "inspect"
    assert suggested["text"].startswith("docker run -d \\\n  --name nemotron")
    assert "--swap-space" not in suggested["text"]


def test_files_that_start_nothing_are_passed_over_where_asked(tmp_path: Path) -> None:
    other = tmp_path / "compose.yaml"
    other.write_text("volumes:\n  a: {}\n")
    assert forensics("preflight", str(other), "--offline").returncode == 2
    done = forensics("preflight", str(other), "--offline", "--skip-unrelated")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
