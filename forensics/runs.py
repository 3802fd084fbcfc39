"""What is known beside the log, for each of the runs in it.

A log of several runs has one context: an exit code and a running state speak of the last run, of
the others it is known that they have ended. What an envelope or a report around the log states
counts where nothing better is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forensics.envelopes import Pipeline
from forensics.model import Context, Hardware, Source
from forensics.starts import Run


class Reading(Struct, frozen=True):
    """What is known of a log when it has been read.

    Attributes:
        modified: When it was last written, None where that is not known.
        damage: Why it ended before its end, None where it did not.
        parts: The files it is made of and the line at which each begins.
        holes: Line before which something is missing, with what.
    """

    modified: str | None = None
    damage: str | None = None
    parts: tuple[tuple[str, int], ...] = ()
    holes: tuple[tuple[int, str], ...] = ()


class Described(Struct, frozen=True):
    """One run with its source, its context, and what to say about it.

    Attributes:
        run: The run.
        source: Its source; several runs or services in one log have a `#` in its name.
        context: What is known of it.
        limits: What could not be known.
        written: When the log was last written, None where that is not known.
    """

    run: Run
    source: Source
    context: Context
    limits: tuple[str, ...] = ()
    written: str | None = None


def described(
    runs: Sequence[Run], source: Source, context: Context, pipeline: Pipeline, reading: Reading
) -> list[Described]:
    """Give each run what is known of it.

    Args:
        runs: All runs of one log, by service in their order.
        source: The log.
        context: What is known beside the log.
        pipeline: What took the envelopes off.
        reading: What is known of the log since it was read.
    """
    counts = Counter(run.service for run in runs)
    last = {run.service: run.number for run in runs}
    context = with_facts(context, pipeline.facts)
    common = tuple(_limits(reading))
    if reading.damage:
        source = replace(source, truncated=[*source.truncated, "tail"])
    found = []
    for run in runs:
        name = source.name
        if len(counts) > 1 and run.service:
            name += f"#{run.service}"
        if counts[run.service] > 1:
            name += f"#{run.number}"
        mine, limits = context, common
        if run.number < last[run.service]:
            mine = ended(context)
            limits = ("it had ended when the next start in this log began", *common)
        elif context.exit_code is None and run.service in pipeline.exits:
            mine = replace(context, exit_code=pipeline.exits[run.service])
        its = replace(source, name=name)
        holes = tuple(_holes(run, runs, reading))
        if holes:
            mine = replace(mine, holes=holes)
            its = replace(its, truncated=[*its.truncated, "middle"])
        found.append(Described(run, its, mine, limits, reading.modified))
    return found


def _holes(run: Run, runs: Sequence[Run], reading: Reading) -> Iterator[int]:
    """Yield the lines of one run before which something is missing."""
    later = [r.first_line for r in runs if r.service == run.service and r.number > run.number]
    for line, _ in reading.holes:
        if run.first_line < line and all(line <= first for first in later):
            yield line


def _limits(reading: Reading) -> Iterator[str]:
    if reading.damage:
        yield f"the packed file is damaged or cut: what stood at its end is lost ({reading.damage})"
    for line, what in reading.holes:
        yield f"{what} is missing before line {line}: what it held is not known"
    if len(reading.parts) > 1:
        where = ", ".join(f"{name} from line {line}" for name, line in reading.parts)
        yield f"lines are counted through the files of the log: {where}"


def ended(context: Context) -> Context:
    """Return what is known of a run that is not the container's last."""
    return replace(
        context,
        exit_code=None,
        oom_killed=None,
        running=None,
        started_at=None,
        finished_at=None,
        pid=None,
    )


def with_facts(context: Context, facts: dict[str, str]) -> Context:
    """Add what a report around the log states to what is known.

    Args:
        context: What is known; it wins.
        facts: By the names of `forensics.envelopes.pasted`.
    """
    if not facts:
        return context
    known = context.hardware
    versions = {
        key: facts[key]
        for key in ("vllm", "sglang", "torch", "cuda", "driver", "flashinfer", "triton")
        if key in facts
    }
    return replace(
        context,
        hardware=Hardware(
            gpu=known.gpu or facts.get("gpu"),
            compute_capability=known.compute_capability or facts.get("capability"),
            arch=known.arch or facts.get("arch"),
        ),
        versions={**versions, **context.versions},
    )
