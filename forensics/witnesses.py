"""Which lines beside a log concern its run: by container, process and time.

In: the evidence of a run, how it failed, and what other files tell. Out: the lines that may speak
of this failure, each with how sure that is, and a word on those that do not. The kill of another
container or an event of hours before must never become the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from forensics.beside import Told
from forensics.engines import ENGINES, GENERIC
from forensics.model import Context, Evidence
from forensics.rootcause import Judgement
from forensics.times import Moment, gap, moment

#: An event may precede what it causes by so many seconds; clocks of one machine agree to a few.
BEFORE_S, SLACK_S = 120.0, 10.0
#: A process that waits for others gives up after half an hour at most (the longest default).
TIMEOUT_S = 1_900.0
#: A server that idles prints nothing: its last line may be so old when it is killed.
IDLE_S = 600.0
_ZONE_S, _MAX_ZONE_S = 900.0, 14 * 3600.0
_TIMEOUT = re.compile(r"time(?:d[ -])?[ -]?out|Timeout", re.IGNORECASE)
#: Characters of a process's name that the kernel keeps.
_COMM = 15
_MIN_ID = 4

Who = Literal["same", "server", "maybe", "nobody", "container", "program"]
When = Literal["near", "unsure", "idle", "late", "unknown", "far"]

#: Share of a rule's confidence that is left, by whom a line speaks of and when it was said.
_WEIGHTS: dict[tuple[Who, When], float] = {
    ("same", "near"): 1.0,
    ("same", "unsure"): 0.9,
    ("same", "idle"): 0.9,
    ("same", "late"): 0.8,
    ("same", "unknown"): 0.85,
    ("server", "near"): 1.0,
    ("server", "unsure"): 0.75,
    ("server", "late"): 0.7,
    ("server", "unknown"): 0.65,
    ("maybe", "near"): 0.9,
    ("maybe", "unsure"): 0.65,
    ("maybe", "late"): 0.6,
    ("maybe", "unknown"): 0.5,
    ("nobody", "near"): 0.9,
    ("nobody", "unsure"): 0.65,
    ("nobody", "late"): 0.6,
}


class Admitted(Struct, frozen=True):
    """A line that may speak of the failure.

    Attributes:
        told: The line.
        weight: How sure it is that it does, 0 to 1.
        who: Whom it speaks of.
        when: How its time lies to the failure.
    """

    told: Told
    weight: float
    who: Who
    when: When


class Scene(Struct, frozen=True):
    """What lines are held against.

    Attributes:
        context: What is known of the container.
        failed: When the run failed, or its log ended.
        finished: When the container ended, as its engine says.
        cut: Whether the log simply stops.
        slow: Whether the failure is that something was waited for in vain.
        pids: Processes that the log names.
        engine: Which server it is.
    """

    context: Context
    failed: Moment | None
    finished: Moment | None
    cut: bool
    slow: bool
    pids: frozenset[int]
    engine: str | None


def scene_of(evidence: Evidence, judgement: Judgement) -> Scene:
    """Return what is known of when and where a run failed."""
    failure = judgement.failure
    failed, cut, slow = _moment_of(evidence.timed), True, False
    if failure is not None and failure.kind != "cut":
        cut = False
        slow = _TIMEOUT.search(failure.text) is not None
        known = [s.record for s in evidence.signals if s.record.line == failure.line]
        known += [hit.record for hits in evidence.hits.values() for hit in hits
                  if hit.record.line == failure.line]  # fmt: skip
        event = failure.exception
        failed = (
            (moment(event.at, event.clock) if event is not None else None)
            or next((m for record in known if (m := _moment_of(record))), None)
            or failed
        )
    return Scene(
        context=evidence.context,
        failed=failed,
        finished=moment(evidence.context.finished_at),
        cut=cut,
        slow=slow,
        pids=frozenset(
            [s.record.pid for s in evidence.signals if s.record.pid is not None]
            + [e.pid for e in evidence.exceptions if e.pid is not None]
        ),
        engine=evidence.run.engine,
    )


def _moment_of(record: object) -> Moment | None:
    at, clock = getattr(record, "at", None), getattr(record, "clock", None)
    return moment(at, clock)


def attend(told: Iterable[Told], scene: Scene) -> tuple[list[Admitted], list[str]]:
    """Return the lines that may speak of the failure, and why others do not.

    Args:
        told: Lines of a kernel log or of the GPUs' tool that rules know.
        scene: The run.
    """
    admitted: list[Admitted] = []
    refused: dict[tuple[str, str], list[int]] = {}
    for one in told:
        if one.origin == "gpus":
            # Taken whenever somebody asked: it says how the machine was then.
            admitted.append(Admitted(one, 0.7, "nobody", "unknown"))
            continue
        who, when = whose(one, scene), when_of(one, scene)
        weight = _WEIGHTS.get((who, when))
        if weight is not None:
            admitted.append(Admitted(_dated(one, scene), weight, who, when))
        else:
            refused.setdefault((one.source, _why(one, who, when)), []).append(one.line)
    limits = [
        f"{source} {_lines(lines)}: {why}; not taken for the cause"
        for (source, why), lines in refused.items()
    ]
    return admitted, limits


def _dated(told: Told, scene: Scene) -> Told:
    """Give a line without a year the time that it has by the log's."""
    at, known = told.moment, scene.failed
    if told.at is not None or at is None or known is None or not known.dated:
        return told
    then = datetime.fromtimestamp(known.seconds + gap(known, at), UTC)
    return replace(told, at=then.replace(tzinfo=None).isoformat())


