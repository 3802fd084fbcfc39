"""A launch command examined before it is started: the same rules, findings and report.

In: a launch, the rules, and what else is known (version, machine, the model's configuration). Out:
a `Diagnosis` whose evidence are lines of the launch. Nothing is started and nothing is asked here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forensics import __version__, redaction, texts
from forensics.analysis import Engine
from forensics.conditions import Answer, View, evaluate
from forensics.evidence import Builder, index_of
from forensics.launch.common import Beside, nothing_beside
from forensics.launch.facts import context_of, places_of, version_of_image
from forensics.launch.forms import Form
from forensics.launch.model import Launch
from forensics.launch.suggesting import Correction, correct
from forensics.model import (
    DIAGNOSIS_SCHEMA,
    Citation,
    Context,
    Diagnosis,
    Evidence,
    Finding,
    Hardware,
    Role,
    RootCause,
    RuleStamp,
    Source,
    Tool,
    Truth,
)
from forensics.rules_schema import LaunchLeaf, ListedLeaf, Rule
from forensics.ruleset import walk
from forensics.triage import Considered, Triage

#: Of one kind of mistake so many are shown.
_MOST = 20
_WEIGHT = {"fatal": 0, "error": 1, "warning": 2, "info": 3}
_BAD = {"fatal", "error"}


class Known(Struct, frozen=True):
    """What is known beside the launch.

    Attributes:
        versions: Versions by engine as the user states them; they win over the image's.
        hardware: The machine.
        model_config: The model's `config.json`.
        host: What the machine says of ports, names and GPUs.
    """

    versions: dict[str, str] = {}
    hardware: Hardware = Hardware()
    model_config: dict[str, Any] | None = None
    host: dict[str, str] | None = None


class Checked(Struct, frozen=True):
    """What came of it: the diagnosis, its working, and the corrected launch as it is."""

    diagnosis: Diagnosis
    triage: Triage
    evidence: Evidence
    correction: Correction | None


def check(
    form: Form, engine: Engine, known: Known | None = None, beside: Beside = nothing_beside
) -> Checked:
    """Examine one launch.

    Args:
        form: The launch.
        engine: The rules, made ready.
        known: What is known beside it.
        beside: Reads files that the launch names.
    """
    known = known or Known()
    launch = form.launch
    versions = {**version_of_image(launch.image, engine.rules.tables), **known.versions}
    context = context_of(
        launch,
        before_start=True,
        versions=versions,
        hardware=known.hardware,
        model_config=known.model_config,
        host=known.host,
    )
    evidence = evidence_of(launch, context, engine, known)
    findings, considered, held = _findings(evidence, engine)
    root = next((f for f in findings if f.role == "root_cause"), None)
    triage = Triage(
        verdict="diagnosed" if root else "healthy",
        root_cause=_root_cause(root, launch) if root else None,
        findings=tuple(findings),
        next_steps=(),
        considered=tuple(considered),
        held=held,
    )
    correction = correct(form, findings, beside, before_start=True)
    return Checked(_diagnosis(evidence, triage, engine, correction), triage, evidence, correction)


def evidence_of(launch: Launch, context: Context, engine: Engine, known: Known) -> Evidence:
    """Return evidence with an empty log and all that the launch says."""
    builder = Builder(engine.wants)
    source = Source(kind="launch", name=launch.name, bytes=len(launch.text.encode()))
    found = builder.finish(source, context)
    architectures = (known.model_config or {}).get("architectures") or []
    version = context.versions.get(launch.program or "")
    return replace(
        found,
        source=replace(source, lines=launch.text.count("\n"), envelope=None, truncated=[]),
        run=replace(found.run, engine=launch.program, engine_version=version, model=launch.model),
        architecture=tuple(a for a in architectures if isinstance(a, str)),
        ending="running",
        limits=tuple(_limits(launch, context)),
    )


def _limits(launch: Launch, context: Context) -> list[str]:
    """Say what could not be checked."""
    found = list(launch.limits)
    if launch.program is None:
        found.append("no server that is known is started here: only the container was checked")
    elif launch.program not in context.versions:
        found.append(
            f"the version of {launch.program} is not known from the image: arguments were not "
            "checked against a release (give --engine-version)"
        )
    return found


# --- findings ----------------------------------------------------------------------------------


def _findings(
    evidence: Evidence, engine: Engine
) -> tuple[list[Finding], list[Considered], dict[str, dict[str, str]]]:
    index = index_of(engine.wants)
    filler = texts.Filler(evidence, engine.rules.tables, index)
    by_id = {rule.id: rule for rule in engine.rules.rules}
    truths: dict[str, Truth] = {}

    def other(rule_id: str) -> Truth:
        if rule_id not in truths:
            truths[rule_id] = Truth.UNKNOWN
            rule = by_id.get(rule_id)
            if rule is not None:
                truths[rule_id] = evaluate(rule.match, view(0)).truth
        return truths[rule_id]

    def view(nth: int) -> View:
        return View(evidence, index, other, engine.rules.tables, nth)

    found: list[tuple[Rule, Finding]] = []
    held: dict[str, dict[str, str]] = {}
    own = [r for r in by_id.values() if not r.engines or evidence.run.engine in r.engines]
    answered = [(rule, answer) for rule in own for answer in _answers(rule, view)]
    considered = [
        Considered(rule.id, "unknown", answer.why)
        for rule, answer in answered
        if rule.phase == "launch" and answer.truth is Truth.UNKNOWN
    ]
    for rule, answer in answered:
        if answer.truth is Truth.HOLDS and _speaks(rule, answer):
            finding = filler.finding(rule, answer, role=rule.role, caused_by=None, also=())
            held.setdefault(rule.id, finding.captures)
            found.append((rule, _cited(finding, evidence)))
    return _ranked(found), considered, held


def _answers(rule: Rule, view: Any) -> list[Answer]:  # noqa: ANN401 - a function of a number
    """Return the rule's answers: one, or one for each thing that a table speaks of."""
    many = any(isinstance(leaf, ListedLeaf) for leaf in walk(rule.match))
    answers: list[Answer] = []
    for nth in range(_MOST if many else 1):
        answer = evaluate(rule.match, view(nth))
        if nth and answer.truth is not Truth.HOLDS:
            break
        answers.append(answer)
    return answers


