"""Units with drop-ins after them, as `systemctl cat` prints them: what counts is what systemd runs."""

from __future__ import annotations

import pytest

from forensics.launch import systemd
from forensics.launch.fixes import apply_one
from forensics.launch.model import CannotChange
from forensics.model import FixAdvice

UNIT = """# /etc/systemd/system/llm.service
[Service]
Environment=VLLM_OLD=1 KEEP=2
EnvironmentFile=-/etc/llm.env
ExecStart=/opt/vllm serve org/first --swap-space 4
"""


def only(text: str, files: dict[str, str] | None = None) -> systemd.SystemdForm:
    (form,) = systemd.read(text, "llm.service", (files or {}).get)
    return form


def variables(form: systemd.SystemdForm) -> dict[str, str | None]:
    return {v.name: v.value for v in form.launch.environment}


def test_a_drop_in_replaces_the_command() -> None:
    drop_in = "[Service]\nExecStart=\nExecStart=/opt/vllm serve org/second\n"

    form = only(f"{UNIT}\n# /etc/systemd/system/llm.service.d/override.conf\n{drop_in}")

    assert form.launch.model == "org/second"
    assert form.launch.argument("--swap-space") is None
    assert variables(form)["VLLM_OLD"] == "1"


def test_a_command_that_is_taken_back_starts_nothing() -> None:
    assert systemd.read(f"{UNIT}ExecStart=\n", "llm.service") == []


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_an_empty_environment_takes_back_what_was_set(blank: str) -> None:
    form = only(f"{UNIT}[Service]\nEnvironment={blank}\nEnvironment=NEW=3\n")

    assert variables(form) == {"NEW": "3"}


def test_an_empty_environment_file_takes_back_the_files() -> None:
    files = {"/etc/llm.env": "FROM_FILE=1\n", "/etc/other.env": "OTHER=1\n"}

    form = only(f"{UNIT}EnvironmentFile=\nEnvironmentFile=/etc/other.env\n", files)

    assert variables(form) == {"VLLM_OLD": "1", "KEEP": "2", "OTHER": "1"}


def test_a_file_wins_over_the_environment_of_the_unit() -> None:
    form = only(UNIT, {"/etc/llm.env": "KEEP=file\n"})

    assert variables(form)["KEEP"] == "file"


def test_only_a_variable_in_force_is_changed() -> None:
    text = f"{UNIT}[Service]\nEnvironment=\nEnvironment=VLLM_OLD=5\n"
    fix = FixAdvice("set_env", "VLLM_OLD", "7", "", "", 0.9, "safe", None)

    changed = apply_one(only(text), fix, only)

    assert changed.launch.text == text.replace("VLLM_OLD=5", "VLLM_OLD=7")


def test_a_variable_that_a_file_sets_is_not_said_to_be_changed() -> None:
    files = {"/etc/llm.env": "KEEP=file\n"}
    fix = FixAdvice("set_env", "KEEP", "7", "", "", 0.9, "safe", None)

    with pytest.raises(CannotChange):
        apply_one(only(UNIT, files), fix, lambda body: only(body, files))
