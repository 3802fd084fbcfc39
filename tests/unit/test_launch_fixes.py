"""Every fix action in every form of launch: what it writes, and where it rightly writes nothing."""

from __future__ import annotations

import json

import pytest

from forensics.launch.fixes import apply_one, diff, exact, excludes, slot, suggest
from forensics.launch.forms import Form
from forensics.launch.model import CannotChange
from forensics.launch.reading import from_log, read_one
from forensics.launch.suggesting import again, correct
from forensics.model import Action, Finding, FixAdvice, Role, Safety, Severity

DIGEST = "vllm/vllm-openai@sha256:" + "3" * 64
SCRIPT = """#!/bin/bash
# ours
docker run -d --rm --name llm \\
  --gpus all \\
  -e VLLM_OLD=1 -e KEEP=2 \\
  vllm/vllm-openai:v0.20.0 \\
  --model org/m \\
  --swap-space 4 \\
  --speculative-config '{"method":"mtp","num_speculative_tokens":2}'   # draft
echo done
"""
COMMAND = """export KEEP=2
VLLM_OLD=1 exec vllm serve org/m \\
    --swap-space 4 \\
    --speculative-config '{"method":"mtp","num_speculative_tokens":2}'
"""
COMPOSE = """services:
  llm:
    image: vllm/vllm-openai:v0.20.0   # tag
    command: %s
    environment:
      VLLM_OLD: "1"   # old
      KEEP: "2"
    ports:
      - "8000:8000"
"""
FOLDED = COMPOSE % (
    ">\n      --model org/m\n      --swap-space 4\n"
    """      --speculative-config '{"method":"mtp","num_speculative_tokens":2}'"""
)
LISTED = COMPOSE % (
    "\n      - --model\n      - org/m   # the model\n      - --swap-space\n      - '4'\n"
    """      - --speculative-config\n      - '{"method":"mtp","num_speculative_tokens":2}'"""
)
UNIT = """[Service]
Environment=VLLM_OLD=1
Environment=KEEP=2
# serve
ExecStart=/opt/vllm serve org/m \\
    --swap-space 4 \\
    --speculative-config '{"method":"mtp","num_speculative_tokens":2}'
Restart=always
"""
UNIT_DOCKER = """[Service]
ExecStart=/usr/bin/docker run --rm -e VLLM_OLD=1 -e KEEP=2 \\
    vllm/vllm-openai:v0.20.0 --model org/m --swap-space 4 \\
    --speculative-config '{"method":"mtp","num_speculative_tokens":2}'
Restart=always
"""
QUADLET = """[Unit]
Description=llm

[Container]
Image=vllm/vllm-openai:v0.20.0
Environment=VLLM_OLD=1
Environment=KEEP=2
# serve
Exec=--model org/m \\
    --swap-space 4 \\
    --speculative-config '{"method":"mtp","num_speculative_tokens":2}'

[Service]
Restart=always
"""
MANIFEST = """apiVersion: v1
kind: Pod
spec:
  containers:
    - name: llm
      image: vllm/vllm-openai:v0.20.0
      args:
        - --model=org/m
        - --swap-space=4
        - --speculative-config={"method":"mtp","num_speculative_tokens":2}
      env:
        - name: VLLM_OLD
          value: "1"
        - name: KEEP
          value: "2"
"""
INSPECT = json.dumps(
    {
        "Name": "/llm",
        "HostConfig": {"AutoRemove": True},
        "Config": {
            "Image": "vllm/vllm-openai:v0.20.0",
            "Env": ["VLLM_OLD=1", "KEEP=2"],
            "Cmd": ["--model", "org/m", "--swap-space", "4", "--speculative-config",
                    '{"method":"mtp","num_speculative_tokens":2}'],
        },
    }
)  # fmt: skip
LOGGED = {
    "model": "org/m",
    "swap_space": 4,
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
}


def fix(
    action: Action, target: str, value: str | None = None, safety: Safety = "safe"
) -> FixAdvice:
    return FixAdvice(action, target, value, f"{action} {target}", "why", 0.9, safety, None)


