"""Events that several logs of one deployment share, and what they say of the clocks.

In: an open log. Out: the times at which it tells of things that other logs tell of as well (a
communicator, a process group, a request), and the ranks it is of. From two of those: by how much
the clock of one is ahead of the other's.

Formats: NCCL 2.19 to 2.28 `init.cc`, vLLM `distributed/parallel_state.py`, Gloo `context.cc`,
SGLang `model_runner.py`, request ids of OpenAI's interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Protocol

from msgspec import Struct

from forensics.envelopes import Block, pipeline
from forensics.records import understand
from forensics.times import Moment, gap, moment

#: Kinds of events by how far apart in time (seconds) two processes tell of one: a collective ends
#: everywhere at once, a request is passed on, a rendezvous is waited at.
SLACK_S: dict[str, float] = {"comm": 1.0, "ranks": 2.0, "gloo": 2.0, "group": 2.0, "request": 5.0,
                             "meeting": 120.0}  # fmt: skip
_EVENTS = re.compile(
    rb"\[Gloo\] Rank \d{1,6} is connected to (?P<gloo>\d{1,6}) peer ranks"
    rb"|ncclCommInitRank\w{0,20} comm 0x[0-9a-f]{1,16} .{0,300}?"
    rb"commId (?P<comm>0x[0-9a-f]{1,16}) - Init COMPLETE"
    rb"|rank \d{1,6} in world size (?P<ranks>\d{1,6}) is assigned as"
    rb"|(?P<group>Init torch distributed ends)\."
    rb"|distributed_init_method=(?P<meeting>tcp://[\w.:\[\]-]{3,100}:\d{1,5})"
    rb"|(?P<request>(?:chatcmpl|cmpl|embd|resp|req)[-_][0-9a-f][0-9a-f-]{14,40})"
)
_RANK = re.compile(
    rb"rank (?P<a>\d{1,6}) in world size \d|world_size=\d{1,6} rank=(?P<b>\d{1,6})"
    rb"|\[Gloo\] Rank (?P<c>\d{1,6}) is connected| rank (?P<d>\d{1,6}) nranks \d"
)
#: Events kept of one kind and name, and names in all.
_MAX_TIMES, _MAX_KEYS = 50, 20_000
_MAX_LINE, _BACK_LINES = 4096, 50
HEAD_BYTES = 65_536


class Reader(Protocol):
    """What is needed of an open log."""

    @property
    def head(self) -> bytes:
        """Return its first bytes."""

    def runs(self) -> Iterator[bytes]:
        """Yield its bytes in runs of whole lines."""


class Shared(Struct, frozen=True):
    """What a log tells that others may tell as well.

    Attributes:
        events: Times by (kind, name), in order.
        ranks: Ranks of the processes in it.
    """

    events: Mapping[tuple[str, str], tuple[Moment, ...]] = {}
    ranks: frozenset[int] = frozenset()


class Skew(Struct, frozen=True):
    """How far a clock is ahead of another one.

    Attributes:
        seconds: By so much.
        within: Give or take so much.
        events: How many shared events say so.
    """

    seconds: float
    within: float
    events: int


def shared(reader: Reader) -> Shared:
    """Read what a log tells that others may tell as well.

    Args:
        reader: The log, open; it is read to its end.
    """
    inside = pipeline(reader.head[:HEAD_BYTES])
    found: dict[tuple[str, str], list[Moment]] = {}
    ranks: set[int] = set()

    def take(block: Block) -> None:
        newlines = place = 0
        for match in _EVENTS.finditer(block.text):
            newlines += block.text.count(b"\n", place, match.start())
            place = match.start()
            kind = match.lastgroup or ""
            key = (kind, match[kind].decode("ascii", "replace"))
            known = found.get(key)
            if known is None and len(found) < _MAX_KEYS:
                known = found[key] = []
            # The first and the last time of a request are not those of another log.
            if known is None or len(known) >= (1 if kind == "request" else _MAX_TIMES):
                continue
            when = _when(block, place, newlines)
            if when is not None:
                known.append(when)
        for match in _RANK.finditer(block.text):
            ranks.update(int(text) for text in match.groups() if text)

    for run in reader.runs():
        for _, block in inside.feed(run):
            take(block)
    for _, block in inside.finish():
        take(block)
    return Shared({key: tuple(times) for key, times in found.items() if times}, frozenset(ranks))


def _when(block: Block, offset: int, newlines: int) -> Moment | None:
    """Return the time of a line, or of the nearest one before it that has one.

    Args:
        block: The lines.
        offset: Where in the line.
        newlines: How many lines stand before it.
    """
    text, end = block.text, offset
    for back in range(_BACK_LINES):
        start = text.rfind(b"\n", 0, end) + 1
        stop = text.find(b"\n", start)
        stop = len(text) if stop < 0 else stop
        at = block.time_at(newlines - back, start)
        record = understand(text[start : min(stop, start + _MAX_LINE)], 0, at)
        found = moment(record.at, record.clock)
        if found is not None or start == 0:
            return found
        end = start - 1
    return None


def skew(mine: Shared, other: Shared) -> Skew | None:
    """Return by how much my clock is ahead of the other log's, None where nothing is shared.

    Only the kind of event that is told most nearly at once counts.
    """
    by_kind: dict[str, list[float]] = {}
    for key, times in mine.events.items():
        others = other.events.get(key)
        if not others:
            continue
        # Logs that begin at different restarts agree from their ends on.
        count = min(len(times), len(others)) if len(times) == len(others) else 1
        pairs = zip(times[-count:], others[-count:], strict=True)
        by_kind.setdefault(key[0], []).extend(gap(b, a) for a, b in pairs)
    for kind, slack in sorted(SLACK_S.items(), key=lambda item: item[1]):
        spans = by_kind.get(kind)
        if spans:
            middle = median(spans)
            spread = max(abs(span - middle) for span in spans)
            # Printed clocks have whole seconds.
            return Skew(round(middle, 3), round(max(slack, 1.0, spread), 3), len(spans))
    return None


def skews(logs: list[Shared]) -> list[Skew | None]:
    """Return by how much each clock is ahead of the first log's, over others where need be."""
    found: list[Skew | None] = [None] * len(logs)
    found[0] = Skew(0.0, 0.0, 0)
    open_logs = [0]
    while open_logs:
        known = open_logs.pop(0)
        base = found[known]
        for place, log in enumerate(logs):
            if found[place] is not None or base is None:
                continue
            one = skew(log, logs[known])
            if one is not None:
                found[place] = Skew(
                    round(base.seconds + one.seconds, 3),
                    round(base.within + one.within, 3),
                    one.events,
                )
                open_logs.append(place)
    return found
