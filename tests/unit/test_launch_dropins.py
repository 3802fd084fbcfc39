"""Drop-ins beside a unit: read in order, never written to, and named where they have the last word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from forensics.launch.fixes import apply_one
from forensics.launch.forms import Form
from forensics.launch.model import CannotChange, NothingStarted
from forensics.launch.reading import read_one
from forensics.model import Action, FixAdvice
from forensics.surroundings import beside

UNIT = """[Unit]
Description=llm

[Service]
Environment=A=unit B=unit
ExecStart=/opt/vllm serve org/first --swap-space 4
"""
FOLDER = "llm.service.d/"
ENVIRONMENT = "[Service]\nEnvironment=B=first\n"
LATER = "[Service]\nEnvironment=B=second C=second\n"
COMMAND = "# ours\n[Service]\nExecStart=\nExecStart=/opt/vllm serve org/second --swap-space 8\n"


def files_of(parts: Mapping[str, str], folder: str = FOLDER) -> dict[str, str]:
    return {folder: "\n".join(parts)} | {folder + name: body for name, body in parts.items()}


def form_of(files: Mapping[str, str], name: str = "/etc/systemd/system/llm.service") -> Form:
    return read_one(UNIT, name, files.get)


def again(files: Mapping[str, str]) -> Callable[[str], Form]:
    return lambda text: read_one(text, "llm.service", files.get)


def fix(action: Action, target: str, value: str | None = None) -> FixAdvice:
    return FixAdvice(action, target, value, "", "", 0.9, "safe", None)


def variables(form: Form) -> dict[str, str | None]:
    return {v.name: v.value for v in form.launch.environment}


def test_drop_ins_count_in_the_order_of_their_names() -> None:
    form = form_of(files_of({"20-later.conf": LATER, "10-first.conf": ENVIRONMENT, "notes": "A=9"}))

    assert variables(form) == {"A": "unit", "B": "second", "C": "second"}
    assert form.launch.model == "org/first"
    assert form.launch.limits == (
        "llm.service.d/10-first.conf was read as well",
        "llm.service.d/20-later.conf was read as well",
    )


def test_a_command_of_a_drop_in_is_checked_and_stands_where_the_unit_has_its_own() -> None:
    launch = form_of(files_of({"x.conf": COMMAND})).launch

    assert launch.model == "org/second"
    argument = launch.argument("--swap-space")
    assert argument is not None
    assert (argument.value, argument.line) == ("8", 6)
    assert launch.positions["command"] == 6


@pytest.mark.parametrize(
    "advice",
    [
        fix("set_argument", "--swap-space", "2"),
        fix("set_argument", "--max-model-len", "8192"),
        fix("remove_argument", "--swap-space"),
        fix("rename_argument", "--swap-space", "--cpu-offload-gb"),
    ],
)
def test_a_command_of_a_drop_in_is_not_changed_and_the_drop_in_is_named(advice: FixAdvice) -> None:
    files = files_of({"x.conf": COMMAND})

    with pytest.raises(CannotChange, match=r"is written in llm\.service\.d/x\.conf"):
        apply_one(form_of(files), advice, again(files))


def test_what_the_unit_itself_says_is_changed_there() -> None:
    files = files_of({"x.conf": ENVIRONMENT})

    changed = apply_one(form_of(files), fix("set_env", "A", "new"), again(files))
    changed = apply_one(changed, fix("set_argument", "--swap-space", "2"), again(files))

    expected = UNIT.replace("A=unit", "A=new").replace("--swap-space 4", "--swap-space 2")
    assert changed.launch.text == expected


@pytest.mark.parametrize(("action", "value"), [("set_env", "new"), ("unset_env", None)])
def test_a_variable_of_a_drop_in_is_not_said_to_be_changed(
    action: Action, value: str | None
) -> None:
    files = files_of({"x.conf": ENVIRONMENT})

    with pytest.raises(CannotChange, match=r"llm\.service\.d/x\.conf"):
        apply_one(form_of(files), fix(action, "B", value), again(files))


def test_an_instance_takes_the_drop_ins_of_its_template() -> None:
    files = files_of({"a.conf": ENVIRONMENT}, "llm@.service.d/")

    form = read_one(UNIT, "llm@big.service", files.get)

    assert variables(form)["B"] == "first"


def test_what_systemctl_prints_has_its_drop_ins_already() -> None:
    printed = f"{UNIT}\n# /etc/systemd/system/llm.service.d/x.conf\n{LATER}"

    form = read_one(printed, "llm.service", files_of({"x.conf": ENVIRONMENT}).get)

    assert variables(form)["B"] == "second"
    assert form.launch.limits == ()


def test_a_drop_in_alone_is_read_and_says_what_is_missing() -> None:
    form = read_one(COMMAND, "etc/llm.service.d/x.conf")

    assert form.launch.model == "org/second"
    assert any("unit that it changes was not seen" in limit for limit in form.launch.limits)


def test_a_drop_in_without_a_command_is_told_apart_from_rubbish() -> None:
    with pytest.raises(NothingStarted, match="has no ExecStart="):
        read_one(ENVIRONMENT, "llm.service.d/x.conf")


def test_folders_are_read_from_the_disk_and_never_above(tmp_path: Path) -> None:
    unit = tmp_path / "units" / "llm.service"
    (tmp_path / "units" / FOLDER).mkdir(parents=True)
    (tmp_path / "units" / FOLDER / "x.conf").write_text(ENVIRONMENT)
    (tmp_path / "above.d").mkdir()
    (tmp_path / "above.d" / "y.conf").write_text(LATER)
    unit.write_text(UNIT)
    reads = beside(unit)

    assert variables(read_one(UNIT, str(unit), reads))["B"] == "first"
    assert reads("../above.d/") is None
    assert reads("no.d/") is None
    (tmp_path / "units" / "llm@.service.d").symlink_to(tmp_path / "above.d")
    assert reads("llm@.service.d/") is None
