"""Values that stand elsewhere: ConfigMaps and Secrets of a pod, JSON that a shell takes apart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.launch import fixes
from forensics.launch.reading import read_all
from forensics.launch.suggesting import again
from forensics.model import FixAdvice

POD = """apiVersion: v1
kind: Pod
metadata: {name: v}
spec:
  containers:
    - name: v
      image: vllm/vllm-openai:v0.20.0
      args: ["--model", "$(MODEL)", "--max-model-len", "$(LEN)", "--seed=$(GONE)", "$$(LEN)"]
      env:
        - {name: MODEL, valueFrom: {configMapKeyRef: {name: cm, key: model}}}
        - {name: LEN, value: "8192"}
        - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: s, key: t}}}
        - {name: MORE, valueFrom: {configMapKeyRef: {name: away, key: t}}}
      envFrom:
        - configMapRef: {name: cm}
        - secretRef: {name: hidden}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {model: org/m, VLLM_USE_V1: "0"}
"""


def test_references_of_a_pod_are_filled_in_where_the_file_holds_them() -> None:
    (form,) = read_all(POD, "pod.yaml")
    launch = form.launch
    assert launch.model == "org/m"
    assert launch.words == (
        "--model", "org/m", "--max-model-len", "8192", "--seed=$(GONE)", "$(LEN)",
    )  # fmt: skip
    values = {v.name: v.value for v in launch.environment}
    assert values["VLLM_USE_V1"] == "0"
    assert values["MODEL"] == "org/m"
    assert values["HF_TOKEN"] is None
    assert set(launch.limits) == {
        "what Secret hidden holds is not known", "what ConfigMap away holds is not known",
    }  # fmt: skip


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,10}", fullmatch=True),
        st.integers(0, 9) | st.from_regex(r"[a-z]{1,6}", fullmatch=True),
        min_size=1, max_size=4,
    ),
    st.sampled_from(["--speculative-config {}", "--speculative-config={}", '--speculative-config "{}"']),
)  # fmt: skip
def test_json_that_the_shell_takes_apart_is_put_between_quotes(
    data: dict[str, int | str], how: str
) -> None:
    meant = json.dumps(data, separators=(",", ":"))
    text = f"vllm serve org/m {how.replace('{}', meant)} --seed 1\n"
    (form,) = read_all(text, "run.sh")
    fix = FixAdvice(
        action="set_argument", target="--speculative-config", value=None, text="", why="",
        confidence=0.9, safety="safe", reference=None,
    )  # fmt: skip
    read_again = again(form)
    fixed = fixes.apply_one(form, fix, read_again)
    option = fixed.launch.argument("--speculative-config")
    assert option is not None
    assert json.loads(option.value or "") == data
    assert fixed.launch.argument("--seed") is not None
    assert fixed.launch.text.startswith("vllm serve org/m ")


@pytest.mark.parametrize("value", ["'{\"a\":1}'", "plain", "$CONFIG"])
def test_what_is_not_broken_is_left_alone(value: str) -> None:
    (form,) = read_all(f"vllm serve org/m --hf-overrides {value}\n", "run.sh")
    if value.startswith("'"):
        splices = form.requoted("--hf-overrides")
        assert splices is None
    else:
        assert form.requoted("--hf-overrides") is None
