"""The launch files under samples/launch: each read as what it is, written back as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.launch.fixes import apply_one
from forensics.launch.forms import Form
from forensics.launch.model import CannotChange, spliced
from forensics.launch.reading import read_all
from forensics.launch.suggesting import again
from forensics.launch.values import arguments
from forensics.model import FixAdvice

FOLDER = Path(__file__).parents[2] / "samples" / "launch"
FILES = sorted(path for path in FOLDER.glob("*/*") if path.is_file())
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def text_of(path: Path) -> str:
    return path.read_bytes().decode()


def forms() -> list[Any]:
    return [
        pytest.param(form, id=f"{path.parent.name}/{path.name}#{number}")
        for path in FILES
        for number, form in enumerate(read_all(text_of(path), path.name))
    ]


def summary(form: Form) -> dict[str, Any]:
    launch = form.launch
    return {
        "kind": launch.kind,
        "service": launch.service,
        "runtime": launch.runtime,
        "program": launch.program,
        "image": launch.image,
        "model": launch.model,
        "arguments": arguments(launch.arguments),
        "options": [[o.name, o.value] for o in launch.options],
        "environment": {v.name: v.value for v in launch.environment},
        "problems": [p.kind for p in launch.problems],
    }


def test_there_are_at_least_forty() -> None:
    assert len(FILES) >= 40
    assert {path.parent.name for path in FILES} == {
        "script", "command", "compose", "systemd", "kubernetes", "inspect",
    }  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_each_is_read_as_what_it_is(path: Path) -> None:
    found = [summary(form) for form in read_all(text_of(path), path.name)]
    assert found == EXPECTED[f"{path.parent.name}/{path.name}"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_without_a_change_each_is_written_back_byte_for_byte(path: Path) -> None:
    raw = path.read_bytes()
    for form in read_all(raw.decode(), path.name):
        if form.launch.kind != "inspect":
            assert spliced(form.launch.text, []).encode() == raw


@pytest.mark.parametrize("form", forms())
def test_each_word_written_anew_means_the_same(form: Form) -> None:
    """The round trip that can fail: every value is written again in its place, and read back."""
    before = summary(form)
    read = again(form)
    for option in form.launch.arguments:
        if option.joined or len(option.words) != 2 or not option.words[1].exact:
            continue
        if not option.words[1].whole:
            continue
        try:
            splices = form.replace(option.words[1], option.words[1].value)
        except CannotChange:
            continue
        assert summary(read(spliced(form.launch.text, splices))) == before


@pytest.mark.parametrize("form", forms())
def test_taking_out_what_was_put_in_gives_the_same_bytes(form: Form) -> None:
    if form.launch.program is None or form.tail is None:
        return
    read = again(form)
    put = FixAdvice("set_argument", "--zz-probe", "7", "", "", 1, "safe", None)
    out = FixAdvice("remove_argument", "--zz-probe", None, "", "", 1, "safe", None)
    try:
        more = apply_one(form, put, read)
    except CannotChange as reason:
        assert "variable" in str(reason) or "written" in str(reason)  # noqa: PT017 - both are fine
        return

    assert more.launch.argument("--zz-probe") is not None
    assert apply_one(more, out, read).launch.text == form.launch.text
