"""The logs of one deployment as one: who failed first, and who only saw it.

In: each log's own diagnosis, and the events that they share. Out: one diagnosis. The cause stands
in the log that names one of its own and is the earliest by clocks that were set against each other;
a log that says that a peer is gone or late observes. Where all observe and one log simply stops,
that one is where it began.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from forensics.engines.generic import observes
from forensics.model import (
    Diagnosis,
    Evidence,
    Finding,
    Milestone,
    RootCause,
    Source,
)
from forensics.sharing import Shared, Skew, skews
from forensics.times import Moment, gap, moment
from forensics.triage import DIAGNOSED, SUSPECTED, Triage

#: Clocks of machines that share no event are taken for right to so many seconds.
_UNSET_S = 60.0
#: Lines of one failure are printed within so many seconds.
_SLACK_S = 5.0
#: A peer is missed after half an hour at most.
_MISSED_S = 1_900.0
_UNORDERED, _BY_CLOCKS = 0.75, 0.85
_MAX_CITED = 8

_ONLY_OBSERVERS = (
    "each of these logs only tells that another process is gone or late: "
    "the log of that one is not among them"
)

Part = Literal["own", "silent", "observer", "fine"]


class Member(Struct, frozen=True):
    """One log of the deployment.

    Attributes:
        diagnosis: Its own diagnosis.
        triage: Its working.
        evidence: What it is made of.
        shared: What it tells that others may tell as well.
    """

    diagnosis: Diagnosis
    triage: Triage
    evidence: Evidence
    shared: Shared = Shared()

    @property
    def name(self) -> str:
        """Return the log's name."""
        return self.diagnosis.source.name


class _Seen(Struct, frozen=True):
    """A log by the part it plays.

    Attributes:
        place: Its place among the logs.
        member: The log.
        part: Whether it names a cause of its own, stops without a word, observes, or is fine.
        at: When it failed or stopped, by its own clock.
        skew: How far that clock is ahead of the first log's.
    """

    place: int
    member: Member
    part: Part
    at: Moment | None
    skew: Skew | None


def together(members: list[Member]) -> tuple[Diagnosis, Member]:
    """Return one diagnosis of several logs, and the one in which the cause stands.

    Args:
        members: The logs, at least one, in the order in which they were named.
    """
    offsets = skews([member.shared for member in members])
    seen = [
        _Seen(place, member, part_of(member), _failed_at(member), offsets[place])
        for place, member in enumerate(members)
    ]
    failed = [one for one in seen if one.part in {"own", "observer"}]
    if not failed:
        first = next((one for one in seen if one.member.diagnosis.root_cause), seen[0])
        sure, said = 1.0, list[str]()
    else:
        first, sure, said = _first(seen)
    limits = [*_clocks(seen), *said, *first.member.diagnosis.limits]
    return _one(first, seen, sure, limits), first.member


def part_of(member: Member) -> Part:
    """Return what part a log plays in a failure of its deployment."""
    root, evidence = member.diagnosis.root_cause, member.evidence
    quiet = evidence.ending == "cut" and member.diagnosis.outcome != "stopped"
    if root is None or member.diagnosis.verdict in {"healthy", "no_evidence"}:
        return "silent" if quiet and evidence.milestones else "fine"
    if root.source is not None:
        return "own"
    said = f"{root.exception.type}: {root.exception.message}" if root.exception else root.text
    if observes(said) or observes(root.text):
        return "observer"
    stops = {m.line for m in evidence.milestones}
    stops |= {evidence.last.line} if evidence.last is not None else set()
    if quiet and root.exception is None and root.line in stops:
        return "silent"
    return "own"


def _failed_at(member: Member) -> Moment | None:
    """Return when a log's failure was printed, or its last line that has a time."""
    root, evidence = member.diagnosis.root_cause, member.evidence
    if root is not None:
        for event in evidence.exceptions:
            if root.line in {event.line, event.telling_line} and root.source is None:
                found = moment(event.at, event.clock)
                if found is not None:
                    return found
        finding = next((f for f in member.diagnosis.findings if f.role == "root_cause"), None)
        for citation in finding.evidence if finding is not None else []:
            if (citation.source, citation.line) == (root.source, root.line) and citation.at:
                return moment(citation.at)
        for signal in evidence.signals:
            if signal.record.line == root.line and root.source is None:
                found = moment(signal.record.at, signal.record.clock)
                if found is not None and part_of(member) != "silent":
                    return found
    timed = evidence.timed
    return moment(timed.at, timed.clock) if timed is not None else None


