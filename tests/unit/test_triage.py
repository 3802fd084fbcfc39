"""Which finding is the root, which are its symptoms, and why the others did not win."""

from __future__ import annotations

import pytest

from forensics.analysis import examine_bytes
from forensics.model import Context, Diagnosis
from forensics.rules_schema import Rule
from forensics.triage import Triage
from tests.support import (
    diagnose,
    engine,
    failed_start,
    loaded,
    logged,
    rule,
    serving,
    started,
    stopped,
    text,
)

ROOT = "ValueError: head size 42 is not supported"
FAILED = text(failed_start(ROOT))
HEALTHY = text(started(), loaded(), serving(), stopped())


def head_size(rule_id: str = "vllm.head-size", **fields: object) -> Rule:
    return rule(rule_id, {"line": r"head size (?P<size>\d+) is not supported"}, **fields)


def core_failed(**fields: object) -> Rule:
    fields = {"role": "symptom", "severity": "error", **fields}
    return rule("vllm.core-failed", {"line": "^EngineCore failed to start"}, **fields)


def init_failed(**fields: object) -> Rule:
    fields = {"role": "symptom", "severity": "error", **fields}
    return rule("vllm.init-failed", {"line": "Engine core initialization failed"}, **fields)


def roles(diagnosis: Diagnosis) -> dict[str, str]:
    return {f.rule: f.role for f in diagnosis.findings}


def triage(log: str, *rules: Rule, context: Context | None = None) -> Triage:
    return examine_bytes(log.encode(), engine(*rules), context or Context())[1]


def considered(log: str, *rules: Rule, context: Context | None = None) -> dict[str, str]:
    return {c.rule: f"{c.result}: {c.why}" for c in triage(log, *rules, context=context).considered}


# -------------------------------------------------------------------------------- root over symptom


def test_root_wins_over_its_symptoms() -> None:
    diagnosis = diagnose(FAILED, init_failed(), core_failed(), head_size())

    assert roles(diagnosis) == {
        "vllm.head-size": "root_cause",
        "vllm.core-failed": "symptom",
        "vllm.init-failed": "symptom",
    }
    assert diagnosis.verdict == "diagnosed"
    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.rule, diagnosis.root_cause.line) == ("vllm.head-size", 9)
    assert [f.caused_by for f in diagnosis.findings] == [None, "vllm.head-size", "vllm.head-size"]


def test_root_stands_first_and_symptoms_last() -> None:
    advice = rule("z.advice", {"line": "LLM engine"}, role="advice", severity="info")
    before = rule("z.before", {"line": "Resolved arch"}, role="contributing", severity="warning")

    diagnosis = diagnose(FAILED, advice, before, init_failed(), head_size())

    assert [f.role for f in diagnosis.findings] == [
        "root_cause",
        "contributing",
        "advice",
        "symptom",
    ]


def test_symptoms_alone_leave_the_structural_root_without_a_rule() -> None:
    diagnosis = diagnose(FAILED, core_failed(), init_failed())

    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.rule, diagnosis.root_cause.line) == (None, 9)
    assert diagnosis.verdict == "suspected"
    assert set(roles(diagnosis).values()) == {"symptom"}


def test_root_rule_that_only_names_a_later_line_is_a_symptom() -> None:
    later = rule("vllm.later", {"line": "Engine core initialization failed"})

    assert roles(diagnose(FAILED, later, head_size())) == {
        "vllm.head-size": "root_cause",
        "vllm.later": "symptom",
    }


def test_fatal_line_far_after_an_unknown_root_does_not_take_its_place() -> None:
    later = rule("vllm.later", {"line": "Engine core initialization failed"})

    diagnosis = diagnose(FAILED, later)

    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.line, diagnosis.root_cause.rule) == (9, None)


# ------------------------------------------------------------------------------- rules of one line


def test_higher_priority_names_the_line() -> None:
    """The specific rule says more than the general one."""
    general = rule("vllm.value-error", {"exception": {"type": "ValueError"}}, priority=20)

    diagnosis = diagnose(FAILED, general, head_size(priority=80))

    assert roles(diagnosis) == {"vllm.head-size": "root_cause"}
    assert considered(FAILED, general, head_size(priority=80))["vllm.value-error"] == (
        "lost: vllm.head-size says more of the same line"
    )


