"""Samples: what is expected of a log, and in words where the answer differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from forensics.errors import RuleError
from forensics.samples import Expected, differences, expected, find, observed
from tests.support import ROOT, SAMPLES, diagnose, failed_start, rule, text

GOOD = """\
source: real run
made: real
redacted: true
verdict: diagnosed
outcome: failed_startup
last_milestone: engine_started
line: 9
rule: a.b
captures: {size: '42'}
"""


def test_expectation_is_read(tmp_path: Path) -> None:
    (tmp_path / "expect.yaml").write_text(GOOD)

    found = expected(tmp_path)

    assert (found.line, found.captures, found.log) == (9, {"size": "42"}, "log.txt")


@pytest.mark.parametrize(
    "change",
    [
        ("verdict: diagnosed", "verdict: guilty"),
        ("redacted: true", "redacted: false"),
        ("made: real", "made: up"),
        ("line: 9", "line: nine"),
        ("line: 9", "lines: 9"),
        ("source: real run\n", ""),
    ],
)
def test_mistake_names_the_file(change: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "expect.yaml").write_text(GOOD.replace(*change))

    with pytest.raises(RuleError) as caught:
        expected(tmp_path)

    assert caught.value.file == str(tmp_path / "expect.yaml")


def test_what_came_out_is_compared_in_words() -> None:
    diagnosis = diagnose(
        text(failed_start("ValueError: head size 42 is not supported")),
        rule("a.b", {"line": r"head size (?P<size>\d+)"}),
        rule("a.c", {"line": "EngineCore failed to start"}, role="symptom"),
    )
    want = Expected("real run", "real", True, "diagnosed", "failed_startup", "engine_started", 9, "a.b",
                    {"size": "42"}, None, ["a.c"])  # fmt: skip

    assert differences(want, observed(diagnosis, want)) == []
    assert differences(replace(want, line=8, rule=None), observed(diagnosis, want)) == [
        "line: expected 8, got 9",
        "rule: expected None, got 'a.b'",
    ]


def test_samples_are_found_in_order() -> None:
    found = find(ROOT / "samples")

    assert found == sorted(found) == SAMPLES
    assert len(found) > 20


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_sample_is_complete(case: Path) -> None:
    """It can be read, and says where it comes from."""
    want = expected(case)

    assert want.source
    assert (case / want.log).is_file()
    assert (want.line is None) == (want.verdict in {"healthy", "no_evidence"})
