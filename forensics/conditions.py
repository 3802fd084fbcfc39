"""The tree under `match`, evaluated over evidence with three values.

A condition *holds*, *fails*, or *cannot be told*. Absence of a line or exception counts as
failing only where the log is complete; a fact that was never seen is unknown, not false.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from statistics import median
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from forensics import launchfacts
from forensics.knowledge import Tables
from forensics.model import Evidence, ExceptionEvent, Hit, Record, Truth
from forensics.patterns import confirm
from forensics.rules_schema import (
    All,
    AnyOf,
    ArgumentLeaf,
    Condition,
    EngineLeaf,
    EnvironmentLeaf,
    ExceptionLeaf,
    ExitLeaf,
    HardwareLeaf,
    HostLeaf,
    ImageLeaf,
    LaunchLeaf,
    LineLeaf,
    ListedLeaf,
    MetricLeaf,
    MilestoneLeaf,
    ModelLeaf,
    NoneOf,
    RuleLeaf,
    Sequence,
    VersionLeaf,
)
from forensics.versions import capability_in, is_moving, satisfies, split_image

HOLDS, FAILS, UNKNOWN = Truth.HOLDS, Truth.FAILS, Truth.UNKNOWN
#: A context that a caller declares to be the whole log (tests of rules).
_MANY_DIGITS = 40


class Answer(Struct, frozen=True):
    """What became of a condition.

    Attributes:
        truth: Its value.
        lines: Lines that prove it, ascending, as (line, text).
        captures: Named groups of its patterns; the first line's win.
        why: For a value other than `HOLDS`: the leaf that decided, in words.
        count: How many lines the most frequent of its leaves held on.
    """

    truth: Truth
    lines: tuple[Hit, ...] = ()
    captures: dict[str, str] = {}
    why: str = ""
    count: int = 0


def prefilterable(pattern: str) -> bool:
    """Say whether an exception's message pattern must also match one line of the log."""
    return not any(text in pattern for text in ("^", r"\n", r"[\s\S]", "(?s", r"\A"))


class View:
    """Evidence with what is needed to ask it questions.

    Args:
        evidence: The evidence.
        index: Pattern to its index in `evidence.hits`.
        other: Rule id to whether that rule holds (for the `rule` leaf).
        tables: The rule set's tables (for the `listed` and `image` leaves).
        nth: Which one of several things a `listed` leaf is asked for.
    """

    def __init__(
        self,
        evidence: Evidence,
        index: Mapping[str, int],
        other: Callable[[str], Truth],
        tables: Tables | None = None,
        nth: int = 0,
    ) -> None:
        self.evidence = evidence
        self.index = index
        self.other = other
        self.tables = tables or {}
        self.nth = nth

    @property
    def absent(self) -> Truth:
        """What it means that something was not printed: `FAILS` if the log is whole."""
        complete = self.evidence.head_complete and self.evidence.tail_complete
        complete = complete and not self.evidence.context.holes
        return FAILS if complete else UNKNOWN


def evaluate(condition: Condition, view: View) -> Answer:
    """Return whether a condition holds, and what proves it."""
    if isinstance(condition, All):
        return _all([evaluate(item, view) for item in condition.items])
    if isinstance(condition, AnyOf):
        return _any([evaluate(item, view) for item in condition.items])
    if isinstance(condition, NoneOf):
        return _none([evaluate(item, view) for item in condition.items])
    if isinstance(condition, Sequence):
        return _sequence([evaluate(item, view) for item in condition.items])
    return _LEAVES[type(condition)](condition, view)


# --- the tree ----------------------------------------------------------------------------------


def _joined(answers: list[Answer], truth: Truth) -> Answer:
    lines: dict[int, Hit] = {}
    for hit in (hit for a in reversed(answers) for hit in a.lines):
        known = lines.get(hit.record.line)
        lines[hit.record.line] = known if known is not None and known.root else hit
    captures: dict[str, str] = {}
    for answer in reversed(answers):
        captures.update(answer.captures)
    return Answer(
        truth,
        tuple(lines[n] for n in sorted(lines)),
        captures,
        count=max((a.count for a in answers), default=0),
    )