def _lines(lines: list[int]) -> str:
    if len(lines) == 1:
        return f"line {lines[0]}"
    return f"lines {lines[0]} to {lines[-1]} ({len(lines)} lines)"


def _why(told: Told, who: Who, when: When) -> str:
    if who == "container":
        return f"about another container ({(told.container or '')[:12]})"
    if who == "program":
        return f"about another program ({told.process})"
    if when == "unknown":
        return "it says neither when nor of which process (see `dmesg -T`, `journalctl -k`)"
    return "too long before or after the failure, as far as the clocks tell"


def same_container(one: str | None, other: str | None) -> bool | None:
    """Say whether two ids mean one container, None where that cannot be told."""
    if not one or not other:
        return None
    length = min(len(one), len(other))
    return one[:length] == other[:length] if length >= _MIN_ID else None


def whose(told: Told, scene: Scene) -> Who:
    """Return of whom a line speaks: this run, a server of its kind, or somebody else."""
    same = same_container(told.container, scene.context.container_id)
    if same is not None:
        return "same" if same else "container"
    if told.process is None and told.pid is None:
        return "nobody"
    named = _named(told.process, scene.engine)
    if told.pid is not None and told.pid == scene.context.pid:
        return "same"
    if named != "program" and told.pid in scene.pids and (told.pid or 0) > _CONTAINER_PIDS:
        return "same"
    return named


#: Small numbers name another process in each container, large ones are the host's.
_CONTAINER_PIDS = 1_000


def _named(name: str | None, engine: str | None) -> Who:
    if name is None:
        return "maybe"
    for dialect in ENGINES:
        if any(name.startswith(program[:_COMM]) for program in dialect.programs):
            return (
                "server"
                if engine in {None, dialect.name} or _inside(dialect.name, engine)
                else ("program")
            )
    known = any(name.startswith(program[:_COMM]) for program in GENERIC.programs)
    return "maybe" if known else "program"


def _inside(name: str, engine: str | None) -> bool:
    return any(d.name == engine and name in d.passes_on for d in ENGINES)


def when_of(told: Told, scene: Scene) -> When:
    """Return how a line's time lies to the failure."""
    at = told.moment
    reference = scene.finished if scene.cut and scene.finished else scene.failed
    if at is None or reference is None:
        return "unknown"
    span = gap(reference, at)
    ends = scene.finished is not None or not scene.cut
    latest = SLACK_S if ends else IDLE_S
    sure = at.zoned == reference.zoned
    if -BEFORE_S <= span <= latest:
        return "near" if sure else "unsure"
    if scene.slow and -TIMEOUT_S <= span <= 0 and sure:
        return "late"
    if not (at.zoned and reference.zoned) and abs(span) <= _MAX_ZONE_S + BEFORE_S:
        # Perhaps only the zones differ, which is a matter of whole quarters of an hour.
        rest = (span + BEFORE_S) % _ZONE_S
        if rest <= BEFORE_S + SLACK_S and _surely_same(told, scene):
            return "unsure"
    if scene.cut and not ends and span > 0 and sure and _surely_same(told, scene):
        return "idle"
    return "far"


