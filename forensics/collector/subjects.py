"""What a watcher knows of one container, and of each of its runs that is open."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from forensics.archive.model import Gap, RunRecord, Tier
from forensics.archive.writer import RunWriter
from forensics.collector.files import Follower
from forensics.collector.records import Ending, State, state_of

#: Events of one run that are kept; a loop of health checks must not fill the memory.
_EVENTS = 500


class Open:
    """A run that is being recorded.

    Attributes:
        record: What was known when it began.
        writer: Writes its log.
        started: When it began (ns since 1970).
        said: When the engine said that it had ended.
        code: The exit code that it said.
        finished: When the run ended.
        over: It has ended.
        gone: Its container was removed.
        unseen: It ended without being seen to.
        events: What the engine said of it.
        inspect: Inspect data after its end.
        gaps: What is missing in it.
        stop: Ends its reader, in the API tier.
    """

    def __init__(self, record: RunRecord, writer: RunWriter, started: int) -> None:
        self.record, self.writer, self.started = record, writer, started
        self.said: int | None = None
        self.code: int | None = None
        self.finished: int | None = None
        self.over = self.gone = self.unseen = False
        self.events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self.inspect: dict[str, Any] | None = None
        self.gaps: list[Gap] = []
        self.stop = threading.Event()

    def ending(self) -> Ending:
        """Return how it ended, as far as it is known."""
        return Ending(
            inspect=self.inspect,
            code=self.code,
            finished=self.finished if self.finished is not None else self.said,
            events=list(self.events),
            gone=self.gone,
        )


class Subject:
    """A container that is collected.

    Attributes:
        id: Its full id.
        tier: Which way its log comes; None: it has none.
        inspect: The newest inspect data.
        image: Those of its image.
        follower: Copies its files, in the file tier.
        current: The run that is open, or was last.
        opens: All open runs, by name.
        start: When the last start that is known began; it may be in the archive already.
        early: Events that came before their run.
        gone: It was removed.
        doubt: Why the beginning of its first run may be missing.
    """

    def __init__(self, container: str, tier: Tier | None, inspect: dict[str, Any]) -> None:
        self.id, self.tier, self.inspect = container, tier, inspect
        self.image: dict[str, Any] | None = None
        self.follower: Follower | None = None
        self.current: Open | None = None
        self.opens: dict[str, Open] = {}
        self.start: int | None = None
        self.early: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self.gone = False
        self.doubt: str | None = None

    @property
    def state(self) -> State:
        """Return its latest state."""
        return state_of(self.inspect)

    @property
    def name(self) -> str:
        """Return its name, for people."""
        return str(self.inspect.get("Name") or "").lstrip("/") or self.id[:12]
