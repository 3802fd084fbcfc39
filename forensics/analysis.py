"""The composition of the stages: a source and rules in, a diagnosis out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from forensics import __version__, cache, redaction, ruleset
from forensics.conditions import prefilterable
from forensics.envelopes import Block, clean, detect
from forensics.errors import SourceError
from forensics.evidence import Builder, Wanted, in_window, index_of, wanted
from forensics.hyperscan_finder import HyperscanFinder, finder
from forensics.inspection import read as read_inspection
from forensics.launch.forms import Form
from forensics.launch.reading import from_inspect, from_log
from forensics.launch.suggesting import Correction, correct
from forensics.model import (
    DIAGNOSIS_SCHEMA,
    Context,
    Diagnosis,
    Evidence,
    Excerpt,
    Outcome,
    RuleStamp,
    Source,
    SuggestedLaunch,
    Tool,
)
from forensics.patterns import PlainFinder
from forensics.rootcause import judge
from forensics.rules_schema import ExceptionLeaf, LineLeaf, RuleTests
from forensics.sources import open_source
from forensics.triage import Triage, decide

#: Blocks in work at once; each holds a few megabytes.
_AHEAD = 6


class _Reader(Protocol):
    @property
    def head(self) -> bytes: ...
    @property
    def source(self) -> Source: ...
    @property
    def consumed(self) -> int: ...
    def runs(self) -> Iterator[bytes]: ...


class Engine(Struct, frozen=True):
    """Rules made ready for use: build one, diagnose many.

    Attributes:
        rules: The rule set.
        wants: All patterns.
        finder: Looks for them.
    """

    rules: ruleset.RuleSet
    wants: Wanted
    finder: HyperscanFinder | PlainFinder


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


def examine(
    source: str, engine: Engine, context: Context | None = None, launch: Form | None = None
) -> tuple[Diagnosis, Triage, Evidence]:
    """Diagnose one log and return the working with the result (for reports and `--explain`).

    Args:
        source: Path of a log, or `-` for standard input.
        engine: Rules made ready.
        context: What is known beside the log. If None, an `inspect.json` beside the log is read.
        launch: What started the server. If None, it is rebuilt from an `inspect.json` beside the
            log, else from the arguments that the log printed.
    """
    opened = open_source(source)
    try:
        known = context if context is not None else context_beside(source)
        diagnosis, triage, evidence = examine_reader(opened, engine, known)
    finally:
        opened.file.close()
    correction = corrected(diagnosis, evidence, launch or launch_beside(source))
    if correction is not None and correction.offers:
        shown = redaction.value(msgspec.to_builtins(correction.shown))
        suggested = msgspec.convert(shown, SuggestedLaunch)
        diagnosis = msgspec.structs.replace(diagnosis, suggested_launch=suggested)
    return diagnosis, triage, evidence


def examine_bytes(
    raw: bytes, engine: Engine, context: Context, name: str = "text"
) -> tuple[Diagnosis, Triage, Evidence]:
    """Diagnose bytes in memory (tests of rules)."""
    return examine_reader(_Memory(raw, Source(kind="text", name=name)), engine, context)


class _Memory(Struct):
    head: bytes
    source: Source

    @property
    def consumed(self) -> int:
        return len(self.head)

    def runs(self) -> Iterator[bytes]:
        yield self.head


def examine_reader(
    reader: _Reader, engine: Engine, context: Context
) -> tuple[Diagnosis, Triage, Evidence]:
    """Run all stages over a source that is open."""
    envelope = detect(reader.head[:65_536])
    builder = Builder(engine.wants, envelope)
    for block, candidates in _scanned(reader, engine.finder):
        builder.feed(block, candidates)
    evidence = builder.finish(
        msgspec.structs.replace(reader.source, bytes=reader.consumed), context
    )
    judgement = judge(evidence)
    triage = decide(evidence, judgement, engine.rules, index_of(engine.wants))
    found = _diagnosis(evidence, judgement.outcome, triage, engine.rules)
    return found, _shown(triage), _quotable(evidence)


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


Scanned = tuple[Block, list[tuple[int, int]]]


def _scanned(reader: _Reader, find: HyperscanFinder | PlainFinder) -> Iterator[Scanned]:
    """Yield clean blocks with their candidates, in order; large sources use threads."""
    runs = reader.runs()
    first = next(runs, b"")
    second = next(runs, None)
    blocks = _blocks(_chain(first, second, runs))
    if second is None or not isinstance(find, HyperscanFinder):
        for block, wanted_numbers in blocks:
            yield block, find.candidates(block.text, statistics=wanted_numbers)
        return
    workers = max(2, min(4, os.cpu_count() or 2))
    finders: deque[HyperscanFinder] = deque(find.clone() for _ in range(workers))

    def work(block: Block, wanted_numbers: bool) -> Scanned:  # noqa: FBT001 - given to a pool
        mine = finders.popleft()
        try:
            return block, mine.candidates(block.text, statistics=wanted_numbers)
        finally:
            finders.append(mine)

    with ThreadPoolExecutor(workers) as pool:
        queue: deque[Future[Scanned]] = deque()
        for block, wanted_numbers in blocks:
            queue.append(pool.submit(work, block, wanted_numbers))
            if len(queue) > workers + _AHEAD:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()


def _blocks(runs: Iterable[bytes]) -> Iterator[tuple[Block, bool]]:
    """Clean runs; say for each whether lines of statistics are wanted in it."""
    line, position = 1, 0
    for run in runs:
        block = clean(run, line)
        yield block, in_window(position, len(block.text))
        line += block.lines
        position += len(block.text)


def _chain(first: bytes, second: bytes | None, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    if second is not None:
        yield second
    yield from rest


def corrected(diagnosis: Diagnosis, evidence: Evidence, launch: Form | None) -> Correction | None:
    """Return the launch with what a diagnosis advises; None where nothing can be changed.

    Args:
        diagnosis: What was found.
        evidence: What it was found in.
        launch: The launch; None: the command that the log's own arguments stand for.
    """
    if not any(f.fixes for f in diagnosis.findings):
        return None
    if launch is None:
        run = evidence.run
        launch = from_log(run.engine, run.arguments, run.model, diagnosis.source.name)
    return correct(launch, diagnosis.findings) if launch is not None else None


def launch_beside(source: str) -> Form | None:
    """Return what an `inspect.json` in the log's folder was started by, None if there is none."""
    path = Path(source).parent / "inspect.json"
    if source == "-" or not path.is_file():
        return None
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
) -> Diagnosis:
    milestones = list(evidence.milestones)
    found = Diagnosis(
        schema=DIAGNOSIS_SCHEMA,
        tool=Tool(__version__, RuleStamp(len(rules.rules), rules.digest)),
        source=evidence.source,
        run=evidence.run,
        verdict=triage.verdict,
        outcome=outcome,
        timeline=milestones,
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
    if evidence.ending == "cut":
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
