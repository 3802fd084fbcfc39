"""Rules that hold, ranked: which finding is the root, which are its symptoms, what only advises.

In: evidence, what the structure says (`Judgement`), and the rules. Out: a verdict with findings
in order, and for `--explain` why each other rule did not win.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from forensics import texts
from forensics.conditions import Answer, View, evaluate
from forensics.model import (
    Evidence,
    Failure,
    Finding,
    Hit,
    NextStep,
    Role,
    RootCause,
    Truth,
    Verdict,
)
from forensics.rootcause import Judgement, fingerprint, of_lines
from forensics.rules_schema import Rule
from forensics.ruleset import RuleSet

DIAGNOSED = 0.7
SUSPECTED = 0.4
#: Share of its confidence that a finding keeps where the part of the log is missing that decides.
BLIND = 0.5
#: Lines after a fatal line within which a rule may still speak of it.
_NEAR = 200


class Considered(Struct, frozen=True):
    """Why a rule did or did not win: one line of `--explain`."""

    rule: str
    result: Literal["root cause", "symptom", "contributing", "advice", "lost", "unknown", "no"]
    why: str


class Triage(Struct, frozen=True):
    """The ranked result; `held` has the captures of every rule that holds, winner or not."""

    verdict: Verdict
    root_cause: RootCause | None
    findings: tuple[Finding, ...]
    next_steps: tuple[NextStep, ...]
    considered: tuple[Considered, ...]
    held: dict[str, dict[str, str]]


class _Held(Struct, frozen=True):
    rule: Rule
    answer: Answer

    @property
    def line(self) -> int:
        return self.answer.lines[0].record.line if self.answer.lines else 0

    @property
    def numbers(self) -> set[int]:
        return {hit.record.line for hit in self.answer.lines}


def decide(
    evidence: Evidence, judgement: Judgement, rules: RuleSet, index: Mapping[str, int]
) -> Triage:
    """Rank the rules over the evidence.

    Args:
        evidence: What is known.
        judgement: The root by structure, and the outcome.
        rules: The rule set.
        index: Pattern to its index in `evidence.hits`.
    """
    answers = _evaluate(evidence, rules, index)
    considered: list[Considered] = []
    held: list[_Held] = []
    for rule in rules.rules:
        answer = answers.get(rule.id)
        if answer is None:
            continue
        if answer.truth is Truth.HOLDS:
            held.append(_Held(rule, answer))
        elif answer.lines or answer.truth is Truth.UNKNOWN:
            result = "unknown" if answer.truth is Truth.UNKNOWN else "no"
            if answer.lines or result == "no":
                considered.append(Considered(rule.id, result, answer.why))  # type: ignore[arg-type]
    root = _choose(held, evidence, judgement, considered)
    roles = _roles(held, root, judgement, evidence, considered)
    filler = texts.Filler(evidence, rules.tables, index)
    findings = _findings(roles, root, filler, evidence, judgement)
    root_cause = _root_cause(root, evidence, judgement)
    steps = filler.next_steps(root.rule, root.answer) if root else ()
    return Triage(
        verdict=_verdict(root, root_cause, evidence, judgement, findings),
        root_cause=root_cause,
        findings=findings,
        next_steps=steps,
        considered=tuple(considered),
        held={h.rule.id: filler.values(h.rule, h.answer) for h in held},
    )


def _evaluate(evidence: Evidence, rules: RuleSet, index: Mapping[str, int]) -> dict[str, Answer]:
    """Evaluate each rule once; `rule` leaves are answered in between, cycles are unknown."""
    answers: dict[str, Answer] = {}
    by_id = {rule.id: rule for rule in rules.rules}
    open_rules: set[str] = set()

    def other(rule_id: str) -> Truth:
        rule = by_id.get(rule_id)
        if rule is None or rule_id in open_rules:
            return Truth.UNKNOWN
        return answer_of(rule).truth

    view = View(evidence, index, other, rules.tables)

    def answer_of(rule: Rule) -> Answer:
        if rule.id not in answers:
            open_rules.add(rule.id)
            answers[rule.id] = evaluate(rule.match, view)
            open_rules.discard(rule.id)
        return answers[rule.id]

    engine = evidence.run.engine
    for rule in rules.rules:
        if not rule.engines or engine is None or engine in rule.engines:
            answer_of(rule)
    return {k: a for k, a in answers.items() if not _other_engine(by_id[k], engine)}


def evaluate_all(
    evidence: Evidence, rules: RuleSet, index: Mapping[str, int]
) -> Iterator[tuple[Rule, Answer]]:
    """Yield each rule that may be asked of this engine with its answer.

    Args:
        evidence: What is known.
        rules: The rule set.
        index: Pattern to its index in `evidence.hits`.
    """
    answers = _evaluate(evidence, rules, index)
    for rule in rules.rules:
        if rule.id in answers:
            yield rule, answers[rule.id]


def _other_engine(rule: Rule, engine: str | None) -> bool:
    return bool(rule.engines) and engine is not None and engine not in rule.engines


# --- the root ----------------------------------------------------------------------------------


def _choose(
    held: list[_Held], evidence: Evidence, judgement: Judgement, considered: list[Considered]
) -> _Held | None:
    """Return the rule that names the root of the failure, if one does."""
    roots = [h for h in held if h.rule.role == "root_cause"]
    failure = judgement.failure
    if failure is None:
        if not _healthy(evidence, judgement):
            return _best([h for h in roots if h.answer.lines])
        considered.extend(
            Considered(h.rule.id, "lost", "it holds, but nothing failed") for h in roots
        )
        return None
    inside = [h for h in roots if h.numbers & failure.lines and failure.kind != "cut"]
    best = _best(inside)
    if best is not None:
        return _explaining(best, roots, evidence)
    return _elsewhere(held, roots, failure, evidence)


def _elsewhere(
    held: list[_Held], roots: list[_Held], failure: Failure, evidence: Evidence
) -> _Held | None:
    """Return the rule that names the root although it names none of the failure's own lines."""
    lined = [h for h in roots if h.answer.lines]
    if failure.kind == "cut":
        # A log that stops: a line that names a cause beats what facts alone suggest.
        end = evidence.last.line if evidence.last else failure.line
        lined = [h for h in lined if not _went_on(h.line, evidence, end + 1)]
        return _best(lined or [h for h in roots if not h.answer.lines])
    if failure.kind == "exception":
        other = _of_another_process(held, roots, failure, evidence)
        earlier = [h for h in lined if h.line <= failure.line]
        earlier = [h for h in earlier if not _went_on(h.line, evidence, failure.line)]
        return other or _best(earlier)
    near = [h for h in roots if not h.answer.lines or h.line <= failure.line + _NEAR]
    return max(near, key=lambda h: (bool(h.answer.lines), h.rule.priority), default=None)


