"""Any value survives being written into a launch and read again, in every form."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forensics.errors import SourceError
from forensics.launch import quoting, shell, unittext
from forensics.launch.forms import Form
from forensics.launch.model import CannotChange, spliced
from forensics.launch.reading import read_all, read_one

#: Text that a command line can hold: no NUL, and no halves of surrogate pairs.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
#: What people do type: quotes, dollars, braces, blanks, backslashes, percents.
NASTY = st.text("ab'\"\\$`%{}[]!#&|;<>*?~=:, \t-@(1.0äé", max_size=24)
LINE = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufeff"),
    max_size=30,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | LINE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LINE, inner, max_size=3),
    max_leaves=6,
)
OFTEN = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

FORMS = {
    "script": "docker run --gpus all vllm/vllm-openai:v0.20.0 \\\n  --model org/m \\\n  --port 1\n",
    "array": 'A=(\n  --model org/m  # it\n  --port 1\n)\nvllm serve "${A[@]}"\n',
    "bash -c single": "docker run vllm/vllm-openai:v1 bash -c 'vllm serve org/m --port 1'\n",
    "bash -c double": 'docker run vllm/vllm-openai:v1 bash -c "vllm serve org/m --port 1"\n',
    "compose list": (
        "services:\n  a:\n    image: vllm/vllm-openai:v1\n    command:\n"
        "      - --model\n      - org/m  # it\n      - --port\n      - '1'\n"
    ),
    "compose flow": (
        'services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: ["--model", "org/m", "--port", "1"]\n'
    ),
    "compose folded": (
        "services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: >\n"
        "      --model org/m\n      --port 1\n    restart: always\n"
    ),
    "compose double": (
        'services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: "--model org/m --port 1"\n'
    ),
    "compose single": (
        "services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: '--model org/m --port 1'\n"
    ),
    "systemd": "[Service]\nExecStart=/opt/vllm serve org/m \\\n  --port 1\nRestart=always\n",
    "quadlet": "[Container]\nImage=vllm/vllm-openai:v1\nExec=--model org/m --port 1\nShmSize=1g\n",
    "kubernetes": (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:v1\n"
        "    args:\n    - --model=org/m\n    - --port=1\n"
    ),
}


def changed(form: Form, target: str, value: str) -> Form:
    return read_one(spliced(form.launch.text, form.set_argument(target, value)), form.launch.name)


@OFTEN
@given(TEXT | NASTY)
@example("it's")
@example("")
@example("--x\n")
def test_a_word_of_a_shell_is_what_the_shell_reads(value: str) -> None:
    assert [w.value for w in shell.parse(f"x {quoting.shell(value)}").commands[0].words] == [
        "x",
        value,
    ]


@settings(deadline=None, max_examples=25)
@given(TEXT | NASTY)
def test_a_word_of_a_shell_is_what_bash_itself_reads(value: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"printf %s {quoting.shell(value)}"], capture_output=True, check=True
    )
    assert done.stdout.decode() == value


@OFTEN
@given(TEXT | NASTY)
def test_a_word_of_a_unit_is_read_back(value: str) -> None:
    line = f"x {quoting.systemd(value)}" if value else "x ''"
    assert [w.value for w in unittext.words_of(line, 0, len(line), {})] == ["x", value]


@OFTEN
@given(TEXT | NASTY, st.sampled_from([None, "'", '"']))
@example("yes", None)
@example("1e3", None)
@example("a: b #c", None)
def test_a_yaml_scalar_is_text_for_every_reader(value: str, style: str | None) -> None:
    assert yaml.safe_load(f"a: {quoting.yaml_scalar(value, style)}\n") == {"a": value}


@pytest.mark.parametrize("name", FORMS)
@OFTEN
@given(value=NASTY | LINE)
@example(value=":")
def test_any_value_survives_in_every_form(name: str, value: str) -> None:
    form = read_one(FORMS[name], "compose.yaml" if "services" in FORMS[name] else "launch")
    try:
        new = changed(form, "--served-model-name", value)
    except (CannotChange, SourceError):
        # Refusing is right where a form cannot hold a value; writing another one is not.
        assert "'" in value or '"' in value or not value.isprintable()
        return
    option = new.launch.argument("--served-model-name")
    assert option is not None
    assert option.value == value
    assert new.launch.argument("--port") == _moved(new, form)


def _moved(new: Form, old: Form) -> object:
    """The other argument with its new place."""
    now, before = new.launch.argument("--port"), old.launch.argument("--port")
    assert now is not None
    assert before is not None
    assert now.value == before.value
    return now


@pytest.mark.parametrize("name", FORMS)
@OFTEN
@given(
    data=st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True), JSON, min_size=1, max_size=3
    )
)
def test_json_survives_in_every_form_and_can_be_changed_again(
    name: str, data: dict[str, object]
) -> None:
    form = read_one(FORMS[name], "compose.yaml" if "services" in FORMS[name] else "launch")
    text = json.dumps(data)
    try:
        once = changed(form, "--speculative-config", text)
        twice = changed(once, "--speculative-config.zz_last", "1")
    except CannotChange:
        assert name.startswith("bash -c") or not text.isprintable()
        return
    option = twice.launch.argument("--speculative-config")
    assert option is not None
    assert json.loads(option.value or "") == {**data, "zz_last": 1}


@settings(deadline=None, max_examples=80)
@given(st.text("ab -'\"\\\n$(){}#=:[];|&<>dockerunvmsi", max_size=80))
def test_no_text_breaks_the_reader(text: str) -> None:
    for name in ("x.sh", "x.yaml", "x"):
        try:
            forms = read_all(f"docker run {text}", name)
        except SourceError:
            continue
        for form in forms:
            assert form.launch.text == f"docker run {text}"