def _worst(answers: list[Answer], truth: Truth) -> Answer | None:
    return next((a for a in answers if a.truth is truth), None)


def _all(answers: list[Answer]) -> Answer:
    for truth in (FAILS, UNKNOWN):
        found = _worst(answers, truth)
        if found is not None:
            joined = _joined([a for a in answers if a.truth is HOLDS], truth)
            return Answer(truth, joined.lines, joined.captures, found.why, joined.count)
    return _joined(answers, HOLDS)


def _any(answers: list[Answer]) -> Answer:
    holding = [a for a in answers if a.truth is HOLDS]
    if holding:
        return _joined(holding, HOLDS)
    unknown = _worst(answers, UNKNOWN)
    return unknown if unknown is not None else Answer(FAILS, why=answers[0].why)


def _none(answers: list[Answer]) -> Answer:
    holding = _worst(answers, HOLDS)
    if holding is not None:
        line = holding.lines[0].record.line if holding.lines else None
        return Answer(
            FAILS, why=f"excluded by line {line}" if line else "an excluding condition holds"
        )
    unknown = _worst(answers, UNKNOWN)
    return Answer(UNKNOWN, why=f"cannot be excluded: {unknown.why}") if unknown else Answer(HOLDS)


def _sequence(answers: list[Answer]) -> Answer:
    answer = _all(answers)
    if answer.truth is not HOLDS:
        return answer
    after, chosen = 0, []
    for part in answers:
        if not part.lines:
            continue
        hit = next((h for h in part.lines if h.record.line > after), None)
        if hit is None:
            return Answer(FAILS, why=f"not in this order after line {after}")
        after = hit.record.line
        chosen.append(Answer(HOLDS, (hit,), {**part.captures, **hit.groups}, count=part.count))
    return _joined(chosen, HOLDS)


# --- lines and exceptions ----------------------------------------------------------------------


def _line(leaf: LineLeaf, view: View) -> Answer:
    index = view.index.get(leaf.pattern)
    hits = view.evidence.hits.get(index, []) if index is not None else []
    chosen = tuple(hit for hit in hits if _wanted(leaf, hit))
    count = view.evidence.counts.get(index, 0) if index is not None and chosen else 0
    plain = leaf.where == "any" and not leaf.level and leaf.process is None
    count = count if plain or len(chosen) == len(hits) else len(chosen)
    if len(chosen) >= 1 and count >= leaf.min_count:
        if leaf.root:
            chosen = tuple(replace(hit, root=True) for hit in chosen)
        return Answer(HOLDS, chosen, chosen[0].groups, count=count)
    return Answer(view.absent, why=f"no line holds {leaf.pattern!r}")


def _wanted(leaf: LineLeaf, hit: Hit) -> bool:
    record = hit.record
    kinds = {"message": ("log", "raw"), "any": ("log", "raw", "access", "request", "dump")}
    if record.kind not in kinds.get(leaf.where, (leaf.where,)):
        return False
    if leaf.level and (record.level or "raw") not in leaf.level:
        return False
    return leaf.process is None or (record.process or "").startswith(leaf.process)


def _exception(leaf: ExceptionLeaf, view: View) -> Answer:
    if leaf.message is not None and prefilterable(leaf.message):
        index = view.index.get(leaf.message)
        if index is not None and not view.evidence.hits.get(index):
            return Answer(view.absent, why=f"no exception says {leaf.message!r}")
    caused = {e.cause for e in view.evidence.exceptions if e.cause is not None}
    for number, event in enumerate(view.evidence.exceptions):
        if not leaf.chained and number in caused:
            continue
        groups = _matches(leaf, event)
        if groups is not None:
            hit = Hit(_record_of(event), groups)
            return Answer(HOLDS, (hit,), groups, count=event.count)
    return Answer(view.absent, why="no such exception")


