"""Services that are put together of several: by `extends`, of other files, by an override file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from forensics.errors import SourceError
from forensics.launch import fixes
from forensics.launch.composeform import ComposeForm
from forensics.launch.model import CannotChange, spliced
from forensics.launch.reading import read_all
from forensics.model import FixAdvice

SAME = """services:
  base:
    image: vllm/vllm-openai:v0.20.0   # pinned
    command: ["--model", "org/model", "--max-model-len", "8192"]
    environment:
      A: low
      B: low
    volumes: ["models:/root/.cache/huggingface"]
  big:
    extends: {service: base}
    environment: {A: "high"}
    ipc: host
  other:
    image: redis
"""
COMMON = """services:
  base:
    image: vllm/vllm-openai:v0.20.0
    ipc: host
    env_file: secrets.env
    command:
      - --model
      - org/model
      - --max-model-len
      - "8192"
    environment:
      A: low
      B: low
"""
OTHER = """services:
  big:
    extends:
      file: shared/common.yml
      service: base
    environment:
      A: high
"""


def forms(text: str, files: Mapping[str, str] | None = None, name: str = "c.yml") -> dict[str, Any]:
    found = read_all(text, name, (files or {}).get)
    assert all(isinstance(form, ComposeForm) for form in found)
    return {str(form.launch.service): form for form in found}


def variables(form: ComposeForm) -> dict[str, str | None]:
    return {v.name: v.value for v in form.launch.environment}


def changed(form: ComposeForm, splices: list[Any]) -> str:
    text = spliced(form.launch.text, splices)
    YAML(typ="safe", pure=True).load(text)
    return text


def test_a_service_has_what_it_extends() -> None:
    found = forms(SAME)
    assert set(found) == {"base", "big"}
    big = found["big"].launch
    assert (big.image, big.program, big.model) == ("vllm/vllm-openai:v0.20.0", "vllm", "org/model")
    assert variables(found["big"]) == {"A": "high", "B": "low"}
    assert big.option("--ipc").value == "host"
    assert big.option("--volume").value == "models:/root/.cache/huggingface"
    assert big.positions["image"] == 3
    assert big.limits == ()


def test_what_is_written_once_is_changed_there() -> None:
    big = forms(SAME)["big"]
    assert "v0.20.1   # pinned" in changed(big, big.set_image("vllm/vllm-openai:v0.20.1"))
    assert '"--max-model-len", "4096"' in changed(big, big.set_argument("--max-model-len", "4096"))
    assert '{A: "top"}' in changed(big, big.set_variable("A", "top"))
    assert "B: top" in changed(big, big.set_variable("B", "top"))
    assert '{A: "high", C: "new"}' in changed(big, big.set_variable("C", "new"))
    again = forms(changed(big, big.set_option("--shm-size", "16g")))
    assert again["big"].launch.option("--shm-size").value == "16g"
    assert again["base"].launch.option("--shm-size") is None


def test_another_file_is_read_and_overridden_but_never_changed() -> None:
    files = {"shared/common.yml": COMMON, "shared/secrets.env": "S=1\n"}
    big = forms(OTHER, files)["big"]
    assert big.launch.image == "vllm/vllm-openai:v0.20.0"
    assert big.launch.model == "org/model"
    assert variables(big) == {"S": "1", "A": "high", "B": "low"}
    assert any("shared/common.yml was read" in limit for limit in big.launch.limits)
    assert big.launch.positions["image"] == 3

    text = OTHER
    changes: list[Callable[[Any], list[Any]]] = [
        lambda f: f.set_image("vllm/vllm-openai:v0.20.1"),
        lambda f: f.set_variable("B", "top"),
        lambda f: f.set_option("--ipc", "private"),
        lambda f: f.set_argument("--max-model-len", "4096"),
        lambda f: f.set_argument("--enforce-eager", None),
        lambda f: f.set_option("--volume", "data:/data"),
    ]
    for change in changes:
        form = forms(text, files)["big"]
        text = changed(form, change(form))
    form = forms(text, files)["big"]
    assert form.launch.image == "vllm/vllm-openai:v0.20.1"
    assert variables(form) == {"S": "1", "A": "high", "B": "top"}
    assert form.launch.option("--ipc").value == "private"
    assert form.launch.argument("--max-model-len").value == "4096"
    assert form.launch.argument("--enforce-eager") is not None
    assert form.launch.model == "org/model"
    assert form.launch.option("--volume").value == "data:/data"


def test_arguments_of_another_file_can_be_taken_out() -> None:
    files = {"shared/common.yml": COMMON}
    big = forms(OTHER, files)["big"]
    text = changed(big, big.remove_argument("--max-model-len"))
    assert forms(text, files)["big"].launch.words == ("--model", "org/model")


def test_an_override_file_has_the_last_word() -> None:
    base = COMMON.replace("  base:", "  server:")
    over = """services:
  server:
    image: vllm/vllm-openai:v0.19.0
    environment: {A: over}
  helper: {image: redis}
"""
    files = {"docker-compose.override.yml": over}
    form = forms(base, files, "deploy/docker-compose.yml")["server"]
    assert form.launch.image == "vllm/vllm-openai:v0.19.0"
    assert variables(form) == {"A": "over", "B": "low"}
    assert any("docker-compose.override.yml was read" in limit for limit in form.launch.limits)
    with pytest.raises(CannotChange, match="override"):
        form.set_image("vllm/vllm-openai:v0.20.1")
    with pytest.raises(CannotChange, match="override"):
        form.set_variable("A", "new")
    assert "B: new" in changed(form, form.set_variable("B", "new"))
    # Only where compose reads it unasked.
    assert forms(base, files, "prod.yml")["server"].launch.image == "vllm/vllm-openai:v0.20.0"


def test_chains_are_followed_and_circles_end() -> None:
    chain = SAME.replace(
        "  other:\n    image: redis", "  huge:\n    extends: big\n    ipc: private"
    )
    huge = forms(chain)["huge"]
    assert huge.launch.model == "org/model"
    assert huge.launch.option("--ipc").value == "private"
    assert variables(huge) == {"A": "high", "B": "low"}
    circle = """services:
  a: {image: "vllm/vllm-openai:v0.20.0", extends: b}
  b: {extends: a}
