"""The record of a run: what is known when it begins, and when it has ended."""

from __future__ import annotations

import platform
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from forensics import __version__
from forensics.archive.model import (
    Completeness,
    ContainerFacts,
    EngineFacts,
    Gap,
    RunRecord,
    Tier,
)
from forensics.archive.store import run_id
from forensics.collector import snapshot
from forensics.collector.clock import nanoseconds, text_of

#: How long before its start, as the engine says, a container may have printed its first line: on a
#: machine under load the engine notes the time when the process has run for a while.
BEFORE_START = 2_000_000_000


class State(Struct, frozen=True):
    """What inspect data say of a container's latest start.

    Attributes:
        started_at: When it began (None: never started), as the engine says.
        started: The same in nanoseconds since 1970.
        finished: When it ended; None while it runs. It may be a little before `started`.
        before: When the start before it ended; known only while it runs.
        first: There was no start before.
        running: Whether it runs now; a container that waits for its restart does not.
        code: Exit code.
        error: Why it could not be started.
    """

    started_at: str | None
    started: int | None
    finished: int | None
    before: int | None
    first: bool
    running: bool
    code: int | None
    error: str | None


def state_of(inspect: dict[str, Any]) -> State:
    """Read the state out of inspect data."""
    state = inspect.get("State")
    state = state if isinstance(state, dict) else {}
    started, code = state.get("StartedAt"), state.get("ExitCode")
    ns = nanoseconds(started) if isinstance(started, str) else None
    running = state.get("Running") is True and state.get("Restarting") is not True
    finished = nanoseconds(state.get("FinishedAt"))
    return State(
        started_at=started if ns is not None else None,
        started=ns,
        finished=None if running else finished,
        before=finished if running else None,
        first=running and finished is None,
        running=running,
        code=code if type(code) is int else None,
        error=state.get("Error") or None,
    )


def boundary(ended: int | None, before: int | None, started: int) -> int | None:
    """Return from when on the lines of a container's log belong to a start.

    Args:
        ended: When the engine said that the start before had ended: it had written all of that
            one's lines by then, and none of the next.
        before: When the start before ended; some of its lines may still have been on their way.
        started: When the start began; its first lines may have come a little earlier.

    Returns:
        Nanoseconds since 1970; None where the clock was set back between the two, so that times
        tell nothing.
    """
    if ended is not None:
        return ended + 1 if ended < started else None
    if before is None:
        return started - BEFORE_START
    return (before + started) // 2 if before < started else None


def begun(
    inspect: dict[str, Any],
    image: dict[str, Any] | None,
    engine: EngineFacts,
    tier: Tier,
    started: int,
    kept: tuple[str, ...] = (),
) -> RunRecord:
    """Return the record of a run that begins.

    Args:
        inspect: The container's inspect data.
        image: The image's.
        engine: The engine.
        tier: Which way the log comes.
        started: When it began.
        kept: Globs of variables whose values may be kept.
    """
    container = snapshot.container_facts(inspect, kept)
    at = text_of(started)
    return RunRecord(
        id=run_id(at, container.id),
        tier=tier,
        created_at=inspect.get("Created"),
        started_at=at,
        engine=engine,
        container=container,
        image=snapshot.image_facts(inspect, image),
        inspect=snapshot.redacted_inspect(inspect, kept),
        image_inspect=snapshot.redacted_inspect(image) if image else None,
        collector={"version": __version__, "host": platform.node()},
    )


def unknown(container: str, engine: EngineFacts, tier: Tier, started: int) -> RunRecord:
    """Return the record of a run of which nothing but its log is left."""
    at = text_of(started)
    return RunRecord(
        id=run_id(at, container),
        tier=tier,
        started_at=at,
        engine=engine,
        container=ContainerFacts(id=container),
        guessed=["started_at"],
        collector={"version": __version__, "host": platform.node()},
    )


def not_started(record: RunRecord) -> RunRecord:
    """Return the record of a container that the engine could not start."""
    return replace(record, started_at=None)


class Ending(Struct, kw_only=True):
    """How a run ended, as far as it is known by now.

    Attributes:
        inspect: Inspect data of after the end, None if there are none of this start.
        code: Exit code, where an event said it.
        finished: When it ended.
        events: Its events.
        gone: The container was removed.
    """

    inspect: dict[str, Any] | None = None
    code: int | None = None
    finished: int | None = None
    events: list[dict[str, Any]] = []
    gone: bool = False


def ended(
    record: RunRecord,
    ending: Ending,
    completeness: Completeness,
    reasons: list[str],
    gaps: list[Gap],
    kept: tuple[str, ...] = (),
) -> RunRecord:
    """Return the record of a run that has ended.

    Args:
        record: What was known of it.
        ending: How it ended.
        completeness: Whether its log is whole.
        reasons: What proves that, or why it may not be.
        gaps: What is missing.
        kept: Globs of variables whose values may be kept.
    """
    facts = snapshot.exit_facts(ending.inspect, ending.events, code=ending.code)
    if ending.gone and ending.inspect is None:
        facts = replace(facts, status="removed")
    elif ending.inspect is None and facts.code is not None:
        facts = replace(facts, status="exited")
    finished = text_of(ending.finished) if ending.finished is not None else None
    container = record.container
    if container is not None:
        former = [
            str(event["attributes"]["oldName"]).lstrip("/")
            for event in ending.events
            if event["action"] == "rename" and "oldName" in event["attributes"]
        ]
        container = replace(container, former_names=[*container.former_names, *former])
    inspect = snapshot.redacted_inspect(ending.inspect, kept) if ending.inspect else record.inspect
    return replace(
        record,
        completeness=completeness,
        reasons=[*record.reasons, *reasons],
        gaps=[*record.gaps, *gaps],
        finished_at=finished,
        exit=facts,
        container=container,
        events=[*record.events, *ending.events],
        inspect=inspect,
    )
