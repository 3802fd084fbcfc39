"""Podman's `.container` units: keys are options, and a change is made where the key stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.launch import quadlet
from forensics.launch.fixes import apply_one
from forensics.launch.model import CannotChange
from forensics.launch.reading import read_one
from forensics.launch.values import arguments
from forensics.model import Action, FixAdvice

UNIT = """# ~/.config/containers/systemd/llm.container
[Unit]
Description=Qwen on one GPU
Image=this is no key of a unit

[Container]
ContainerName=llm
Image=docker.io/vllm/vllm-openai:v0.22.1
AddDevice=nvidia.com/gpu=all
Volume=%h/.cache/huggingface:/root/.cache/huggingface:Z
PublishPort=127.0.0.1:8000:8000
Environment="VLLM_LOGGING_LEVEL=INFO" HF_HUB_OFFLINE=1
EnvironmentFile=llm.env
ShmSize=2g
AddCapability=SYS_PTRACE SYS_NICE
ReadOnly=yes
PodmanArgs=--ipc=host --ulimit memlock=-1
Exec=--model Qwen/Qwen3-32B-AWQ \\
    --max-model-len 32768

[Service]
Restart=always

[Install]
WantedBy=default.target
"""


def fix(action: Action, target: str, value: str | None = None) -> FixAdvice:
    return FixAdvice(action, target, value, "", "", 0.9, "safe", None)


def only(text: str, files: dict[str, str] | None = None) -> quadlet.QuadletForm:
    form = read_one(text, "llm.container", (files or {}).get)
    assert isinstance(form, quadlet.QuadletForm)
    return form


def test_keys_are_options() -> None:
    launch = only(UNIT, {"llm.env": "HF_HOME=/hub\n"}).launch

    assert (launch.kind, launch.runtime, launch.program) == ("systemd", "podman", "vllm")
    assert launch.image == "docker.io/vllm/vllm-openai:v0.22.1"
    assert arguments(launch.arguments) == {"model": "Qwen/Qwen3-32B-AWQ", "max_model_len": 32768}
    assert {(o.name, o.value) for o in launch.options} == {
        ("--name", "llm"), ("--device", "nvidia.com/gpu=all"), ("--shm-size", "2g"),
        ("--volume", "%h/.cache/huggingface:/root/.cache/huggingface:Z"),
        ("--publish", "127.0.0.1:8000:8000"), ("--env-file", "llm.env"), ("--ipc", "host"),
        ("--ulimit", "memlock=-1"), ("--cap-add", "SYS_PTRACE"), ("--cap-add", "SYS_NICE"),
        ("--read-only", None),
    }  # fmt: skip
    assert {v.name: v.value for v in launch.environment} == {
        "VLLM_LOGGING_LEVEL": "INFO", "HF_HUB_OFFLINE": "1", "HF_HOME": "/hub",
    }  # fmt: skip
    option = launch.option("--shm-size")
    assert option is not None
    assert UNIT.splitlines()[option.line - 1] == "ShmSize=2g"
    assert UNIT.splitlines()[launch.positions["image"] - 1].startswith("Image=docker")


@pytest.mark.parametrize(
    ("advice", "old", "new"),
    [
        (fix("set_argument", "--max-model-len", "8192"), "32768", "8192"),
        (fix("remove_argument", "--max-model-len"), " \\\n    --max-model-len 32768", ""),
        (fix("set_argument", "--enforce-eager"), "len 32768", "len 32768 \\\n    --enforce-eager"),
        (fix("switch_image", "image", "org/i:v1"), "docker.io/vllm/vllm-openai:v0.22.1", "org/i:v1"),
        (fix("set_env", "HF_HUB_OFFLINE", "0"), "OFFLINE=1", "OFFLINE=0"),
        (fix("unset_env", "HF_HUB_OFFLINE"), " HF_HUB_OFFLINE=1", " "),
        (fix("set_env", "NEW", "1"), "ContainerName", "Environment=NEW=1\nContainerName"),
        (fix("runtime_option", "--shm-size", "16g"), "ShmSize=2g", "ShmSize=16g"),
        (fix("runtime_option", "--ipc", "private"), "--ipc=host", "--ipc=private"),
        (fix("runtime_option", "--ulimit", "memlock=7"), "memlock=-1", "memlock=7"),
        (fix("runtime_option", "--stop-timeout", "60"), "--max-model-len 32768",
         "--max-model-len 32768\nStopTimeout=60"),
        (fix("runtime_option", "--volume", "/srv/hub:/root/.cache/huggingface"),
         "%h/.cache/huggingface:/root/.cache/huggingface:Z", "/srv/hub:/root/.cache/huggingface"),
        (fix("runtime_option", "--volume", "~/a:/b"), ":Z", ":Z\nVolume=%h/a:/b"),
        (fix("runtime_option", "--read-only", "false"), "ReadOnly=yes\n", ""),
        (fix("runtime_option", "--init", "true"), "--max-model-len 32768",
         "--max-model-len 32768\nRunInit=true"),
        (fix("runtime_option", "--gpus", "all"), "memlock=-1", "memlock=-1\nPodmanArgs=--gpus=all"),
    ],
)  # fmt: skip
def test_a_change_is_made_where_it_is_written(advice: FixAdvice, old: str, new: str) -> None:
    assert UNIT.count(old) == 1

    assert apply_one(only(UNIT), advice, only).launch.text == UNIT.replace(old, new)


def test_arguments_go_into_a_unit_that_has_none() -> None:
    text = "[Container]\nImage=vllm/vllm-openai:v0.22.1\n"

    changed = apply_one(only(text), fix("set_argument", "--max-model-len", "8192"), only)

    assert changed.launch.text == f"{text}Exec=--max-model-len 8192\n"


def test_no_rm_is_offered_since_podman_removes_it_itself() -> None:
    with pytest.raises(CannotChange, match="journal"):
        apply_one(only(UNIT), fix("runtime_option", "--rm", "false"), only)


def test_a_drop_in_is_laid_over() -> None:
    files = {
        "llm.container.d/": "10.conf",
        "llm.container.d/10.conf": "[Container]\nImage=vllm/vllm-openai:v0.20.0\nShmSize=4g\n",
    }
    form = only(UNIT, files)

    assert form.launch.image == "vllm/vllm-openai:v0.20.0"
    for advice in (
        fix("switch_image", "image", "a/b:1"),
        fix("runtime_option", "--shm-size", "16g"),
    ):
        with pytest.raises(CannotChange, match=r"llm\.container\.d/10\.conf"):
            apply_one(form, advice, lambda text: only(text, files))


LINES = st.sampled_from(
    ["[Container]", "[Service]", "Image=vllm/vllm-openai:v1", "Image=", "Exec=--model m \\",
     "Exec=", "PodmanArgs=--ipc", "PodmanArgs='", "Environment=A", "# x \\", "Volume=", "Label=a=b",
     "  --port 1", "ReadOnly=maybe"]
)  # fmt: skip


@given(st.lists(LINES, max_size=12))
def test_no_unit_breaks_the_reader(lines: list[str]) -> None:
    text = "\n".join(["[Container]", *lines])

    for form in quadlet.read(text, "x.container"):
        assert form.launch.text == text
        assert all(0 < option.line <= len(lines) + 1 for option in form.launch.options)
