"""What is known beside the launch: the model's configuration, the machine, hooks and copies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from forensics import surroundings
from forensics.launch.reading import read_one

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "launch"


def forensics(*words: str, data: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forensics", "preflight", *words],
        capture_output=True, text=True, input=data, check=False, timeout=60,
    )  # fmt: skip


def rules(*words: str, data: str) -> list[str]:
    done = forensics("-", "--format", "json", *words, data=data)
    assert done.stderr == ""
    return [f["rule"] for f in json.loads(done.stdout)["findings"]]


def model(folder: Path, heads: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": heads}))
    return folder


@pytest.mark.parametrize(
    ("heads", "size", "wrong"), [(32, 3, True), (32, 4, False), (28, 8, True), (28, 4, False)]
)
def test_heads_are_asked_of_the_folder_that_is_mounted(
    tmp_path: Path, heads: int, size: int, *, wrong: bool
) -> None:
    folder = model(tmp_path / "models" / "mine", heads).parent
    text = (
        f"docker run --gpus all --ipc=host -v {folder}:/models:ro vllm/vllm-openai:v0.20.0 "
        f"--model /models/mine --tensor-parallel-size {size}\n"
    )

    config = surroundings.model_config(read_one(text, "run.sh").launch)
    assert config == {"num_attention_heads": heads}
    found = rules("--offline", "--model-config", str(folder / "mine"), data=text)
    assert ("preflight.heads-not-divisible" in found) is wrong


def test_heads_are_not_judged_where_no_configuration_is_readable(tmp_path: Path) -> None:
    text = "vllm serve /nowhere/at/all --tensor-parallel-size 3\n"
    assert surroundings.model_config(read_one(text, "run.sh").launch) is None
    assert "preflight.heads-not-divisible" not in rules("--offline", data=text)

    (tmp_path / "config.json").write_text("[")
    done = forensics("-", "--model-config", str(tmp_path), data=text)
    assert done.returncode == 2
    assert "is no model configuration" in done.stderr


def test_the_cache_of_the_hub_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / ".cache/huggingface/hub/models--org--m/snapshots/abc"
    model(hub, 12)
    monkeypatch.setenv("HOME", str(tmp_path))

    launch = read_one("vllm serve org/m --tensor-parallel-size 5\n", "run.sh").launch

    assert surroundings.model_config(launch) == {"num_attention_heads": 12}


@pytest.mark.parametrize(("arch", "wrong"), [("x86_64", True), ("aarch64", False)])
def test_an_image_for_another_architecture_is_told(arch: str, *, wrong: bool) -> None:
    text = "docker run --gpus all ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest vllm serve m/x\n"

    found = rules("--offline", "--arch", arch, data=text)

    assert ("preflight.image-for-other-machines" in found) is wrong


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("--dtype fp17", "preflight.value-not-a-choice"),
        ("--speculative-config {method:mtp,num_speculative_tokens:1}", "preflight.json-quotes-eaten"),
        ('--speculative-config {"method":"mtp","num_speculative_tokens":1}',
         "preflight.json-quotes-eaten"),
        ("""--speculative-config "{'method':'mtp','num_speculative_tokens':1}" """,
         "preflight.json-single-quotes"),
        ("--speculative-config '{\u201cmethod\u201d:\u201cmtp\u201d}'",
         "preflight.json-typographic-quotes"),
        ("""--speculative-config '{"method":"mtp","num_speculative_tokns":1}'""",
         "preflight.speculative-key-unknown"),
        ("""--speculative-config '{"method":"mtb","num_speculative_tokens":1}'""",
         "preflight.speculative-method-unknown"),
        ("""--speculative-config '{"method":"mtp","num_speculative_tokens":1'""",
         "preflight.json-malformed"),
        ("--tensor-paralel-size 2", "preflight.unknown-argument"),
    ],
)  # fmt: skip
def test_values_and_json_are_checked_against_the_release(words: str, rule: str) -> None:
    head = "docker run --gpus all --ipc=host vllm/vllm-openai:v0.20.0 --model org/m"

    assert rule in rules("--offline", data=f"{head} {words}\n")
    assert rule not in rules("--offline", data=f"{head}\n")


def test_the_launch_itself_is_never_written_to(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    raw = (SAMPLES / "script/nemotron-spark.sh").read_bytes()
    script.write_bytes(raw)
    (tmp_path / "link.sh").symlink_to(script)

    for target in (script, tmp_path / "link.sh", tmp_path / "." / "run.sh"):
        done = forensics(str(script), "--offline", "--apply-to", str(target))
        assert done.returncode == 2
        assert script.read_bytes() == raw


def test_one_command_gives_the_whole_correction(tmp_path: Path) -> None:
    fixed = tmp_path / "fixed.sh"

    done = forensics(
        str(SAMPLES / "script/nemotron-spark.sh"), "--offline", "--apply-to", str(fixed)
    )

    launch = read_one(fixed.read_text(), "fixed.sh").launch
    assert launch.image is not None
    assert re.search(r"@sha256:[0-9a-f]{64}\Z", launch.image)
    assert launch.option("--rm") is None
    config = launch.argument("--speculative-config")
    assert config is not None
    assert json.loads(config.value or "")["num_speculative_tokens"] == 1
    shown = done.stdout.partition("Corrected launch: 3 changes")[2]
    assert len(re.findall(r"^  \d\. ", shown, re.MULTILINE)) == 3
    assert subprocess.run(["bash", "-n", str(fixed)], check=False).returncode == 0


def test_the_hook_takes_launch_files_and_its_options_are_real() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    wanted = re.compile(hook["files"])

    for name in ("docker-compose.yml", "deploy/vllm.service", "run/llm.container", "serve_qwen.sh"):
        assert wanted.search(name), name
    for name in ("README.md", "src/main.py", "values.yaml"):
        assert not wanted.search(name), name
    program, command, *options = hook["entry"].split()
    assert (program, command) == ("forensics", "preflight")
    bad = SAMPLES / "script/broken-quotes.sh"
    assert forensics(*options, str(ROOT / "Makefile"), str(bad)).returncode == 1
    assert forensics(*options, str(SAMPLES / "script/variables.sh")).returncode == 0


def results(log: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log["runs"][0]["results"]
    return found


def test_sarif_has_what_the_standard_asks_for() -> None:
    """Required properties and closed lists of SARIF 2.1.0 (sections 3.13, 3.14, 3.19, 3.27)."""
    names = [str(SAMPLES / name) for name in ("script/nemotron-spark.sh", "systemd/qwen.container")]
    names.append(str(SAMPLES / "compose/list-command.yml"))
    log = json.loads(forensics(*names, "--offline", "--format", "sarif").stdout)

    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith(".json")
    driver = log["runs"][0]["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    assert results(log)
    for one in results(log):
        assert one["message"]["text"]
        assert one["level"] in {"none", "note", "warning", "error"}
        assert ids[one["ruleIndex"]] == one["ruleId"]
        for place in one["locations"]:
            physical = place["physicalLocation"]
            assert Path(physical["artifactLocation"]["uri"]).is_file()
            lines = Path(physical["artifactLocation"]["uri"]).read_text().splitlines()
            assert 1 <= physical["region"]["startLine"] <= len(lines)
