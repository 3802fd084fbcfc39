"""Other files heard on one run of a log: facts before it is judged, lines after.

In: what was read beside a log (`forensics.beside`), and the run. Out: what is known of the run with
it, and the verdict with what those lines say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from forensics.beside import Beside, Told
from forensics.corroboration import Held, corroborate, held_on, place_of
from forensics.evidence import Wanted, index_of
from forensics.hyperscan_finder import HyperscanFinder
from forensics.model import Context, Evidence, Milestone, Outcome
from forensics.patterns import PlainFinder
from forensics.rootcause import Judgement
from forensics.ruleset import RuleSet
from forensics.runs import Described
from forensics.times import moment
from forensics.triage import Triage
from forensics.witnesses import Admitted, Word, attend, engine_word, scene_of, under


class Engine(Struct, frozen=True):
    """Rules made ready for use: build one, diagnose many.

    Attributes:
        rules: The rule set.
        wants: All patterns.
        finder: Looks for them.
    """

    rules: RuleSet
    wants: Wanted
    finder: HyperscanFinder | PlainFinder


class Heard(Struct, frozen=True):
    """A verdict with what other files say.

    Attributes:
        triage: The ranked result.
        outcome: How the run ended.
        timeline: Milestones of the log and events of the other files, by time.
        limits: Why lines of them do not count.
    """

    triage: Triage
    outcome: Outcome
    timeline: list[Milestone]
    limits: tuple[str, ...]


def with_asides(context: Context, asides: Sequence[Beside]) -> Context:
    """Lay what inspect data and nvidia-smi state under what is known."""
    for one in asides:
        if one.context is not None:
            context = under(context, one.context)
    return context


def word_of(asides: Sequence[Beside], one: Described) -> Word:
    """Return what is known of a run with the events of its container."""
    word = Word(one.context)
    timed = one.run.builder.timed
    end = moment(timed.at, timed.clock) if timed is not None else None
    for aside in asides:
        if aside.kind == "events":
            more = engine_word(aside.told, word.context, end)
            word = Word(more.context, (*word.events, *more.events), (*word.limits, *more.limits))
    return word


def hear(
    asides: Sequence[Beside],
    word: Word,
    evidence: Evidence,
    judgement: Judgement,
    triage: Triage,
    engine: Engine,
) -> Heard:
    """Hold a verdict against what other files say.

    Args:
        asides: What was read beside the log.
        word: What the container engine says of this run.
        evidence: What the log says.
        judgement: How it failed.
        triage: The verdict on the log.
        engine: Rules made ready.
    """
    told = [one for aside in asides if aside.kind in {"kernel", "gpus"} for one in aside.told]
    admitted, limits = attend(told, scene_of(evidence, judgement))
    admitted += [Admitted(one, 1.0, "same", "near") for one in word.events]
    limits += [
        f"{aside.name}: {aside.dropped} more lines like these were not looked at"
        for aside in asides
        if aside.dropped
    ]
    rules, wants = engine.rules, engine.wants
    held = held_on(admitted, evidence, rules, wants, engine.finder.candidates)
    found = corroborate(triage, evidence, judgement, held, rules, index_of(wants))
    entries = timeline(list(evidence.milestones), held, word.events)
    return Heard(found.triage, found.outcome, entries, tuple(limits))


def timeline(
    milestones: list[Milestone], held: list[Held], events: Iterable[Told]
) -> list[Milestone]:
    """Put what other files tell among the milestones, by time; what has none comes last.

    Args:
        milestones: Those of the log.
        held: Rules that hold beside it: each line is an entry by the rule's name.
        events: What the container engine says was done to the container.
    """
    zero = next(
        (
            at.seconds - one.seconds
            for one in milestones
            if one.seconds is not None and (at := moment(one.at)) is not None
        ),
        None,
    )
    found: dict[tuple[str | None, int], Milestone] = {}
    for one in sorted(held, key=lambda h: h.rule.priority):
        for hit in one.answer.lines:
            record = hit.record
            found[place_of(hit)] = _entry(one.rule.id, record.line, record.at, record.source, zero)
    for told in events:
        name = f"container_{told.action}"
        found[told.source, told.line] = _entry(name, told.line, told.at, told.source, zero)
    if not found:
        return milestones
    latest = float("-inf")
    ordered: list[tuple[float, int, int, Milestone]] = []
    for entry in milestones:
        # A milestone without a time stands where its line stands.
        latest = max(latest, _seconds(entry, latest))
        ordered.append((latest, 0, entry.line, entry))
    ordered += [(_seconds(entry, float("inf")), 1, entry.line, entry) for entry in found.values()]
    return [entry for *_, entry in sorted(ordered, key=lambda entry: entry[:3])]


def _entry(
    name: str, line: int, at: str | None, source: str | None, zero: float | None
) -> Milestone:
    when = moment(at)
    span = None if when is None or zero is None else round(when.seconds - zero, 3)
    return Milestone(name, line, at, span, source)


def _seconds(one: Milestone, default: float) -> float:
    if one.seconds is not None:
        return one.seconds
    at = moment(one.at)
    return at.seconds if at is not None else default