def test_confidence_decides_between_equal_priorities() -> None:
    unsure = head_size("vllm.b-unsure", confidence=0.5)
    sure = head_size("vllm.c-sure", confidence=0.9)

    assert roles(diagnose(FAILED, unsure, sure)) == {"vllm.c-sure": "root_cause"}


def test_equal_rules_are_decided_by_their_ids() -> None:
    """The order in which files are read changes nothing."""
    a, b = head_size("vllm.a"), head_size("vllm.b")

    assert (
        roles(diagnose(FAILED, a, b)) == roles(diagnose(FAILED, b, a)) == {"vllm.a": "root_cause"}
    )


def test_rule_for_another_engine_is_not_asked() -> None:
    other = head_size("sglang.head-size", engines=["sglang"], priority=99)

    assert roles(diagnose(FAILED, other, head_size(engines=["vllm"]))) == {
        "vllm.head-size": "root_cause"
    }


def test_rule_for_an_engine_is_asked_where_no_engine_is_known() -> None:
    """A log that is cut before the banner may be anybody's."""
    assert roles(diagnose(f"{ROOT}\n", head_size(engines=["vllm"]))) == {
        "vllm.head-size": "root_cause"
    }


# ----------------------------------------------------------------------------------------- explains


def test_earlier_finding_that_explains_the_root_takes_its_place() -> None:
    warning = logged("EngineCore", "the driver is too old", "WARNING")
    log = text(started(), warning, failed_start(ROOT)[4:])
    driver = rule("cuda.driver", {"line": "the driver is too old"}, explains=["vllm.head-size"])

    diagnosis = diagnose(log, driver, head_size())

    assert roles(diagnosis) == {"cuda.driver": "root_cause", "vllm.head-size": "symptom"}
    assert diagnosis.root_cause is not None
    assert diagnosis.root_cause.rule == "cuda.driver"


def test_finding_that_explains_nothing_here_only_contributed() -> None:
    warning = logged("EngineCore", "the driver is too old", "WARNING")
    log = text(started(), warning, failed_start(ROOT)[4:])
    driver = rule("cuda.driver", {"line": "the driver is too old"})

    assert roles(diagnose(log, driver, head_size())) == {
        "vllm.head-size": "root_cause",
        "cuda.driver": "contributing",
    }


def test_what_the_start_went_on_after_explains_nothing() -> None:
    warning = logged("EngineCore", "the driver is too old", "WARNING")
    log = text(started()[:2], warning, started()[2:], failed_start(ROOT)[4:])
    driver = rule("cuda.driver", {"line": "the driver is too old"}, explains=["vllm.head-size"])

    found = diagnose(log, driver, head_size())

    assert roles(found) == {"vllm.head-size": "root_cause"}
    assert considered(log, driver, head_size())["cuda.driver"] == "lost: the start went on after it"


# ------------------------------------------------------------------------------------ healthy drops


def test_fatal_rule_that_holds_in_a_healthy_log_is_dropped() -> None:
    """Nothing failed: a line that merely looks like a cause is none."""
    greedy = rule("vllm.greedy", {"line": "Loading weights took"})

    diagnosis = diagnose(HEALTHY, greedy)

    assert (diagnosis.verdict, diagnosis.root_cause, diagnosis.findings) == ("healthy", None, [])
    assert considered(HEALTHY, greedy) == {"vllm.greedy": "lost: it holds, but nothing failed"}


def test_symptom_in_a_healthy_log_is_dropped() -> None:
    dead = rule("vllm.dead", {"line": "Shutting down"}, role="symptom")

    assert diagnose(HEALTHY, dead).findings == []


@pytest.mark.parametrize("role", ["advice", "contributing"])
def test_advice_is_given_on_healthy_logs_too(role: str) -> None:
    advice = rule("advice.x", {"line": "Loading weights took"}, role=role, severity="info")

    diagnosis = diagnose(HEALTHY, advice)

    assert diagnosis.verdict == "healthy"
    assert roles(diagnosis) == {"advice.x": role}