def _apart(one: _Seen, other: _Seen) -> tuple[float, float] | None:
    """Return by how many seconds `other` failed after `one`, and how sure that is."""
    if one.at is None or other.at is None:
        return None
    span = gap(one.at, other.at)
    if one.skew is None or other.skew is None:
        return span, 0.0 if one.place == other.place else _UNSET_S
    within = max(one.skew.within, other.skew.within)
    return span - (other.skew.seconds - one.skew.seconds), within


def _before(one: _Seen, others: list[_Seen]) -> bool:
    """Say whether one log may have failed before all others, as far as the clocks tell."""
    spans = [_apart(one, other) for other in others if other is not one]
    return all(span is None or span[0] >= -(span[1] + _SLACK_S) for span in spans)


def _earliest(seen: list[_Seen]) -> _Seen:
    """Return the log that failed first; of those at the same time the innermost process."""
    first = seen[0]
    for one in seen[1:]:
        span = _apart(first, one)
        if span is None:
            continue
        after, within = span
        deeper = _depth(one) > _depth(first)
        if (
            after < -within
            or (abs(after) <= within and deeper)
            or (abs(after) <= within and _depth(one) == _depth(first) and after < 0)
        ):
            first = one
    return first


def _depth(one: _Seen) -> int:
    root = one.member.diagnosis.root_cause
    lines = {root.line} if root is not None else set()
    return max(
        (e.depth for e in one.member.evidence.exceptions if {e.line, e.telling_line} & lines),
        default=0,
    )


def _first(seen: list[_Seen]) -> tuple[_Seen, float, list[str]]:
    """Return the log in which the failure began, how sure that is, and what is not known."""
    observers = [one for one in seen if one.part == "observer"]
    own = [one for one in seen if one.part == "own"]
    early = [one for one in own if _before(one, observers)]
    if early:
        first = _earliest(early)
        rest = [one for one in (*own, *observers) if one is not first]
        sure, said = _order(first, rest)
        return first, sure, said
    silent = [one for one in seen if one.part == "silent" and _missed(one, observers)]
    if silent and observers:
        named = [one for one in silent if _named(one, observers)]
        first = _earliest(named or silent)
        said = [f"{first.member.name} says nothing of its end, which the others noticed"]
        sure, more = _order(first, observers)
        return first, sure, [*said, *more]
    if own:
        first = _earliest(own)
        why = "failed after others had lost a peer: why those did is not in these logs"
        return first, _UNORDERED, [f"{first.member.name} {why}"]
    return _earliest(observers), _UNORDERED, [_ONLY_OBSERVERS]


def _missed(one: _Seen, observers: list[_Seen]) -> bool:
    """Say whether a log ends where others may have missed it."""
    for other in observers:
        span = _apart(one, other)
        if span is None or -(span[1] + _SLACK_S) <= span[0] <= _MISSED_S + span[1]:
            continue
        return False
    return True


def _named(one: _Seen, observers: list[_Seen]) -> bool:
    """Say whether those who lost a peer name this one's rank."""
    ranks = one.member.shared.ranks
    roots = [o.member.diagnosis.root_cause for o in observers]
    texts = [f"{r.text} {r.exception.message if r.exception else ''}".lower() for r in roots if r]
    return any(f"rank {rank} " in f"{text} " or f"rank {rank}:" in text or f"[{rank}]" in text
               for rank in ranks for text in texts)  # fmt: skip


def _order(first: _Seen, rest: list[_Seen]) -> tuple[float, list[str]]:
    """Say how sure it is that one log failed before the others."""
    if not rest:
        return 1.0, []
    if first.at is None or any(other.at is None for other in rest):
        return _UNORDERED, ["not every log says when it failed: what the lines say decided"]
    if any(one.skew is None for one in (first, *rest)):
        return _BY_CLOCKS, [
            "the logs share no event to compare their clocks by: the order is that of the clocks"
        ]
    return 1.0, []


def _clocks(seen: list[_Seen]) -> list[str]:
    """Say how the clocks of the logs differ, as far as shared events tell."""
    return [
        _clock(one.member.name, one.skew, seen[0].member.name)
        for one in seen
        if one.skew is not None and one.place > 0
    ]