def _best(held: list[_Held]) -> _Held | None:
    """Return the most specific, surest and earliest of rules that hold."""
    return max(held, key=lambda h: (h.rule.priority, h.rule.confidence, -h.line), default=None)


def _of_another_process(
    held: list[_Held], roots: list[_Held], failure: Failure, evidence: Evidence
) -> _Held | None:
    """Return the cause that a sibling printed, where the first exception only observes its end.

    Of several ranks the one that lost its peer may print first: a rule that knows its line for a
    symptom says so.
    """
    if not any(h.rule.role == "symptom" and h.numbers & failure.lines for h in held):
        return None
    raised = {line for e in evidence.exceptions for line in (e.line, e.telling_line)}
    others = [h for h in roots if h.numbers & raised and h.line > failure.line]
    return _best(others)


def _explaining(best: _Held, roots: list[_Held], evidence: Evidence) -> _Held:
    """Return an earlier finding that says that it causes the best one, else the best one."""
    earlier = [
        h
        for h in roots
        if best.rule.id in h.rule.explains
        and h.answer.lines
        and h.line <= best.line
        and not _went_on(h.line, evidence, best.line)
    ]
    return _best(earlier) or best


def _went_on(line: int, evidence: Evidence, until: int) -> bool:
    """Say whether milestones were reached between a line and the failure."""
    return any(line < m.line < until for m in evidence.milestones)


def _healthy(evidence: Evidence, judgement: Judgement) -> bool:
    if judgement.outcome in {"stopped", "served"}:
        return True
    return evidence.ending == "running" or bool(evidence.milestones)


def _roles(
    held: list[_Held],
    root: _Held | None,
    judgement: Judgement,
    evidence: Evidence,
    considered: list[Considered],
) -> list[tuple[_Held, Role]]:
    """Give each rule that holds its role in this run."""
    roles: list[tuple[_Held, Role]] = []
    if root is not None:
        roles.append((root, "root_cause"))
        considered.append(
            Considered(root.rule.id, "root cause", "it names the root of the failure")
        )
    failed = judgement.failure is not None or root is not None
    for one in held:
        if one is root:
            continue
        role = _fixed_role(one, root, failed=failed)
        if role is None and failed and one.rule.role == "root_cause":
            role = _lesser_role(one, root, judgement, evidence, considered)
        if role is not None:
            roles.append((one, role))
    return roles


def _fixed_role(one: _Held, root: _Held | None, *, failed: bool) -> Role | None:
    """Return the role that does not depend on where the rule's lines stand."""
    rule = one.rule
    if rule.role in {"advice", "contributing"}:
        return rule.role
    if root is not None and rule.id in root.rule.explains:
        return "symptom"
    return "symptom" if failed and rule.role == "symptom" else None