def _matches(leaf: ExceptionLeaf, event: ExceptionEvent) -> dict[str, str] | None:
    if leaf.type and not {event.type, event.type.rpartition(".")[2]} & set(leaf.type):
        return None
    if leaf.process is not None and not (event.process or "").startswith(leaf.process):
        return None
    places = [f"{frame.file}:{frame.function}" for frame in event.frames]
    if not all(any(text in place for place in places) for text in leaf.frame):
        return None
    if leaf.message is None:
        return {}
    try:
        return confirm(leaf.message, event.message)
    except TimeoutError:
        return None


def _record_of(event: ExceptionEvent) -> Any:  # noqa: ANN401 - a Record, see below
    from forensics.model import Record

    return Record(
        line=event.telling_line,
        text=event.telling_text,
        message=event.telling_text,
        level=event.level,
        process=event.process,
        pid=event.pid,
        clock=event.clock,
    )


# --- facts -------------------------------------------------------------------------------------


def _compare(op: str, have: Any, want: Any) -> bool | None:  # noqa: ANN401, PLR0911 - JSON values
    """Compare two values; None where they cannot be compared."""
    if op == "exists":
        return have is not None
    if op == "absent":
        return have is None
    if op in {"in", "not_in"}:
        inside = any(_same(have, item) for item in want) if isinstance(want, list | tuple) else None
        return inside if inside is None or op == "in" else not inside
    if op in {"eq", "ne"}:
        return _same(have, want) == (op == "eq")
    if have is None:
        return False
    if op == "contains":
        return str(want) in (have if isinstance(have, list | tuple) else str(have))
    if op == "matches":
        try:
            return confirm(str(want), str(have)) is not None
        except TimeoutError:
            return None
    try:
        a, b = float(have), float(want)
    except (TypeError, ValueError):
        return None
    return {"gt": a > b, "ge": a >= b, "lt": a < b, "le": a <= b}[op]


def _same(have: Any, want: Any) -> bool:  # noqa: ANN401 - JSON values
    if have == want:
        return True
    return have is not None and want is not None and str(have).lower() == str(want).lower()


def dig(data: Mapping[str, Any] | None, name: str) -> Any:  # noqa: ANN401 - JSON values
    """Return a value by dotted name; JSON text on the way is read. None where it is not there."""
    value: Any = data
    for part in name.split("."):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _three(value: bool | None, why: str) -> Answer:  # noqa: FBT001 - the value to wrap
    if value is None:
        return Answer(UNKNOWN, why=why)
    return Answer(HOLDS) if value else Answer(FAILS, why=why)


def _argument(leaf: ArgumentLeaf, view: View) -> Answer:
    arguments = view.evidence.arguments
    if arguments is None:
        return Answer(UNKNOWN, why=f"the argument {leaf.name} is not known")
    have = dig(arguments, leaf.name)
    answer = _three(_compare(leaf.op, have, leaf.value), f"argument {leaf.name} is {have!r}"[:200])
    return _placed(answer, view, f"argument:{leaf.name.partition('.')[0]}")


def _environment(leaf: EnvironmentLeaf, view: View) -> Answer:
    environment = view.evidence.context.environment
    if environment is None:
        return Answer(UNKNOWN, why=f"the environment variable {leaf.name} is not known")
    answer = _three(
        _compare(leaf.op, environment.get(leaf.name), leaf.value), f"environment {leaf.name}"
    )
    return _placed(answer, view, f"environment:{leaf.name}")


