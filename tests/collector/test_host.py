"""The host's answers: each probe has one, or says why not, and none can fail."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from forensics.collector import host
from forensics.collector.host import Nothing, probes


def test_every_question_is_answered_or_says_why_not() -> None:
    found = probes("2026-12-01T02:00:00Z", "2026-12-01T02:10:00Z")
    assert [one.name for one in found] == ["memory", "pressure", "kernel", "gpu", "room"]
    for one in found:
        assert one.problem or one.values or one.text
    memory = found[0]
    assert memory.values["MemTotal"] > memory.values["MemAvailable"] > 0


def test_a_probe_that_fails_or_hangs_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> host.Values:
        raise RuntimeError("boom")

    def hangs() -> host.Values:
        time.sleep(3)
        return None, {}

    monkeypatch.setattr(host, "memory", fails)
    monkeypatch.setattr(host, "pressure", hangs)
    monkeypatch.setattr(host, "_ALL_S", 0.3)
    found = {one.name: one for one in probes(None, None)}
    assert found["memory"].problem == "RuntimeError: boom"
    assert found["pressure"].problem == "no answer in time"


def made(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_kernel_and_the_gpu_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(
        tmp_path,
        "journalctl",
        'echo "$@" >"$(dirname "$0")/asked"\n'
        "echo '2026-12-01T02:03:04+0000 h kernel: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen'\n"
        "echo '2026-12-01T02:03:05+0000 h kernel: usb 1-1: new device'\n"
        "echo '2026-12-01T02:03:06+0000 h kernel: Out of memory: Killed process 12 (VLLM)'\n",
    )
    made(tmp_path, "nvidia-smi", "echo 'NVIDIA GB10, 580.95.05, 12.1, 1, 2, 3, 40, P0'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(host, "_ANSWERS", {})
    found = {one.name: one for one in probes("2026-12-01T02:00:00Z", "2026-12-01T02:10:00Z")}
    assert found["kernel"].values == {"oom": 1, "xid": 1}
    assert "usb" not in (found["kernel"].text or "")
    asked = (tmp_path / "asked").read_text()
    assert "--since=2026-12-01 01:59:30 UTC" in asked
    assert "--until=2026-12-01 02:10:30 UTC" in asked
    assert found["gpu"].values["driver"] == "580.95.05"
    assert found["gpu"].values["compute_capability"] == "12.1"


@pytest.mark.parametrize(
    ("script", "why"), [("echo no GPU here >&2; exit 9", "no GPU here"), ("true", "lists no GPU")]
)
def test_a_tool_that_has_nothing_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    made(tmp_path, "nvidia-smi", script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(Nothing, match=why):
        host.gpu()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(Nothing, match="nvidia-smi is not installed"):
        host.gpu()