def _lesser_role(
    one: _Held,
    root: _Held | None,
    judgement: Judgement,
    evidence: Evidence,
    considered: list[Considered],
) -> Role | None:
    """Return what a rule for a root cause is when another one won, None if nothing."""
    failure = judgement.failure
    root_lines = (root.numbers if root else set()) | (failure.lines if failure else frozenset())
    root_line = failure.line if failure else (root.line if root else 0)
    if not one.answer.lines:
        why = "facts alone; a line says more"
    elif one.numbers & root_lines:
        why = f"{root.rule.id} says more of the same line" if root else "weaker"
    elif one.line > root_line:
        return "symptom"
    elif _went_on(one.line, evidence, root_line):
        why = "the start went on after it"
    else:
        return "contributing"
    considered.append(Considered(one.rule.id, "lost", why))
    return None


# --- findings ----------------------------------------------------------------------------------

_ORDER: dict[Role, int] = {"root_cause": 0, "contributing": 1, "advice": 2, "symptom": 3}
_WEIGHT = {"fatal": 0, "error": 1, "warning": 2, "info": 3}


def _findings(
    roles: list[tuple[_Held, Role]],
    root: _Held | None,
    filler: texts.Filler,
    evidence: Evidence,
    judgement: Judgement,
) -> tuple[Finding, ...]:
    found = [
        filler.finding(
            one.rule,
            one.answer,
            role=role,
            caused_by=root.rule.id if role == "symptom" and root is not None else None,
            also=_failure_line(judgement, evidence) if one is root and not one.answer.lines else (),
        )
        for one, role in roles
    ]
    holes = evidence.context.holes
    found = [
        # What is first behind a hole may follow from what stood in it.
        replace(f, confidence=round(f.confidence * BLIND, 3))
        if judgement.blind or (holes and f.evidence and f.evidence[0].line >= holes[0])
        else f
        for f in found
    ]
    return tuple(
        sorted(
            found,
            key=lambda f: (
                _ORDER[f.role],
                _WEIGHT[f.severity],
                f.evidence[0].line if f.evidence else 0,
                f.rule,
            ),
        )
    )


def _failure_line(
    judgement: Judgement, evidence: Evidence
) -> tuple[tuple[int, str, str | None], ...]:
    """Return the lines to cite for a rule that holds by facts alone."""
    failure, last = judgement.failure, evidence.last
    if failure is None:
        return ()
    lines = [(failure.line, failure.text, failure.process)]
    if failure.kind == "cut" and last is not None and last.line != failure.line:
        lines.append((last.line, last.text, last.process))
    return tuple(lines)


def _root_cause(root: _Held | None, evidence: Evidence, judgement: Judgement) -> RootCause | None:
    failure = judgement.failure
    last = evidence.milestones[-1].milestone if evidence.milestones else None
    if failure is None:
        if root is None:
            return None
        return texts.root_of_line(root.answer.lines[0].record, root.rule.id, last)
    if root is not None and failure.kind == "exception" and not root.numbers & failure.lines:
        failure = of_lines(root.numbers, evidence) or failure
    key = fingerprint(failure, last)
    found = texts.root_of_failure(failure, root.rule.id if root else None, key)
    hit = _telling(root, failure) if root is not None else None
    if hit is None:
        return found
    return replace(found, line=hit.record.line, text=hit.record.text[: texts.MAX_QUOTED])


def _telling(root: _Held, failure: Failure) -> Hit | None:
    """Return the rule's line where it says more than the line found by structure.

    That is so where the rule says that its line is the root, where it speaks of another place,
    where the log simply stops, and where it names a later line of the same failure (the second
    line of a message whose first is only a head, or an exception that tells what the one before
    it does not).
    """
    lines = root.answer.lines
    named = next((hit for hit in lines if hit.root), None)
    if named is not None and named.record.line != failure.line:
        return named
    if not lines or failure.line in root.numbers:
        return None
    inside = [hit for hit in lines if hit.record.line in failure.lines]
    earlier = failure.kind == "fatal" and lines[0].record.line < failure.line
    if failure.kind == "cut" or not inside or earlier:
        return lines[0]
    return next((hit for hit in inside if hit.record.line > failure.line), None)


def _verdict(
    root: _Held | None,
    root_cause: RootCause | None,
    evidence: Evidence,
    judgement: Judgement,
    findings: tuple[Finding, ...],
) -> Verdict:
    if judgement.blind:
        return "inconclusive"
    if root is not None:
        confidence = root.rule.confidence
        if confidence >= DIAGNOSED:
            return "diagnosed"
        return "suspected" if confidence >= SUSPECTED else "inconclusive"
    if root_cause is not None:
        failure = judgement.failure
        known = failure is not None and failure.kind in {"exception", "fatal"}
        return "suspected" if known else "inconclusive"
    if judgement.outcome in {"stopped", "served"} or evidence.ending == "running":
        return "healthy" if evidence.run.engine or evidence.ending == "running" else "no_evidence"
    del findings
    return "no_evidence"