def _image(leaf: ImageLeaf, view: View) -> Answer:
    run = view.evidence.run
    if run.image is None and run.digest is None:
        return Answer(UNKNOWN, why="the image is not known")
    name, tag, digest = split_image(run.image or "")
    digest = run.digest or digest
    checks: list[bool | None] = []
    if leaf.name is not None:
        checks.append(fnmatchcase(name, leaf.name) if run.image else None)
    if leaf.tag is not None:
        checks.append(fnmatchcase(tag or "latest", leaf.tag) if run.image else None)
    if leaf.digest is not None:
        checks.append(digest == leaf.digest if digest else None)
    if leaf.moving is not None:
        checks.append(is_moving(run.image) == leaf.moving if run.image else None)
    checks += launchfacts.image(leaf, run, digest, view.tables)
    return _placed(_three(_every(checks), f"image is {run.image or digest}"), view, "image")


def _every(checks: list[bool | None]) -> bool | None:
    if False in checks:
        return False
    return None if None in checks else True


def _version(leaf: VersionLeaf, view: View) -> Answer:
    known = view.evidence.versions
    checks = [
        satisfies(known[name], wanted) if name in known else None
        for name, wanted in leaf.ranges.items()
    ]
    said = ", ".join(f"{name} is {known.get(name, 'not known')}" for name in leaf.ranges)
    return _three(_every(checks), said)


def _hardware(leaf: HardwareLeaf, view: View) -> Answer:
    have = view.evidence.run.hardware
    checks: list[bool | None] = []
    if leaf.gpu is not None:
        checks.append(leaf.gpu.lower() in have.gpu.lower() if have.gpu else None)
    if leaf.compute_capability is not None:
        known = have.compute_capability
        checks.append(capability_in(known, leaf.compute_capability) if known else None)
    if leaf.arch is not None:
        checks.append(have.arch == leaf.arch if have.arch else None)
    return _three(_every(checks), f"hardware is {have.gpu or have.arch or 'not known'}")


def _model(leaf: ModelLeaf, view: View) -> Answer:
    evidence = view.evidence
    checks: list[bool | None] = []
    if leaf.name is not None:
        model = evidence.run.model
        checks.append(fnmatchcase(model.lower(), leaf.name.lower()) if model else None)
    if leaf.architecture is not None:
        wanted = leaf.architecture.lower()
        names = evidence.architecture
        checks.append(any(fnmatchcase(n.lower(), wanted) for n in names) if names else None)
    if leaf.config is not None:
        checks.append(launchfacts.model_config(leaf, evidence))
    answer = _three(_every(checks), f"model is {evidence.run.model or 'not known'}")
    return _placed(answer, view, "model")


def _exit(leaf: ExitLeaf, view: View) -> Answer:
    run = view.evidence.run
    checks: list[bool | None] = []
    if leaf.code:
        checks.append(run.exit_code in leaf.code if run.exit_code is not None else None)
    if leaf.oom_killed is not None:
        checks.append(run.oom_killed == leaf.oom_killed if run.oom_killed is not None else None)
    if leaf.ending:
        checks.append(view.evidence.ending in leaf.ending)
    said = f"exit code {run.exit_code if run.exit_code is not None else 'not known'}"
    return _three(_every(checks), f"{said}, the log's end is {view.evidence.ending}")


def _milestone(leaf: MilestoneLeaf, view: View) -> Answer:
    reached = {m.milestone: m for m in view.evidence.milestones}
    last = view.evidence.milestones[-1] if view.evidence.milestones else None
    checks: list[bool | None] = []
    if leaf.reached is not None:
        missing = None if not view.evidence.head_complete else False
        checks.append(True if leaf.reached in reached else missing)
    if leaf.not_reached is not None:
        absent = view.evidence.head_complete and bool(view.evidence.source.lines)
        checks.append(False if leaf.not_reached in reached else True if absent else None)
    if leaf.last:
        checks.append((last.milestone if last else "") in leaf.last)
    said = f"last milestone is {last.milestone if last else 'none'}"
    return _three(_every(checks), said)


