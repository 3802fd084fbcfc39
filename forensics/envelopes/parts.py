"""Lines that a runtime wrote in parts: joined again, one stream at a time.

A container runtime cuts lines at 16 KiB; the parts of standard output and standard error may
stand between each other. A joined line has the place and time of its first part.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from forensics.envelopes.batch import Lines

#: Parts of one line that are kept; a line without end costs memory only up to here.
MAX_JOINED = 32 * 1024 * 1024


class _Held(Struct):
    pieces: list[bytes]
    number: int
    at: str | None
    service: str | None
    size: int = 0


class Joiner:
    """Holds back the begun line of each stream until its last part comes."""

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}

    def add(  # noqa: PLR0913 - one part with all that is known of it
        self,
        out: Lines,
        key: Hashable,
        piece: bytes,
        number: int,
        at: str | None = None,
        service: str | None = None,
        *,
        last: bool,
    ) -> None:
        """Take one part.

        Args:
            out: Where a complete line goes.
            key: The stream that it is from.
            piece: Its bytes, without a newline.
            number: Its physical line.
            at: Its time.
            service: Its container or unit.
            last: Whether the line ends with it.
        """
        held = self._held.pop(key, None) if self._held else None
        if held is None:
            if last:
                out.add(piece, number, at, service)
                return
            held = _Held([], number, at, service)
        held.pieces.append(piece)
        held.size += len(piece)
        if last or held.size > MAX_JOINED:
            out.add(b"".join(held.pieces), held.number, held.at, held.service)
        else:
            self._held[key] = held

    @property
    def waiting(self) -> bool:
        """Say whether a line has begun and not ended."""
        return bool(self._held)

    def rest(self, out: Lines) -> bool:
        """Give lines that never ended; return whether there was one."""
        for held in self._held.values():
            out.add(b"".join(held.pieces), held.number, held.at, held.service)
        found = bool(self._held)
        self._held.clear()
        return found
