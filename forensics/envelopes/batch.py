"""What travels between the layers of a wrapped log: lines, each with its place, time and service.

A layer takes the lines of the layer outside it and gives those inside. Text stays bytes, so that
what was wrapped comes out as it went in, also where it is no valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct


class Batch(Struct):
    """A run of lines.

    Attributes:
        text: Their bytes; each line ends in a newline, the last of a source may not.
        numbers: Physical number of each line; one entry a line.
        times: Time of each line as the envelope says it (RFC 3339), None where none does.
        services: Which container or unit each line is from, None where nothing says so.
    """

    text: bytes
    numbers: Sequence[int]
    times: Sequence[str | None] | None = None
    services: Sequence[str | None] | None = None

    def lines(self) -> list[bytes]:
        """Return the lines without their ends."""
        found = self.text.split(b"\n")
        if not found[-1]:
            found.pop()
        return found


def plain(text: bytes, first: int) -> Batch:
    """Return lines as they stand in a source.

    Args:
        text: The bytes.
        first: Physical number of the first line.
    """
    count = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    return Batch(text, range(first, first + count))


EMPTY = Batch(b"", ())


class Layer(Protocol):
    """One envelope being taken off; it may hold back a line whose end is still to come."""

    def feed(self, batch: Batch) -> Batch:
        """Take whole lines and return what was inside those that are complete."""

    def finish(self) -> Batch:
        """Return what is left when the source ends."""


class Lines:
    """Collects lines with their places, and gives them as a batch.

    Joins nothing itself; see `forensics.envelopes.parts`.
    """

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.numbers: list[int] = []
        self.times: list[str | None] = []
        self.services: list[str | None] = []

    def add(
        self, line: bytes, number: int, at: str | None = None, service: str | None = None
    ) -> None:
        """Add one line, or a text of several lines that have one place."""
        for piece in line.split(b"\n") if b"\n" in line else (line,):
            self.lines.append(piece)
            self.numbers.append(number)
            self.times.append(at)
            self.services.append(service)

    def batch(self, *, ended: bool = True) -> Batch:
        """Return the lines; `ended` says whether the last has its newline."""
        if not self.lines:
            return EMPTY
        text = b"\n".join(self.lines) + (b"\n" if ended else b"")
        known = any(self.services)
        return Batch(text, self.numbers, self.times, self.services if known else None)


class Envelope(Struct, frozen=True):
    """A way in which logs are wrapped.

    Attributes:
        name: As shown in `source.envelope`.
        wraps: Whether the first bytes of a log are wrapped in it.
        layer: Makes what takes it off; given the same first bytes.
    """

    name: str | None
    wraps: Callable[[bytes], bool]
    layer: Callable[[bytes], Layer]
