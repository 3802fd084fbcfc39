"""Rules to words: placeholders, fixes that fit this run, cited lines. A log line is only ever text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics import redaction
from forensics.model import DEFAULT_SAFETY, Context, Finding, FixAdvice, Hardware
from tests.support import diagnose, failed_start, logged, rule, started, text

LOG = text(failed_start("ValueError: head size 42 is not supported"))
MATCH = {"line": r"head size (?P<size>\d+) is (?P<what>.+)$"}
CONTEXT = Context(
    image="vllm/vllm-openai:v0.32.0",
    exit_code=1,
    arguments={"model": "/models/tiny", "max_model_len": 512, "spec": '{"n": 3}'},
    hardware=Hardware(gpu="NVIDIA GB10", compute_capability="12.1"),
)
FIX = {
    "action": "set_argument",
    "target": "--dtype",
    "value": "half",
    "why": "It fits.",
    "confidence": 0.5,
}


def finding(
    log: str = LOG,
    match: object = MATCH,
    *,
    context: Context = CONTEXT,
    tables: dict[str, Any] | None = None,
    **fields: object,
) -> Finding:
    found = diagnose(log, rule("a.b", match, **fields), context=context, tables=tables).findings
    return next(f for f in found if f.rule == "a.b")


# ---------------------------------------------------------------------------------------- templates


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("Head size {size} is {what}.", "Head size 42 is not supported."),
        ("{engine} {engine_version} on {gpu} ({compute_capability})", "vllm 0.32.0 on NVIDIA GB10 (12.1)"),
        ("{image}, {model}, {exit_code}", "vllm/vllm-openai:v0.32.0, /models/tiny, 1"),
        ("after {last_milestone}", "after engine_started"),
        ("{argument.max_model_len} and {argument.spec.n}", "512 and 3"),
        ("It lacks {nothing} here.", "It lacks here."),
        ("Lacks {nothing}.", "Lacks."),
        ("{argument.absent}x", "x"),
        ("two  blanks\n and lines", "two blanks and lines"),
        ('JSON {"method": "mtp"} stays', 'JSON {"method": "mtp"} stays'),
        ("{ size } {1} {} {size", "{ size } {1} {} {size"),
        ("{size}{size}", "4242"),
    ],
)  # fmt: skip
def test_placeholders_are_filled_from_captures_and_facts(template: str, filled: str) -> None:
    """What has no value is left out of a text; braces that are no placeholder stay."""
    assert finding(cause=template).cause == filled
    assert finding(title=template).title == filled


def test_capture_comes_before_a_fact_of_the_same_name() -> None:
    match = {"line": r"head size (?P<model>\d+)"}

    assert finding(match=match, cause="{model}").cause == "42"


def test_text_that_a_log_line_holds_is_not_filled_again() -> None:
    """A capture that looks like a placeholder stays as it was printed."""
    log = text(failed_start("ValueError: head size 42 is {image} {size} {exit_code}"))

    assert finding(log, cause="It is {what}").cause == "It is {image} {size} {exit_code}"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x1b"), max_size=60))
def test_any_text_of_a_log_is_only_text(printed: str) -> None:
    log = text(started(), logged("EngineCore", f"needle <{printed}>", "ERROR"))
    found = finding(log, {"line": "needle <(?P<what>.*)>$"}, role="advice", cause="{what}")

    assert found.captures["what"] == redaction.text(printed)
    assert found.cause == " ".join(
        re.sub(r"\s+([.,;:])", r"\1", redaction.text(printed)[:400]).split()
    )


def test_long_capture_is_cut() -> None:
    log = text(failed_start("ValueError: head size 42 is " + "x" * 5_000))

    assert len(finding(log, cause="{what}").cause) == 400


# -------------------------------------------------------------------------------------------- fixes


def fixes(*specs: dict[str, Any], **more: Any) -> list[FixAdvice]:  # noqa: ANN401 - see `finding`
    return finding(fixes=[{**FIX, **spec} for spec in specs], **more).fixes


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "Set --dtype half"),
        ({"action": "remove_argument", "value": None}, "Remove --dtype"),
        ({"action": "rename_argument", "value": "--type"}, "Write --type in place of --dtype"),
        ({"action": "set_env", "target": "A", "value": "1"}, "Set A=1"),
        ({"action": "unset_env", "target": "A", "value": None}, "Remove the environment variable A"),
        ({"action": "switch_image", "target": "image", "value": "x/y:z"}, "Use the image x/y:z"),
        ({"action": "pin_digest", "target": "image", "value": "x@sha256:1"}, "Pin the image to x@sha256:1"),
        ({"action": "upgrade", "target": "vllm", "value": "0.33.0"}, "Upgrade vllm to 0.33.0"),
        ({"action": "downgrade", "target": "vllm", "value": "0.31.0"}, "Go back to vllm 0.31.0"),
        ({"action": "runtime_option", "target": "--shm-size", "value": "16g"}, "Start the container with --shm-size 16g"),
        ({"action": "wait_for_fix", "target": "vllm", "value": None}, "Wait for a fix of vllm"),
        ({"text": "Head size {size} needs care."}, "Head size 42 needs care."),
    ],
)  # fmt: skip
def test_every_action_is_said_in_words(spec: dict[str, Any], said: str) -> None:
    (fix,) = fixes(spec)

    assert said in fix.text


@pytest.mark.parametrize(
    "spec",
    [{"target": "{nothing}"}, {"value": "{nothing}"}, {"value": "{argument.absent}"}, {"text": "{nothing}"},
     {"value": "image:unknown"}],
)  # fmt: skip
def test_fix_with_an_empty_placeholder_is_left_out(spec: dict[str, Any]) -> None:
    """Half a command is worse than none."""
    assert [fix.target for fix in fixes(spec, {"target": "--other"})] == ["--other"]


def test_missing_value_in_the_reason_costs_no_fix() -> None:
    (fix,) = fixes({"why": "It is {nothing} better."})

    assert fix.why == "It is better."


def test_json_in_a_value_is_no_placeholder() -> None:
    (fix,) = fixes(
        {"target": "--speculative-config", "value": '{"moe_backend":"triton","n":{size}}'}
    )

    assert fix.value == '{"moe_backend":"triton","n":42}'


@pytest.mark.parametrize(
    ("version", "targets"),
    [
        ("0.32.0", ["--attention-backend"]),
        ("0.12.0", ["VLLM_ATTENTION_BACKEND"]),
    ],
)
def test_fix_depends_on_the_version(version: str, targets: list[str]) -> None:
    """The flag exists from one release on; before, it was a variable."""
    old = {"action": "set_env", "target": "VLLM_ATTENTION_BACKEND", "value": "TRITON_ATTN",
           "when": {"version": {"vllm": "<0.13"}}}  # fmt: skip
    new = {
        "target": "--attention-backend",
        "value": "TRITON_ATTN",
        "when": {"version": {"vllm": ">=0.13"}},
    }
    log = text(started(version), failed_start("ValueError: head size 42 is not supported")[4:])

    found = fixes(old, new, log=log)

    assert [fix.target for fix in found] == targets
    assert found[0].confidence == 0.5


def test_fix_whose_condition_cannot_be_told_is_less_sure() -> None:
    (fix,) = fixes({"when": {"environment": {"name": "X"}}})

    assert fix.confidence == 0.4


@pytest.mark.parametrize(
    ("spec", "safety"),
    [
        ({}, "safe"),
        ({"safety": "lossy"}, "lossy"),
        ({"action": "upgrade"}, "review"),
        ({"action": "switch_image"}, "review"),
        ({"action": "upgrade", "safety": "safe"}, "safe"),
    ],
)
def test_what_a_fix_risks(spec: dict[str, Any], safety: str) -> None:
    assert fixes(spec)[0].safety == safety
    assert DEFAULT_SAFETY["upgrade"] == "review"


def test_known_image_gives_its_reference_and_what_is_known_of_it() -> None:
    images = {"images": [{"id": "good", "ref": "x/y@sha256:1", "summary": "It works."}]}

    (fix,) = fixes(
        {"action": "switch_image", "target": "image", "value": "image:good"},
        tables={"images": images},
    )

    assert fix.value == "x/y@sha256:1"
    assert "It works." in fix.why


# --------------------------------------------------------------------------------------- look-ups


def test_look_up_adds_captures_but_replaces_none() -> None:
    flags = {
        "versions": ["0.8.0"],
        "flags": {"--swap-space": {"since": None, "until": "0.8.0", "successors": ["--other"]}},
    }
    log = "usage: vllm\nvllm: error: unrecognized arguments: --swap-space 4\n"

    found = finding(
        log,
        {"line": "unrecognized arguments: (?P<arguments>--.+)$"},
        tables={"flags": flags},
        lookups=[{"table": "flags", "key": "{arguments}"}, {"table": "flags", "key": "{nothing}"}],
        cause="{flag_history}",
    )

    assert found.captures["successor"] == "--other"
    assert found.cause.startswith("--swap-space was last in vLLM 0.8.0.")


# ----------------------------------------------------------------------------------------- next steps


def test_next_steps_of_the_root_are_filled_and_fit_the_run() -> None:
    step = {"command": "run with {size}", "why": "w", "tells": "t"}
    unfit = {**step, "command": "never", "when": {"version": {"vllm": "<0.1"}}}

    found = diagnose(LOG, rule("a.b", MATCH, next_steps=[step, unfit], confidence=0.3))

    assert [s.command for s in found.next_steps] == ["run with 42"]


# ----------------------------------------------------------------------------------------- citations


def test_finding_cites_the_lines_that_prove_it() -> None:
    found = finding()

    lines = LOG.splitlines()
    assert found.evidence
    for citation in found.evidence:
        assert citation.text == lines[citation.line - 1]
    assert found.evidence[0].process == "EngineCore"


def test_repeats_are_counted_and_few_are_cited() -> None:
    log = text(started(), *(logged("EngineCore", "needle", "ERROR") for _ in range(300)))

    found = finding(log, {"line": "needle"}, role="advice")

    assert (found.count, len(found.evidence)) == (300, 5)


def test_long_line_is_quoted_in_part() -> None:
    log = text(failed_start("ValueError: head size 42 is " + "x" * 5_000))

    assert max(len(c.text) for c in finding(log).evidence) == 2_000