def test_root_without_any_structural_failure_where_nothing_is_healthy() -> None:
    """A line of the container engine is the whole log: no milestone, no exception."""
    refused = rule("container.refused", {"line": "^pull access denied for (?P<image>\\S+)"})

    diagnosis = diagnose("pull access denied for x/y, it may not exist\n", refused)

    assert (diagnosis.verdict, roles(diagnosis)) == (
        "diagnosed",
        {"container.refused": "root_cause"},
    )


# ---------------------------------------------------------------------------------------- cut logs

CUT = text(started(), loaded())


def test_cut_log_may_be_explained_by_facts_alone() -> None:
    oom = rule("host.oom", {"exit": {"oom_killed": True}})

    diagnosis = diagnose(CUT, oom, context=Context(oom_killed=True, exit_code=137))

    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.rule, diagnosis.outcome) == ("host.oom", "killed")
    assert diagnosis.findings[0].evidence[0].line == diagnosis.root_cause.line


def test_line_that_names_a_cause_beats_facts_in_a_cut_log() -> None:
    oom = rule("host.oom", {"exit": {"code": 137}}, priority=90)
    line = rule("host.line", {"line": "something odd"}, priority=10)

    diagnosis = diagnose(CUT + "something odd\n", oom, line, context=Context(exit_code=137))

    assert diagnosis.root_cause is not None
    assert diagnosis.root_cause.rule == "host.line"


def test_line_after_which_the_start_went_on_explains_no_cut() -> None:
    line = rule("host.line", {"line": "something odd"}, priority=10)
    cut = text(started(), ["something odd"], loaded())

    diagnosis = diagnose(cut, line)

    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.rule, diagnosis.verdict) == (None, "inconclusive")


# ----------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("confidence", "verdict"),
    [(1.0, "diagnosed"), (0.7, "diagnosed"), (0.69, "suspected"), (0.4, "suspected"),
     (0.39, "inconclusive"), (0.0, "inconclusive")],
)  # fmt: skip
def test_confidence_of_the_root_makes_the_verdict(confidence: float, verdict: str) -> None:
    assert diagnose(FAILED, head_size(confidence=confidence)).verdict == verdict


def test_unknown_rule_lowers_no_verdict() -> None:
    unknown = rule(
        "z.unknown", {"all": [{"line": "EngineCore failed"}, {"environment": {"name": "X"}}]}
    )

    diagnosis = diagnose(FAILED, unknown, head_size())

    assert (diagnosis.verdict, roles(diagnosis)) == ("diagnosed", {"vllm.head-size": "root_cause"})
    assert considered(FAILED, unknown, head_size())["z.unknown"] == (
        "unknown: the environment variable X is not known"
    )


# ------------------------------------------------------------------------------- rules about rules


def test_rule_may_ask_for_another_rule() -> None:
    both = rule(
        "z.both", {"all": [{"line": "not supported"}, {"rule": "vllm.core-failed"}]}, priority=90
    )
    neither = rule("z.neither", {"all": [{"line": "not supported"}, {"rule": "z.absent"}]})

    assert roles(diagnose(FAILED, both, neither, core_failed(), head_size())) == {
        "z.both": "root_cause",
        "vllm.core-failed": "symptom",
    }


def test_rules_that_ask_for_each_other_are_unknown() -> None:
    """A circle proves nothing and ends."""
    a = rule("z.a", {"all": [{"line": "not supported"}, {"rule": "z.b"}]})
    b = rule("z.b", {"all": [{"line": "not supported"}, {"rule": "z.a"}]})

    found = diagnose(FAILED, a, b)

    assert found.root_cause is not None
    assert found.root_cause.rule is None


def test_captures_of_every_rule_that_holds_are_kept() -> None:
    """Tests of rules ask for them, winner or not."""
    loser = head_size("vllm.z-loser", priority=1)

    assert triage(FAILED, loser, head_size()).held == {
        "vllm.head-size": {"size": "42"},
        "vllm.z-loser": {"size": "42"},
    }
