"""The composition of the stages: a source and rules in, a diagnosis out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from forensics import __version__, beside, cache, redaction, ruleset
from forensics.beside import Beside
from forensics.conditions import prefilterable
from forensics.errors import SourceError
from forensics.evidence import index_of, wanted
from forensics.hearing import Engine, hear, with_asides, word_of
from forensics.hyperscan_finder import finder
from forensics.inspection import read as read_inspection
from forensics.model import (
    DIAGNOSIS_SCHEMA,
    Context,
    Diagnosis,
    Evidence,
    Excerpt,
    Milestone,
    Outcome,
    RuleStamp,
    Source,
    SuggestedLaunch,
    Tool,
)
from forensics.patterns import PlainFinder
from forensics.rootcause import judge
from forensics.rules_schema import ExceptionLeaf, LineLeaf, RuleTests
from forensics.runs import Described, Reading, described
from forensics.scanning import Memory, Scan
from forensics.sharing import Shared, shared
from forensics.sources import ARCHIVED, LIVE, Opened, Reader, Rotated, open_source
from forensics.starts import Run
from forensics.together import Member, together
from forensics.triage import Triage, decide
from forensics.unpacking import DEFAULT, Limits

if TYPE_CHECKING:
    from forensics.launch.forms import Form
    from forensics.launch.suggesting import Correction

__all__ = ["Engine", "Examined", "prepare"]

#: Runs of one log that are diagnosed one by one.
MAX_RUNS = 100


def prepare(rules: ruleset.RuleSet | None = None, *, plain: bool = False) -> Engine:
    """Make rules ready for use.

    Args:
        rules: The rule set; the shipped one if None.
        plain: Use the reference path (every line, every pattern) instead of Hyperscan.
    """
    rules = rules if rules is not None else load_rules()
    wants = wanted(patterns_of(rules))
    return Engine(
        rules, wants, PlainFinder(wants.finds) if plain else finder(wants.finds, wants.statistics)
    )


def patterns_of(rules: ruleset.RuleSet) -> Iterable[str]:
    """Yield the patterns of rules that lines of a log can match."""
    for rule in rules.rules:
        for leaf in ruleset.conditions_of(rule):
            if isinstance(leaf, LineLeaf):
                yield leaf.pattern
            elif isinstance(leaf, ExceptionLeaf) and leaf.message and prefilterable(leaf.message):
                yield leaf.message


def load_rules(folders: Iterable[Path] = ()) -> ruleset.RuleSet:
    """Load the shipped rules and further packs without their tests, cached by content.

    Raises:
        RuleError: A rule file breaks the schema.
    """
    packs = [ruleset.read_folder(f) for f in (ruleset.builtin_folder(), *folders)]
    key = ruleset.digest_of(
        [("version", __version__.encode()), *(f for pack in packs for f in pack)]
    )
    name = f"rules-{key[:32]}"
    body = cache.read(name)
    if body is not None:
        try:
            return msgspec.msgpack.decode(body, type=ruleset.RuleSet)
        except msgspec.MsgspecError:
            pass
    rules, errors = ruleset.merge([ruleset.parse(pack) for pack in packs])
    if errors:
        raise errors[0]
    # A diagnosis needs no tests of rules, and they are more than half of the text.
    bare = tuple(msgspec.structs.replace(rule, tests=RuleTests((), ())) for rule in rules.rules)
    rules = msgspec.structs.replace(rules, rules=bare)
    cache.write(name, msgspec.msgpack.encode(rules))
    return rules


def diagnose(
    source: str | Path,
    *,
    engine: Engine | None = None,
    context: Context | None = None,
) -> Diagnosis:
    """Diagnose one log.

    Args:
        source: Path of a log (plain, gzip, zstd, xz or bz2), or `-` for standard input.
        engine: Rules made ready; the shipped ones if None.
        context: What is known beside the log. If None, an `inspect.json` beside the log is read.

    Returns:
        The verdict; nothing in it holds a known form of secret.

    Raises:
        SourceError: The source cannot be read or is no log.
    """
    return examine(str(source), engine or prepare(), context)[0]


Examined = tuple[Diagnosis, Triage, Evidence]


def examine(
    source: str, engine: Engine, context: Context | None = None, launch: Form | None = None
) -> Examined:
    """Diagnose one log and return the working with the result (for reports and `--explain`).

    Of several runs in it, this is the last one; see `examine_all` for the arguments.
    """
    return examine_all(source, engine, context, launch=launch)[-1]


def examine_all(
    source: str,
    engine: Engine,
    context: Context | None = None,
    limits: Limits = DEFAULT,
    launch: Form | None = None,
    asides: Sequence[Beside] = (),
) -> list[Examined]:
    """Diagnose every run in a log, by service in the order in which they began.

    Args:
        source: What the user named.
        engine: Rules made ready.
        context: What is known beside the log; an `inspect.json` beside it is read if None.
        limits: What may be read.
        launch: What started the server. If None, it is rebuilt from an `inspect.json` beside the
            log, else from the arguments that the log printed.
        asides: What other files say (see `read_beside`).
    """
    stated: Context | None = None
    if source.startswith(LIVE):
        from forensics import live

        opened, stated = live.open_live(source, limits)
    else:
        opened = open_source(source, limits)
    known = context or stated or context_beside(source)
    return examine_opened(opened, engine, known, launch or launch_beside(source), asides)


def examine_opened(
    opened: Opened,
    engine: Engine,
    context: Context,
    launch: Form | None,
    asides: Sequence[Beside] = (),
) -> list[Examined]:
    """Diagnose every run in a source that is open; it is closed afterwards.

    Args:
        opened: The source.
        engine: Rules made ready.
        context: What is known beside the log.
        launch: What started the server; rebuilt from the log's own arguments if None.
        asides: What other files say (see `read_beside`).
    """
    try:
        found = examine_runs(opened, engine, context, asides)
    finally:
        opened.file.close()
    return [_with_suggestion(one, launch) for one in found]


def _with_suggestion(examined: Examined, launch: Form | None) -> Examined:
    """Add the corrected launch to a diagnosis, without its secrets."""
    diagnosis, triage, evidence = examined
    correction = corrected(diagnosis, evidence, launch)
    if correction is None or not correction.offers:
        return examined
    shown = redaction.value(msgspec.to_builtins(correction.shown))
    suggested = msgspec.convert(shown, SuggestedLaunch)
    return msgspec.structs.replace(diagnosis, suggested_launch=suggested), triage, evidence


def examine_bytes(raw: bytes, engine: Engine, context: Context, name: str = "text") -> Examined:
    """Diagnose bytes in memory (tests of rules)."""
    return examine_runs(Memory(raw, Source(kind="text", name=name)), engine, context)[-1]


def read_beside(names: Iterable[str], engine: Engine, limits: Limits = DEFAULT) -> list[Beside]:
    """Read files beside a log: inspect data, events, kernel logs, output of nvidia-smi.

    Args:
        names: Their names.
        engine: Rules made ready.
        limits: What may be read.

    Raises:
        SourceError: One cannot be read, or is of no kind that is known.
    """
    found = []
    for name in names:
        opened = open_source(name, limits)
        try:
            find, wants = engine.finder.candidates, engine.wants
            found.append(beside.read(opened, name, find, wants.patterns, wants.rules))
        finally:
            opened.file.close()
    return found


def examine_together(
    found: Mapping[str, Examined], limits: Limits = DEFAULT
) -> tuple[Examined, str]:
    """Diagnose the logs of one deployment as one.

    Args:
        found: The last run of each log, by the name that the user gave.
        limits: What may be read.

    Returns:
        The diagnosis with the working on the log in which the cause stands, and that log's name.
    """
    members = [
        Member(*examined, shared=_shared_of(name, limits)) for name, examined in found.items()
    ]
    diagnosis, first = together(members)
    return (diagnosis, first.triage, first.evidence), first.name


def _shared_of(name: str, limits: Limits) -> Shared:
    """Read once more what a log shares with others; a stream cannot be read twice."""
    if name == "-" or name.startswith((*LIVE, ARCHIVED)) or not _rereadable(name):
        return Shared()
    opened = open_source(name, limits)
    try:
        return shared(opened)
    finally:
        opened.file.close()


def _rereadable(name: str) -> bool:
    return isinstance(name, Rotated) or "!/" in name or Path(name).is_file()


def examine_runs(
    reader: Reader, engine: Engine, context: Context, asides: Sequence[Beside] = ()
) -> list[Examined]:
    """Run all stages over a source that is open; return one result a run."""
    context = with_asides(context, asides)
    scan = Scan(reader, engine.wants, engine.finder)
    kept, dropped = _kept(scan.runs())
    lines = scan.pipeline.lines + int(scan.pipeline.unfinished)
    source = msgspec.structs.replace(
        reader.source, bytes=reader.consumed, lines=lines, envelope=scan.pipeline.name
    )
    told = described(kept, source, context, scan.pipeline, _reading(reader))
    found = [_result(run, engine, dropped, asides) for run in told]
    known = [one for one in found if one[0].run.engine or one[0].verdict != "no_evidence"]
    return known or found


def examine_reader(reader: Reader, engine: Engine, context: Context) -> Examined:
    """Run all stages over a source that is open; of several runs in it, this is the last."""
    return examine_runs(reader, engine, context)[-1]


def _reading(reader: Reader) -> Reading:
    if not isinstance(reader, Opened):
        return Reading()
    return Reading(reader.modified, reader.damage, tuple(reader.parts), tuple(reader.holes))


def _kept(runs: Iterator[Run]) -> tuple[list[Run], int]:
    """Return the runs to tell of: of very many the first and the last ones."""
    kept: list[Run] = []
    dropped = 0
    for run in runs:
        kept.append(run)
        if len(kept) > MAX_RUNS:
            del kept[MAX_RUNS // 2]
            dropped += 1
    order = {s: i for i, s in enumerate(dict.fromkeys(r.service for r in kept))}
    return sorted(kept, key=lambda r: (order[r.service], r.number)), dropped


def _result(
    one: Described, engine: Engine, dropped: int, asides: Sequence[Beside] = ()
) -> Examined:
    word = word_of(asides, one)
    evidence = one.run.builder.finish(one.source, word.context, one.written)
    judgement = judge(evidence)
    triage = decide(evidence, judgement, engine.rules, index_of(engine.wants))
    more, milestones = [*one.limits, *word.limits], list(evidence.milestones)
    outcome = judgement.outcome
    if asides:
        heard = hear(asides, word, evidence, judgement, triage, engine)
        triage, outcome, milestones = heard.triage, heard.outcome, heard.timeline
        more += heard.limits
    diagnosis = _diagnosis(evidence, outcome, triage, engine.rules, milestones)
    if dropped:
        more.append(f"{dropped} more runs in this log were not looked at one by one")
    if more:
        more = [redaction.text(text) for text in more]
        diagnosis = msgspec.structs.replace(diagnosis, limits=[*diagnosis.limits, *more])
    return diagnosis, _shown(triage), _quotable(evidence)


def _quotable(evidence: Evidence) -> Evidence:
    """Return evidence whose quoted neighbours hold no secret."""
    excerpts = {
        line: Excerpt(
            tuple((n, redaction.text(text)) for n, text in excerpt.before),
            tuple((n, redaction.text(text)) for n, text in excerpt.after),
        )
        for line, excerpt in evidence.excerpts.items()
    }
    return msgspec.structs.replace(evidence, excerpts=excerpts)


def _shown(triage: Triage) -> Triage:
    """Return the working of a triage without the secrets that conditions may have met."""
    considered = tuple(
        msgspec.structs.replace(one, why=redaction.text(one.why)) for one in triage.considered
    )
    return msgspec.structs.replace(triage, considered=considered)


def corrected(diagnosis: Diagnosis, evidence: Evidence, launch: Form | None) -> Correction | None:
    """Return the launch with what a diagnosis advises; None where nothing can be changed.

    Args:
        diagnosis: What was found.
        evidence: What it was found in.
        launch: The launch; None: the command that the log's own arguments stand for.
    """
    if not any(f.fixes for f in diagnosis.findings):
        return None
    from forensics.launch.reading import from_log
    from forensics.launch.suggesting import correct

    if launch is None:
        run = evidence.run
        launch = from_log(run.engine, run.arguments, run.model, diagnosis.source.name)
    return correct(launch, diagnosis.findings) if launch is not None else None


def launch_beside(source: str) -> Form | None:
    """Return what an `inspect.json` in the log's folder was started by, None if there is none."""
    path = Path(source).parent / "inspect.json"
    if source == "-" or not path.is_file():
        return None
    from forensics.launch.reading import from_inspect

    try:
        return from_inspect(path.read_text(encoding="utf-8"), "inspect.json")
    except (OSError, UnicodeDecodeError, SourceError):
        return None