def _surely_same(told: Told, scene: Scene) -> bool:
    return whose(told, scene) == "same"


# --- the container engine's own word ------------------------------------------------------------


class Word(Struct, frozen=True):
    """What the engine's events say of one run.

    Attributes:
        context: What is known with them.
        events: Those of this run.
        limits: What could not be known.
    """

    context: Context
    events: tuple[Told, ...] = ()
    limits: tuple[str, ...] = ()


def engine_word(events: Sequence[Told], context: Context, end: Moment | None) -> Word:
    """Pick the events of a run's container and lay what they say under what is known.

    Args:
        events: Events of containers, in order.
        context: What is known of the run; it wins.
        end: When its log ends.
    """
    if not events:
        return Word(context)
    mine = _of_container(events, context, end)
    if mine is None:
        count = len({one.container for one in events})
        said = f"{events[0].source} tells of {count} containers, and not which of them this is"
        return Word(context, (), (f"{said} (add its `docker inspect` output)",))
    span = _of_run(mine, end)
    if span is None:
        return Word(context, (), (f"{events[0].source} does not tell how this run ended",))
    died = next((one for one in reversed(span) if one.action == "die"), None)
    began = next((one for one in span if one.action == "start"), None)
    code = (died.details.get("exitCode") or "") if died is not None else ""
    oom = any(one.action == "oom" for one in span)
    last = span[-1]
    known = Context(
        exit_code=int(code) if code.isdecimal() else None,
        oom_killed=True if oom else False if began is not None and died is not None else None,
        image=last.details.get("image"),
        container=last.details.get("name"),
        container_id=last.container,
        started_at=began.at if began is not None else None,
        finished_at=died.at if died is not None else None,
        running=None,
    )
    return Word(under(context, known), tuple(span))


def under(context: Context, more: Context) -> Context:
    """Fill what a context does not know from another one."""
    names = (
        "exit_code", "oom_killed", "running", "image", "digest", "container", "launch", "arguments",
        "environment", "auto_remove", "started_at", "finished_at", "container_id", "pid",
    )  # fmt: skip
    missing = {
        name: getattr(more, name)
        for name in names
        if getattr(context, name) is None and getattr(more, name) is not None
    }
    known, new = context.hardware, more.hardware
    hardware = replace(
        known,
        gpu=known.gpu or new.gpu,
        compute_capability=known.compute_capability or new.compute_capability,
        arch=known.arch or new.arch,
    )
    versions = {**more.versions, **context.versions}
    return replace(context, hardware=hardware, versions=versions, **missing)


def _of_container(
    events: Sequence[Told], context: Context, end: Moment | None
) -> list[Told] | None:
    """Return the events of this run's container, None where it is not known which that is."""
    if context.container_id is not None:
        return [one for one in events if same_container(one.container, context.container_id)]
    if context.container is not None:
        return [one for one in events if one.details.get("name") == context.container]
    ids = list(dict.fromkeys(one.container for one in events if one.container is not None))
    if len(ids) > 1 and end is not None:
        ids = [
            identity
            for identity in ids
            if any(
                one.container == identity and one.action == "die" and one.moment is not None
                and -SLACK_S <= gap(end, one.moment) <= BEFORE_S
                for one in events
            )
        ]  # fmt: skip
    return [one for one in events if one.container == ids[0]] if len(ids) == 1 else None


def _of_run(mine: list[Told], end: Moment | None) -> list[Told] | None:
    """Return the events from the start of a run to its end, None where its end is not there."""
    ends = [i for i, one in enumerate(mine) if one.action == "die"]
    if end is not None:
        ends = [i for i in ends if _not_before(mine[i], end)][:1]
    if not ends:
        return None
    last = ends[-1]
    before = [i for i in range(last) if mine[i].action == "die"]
    first = before[-1] + 1 if before else 0
    # An oom is noticed and a stop is written down only a moment after the death.
    after = last + 1
    while after < len(mine) and mine[after].action in {"oom", "stop", "destroy"}:
        after += 1
    return mine[first:after]


def _not_before(died: Told, end: Moment) -> bool:
    return died.moment is not None and gap(end, died.moment) >= -SLACK_S