def _clock(name: str, by: Skew, other: str) -> str:
    way = "ahead of" if by.seconds >= 0 else "behind"
    count = f"{by.events} shared event{'s' if by.events != 1 else ''}"
    span = f"{abs(by.seconds):g} s {way} that of {other}, give or take {by.within:g} s"
    return f"the clock of {name} is {span} (from {count})"


# --- the one diagnosis --------------------------------------------------------------------------


def _one(first: _Seen, seen: list[_Seen], sure: float, limits: list[str]) -> Diagnosis:
    base = first.member.diagnosis
    name = first.member.name
    findings = [_of(finding, name) for finding in base.findings]
    others = [one for one in seen if one is not first and one.part in {"own", "observer"}]
    failed = base.root_cause is not None
    if failed:
        findings = [
            replace(f, confidence=round(f.confidence * sure, 3)) if f.role == "root_cause" else f
            for f in findings
        ]
        findings = _joined(findings, others, base.root_cause)
    sources = [one.member.diagnosis.source for one in seen]
    return replace(
        base,
        source=Source(
            kind="together",
            name=" + ".join(source.name for source in sources),
            bytes=sum(source.bytes for source in sources),
            lines=sum(source.lines for source in sources),
            truncated=list(dict.fromkeys(end for source in sources for end in source.truncated)),
        ),
        verdict=_verdict(base, findings, sure),
        timeline=[
            *(replace(m, source=m.source or name) for m in base.timeline),
            *(_entry(first, one) for one in others),
        ],
        root_cause=_named_root(base.root_cause, name),
        findings=findings,
        limits=list(dict.fromkeys([*limits, *(_unruled(others) if failed else [])])),
    )


def _named_root(root: RootCause | None, name: str) -> RootCause | None:
    return None if root is None else replace(root, source=root.source or name)


def _of(finding: Finding, name: str) -> Finding:
    """Name the log in which the lines of a finding stand."""
    cited = [replace(c, source=c.source or name) for c in finding.evidence]
    return replace(finding, evidence=cited)


def _joined(findings: list[Finding], others: list[_Seen], root: RootCause | None) -> list[Finding]:
    """Add what failed in the other logs as what followed; one finding a rule."""
    cause = root.rule if root is not None else None
    found = {finding.rule: finding for finding in findings}
    for one in others:
        for finding in one.member.diagnosis.findings:
            if finding.role not in {"root_cause", "symptom"}:
                continue
            mine = replace(_of(finding, one.member.name), role="symptom", caused_by=cause)
            known = found.get(mine.rule)
            if known is not None:
                cited = [*known.evidence, *mine.evidence][:_MAX_CITED]
                mine = replace(known, evidence=cited, count=known.count + mine.count)
            found[mine.rule] = mine
    return list(found.values())


def _entry(first: _Seen, one: _Seen) -> Milestone:
    """Return where another log failed, as an entry of the timeline."""
    root = one.member.diagnosis.root_cause
    line = root.line if root is not None else 0
    name = _rule_of(one.member.diagnosis) or "failed"
    at = one.member.evidence.timed.at if one.member.evidence.timed else None
    apart = _apart(first, one)
    zero = first.member.diagnosis.timeline
    seconds = None
    if apart is not None and zero and first.at is not None and (begin := moment(zero[0].at)):
        seconds = round(gap(begin, first.at) + apart[0], 3)
    return Milestone(name, line, at, seconds, one.member.name)


def _unruled(others: list[_Seen]) -> list[str]:
    """Say what followed in other logs that no rule knows."""
    return [
        f"followed in {one.member.name}, line {root.line}: {root.text[:200]}"
        for one in others
        if (root := one.member.diagnosis.root_cause) is not None
        and _rule_of(one.member.diagnosis) is None
    ]


def _rule_of(diagnosis: Diagnosis) -> str | None:
    """Return the rule that knows the line on which a log failed, whatever role it has there."""
    root = diagnosis.root_cause
    if root is None or root.rule is not None:
        return root.rule if root is not None else None
    return next(
        (f.rule for f in diagnosis.findings if any(c.line == root.line for c in f.evidence)), None
    )


def _verdict(base: Diagnosis, findings: list[Finding], sure: float) -> str:
    if base.root_cause is None or sure >= 1 or base.verdict not in {"diagnosed", "suspected"}:
        return base.verdict
    root = next((f for f in findings if f.role == "root_cause"), None)
    if root is None or root.confidence >= DIAGNOSED:
        return base.verdict
    return "suspected" if root.confidence >= SUSPECTED else "inconclusive"
