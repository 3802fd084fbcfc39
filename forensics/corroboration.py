"""A verdict on a log, held against what other files say: they may name the cause, or add to it.

In: the triage of a log, and lines beside it that concern its run (`forensics.witnesses`). Out: the
triage with the root cause where the first thing that went wrong stands in another file, everything
else as what came before or followed. The log's own word stands unless the other line explains it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from forensics import texts
from forensics.beside import Told
from forensics.conditions import Answer
from forensics.envelopes.text import clean
from forensics.evidence import Builder, Wanted
from forensics.model import (
    Citation,
    Context,
    Evidence,
    Finding,
    Hit,
    Outcome,
    Role,
    Source,
    Truth,
    Verdict,
)
from forensics.rootcause import Judgement
from forensics.rules_schema import Rule
from forensics.ruleset import RuleSet
from forensics.triage import DIAGNOSED, SUSPECTED, Considered, Triage, evaluate_all
from forensics.witnesses import Admitted

_ORDERLY_EXITS = {0, 130, 143}
#: What a failed GPU, driver or a killed process makes of a server, in the server's words.
_CONSEQUENCE = re.compile(
    r"CUDA error|NCCL|GPU|NVML|cuBLAS|cuDNN|driver|died|dead|killed|signal"
    r"|unexpectedly|vanish|closed|reset|lost|time[d ]*out|Timeout|Broken ?pipe|EOF|exit ?code",
    re.IGNORECASE,
)


class Held(Struct, frozen=True):
    """A rule that holds on lines beside the log.

    Attributes:
        rule: The rule.
        answer: Its proof; lines are those of the other files.
        weight: How sure it is that they concern this run.
        kill: Whether one of them tells of a process that was killed.
    """

    rule: Rule
    answer: Answer
    weight: float
    kill: bool

    @property
    def sure(self) -> float:
        """Return the confidence that is left."""
        return round(self.rule.confidence * self.weight, 3)


class Corroborated(Struct, frozen=True):
    """A verdict with what other files say.

    Attributes:
        triage: The ranked result.
        outcome: How the run ended.
    """

    triage: Triage
    outcome: Outcome


def held_on(
    admitted: list[Admitted],
    evidence: Evidence,
    rules: RuleSet,
    wants: Wanted,
    find: Callable[[bytes], list[tuple[int, int]]],
) -> list[Held]:
    """Return the rules that hold on lines beside the log.

    Args:
        admitted: The lines.
        evidence: What the log says; its facts count for rules that ask for them.
        rules: The rule set.
        wants: All patterns.
        find: Names candidates for them.
    """
    if not admitted:
        return []
    ordered = sorted(admitted, key=_order)
    messages = "".join(re.sub(r"[\r\n]", " ", one.told.message) + "\n" for one in ordered)
    block = clean(messages.encode("utf-8", "replace"), 1)
    builder = Builder(wants)
    builder.feed(block, find(block.text))
    said = builder.finish(Source("beside", "beside"), Context(whole=True))
    seen = replace(
        evidence,
        hits=said.hits,
        counts=said.counts,
        exceptions=(),
        head_complete=True,
        tail_complete=True,
    )
    kills = {s.record.line for s in said.signals if s.kind == "death"}
    index = {pattern: i for i, pattern in enumerate(wants.patterns)}
    found = []
    for rule, answer in evaluate_all(seen, rules, index):
        if answer.truth is not Truth.HOLDS or not answer.lines:
            continue
        places = [hit.record.line for hit in answer.lines if 1 <= hit.record.line <= len(ordered)]
        weight = max((ordered[place - 1].weight for place in places), default=0.0)
        lines = tuple(_placed(hit, ordered[hit.record.line - 1].told) for hit in answer.lines)
        kill = any(place in kills for place in places)
        found.append(Held(rule, replace(answer, lines=lines), weight, kill))
    return found


def _order(one: Admitted) -> tuple[bool, float, str, int]:
    at = one.told.moment
    return (at is None, at.seconds if at is not None else 0.0, one.told.source, one.told.line)


def _placed(hit: Hit, told: Told) -> Hit:
    """Give a line the place that it has in its own file."""
    record = replace(
        hit.record,
        line=told.line,
        text=told.text,
        at=told.at,
        source=told.source,
        process=told.process,
        pid=told.pid,
    )
    return replace(hit, record=record)


def corroborate(
    triage: Triage,
    evidence: Evidence,
    judgement: Judgement,
    held: list[Held],
    rules: RuleSet,
    index: Mapping[str, int],
) -> Corroborated:
    """Hold a verdict against what other files say.

    Args:
        triage: The verdict on the log.
        evidence: What the log says.
        judgement: How it failed.
        held: Rules that hold beside it.
        rules: The rule set.
        index: Pattern to its index.
    """
    outcome = judgement.outcome
    roots = [one for one in held if one.rule.role == "root_cause"]
    inside = next((f for f in triage.findings if f.role == "root_cause"), None)
    best = _chosen(roots, inside)
    filler = texts.Filler(evidence, rules.tables, index)
    by_id = {rule.id: rule for rule in rules.rules}
    if best is None or not _explains(best, inside, by_id, evidence, judgement):
        failed = triage.root_cause is not None
        rule = by_id.get(inside.rule) if inside is not None else None
        more = [] if not failed else _others(held, rule, None, filler)
        lost = [
            Considered(one.rule.id, "lost", "it holds beside the log, which says more by itself")
            for one in roots
        ]
        return Corroborated(
            replace(
                triage,
                findings=(*triage.findings, *more),
                considered=(*triage.considered, *lost),
            ),
            outcome,
        )
    findings = [_root(best, filler, evidence, judgement)]
    findings += _others(held, best.rule, best, filler)
    findings += _followed(triage.findings, best, inside)
    last = evidence.milestones[-1].milestone if evidence.milestones else None
    named = next((hit for hit in best.answer.lines if hit.root), best.answer.lines[0])
    ranked = Triage(
        verdict=_verdict(best),
        root_cause=texts.root_of_line(named.record, best.rule.id, last),
        findings=tuple(sorted(findings, key=lambda f: _RANK[f.role])),
        next_steps=filler.next_steps(best.rule, best.answer),
        considered=(
            *(replace(c, result="symptom", why=f"{best.rule.id} explains it")
              if c.result == "root cause" else c for c in triage.considered),
            Considered(best.rule.id, "root cause", "it stands beside the log and precedes its end"),
        ),
        held={**triage.held, **{h.rule.id: filler.values(h.rule, h.answer) for h in held}},
    )  # fmt: skip
    return Corroborated(ranked, _outcome(judgement, evidence, kill=best.kill))


_RANK: dict[Role, int] = {"root_cause": 0, "contributing": 1, "advice": 2, "symptom": 3}


def _chosen(roots: list[Held], inside: Finding | None) -> Held | None:
    """Return the line that names the cause: what explains others goes before them."""

    def rank(one: Held) -> tuple[bool, bool, int, float]:
        explains = inside is not None and inside.rule in one.rule.explains
        return explains, one.kill, one.rule.priority, one.sure

    best = max(roots, key=rank, default=None)
    if best is None:
        return None
    deeper = [one for one in roots if best.rule.id in one.rule.explains]
    return max(deeper, key=rank, default=best)


def _explains(
    best: Held,
    inside: Finding | None,
    rules: Mapping[str, Rule],
    evidence: Evidence,
    judgement: Judgement,
) -> bool:
    """Say whether a line beside the log is the cause of what the log shows."""
    if best.sure < SUSPECTED or judgement.blind:
        return False
    failure = judgement.failure
    if failure is None:
        # Nothing failed as far as the log goes, which then must simply stop.
        quiet = evidence.ending == "cut" and evidence.run.exit_code not in _ORDERLY_EXITS
        return quiet and judgement.stop_line is None and best.weight >= DIAGNOSED
    rule = rules.get(inside.rule) if inside is not None else None
    if rule is not None and rule.id in best.rule.explains:
        return True
    if failure.kind in {"cut", "death"}:
        cited = inside.evidence if inside is not None else []
        # A rule that holds by facts alone has only the place of the failure to cite.
        facts = failure.kind == "cut" and cited[:1] and cited[0].line == failure.line
        return rule is None or bool(facts) or best.rule.priority > rule.priority
    # A cause that the log names itself stands, unless the other one is known to lead to it.
    return rule is None and _CONSEQUENCE.search(failure.text) is not None


def _root(best: Held, filler: texts.Filler, evidence: Evidence, judgement: Judgement) -> Finding:
    finding = filler.finding(best.rule, best.answer, role="root_cause", caused_by=None)
    failure, last = judgement.failure, evidence.last
    seen = [] if failure is None else [Citation(failure.line, failure.text, failure.process)]
    if last is not None and (failure is None or failure.kind == "cut"):
        seen += [Citation(last.line, last.text[: texts.MAX_QUOTED], last.process, last.at)]
    cited = list({(c.source, c.line): c for c in (*finding.evidence, *seen)}.values())
    return replace(finding, confidence=best.sure, evidence=cited)


def _others(
    held: list[Held], root: Rule | None, best: Held | None, filler: texts.Filler
) -> list[Finding]:
    """Return the findings of the other rules that hold beside the log.

    Args:
        held: All of them.
        root: The rule of the root cause, wherever it holds.
        best: The same, where it holds beside the log.
        filler: Makes findings.
    """
    found = []
    taken = set() if best is None else {place_of(hit) for hit in best.answer.lines}
    for one in held:
        if one is best:
            continue
        role: Role = one.rule.role
        if root is not None and one.rule.id in root.explains:
            role = "symptom"
        elif role == "root_cause":
            # The same line says it all, or another event of the same time.
            if {place_of(hit) for hit in one.answer.lines} <= taken:
                continue
            role = "contributing"
        cause = root.id if role == "symptom" and root is not None else None
        finding = filler.finding(one.rule, one.answer, role=role, caused_by=cause)
        found.append(replace(finding, confidence=one.sure))
    return found


def place_of(hit: Hit) -> tuple[str | None, int]:
    """Return the file and line of a hit."""
    return hit.record.source, hit.record.line


def _followed(findings: tuple[Finding, ...], best: Held, inside: Finding | None) -> list[Finding]:
    """Return what the log said, as what followed from the cause."""
    found = []
    for one in findings:
        if one.rule == best.rule.id:
            continue
        if one is inside:
            found.append(replace(one, role="symptom", caused_by=best.rule.id))
        elif one.role == "symptom":
            found.append(replace(one, caused_by=best.rule.id))
        else:
            found.append(one)
    return found


def _verdict(best: Held) -> Verdict:
    if best.sure >= DIAGNOSED:
        return "diagnosed"
    return "suspected" if best.sure >= SUSPECTED else "inconclusive"


def _outcome(judgement: Judgement, evidence: Evidence, *, kill: bool) -> Outcome:
    """Say how the run ended, now that the cause is known."""
    failure = judgement.failure
    if failure is not None and failure.kind not in {"cut", "death"}:
        return judgement.outcome
    if kill or judgement.outcome == "killed":
        return "killed"
    if judgement.ready_line is not None:
        return "crashed"
    return "failed_startup" if evidence.milestones else judgement.outcome