"""
    assert any("circle" in limit for limit in forms(circle)["a"].launch.limits)


@pytest.mark.parametrize(
    ("extends", "says"),
    [
        ("{service: nobody}", "this file does not have"),
        ("{file: gone.yml, service: base}", "gone.yml was not read"),
        ("{file: bad.yml, service: base}", "bad.yml was not read"),
        ("{file: good.yml, service: nobody}", "good.yml does not have"),
        ("[1, 2]", "names no service"),
    ],
)
def test_what_cannot_be_read_is_said(extends: str, says: str) -> None:
    text = f"""services:
  one:
    image: vllm/vllm-openai:v0.20.0
    command: --model org/model
    extends: {extends}
  two:
    extends: {extends}
"""
    found = forms(text, {"bad.yml": "a: [", "good.yml": "services: {}"})
    assert set(found) == {"one"}
    limits = found["one"].launch.limits
    assert any(says in limit and "two" not in limit for limit in limits)
    assert any("not checked: two" in limit for limit in limits)


def test_an_included_file_that_is_not_there_is_named() -> None:
    found = forms("include: [more.yml]\n" + SAME)
    assert any("include" in limit for limit in found["base"].launch.limits)


def test_a_command_with_variables_of_another_file_is_left_alone() -> None:
    files = {"shared/common.yml": COMMON.replace("org/model", "${MODEL:-org/model}")}
    big = forms(OTHER, files)["big"]
    assert big.launch.model == "org/model"
    with pytest.raises(CannotChange, match=r"shared/common\.yml"):
        big.set_argument("--max-model-len", "4096")


def test_variables_are_joined_whichever_way_each_layer_writes_them() -> None:
    text = SAME.replace('environment: {A: "high"}', 'environment: ["A=high", "C=own"]')
    big = forms(text)["big"]
    assert variables(big) == {"A": "high", "B": "low", "C": "own"}
    assert variables(forms(changed(big, big.set_variable("B", "top")))["big"])["B"] == "top"


@pytest.mark.parametrize("entry", ["- llm/compose.yml", "- path: [llm/compose.yml]"])
def test_included_files_are_read_and_never_changed(entry: str) -> None:
    text = f"include:\n  {entry}\nservices:\n  web:\n    image: nginx\n"
    found = forms(text, {"llm/compose.yml": SAME})

    assert set(found) == {"base", "big"}
    form = found["big"]
    assert form.launch.model == "org/model"
    assert variables(form) == {"A": "high", "B": "low"}
    assert form.launch.positions["command"] == 2
    assert "llm/compose.yml was read as well" in form.launch.limits
    for advice in (
        FixAdvice("switch_image", "image", "a/b:1", "", "", 0.9, "safe", None),
        FixAdvice("set_env", "NEW", "1", "", "", 0.9, "safe", None),
        FixAdvice("set_argument", "--max-model-len", "4096", "", "", 0.9, "safe", None),
        FixAdvice("runtime_option", "--shm-size", "16g", "", "", 0.9, "safe", None),
    ):
        with pytest.raises(CannotChange):
            fixes.change(form, advice)


@pytest.mark.parametrize("tag", ["!reset null", "!reset []"])
def test_reset_takes_back_what_stands_below(tag: str) -> None:
    text = SAME.replace("    ipc: host", f"    ipc: host\n    volumes: {tag}")
    over = f"services:\n  base:\n    volumes: {tag}\n"

    assert forms(text)["big"].launch.option("--volume") is None
    found = forms(SAME, {"compose.override.yml": over}, "compose.yml")
    assert found["base"].launch.option("--volume") is None


def test_override_replaces_what_stands_below() -> None:
    text = SAME.replace("    ipc: host", "    ipc: host\n    volumes: !override ['b:/b']")
    text = text.replace('environment: {A: "high"}', 'environment: !override {A: "high"}')

    form = forms(text)["big"]

    assert [o.value for o in form.launch.options if o.name == "--volume"] == ["b:/b"]
    assert variables(form) == {"A": "high"}


BITS = st.sampled_from(
    ["services:", "  a:", "  b:", "    extends: a", "    extends: {service: b, file: x.yml}",
     "    image: vllm/vllm-openai:v0.20.0", "    command: [--model, m]", "include: [x.yml]",
     "    environment: [A=1]", "    environment: {A: !reset 1}", "    env_file: {path: x.yml}",
     "    volumes:", "    volumes: !override [a:/b]", "    image: !reset null", "      - a:/b", "      - {source: a, target: /b}"]
)  # fmt: skip


@given(st.lists(BITS, max_size=14), st.lists(BITS, max_size=14))
def test_no_way_of_putting_files_together_breaks_the_reader(
    own: list[str], other: list[str]
) -> None:
    files = {"x.yml": "\n".join(other), "compose.override.yml": "\n".join([*other, *own])}
    try:
        found = read_all("\n".join(own), "compose.yaml", files.get)
    except SourceError:
        return
    for form in found:
        assert all(0 < option.line <= len(own) for option in form.launch.options)
