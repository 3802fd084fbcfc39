"""Lint names the habits that make a rule lie or cost too much; a good rule has none."""

from __future__ import annotations

from typing import Any

import pytest

from forensics.rulelint import lint
from tests.support import rule, ruleset

FIX = {
    "action": "set_argument",
    "target": "--x",
    "value": "1",
    "why": "It works.",
    "confidence": 0.9,
}
TABLES = {"flags": {"versions": ["0.8.0"], "flags": {"--x": {"since": None, "until": None}}}}
GOOD: dict[str, Any] = {"match": {"line": r"^failed to open (?P<path>\S{1,200})$"}, "fixes": [FIX]}


def problems(**changes: object) -> list[str]:
    fields = {**GOOD, **changes}
    found = rule("a.b", fields.pop("match"), **fields)
    return [text for _, text in lint(ruleset(found, tables=TABLES))]


def test_good_rule_has_no_problem() -> None:
    assert problems(cause="It could not open {path} on {gpu}; {argument.port}.") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tests": {"match": [], "no_match": [{"log": "x"}]}}, "tests.match is empty"),
        ({"tests": {"match": [{"log": "x"}], "no_match": []}}, "tests.no_match is empty"),
        ({"explains": ["no.rule"]}, "explains no.rule, which is no rule"),
        (
            {"match": {"all": [{"line": "failed to open"}, {"rule": "no.rule"}]}},
            "match names no.rule",
        ),
        ({"cause": "It is {nothing}."}, "cause: {nothing} is neither a capture nor a fact"),
        ({"title": "{nothing} broke"}, "title: {nothing}"),
        ({"fixes": [{**FIX, "target": "{nothing}"}]}, "fixes[0].target: {nothing}"),
        ({"fixes": [{**FIX, "target": " "}]}, "fixes[0]: target is empty"),
        ({"fixes": [{**FIX, "action": "set_env", "value": None}]}, "set_env needs a value"),
        (
            {"fixes": [{**FIX, "action": "switch_image", "value": None}]},
            "switch_image needs a value",
        ),
        ({"fixes": [{**FIX, "confidence": 0}]}, "confidence must lie between 0 and 1"),
        ({"fixes": [{**FIX, "confidence": 1.5}]}, "confidence must lie between 0 and 1"),
        ({"references": ["http://example.org"]}, "is no https address"),
        ({"fixes": []}, "neither fixes nor next_steps helps nobody"),
        ({"cause": "It **broke**."}, "no Markdown"),
        ({"title": "It broke!"}, "no exclamation"),
        ({"match": {"line": "failed ^to open"}}, "^ may stand only at the very beginning"),
        ({"match": {"line": r"failed to open\nagain"}}, "a line pattern sees one line"),
        ({"match": {"line": r"failed to open[\s\S]*x"}}, "a line pattern sees one line"),
        ({"match": {"line": "failed to open (?P<path>.+)"}}, "an open repeat at the end needs $"),
        ({"match": {"line": r"failed to open \S*"}}, "an open repeat at the end needs $"),
        ({"match": {"line": r"^\d+ [a-z]+$"}}, "no literal of 4 characters"),
        ({"match": {"line": r"(?<=failed) to open"}}, "not linear-time"),
    ],
)
def test_bad_habit_is_named(changes: dict[str, Any], words: str) -> None:
    found = problems(**changes)

    assert [text for text in found if words in text], found


@pytest.mark.parametrize(
    "changes",
    [
        {"match": {"line": "failed to open (?P<path>.+)$"}},
        {"match": {"exception": {"message": r"failed[\s\S]{1,99}to open"}}},
        {"match": {"line": r"[^x]failed to open"}},
        {"match": {"line": r"failed \^ to open"}},
        {"fixes": [], "next_steps": [{"command": "x", "why": "y", "tells": "z"}]},
        {"fixes": [], "role": "symptom"},
        {"cause": "Use {did_you_mean}.", "lookups": [{"table": "flags", "key": "{path}"}]},
        {"references": ["https://example.org"]},
    ],
)
def test_what_is_fine_is_not_named(changes: dict[str, Any]) -> None:
    assert problems(**changes) == []


def test_two_rules_that_cannot_be_told_apart_are_named() -> None:
    one, two = (rule(name, GOOD["match"], fixes=[FIX]) for name in ("a.one", "a.two"))
    other = rule("a.three", GOOD["match"], fixes=[FIX], priority=80)

    found = dict(lint(ruleset(one, two, other, tables=TABLES)))

    assert list(found) == ["a.one"]
    assert "the same pattern and priority as a.two" in found["a.one"]