def _speaks(rule: Rule, answer: Answer) -> bool:
    """Say whether a rule that holds speaks of launches: of a log that is empty it says nothing."""
    if answer.lines:
        return True
    return any(isinstance(leaf, LaunchLeaf) and leaf.before_start for leaf in walk(rule.match))


def _cited(finding: Finding, evidence: Evidence) -> Finding:
    """Cite the command itself where a rule holds by something that is missing."""
    facts = evidence.context.facts
    if finding.evidence or facts is None:
        return finding
    line = facts.places.get("command", 1)
    text = facts.lines[line - 1] if 0 < line <= len(facts.lines) else ""
    return replace(finding, evidence=[Citation(line, text[: texts.MAX_QUOTED])])


def _ranked(found: Sequence[tuple[Rule, Finding]]) -> list[Finding]:
    """Order findings: what stops the start first; one line's more special rule wins."""
    ordered = sorted(
        found,
        key=lambda pair: (
            _WEIGHT[pair[1].severity],
            -pair[0].priority,
            pair[1].evidence[0].line if pair[1].evidence else 0,
            pair[0].id,
        ),
    )
    silenced = {rule_id for rule, _ in ordered for rule_id in rule.explains}
    result: list[Finding] = []
    for rule, finding in ordered:
        if rule.id in silenced:
            continue
        role: Role = "advice"
        if finding.severity in _BAD:
            role = "contributing" if any(f.role == "root_cause" for f in result) else "root_cause"
        result.append(replace(finding, role=role))
    return result


def _unwritten(correction: Correction | None) -> list[str]:
    """Say why no corrected launch is offered although something should be changed."""
    if correction is None or correction.offers:
        return []
    refused = [c for c in correction.shown.not_changed if c.problem != "the launch is already so"]
    return [f"{c.text.rstrip('.')}: not written into the launch, {c.problem}" for c in refused]


def _root_cause(finding: Finding, launch: Launch) -> RootCause:
    first = finding.evidence[0] if finding.evidence else Citation(1, "")
    key = f"{finding.rule}\0{sorted(finding.captures.items())}\0{launch.program}"
    return RootCause(
        line=first.line,
        text=first.text,
        process=None,
        exception=None,
        rule=finding.rule,
        fingerprint=hashlib.sha256(key.encode()).hexdigest()[:16],
    )


def _diagnosis(
    evidence: Evidence, triage: Triage, engine: Engine, correction: Correction | None
) -> Diagnosis:
    found = Diagnosis(
        schema=DIAGNOSIS_SCHEMA,
        tool=Tool(__version__, RuleStamp(len(engine.rules.rules), engine.rules.digest)),
        source=evidence.source,
        run=evidence.run,
        verdict=triage.verdict,
        outcome="unknown",
        timeline=[],
        last_milestone=None,
        root_cause=triage.root_cause,
        findings=list(triage.findings),
        suggested_launch=correction.shown if correction and correction.offers else None,
        next_steps=[],
        limits=[*evidence.limits, *_unwritten(correction)],
    )
    return msgspec.convert(redaction.value(msgspec.to_builtins(found)), Diagnosis)


__all__ = ["Checked", "Known", "check", "places_of"]
