"""A line of a file beside the log, understood as far as it says when and of whom it speaks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from forensics.times import Moment


class Told(Struct, frozen=True):
    """One line.

    Attributes:
        source: Name of the file.
        line: 1-based physical line in it.
        text: The line as it stands there.
        message: What is said, without time and sender.
        origin: Who says it: the kernel's log, the container engine's events, or the GPUs' tool.
        at: Time as in the contract (RFC 3339), None where the line has none.
        moment: The same, to reckon with; also where no year is known.
        uptime: Seconds since the machine started, where the line says only that.
        pid: The process it speaks of, as the host numbers it.
        process: That process's name (cut to 15 characters by the kernel).
        container: Id of the container it speaks of (hexadecimal, may be short).
        action: For an event of the engine: `die`, `kill`, `oom` …
        details: For an event of the engine: its attributes.
    """

    source: str
    line: int
    text: str
    message: str
    origin: Literal["kernel", "events", "gpus"]
    at: str | None = None
    moment: Moment | None = None
    uptime: float | None = None
    pid: int | None = None
    process: str | None = None
    container: str | None = None
    action: str | None = None
    details: dict[str, str] = {}
