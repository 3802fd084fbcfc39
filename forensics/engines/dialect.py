"""What a dialect is: how the lines of one program look. Never what is wrong with them.

A dialect turns text into a `Record` and lists the lines it knows as `Signal`s. The scanner looks
for all signals of all dialects in the same pass as for the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from forensics.model import Frame, Record

SignalKind = Literal[
    "milestone",  # a phase boundary of the start
    "fact",  # something known of the run; groups carry it
    "stop",  # somebody asked the program to end, or it says that it ends in order
    "end",  # the last words of an orderly end
    "death",  # a process reports that another one is gone
    "fatal",  # a fatal line that is no Python exception
    "crash",  # a header that says the program is failing; its cause stands elsewhere
    "wrapper",  # text that points to an error printed elsewhere
    "statistics",  # a line of numbers
]


class Signal(Struct, frozen=True):
    """One kind of line.

    Args:
        kind: What it means for the analysis.
        name: Its name (for milestones: the milestone).
        pattern: Regular expression searched in the message; named groups are kept. `^` only at
            the beginning, where it means the beginning of the message.
        identity: Whether such a line says that the dialect's program printed the log.
        after_failure: Whether the same line also appears in the wake of a crash.
        find: A simpler pattern to look for first, for lines that are frequent in healthy logs.
        gives_up: When the line ends a piece of work for good, so that nothing that succeeds later
            makes good what failed before it (a server that loads one model after another):
            always, or only where it comes after the server was ready.

    Groups of statistics are read as numbers; a name that ends in `_pct` is a percentage (kept as
    a fraction without the ending), one that ends in `_list` a list (kept as `…_1`, `…_2`, …).
    """

    kind: SignalKind
    name: str
    pattern: str
    identity: bool = False
    after_failure: bool = False
    find: str | None = None
    gives_up: Literal["never", "serving", "always"] = "never"


Metrics = dict[str, list[tuple[int, float]]]


def _as_printed(metrics: Metrics, _: str | None) -> Metrics:
    return metrics


def _no_process(_: tuple[Frame, ...]) -> tuple[str | None, int]:
    return None, 0


class Dialect(Struct, frozen=True):
    """How one program prints.

    Args:
        name: Engine name as in the JSON contract, or a family name for lines any program prints.
        signals: The lines it knows.
        parse: `(text, line, at)` to a record, or None where the text has no prefix of this kind.
        milestones: Names in the order in which a start reaches them.
        ready: The milestone from which on the server serves.
        waits: The milestone at which the program waits for its first work, where it does so
            before it loads anything: there it is as good as ready.
        depth: Process name to how far inside the program it is (3 worker, 2 engine, 1 server).
        process_of: Frames of a traceback without a prefix to process name and depth.
        normalise: Metrics and version to metrics whose meaning is the same in all versions.
        teardown: Function names in whose frames an exception is only a consequence of ending.
        passes_on: Engines that this program runs inside and whose output it prints among its
            own: where it is seen, the log is its, however many lines are theirs.
        programs: What the names of its processes begin with, as the kernel knows them (15 letters).
    """

    name: str
    signals: tuple[Signal, ...]
    parse: Callable[[str, int, str | None], Record | None]
    milestones: tuple[str, ...] = ()
    ready: str | None = None
    waits: str | None = None
    depth: Callable[[str], int] = lambda _: 0
    process_of: Callable[[tuple[Frame, ...]], tuple[str | None, int]] = _no_process
    teardown: tuple[str, ...] = ()
    normalise: Callable[[Metrics, str | None], Metrics] = _as_printed
    passes_on: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


# --- what several servers print alike -----------------------------------------------------------

#: A number as Python and C++ print it.
NUMBER = r"(?:nan|inf|-?[\d.]+)"
#: What uvicorn puts before a message, and its access lines.
UVICORN = re.compile(r"(?P<level>INFO|WARNING|ERROR|CRITICAL|DEBUG): {2,5}")
ACCESS = re.compile(r'\S{1,80} - "[A-Z]{3,9} \S{1,2000} HTTP/[\d.]{1,3}" \d{3}')
UVICORN_STARTED = Signal("milestone", "server_starting", r"^Started server process \[\d+\]")
UVICORN_STOPS = Signal("stop", "uvicorn", r"^Shutting down$", after_failure=True)
UVICORN_ENDED = Signal(
    "end", "uvicorn", r"^Finished server process \[\d+\]|^Application shutdown complete\."
)


def milestone(name: str, pattern: str) -> Signal:
    """Return the signal of a milestone by whose line the program is known."""
    return Signal("milestone", name, pattern, identity=True)


def milestones_of(signals: Iterable[Signal]) -> tuple[str, ...]:
    """Return the milestones among signals, which stand in the order in which a start reaches them."""
    return tuple(dict.fromkeys(signal.name for signal in signals if signal.kind == "milestone"))


def at_home(
    homes: tuple[tuple[str, str, str], ...], depth: Callable[[str], int]
) -> Callable[[tuple[Frame, ...]], tuple[str | None, int]]:
    """Return what tells from the frames of a bare traceback which process printed it.

    Args:
        homes: Part of a file's path, part of a function's name, and the process that alone has
            such frames; innermost process first.
        depth: Process name to how far inside the program it is.
    """

    def process_of(frames: tuple[Frame, ...]) -> tuple[str | None, int]:
        for file, function, process in homes:
            for frame in frames:
                if file in frame.file and function in frame.function:
                    return process, depth(process)
        return None, 0

    return process_of