def _metric(leaf: MetricLeaf, view: View) -> Answer:
    values = view.evidence.metrics.get(leaf.name, [])
    if len(values) < max(1, leaf.min_windows):
        served = any(m.milestone == "serving" for m in view.evidence.milestones)
        truth = FAILS if view.absent is FAILS and not served else UNKNOWN
        return Answer(truth, why=f"{len(values)} windows of {leaf.name}")
    middle = median(value for _, value in values)
    answer = _three(_compare(leaf.op, middle, leaf.value), f"median {leaf.name} is {middle:g}")
    if answer.truth is not HOLDS:
        return answer
    return Answer(HOLDS, (), {leaf.name: f"{middle:g}", f"{leaf.name}_windows": str(len(values))})


def _launch(leaf: LaunchLeaf, view: View) -> Answer:
    context = view.evidence.context
    checks: list[bool | None] = []
    if leaf.auto_remove is not None:
        known = context.auto_remove
        if known is None and context.launch:
            known = "--rm" in context.launch
        checks.append(known == leaf.auto_remove if known is not None else None)
    if leaf.word is not None:
        checks.append(leaf.word in context.launch if context.launch is not None else None)
    more, place = launchfacts.launch(leaf, context.facts, _compare)
    answer = _three(_every([*checks, *more]), "the launch command is not known or differs")
    if place is None:
        place = "option:--rm" if leaf.auto_remove else "command" if leaf.word else ""
    return _placed(answer, view, place)


def _listed(leaf: ListedLeaf, view: View) -> Answer:
    found = launchfacts.listed(leaf, view.evidence, view.tables)
    if found is None:
        return Answer(UNKNOWN, why="what it would be looked up for is not known")
    if view.nth >= len(found):
        return Answer(FAILS, why=f"nothing is {leaf.state} in {leaf.table}")
    one = found[view.nth]
    answer = _placed(Answer(HOLDS, captures=one.captures), view, one.place)
    return replace(answer, captures=one.captures)


def _host(leaf: HostLeaf, view: View) -> Answer:
    facts = view.evidence.context.facts
    if facts is None or facts.host is None or leaf.name not in facts.host:
        return Answer(UNKNOWN, why=f"{leaf.name} is not known of this machine")
    value = facts.host[leaf.name] or None
    answer = _three(_compare(leaf.op, value, leaf.value), f"{leaf.name} is {value}")
    return (
        replace(answer, captures={leaf.name: value}) if answer.truth is HOLDS and value else answer
    )


def _placed(answer: Answer, view: View, key: str) -> Answer:
    """Cite the line of the launch that says it, where a launch is what is looked at."""
    facts = view.evidence.context.facts
    if answer.truth is not HOLDS or facts is None or not facts.before_start:
        return answer
    line = facts.places.get(key)
    if line is None or not 0 < line <= len(facts.lines):
        return answer
    text = facts.lines[line - 1]
    return replace(answer, lines=(Hit(Record(line=line, text=text, message=text), {}),))


def _engine(leaf: EngineLeaf, view: View) -> Answer:
    engine = view.evidence.run.engine
    known = None if engine is None else engine in leaf.name
    return _three(known, f"the engine is {engine or 'not known'}")


def _rule(leaf: RuleLeaf, view: View) -> Answer:
    truth = view.other(leaf.id)
    return Answer(truth, why="" if truth is HOLDS else f"rule {leaf.id} does not hold")


_LEAVES: dict[type, Callable[[Any, View], Answer]] = {
    LineLeaf: _line,
    ExceptionLeaf: _exception,
    ArgumentLeaf: _argument,
    EnvironmentLeaf: _environment,
    ImageLeaf: _image,
    VersionLeaf: _version,
    HardwareLeaf: _hardware,
    ModelLeaf: _model,
    ExitLeaf: _exit,
    MilestoneLeaf: _milestone,
    MetricLeaf: _metric,
    LaunchLeaf: _launch,
    ListedLeaf: _listed,
    HostLeaf: _host,
    EngineLeaf: _engine,
    RuleLeaf: _rule,
}