def form_of(name: str) -> Form:
    texts = {
        "script": ("run.sh", SCRIPT),
        "command": ("serve.sh", COMMAND),
        "compose folded": ("compose.yaml", FOLDED),
        "compose list": ("compose.yaml", LISTED),
        "unit": ("llm.service", UNIT),
        "unit docker": ("llm.service", UNIT_DOCKER),
        "quadlet": ("llm.container", QUADLET),
        "manifest": ("pod.yaml", MANIFEST),
        "inspect": ("inspect.json", INSPECT),
    }
    if name == "log":
        found = from_log("vllm", LOGGED, "org/m", "log.txt")
        assert found is not None
        return found
    file, text = texts[name]
    return read_one(text, file)


FORMS = ["script", "command", "compose folded", "compose list", "unit", "unit docker", "quadlet", "manifest",
         "inspect", "log"]  # fmt: skip
NO_CONTAINER = {"command", "unit", "log"}
WRITTEN: dict[str, tuple[FixAdvice, set[str]]] = {
    "set a value": (fix("set_argument", "--max-model-len", "8192"), set()),
    "set another value": (fix("set_argument", "--swap-space", "8"), set()),
    "set a switch": (fix("set_argument", "--enforce-eager"), set()),
    "set a key": (fix("set_argument", "--speculative-config.num_speculative_tokens", "1"), set()),
    "lay an object over": (fix("set_argument", "--speculative-config", '{"moe_backend":"triton"}'), set()),
    "set an object": (fix("set_argument", "--compilation-config", '{"mode":0}'), set()),
    "remove": (fix("remove_argument", "--swap-space"), set()),
    "remove as printed": (fix("remove_argument", "--swap-space 4"), set()),
    "remove a key": (fix("remove_argument", "--speculative-config.method"), set()),
    "rename": (fix("rename_argument", "--swap-space", "--cpu-offload-gb"), set()),
    "rename a key": (
        fix("rename_argument", "--speculative-config.method", "--speculative-config.kind"), set()),
    "set a variable": (fix("set_env", "NEW_ONE", "a b"), set()),
    "set it anew": (fix("set_env", "VLLM_OLD", "0"), set()),
    "unset a variable": (fix("unset_env", "VLLM_OLD"), {"log"}),
    "switch the image": (fix("switch_image", "image", "vllm/vllm-openai:v0.22.0"), NO_CONTAINER),
    "pin the digest": (fix("pin_digest", "image", DIGEST), NO_CONTAINER),
    "option of the runtime": (fix("runtime_option", "--ipc", "host"), NO_CONTAINER),
    "a list of the runtime": (fix("runtime_option", "-v", "/srv/hf:/root/.cache/huggingface"),
                              NO_CONTAINER | {"manifest"}),
    "a limit": (fix("runtime_option", "--ulimit", "memlock=-1"), NO_CONTAINER | {"manifest"}),
    "GPUs": (fix("runtime_option", "--gpus", "all"), NO_CONTAINER | {"manifest", "script"}),
    "no --rm": (fix("runtime_option", "--rm", "false"),
                NO_CONTAINER | {"compose folded", "compose list", "manifest", "quadlet"}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", WRITTEN)
def test_a_fix_is_written_where_it_belongs_and_nowhere_else(form: str, what: str) -> None:
    advice, impossible = WRITTEN[what]
    one = form_of(form)

    if form in impossible:
        with pytest.raises(CannotChange):
            apply_one(one, advice, again(one))
        return

    new = apply_one(one, advice, again(one))
    rows = diff(one.launch.text, new.launch.text, "x").splitlines()[2:]
    touched = [row for row in rows if row[:1] in "+-"]
    # Whatever a fix does, it touches few lines, and comments stay where they were.
    assert 0 < len(touched) <= 8
    for comment in ("# ours", "# draft", "# tag", "# old", "# the model", "# serve"):
        assert (comment in new.launch.text) == (comment in one.launch.text) or (
            comment == "# old" and advice.action == "unset_env"
        )
    assert [v.value for v in new.launch.environment if v.name == "KEEP"] == [
        v.value for v in one.launch.environment if v.name == "KEEP"
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "advice",
    [
        fix("upgrade", "vllm", ">=0.22.1"),
        fix("downgrade", "vllm", "0.21.0"),
        fix("change_host", "driver"),
        fix("wait_for_fix", "vllm"),
        fix("report_upstream", "vllm-project/vllm"),
        fix("set_argument", "--attention-backend", "<one of A, B>"),
        fix("set_argument", "--max-model-len", "as many as fit"),
        fix("set_argument", "--gpu-memory-utilization"),
        fix("set_argument", "the model path", "x"),
        fix("switch_image", "image", "an image built with CUDA 13"),
        fix("switch_image", "image", "vllm/vllm-openai"),
        fix("switch_image", "image"),
        fix("set_env", "CC and CXX", "gcc"),
        fix("set_env", "VLLM_X", "<path>"),
        fix("runtime_option", "--volume", "<host folder>:/x"),
        fix("runtime_option", "--cdi-spec-dir", "/run/cdi"),
        fix("remove_argument", "vllm serve"),
        fix("set_argument", "--served-model-name", "a\x1b[31m"),
    ],
    ids=lambda a: f"{a.action}-{a.value}",
)
def test_advice_that_is_no_exact_value_is_never_written(form: str, advice: FixAdvice) -> None:
    one = form_of(form)
    with pytest.raises(CannotChange):
        apply_one(one, advice, again(one))


@pytest.mark.parametrize(
    ("name", "advice", "gone", "came"),
    [
        ("script", fix("runtime_option", "--rm", "false"),
         ["docker run -d --rm --name llm \\"], ["docker run -d --name llm \\"]),
        ("script", fix("remove_argument", "--swap-space"), ["  --swap-space 4 \\"], []),
        ("script", fix("set_env", "A", "1"), [], ["  -e A=1 \\"]),
        ("script", fix("set_env", "HF_TOKEN", "$HF_TOKEN"), [], ["  -e HF_TOKEN \\"]),
        ("script", fix("runtime_option", "--restart", "unless-stopped"),
         ["docker run -d --rm --name llm \\"],
         ["docker run -d --name llm \\", "  --restart unless-stopped \\"]),
        ("command", fix("set_env", "A", "1"), [], ["export A=1"]),
        ("compose folded", fix("runtime_option", "--ipc", "host"), [], ["    ipc: host"]),
        ("compose list", fix("set_argument", "--max-model-len", "8192"), [],
         ["      - --max-model-len", "      - '8192'"]),
        ("compose list", fix("remove_argument", "--swap-space"),
         ["      - --swap-space", "      - '4'"], []),
        ("unit", fix("set_env", "A", "b c"), [], ["Environment='A=b c'"]),
        ("unit", fix("unset_env", "VLLM_OLD"), ["Environment=VLLM_OLD=1"], []),
        ("manifest", fix("runtime_option", "--ipc", "host"), [], ["  hostIPC: true"]),
        ("manifest", fix("set_argument", "--max-model-len", "8192"), [],
         ["        - --max-model-len=8192"]),
    ],
)  # fmt: skip
def test_what_is_written_looks_like_what_stands_there(
    name: str, advice: FixAdvice, gone: list[str], came: list[str]
) -> None:
    one = form_of(name)
    rows = diff(one.launch.text, apply_one(one, advice, again(one)).launch.text, "x").splitlines()[
        2:
    ]
    assert [row[1:] for row in rows if row[0] == "-"] == gone
    assert [row[1:] for row in rows if row[0] == "+"] == came


def test_a_variable_set_above_is_changed_where_it_is_set() -> None:
    one = read_one(
        'IMG="a/vllm:1"\nN=2\ndocker run $IMG vllm serve m --tensor-parallel-size ${N}\n', "r.sh"
    )
    done = suggest(
        one,
        [("a", fix("switch_image", "image", "b/vllm:2")),
         ("b", fix("set_argument", "--tensor-parallel-size", "4"))],
        again(one),
    )  # fmt: skip
    assert done.text == (
        'IMG="b/vllm:2"\nN=4\ndocker run $IMG vllm serve m --tensor-parallel-size ${N}\n'
    )


def test_an_option_out_of_a_variable_with_more_in_it_is_left_alone() -> None:
    one = read_one('E="--enforce-eager --swap-space 4"\nvllm serve m $E\n', "r.sh")
    with pytest.raises(CannotChange, match="variable"):
        apply_one(one, fix("remove_argument", "--swap-space"), again(one))


def test_the_name_of_another_image_in_a_default_stays_a_default() -> None:
    text = "services:\n  a:\n    image: ${IMG:-vllm/vllm-openai:v0.20.0}\n"
    one = read_one(text, "compose.yaml")
    new = apply_one(one, fix("switch_image", "image", "vllm/vllm-openai:v0.22.0"), again(one))
    assert new.launch.text == text.replace("v0.20.0", "v0.22.0")


def test_a_key_through_an_anchor_is_changed_at_the_anchor() -> None:
    text = (
        "x-a: &a\n  image: vllm/vllm-openai:v0.20.0\n  environment: {A: '1', B: '2'}\n"
        "services:\n  one:\n    <<: *a\n    command: --model m/one\n"
    )
    one = read_one(text, "compose.yaml")
    new = apply_one(one, fix("unset_env", "A"), again(one))
    assert new.launch.text == text.replace("A: '1', ", "")


def test_fixes_of_one_thing_exclude_each_other() -> None:
    a, b = fix("switch_image", "image", "a/b:1"), fix("pin_digest", "image", DIGEST)
    assert excludes([slot(a)], b)
    whole = fix("remove_argument", "--speculative-config")
    key = fix("set_argument", "--speculative-config.method", "mtp")
    assert excludes([slot(key)], whole)
    assert excludes([slot(whole)], key)
    assert excludes([slot(fix("set_argument", "--enable-x"))], fix("set_argument", "--no-enable-x"))
    assert not excludes([slot(key)], fix("set_argument", "--speculative-config.model", "m"))


def finding(
    rule: str, *fixes: FixAdvice, role: Role = "advice", severity: Severity = "warning"
) -> Finding:
    return Finding(rule, rule, severity, role, 0.9, None, "", [], {}, list(fixes), [])


def test_the_best_fix_of_each_finding_is_taken_and_the_others_are_alternatives() -> None:
    one = form_of("script")
    root = finding(
        "root",
        fix("upgrade", "vllm", ">=0.22"),
        fix("set_argument", "--speculative-config.num_speculative_tokens", "1", "lossy"),
        fix("remove_argument", "--speculative-config", None, "lossy"),
        role="root_cause",
        severity="fatal",
    )
    kept = finding("kept", fix("runtime_option", "--rm", "false"))
    risky = finding("risky", fix("set_argument", "--max-model-len", "100", "lossy"))
    hint = finding("hint", fix("set_argument", "--max-num-seqs", "8"), severity="info")

    found = correct(one, [root, kept, risky, hint])

    assert found is not None
    assert [(c.rule, c.safety) for c in found.shown.changes] == [
        ("root", "lossy"),
        ("kept", "safe"),
    ]
    assert [[c.rule for c in a.changes] for a in found.shown.alternatives] == [["root"], ["risky"]]
    assert found.shown.diff.startswith("--- a/run.sh\n+++ b/run.sh\n")
    assert "--rm" in found.shown.alternatives[0].text


def test_no_fix_that_fits_means_no_suggestion() -> None:
    found = correct(form_of("script"), [finding("x", fix("change_host", "driver"))])
    assert found is not None
    assert not found.offers
    assert [c.problem for c in found.shown.not_changed] == [
        "it is done on the host, not in the launch"
    ]
    assert correct(form_of("script"), []) is None


def test_an_exact_fix_has_no_reason_against_it() -> None:
    assert exact(fix("set_argument", "--max-model-len", "8192")) is None
    assert (
        exact(fix("runtime_option", "--health-cmd", "curl -f http://localhost:8000/health")) is None
    )


def test_a_diff_of_a_text_without_a_last_line_end_says_so() -> None:
    assert diff("a", "b", "x").count("\\ No newline at end of file") == 2