def context_beside(source: str) -> Context:
    """Return what an `inspect.json` in the log's folder says, nothing if there is none."""
    path = Path(source).parent / "inspect.json"
    if source == "-" or not path.is_file():
        return Context()
    try:
        return read_inspection(path.read_bytes(), str(path))
    except OSError as error:
        raise SourceError(f"{path} cannot be read", error.strerror or str(error)) from None


def _diagnosis(
    evidence: Evidence,
    outcome: Outcome,
    triage: Triage,
    rules: ruleset.RuleSet,
    timeline: list[Milestone],
) -> Diagnosis:
    milestones = evidence.milestones
    found = Diagnosis(
        schema=DIAGNOSIS_SCHEMA,
        tool=Tool(__version__, RuleStamp(len(rules.rules), rules.digest)),
        source=evidence.source,
        run=evidence.run,
        verdict=triage.verdict,
        outcome=outcome,
        timeline=timeline,
        last_milestone=milestones[-1].milestone if milestones else None,
        root_cause=triage.root_cause,
        findings=list(triage.findings),
        suggested_launch=None,
        next_steps=list(triage.next_steps),
        limits=[*evidence.limits, *_limits(evidence)],
    )
    return msgspec.convert(redaction.value(msgspec.to_builtins(found)), Diagnosis)


def _limits(evidence: Evidence) -> Iterator[str]:
    """Yield what could not be known."""
    if not evidence.head_complete:
        yield "the log does not begin where the server began: what it said before is not known"
    if evidence.ending == "cut" and evidence.context.whole:
        yield "the log is whole and simply stops: the server ended without a word"
    elif evidence.ending == "cut":
        yield (
            "the log simply stops: the server was still running, was killed from outside, "
            "or the log was cut"
        )
        if evidence.run.exit_code is None:
            yield "the exit code is not known (see `docker inspect`, or give --exit-code)"
    run = evidence.run
    if evidence.ending == "orderly" and run.exit_code not in {None, 0, 130, 143}:
        yield f"the log ends in order, yet the exit code is {run.exit_code}: more came after it"
    if evidence.ending == "orderly" and run.oom_killed:
        yield "the log ends in order, yet the engine says that memory ran out in the container"
