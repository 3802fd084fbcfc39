"""The file tier: the engine's json-files, copied byte for byte into runs.

`Tail` reads the held files of one container one after the other as if they were one. `Follower`
gives what it reads to the run that it belongs to: a container has one log over all of its starts,
and the archive one run a start. Nothing is parsed on the way but the times at the seams.
"""

from __future__ import annotations

import gzip
import os
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from forensics.archive.disk import DiskFull
from forensics.archive.model import Gap
from forensics.archive.writer import RunWriter, line_time
from forensics.collector.clock import nanoseconds, now_text
from forensics.collector.hold import Part, parts_in

PIECE = 1 << 20
#: So many bytes before a place are looked at again: a file that was cut and filled anew differs.
_CHECK = 64
#: How long the end of a file must stay its end before the log of a run that is over counts as read.
_SETTLE_S = 0.25
#: The same, where the last line is later than the end of the run: of a start not yet heard of.
_LATE_S = 10.0
#: How long a container's log file may take to appear before its run counts as one without.
_NO_FILE_S = 5.0
_RELIST_S = 0.5


class Tail:
    """Reads the files of one container, in order, as they grow.

    Args:
        folder: Where their links are.
        position: Where to go on, as `position` was; None for the beginning.
        older: Compressed files that were rotated away before anything was held, the oldest first.

    Attributes:
        gaps: What is missing between the bytes that were given, since this was last emptied.
    """

    def __init__(
        self, folder: Path, position: dict[str, Any] | None = None, older: list[Path] | None = None
    ) -> None:
        self.folder = folder
        self.gaps: list[Gap] = []
        self._older = deque(older or [])
        self._packed: gzip.GzipFile | None = None
        self._fd = -1
        self._part: Part | None = None
        self._offset = 0
        self._check = b""
        self._parts: deque[Part] = deque()
        self._listed = -_RELIST_S
        self._next_number = 0
        if position is not None:
            self._older.clear()
            self._resume(position)

    def _resume(self, position: dict[str, Any]) -> None:
        """Open the file that a position names, whatever its number is by now."""
        wanted, offset = position.get("inode"), int(position.get("offset", 0))
        self._list()
        while self._parts:
            part = self._parts.popleft()
            self._open(part)
            span = int(position.get("span", 0))
            check = os.pread(self._fd, span, offset - span) if span <= offset else b""
            same = len(check) == span and zlib.crc32(check) == position.get("check")
            if _inode(part) == wanted and same:
                self._offset, self._check = offset, check
                return
        # Nothing is left of it: what is there is read from its beginning.
        self._close()
        self._part, self._next_number = None, 0
        self.wake()
        self._lost("the log file that was being read is gone, or was replaced")

    def _lost(self, reason: str) -> None:
        self.gaps.append(Gap(reason, until=now_text()))

    @property
    def position(self) -> dict[str, Any]:
        """Return where the next byte stands, as JSON data."""
        if self._part is None:
            return {"part": 0, "offset": 0}
        place = {"part": self._part.number, "inode": _inode(self._part), "offset": self._offset}
        return place | _checked(self._check)

    @property
    def number(self) -> int:
        """Return the number of the file that is being read; 0 before the first."""
        return self._part.number if self._part is not None else 0

    @property
    def started(self) -> bool:
        """Say whether there was a file to read."""
        return self._part is not None or bool(self._parts) or bool(self._older)

    def first(self) -> Part | None:
        """Return the file that is read first of all; None while there is none."""
        self._list()
        return self._part or (self._parts[0] if self._parts else None)

    def wake(self) -> None:
        """Look for new files at the next read."""
        self._listed = -_RELIST_S

    def lag(self) -> int:
        """Return how many bytes of the present file are not read yet."""
        if self._fd < 0:
            return 0
        with suppress(OSError):
            return max(0, os.fstat(self._fd).st_size - self._offset)
        return 0

    def only_ours(self) -> bool:
        """Say whether the engine has removed the file that is being read."""
        return self._fd >= 0 and os.fstat(self._fd).st_nlink <= 1

    def _list(self) -> None:
        now = time.monotonic()
        if now - self._listed < _RELIST_S:
            return
        self._listed = now
        known = {part.number for part in self._parts}
        for part in parts_in(self.folder):
            if part.number >= self._next_number and part.number not in known:
                self._parts.append(part)

    def _open(self, part: Part) -> None:
        self._close()
        self._fd = os.open(self.folder / part.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._part, self._offset, self._check = part, 0, b""
        self._next_number = part.number + 1

    def read(self, size: int = PIECE, *, last: bool = False) -> bytes:
        """Return the next bytes, whole lines as far as possible; none at the end for now.

        Args:
            size: How many at most, unless one line is longer.
            last: Nothing more is written: a line without an end is given, too.
        """
        while True:
            if self._older or self._packed is not None:
                data = self._read_older(size)
                if data:
                    return data
                continue
            if self._part is not None:
                self._list()
                # Asked before reading: a file that has a successor gets nothing more.
                over = bool(self._parts)
                data = self._read_part(size, torn=over or last)
                if data or not over:
                    return data
            elif not self._parts:
                self._list()
                if not self._parts:
                    return b""
            part = self._parts.popleft()
            if part.gap:
                self._lost("the engine rotated log files away before they were seen")
            self._open(part)

    def _read_part(self, size: int, *, torn: bool) -> bytes:
        """Read on in the present file."""
        back = len(self._check)
        data = os.pread(self._fd, size + back, self._offset - back)
        if data[:back] != self._check:
            self._lost("the log file was cut while it was being read")
            self._offset, self._check = 0, b""
            return self._read_part(size, torn=torn)
        end = data.rfind(b"\n") + 1
        if end <= back:
            if not (torn or len(data) >= size):
                return b""
            end = len(data)
        data = data[back:end]
        self._offset += len(data)
        self._check = (self._check + data)[-_CHECK:]
        return data

    def _read_older(self, size: int) -> bytes:
        """Read what was compressed before we came; it is read whole or not at all."""
        try:
            packed = self._packed or gzip.GzipFile(self._older.popleft(), "rb")
            self._packed = packed
            data = packed.read(size)
            if data and not data.endswith(b"\n"):
                data += packed.readline()
        except (OSError, EOFError) as error:
            self._lost(f"a compressed log file cannot be read: {error}")
            data = b""
        if not data and self._packed is not None:
            self._packed.close()
            self._packed = None
        return data

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Close what is open."""
        self._close()
        if self._packed is not None:
            self._packed.close()
            self._packed = None


def _inode(part: Part) -> int:
    return int(part.name.split("-")[1])


def _checked(before: bytes) -> dict[str, int]:
    """Return what tells whether the bytes before a place are still the same."""
    before = before[-_CHECK:]
    return {"span": len(before), "check": zlib.crc32(before)}


def compressed(folder: Path, container: str) -> list[Path]:
    """Return a container's compressed log files, the oldest first; none if they are gone."""
    name = re.compile(rf"{re.escape(container)}-json\.log\.([0-9]{{1,9}})\.gz")
    try:
        # The engine may remove the folder at any moment (a glob may fail then).
        found = [name.fullmatch(one) for one in os.listdir(folder)]  # noqa: PTH208 - names only
    except OSError:
        return []
    return [folder / m[0] for m in sorted((m for m in found if m), key=lambda m: -int(m[1]))]


class Seam(Struct, frozen=True):
    """Where one run ends in the log of its container and the next begins.

    Attributes:
        at: The first line of this time (ns since 1970) or later belongs to the next run; None: what
            is read when the end of the log is next reached does.
        open: Gives the writer of the next run, None to pass over its lines; takes its first line
            (None if there is none yet).
        needs_lines: The next run begins only if there is a line for it.
    """

    at: int | None
    open: Callable[[bytes | None], RunWriter | None]
    needs_lines: bool = False


class Follower:
    """Copies the log of one container into its runs.

    Args:
        container: Its id.
        tail: What is read.
        writer: The run that the next bytes belong to; None to pass over them.
        left: Called with a run, and what is missing in it, when all of its bytes have been read;
            its writer is not used here any more.

    Attributes:
        lock: Held while bytes are moved.
        full: The disk is full: nothing is read until there is room.
        copied: Bytes given to runs so far.
        lines: Line ends among them.
        passed: Bytes that belong to no run.
    """

    def __init__(
        self,
        container: str,
        tail: Tail,
        writer: RunWriter | None,
        left: Callable[[RunWriter, list[Gap]], None],
    ) -> None:
        self.container, self.tail, self.writer = container, tail, writer
        self.lock = threading.Lock()
        self.full = False
        self.copied = self.lines = self.passed = 0
        self._left = left
        self._seams: deque[Seam] = deque()
        self._new_seams = self._over = False
        self._until: int | None = None
        self._last: int | None = None
        self._still: tuple[float, dict[str, Any]] | None = None
        #: What was read, but could not be given on a full disk; and where it ends.
        self._pending: tuple[bytes, dict[str, Any]] | None = None
        self._kept_from = 0

    def follow(self, *seams: Seam) -> None:
        """Say where the next runs begin; the present one may have read into them already."""
        with self.lock:
            self._seams.extend(seams)
            self._new_seams = True
            self._over, self._still = False, None

    def end(self, until: int | None = None) -> None:
        """Say that the last run is over: once its log is read to the end, it is left.

        Args:
            until: When the engine said so (ns since 1970): it writes no line of that run after it.
                A later one belongs to a start that has not been heard of yet, and is waited for.
        """
        with self.lock:
            self._over, self._still, self._until = True, None, until

    @property
    def busy(self) -> bool:
        """Say whether there is anything to read for."""
        return self.writer is not None or bool(self._seams)

    def step(self, budget: int = 4 * PIECE) -> int:
        """Copy what is there, up to so many bytes; return how many that were.

        Raises:
            DiskFull: There is no room in the archive; what was read is held, nothing more is read.
        """
        with self.lock:
            if not self.busy:
                return 0
            try:
                return self._step(budget)
            except DiskFull:
                self.full = True
                raise

    def _step(self, budget: int) -> int:
        if self.full and self.writer is not None:
            self.writer.flush()
        self.full = False
        while self._new_seams and self._take_back():
            pass
        copied = 0
        while copied < budget:
            if self._pending is None:
                piece = self.tail.read(last=self._over)
                self._pending = (piece, self.tail.position)
            copied += len(self._pending[0])
            if not self._pending[0]:
                self._pending = None
                self._at_end()
                break
            self._still = None
            self._give()
        if self.writer is not None:
            self.writer.tick(time.monotonic())
        return copied

    def _take_back(self) -> bool:
        """Give the next run what the present one has of it; say whether it had anything."""
        seam, old = self._seams[0] if self._seams else None, self.writer
        if seam is None or old is None or seam.at is None or seam.needs_lines:
            self._new_seams = False
            return False
        new: list[RunWriter | None] = []

        def keep(data: bytes) -> None:
            writer = seam.open(data)
            if writer is not None:
                if not writer.size:
                    writer.append(data, old.position or self.tail.position)
                writer.flush(sync=True)
            new.append(writer)

        if not old.take_back(_later(seam.at), keep):
            self._new_seams = False
            return False
        self._seams.popleft()
        self.writer = new[0]
        self._leave(old)
        return True

    def _give(self) -> None:
        """Give the bytes that were read to the runs that they belong to."""
        while self._pending is not None:
            piece, after = self._pending
            at = self._seams[0].at if self._seams else None
            cut = len(piece) if at is None else _first(piece, at)
            rest = piece[cut:]
            here = after
            if rest:
                place = max(0, after["offset"] - len(rest))
                here = after | {"offset": place} | _checked(piece[:cut])
            if cut and self.writer is not None:
                self.copied += cut
            elif cut:
                self.passed += cut
            self._pending = (rest, after) if rest else None
            if cut:
                self._last = line_ns(piece[piece.rfind(b"\n", 0, cut - 1) + 1 : cut])
            if cut and self.writer is not None:
                before = self.writer.lines
                try:
                    self.writer.append(piece[:cut], here)
                finally:
                    # Also where the disk is full these bytes are held by the writer.
                    self.lines += self.writer.lines - before
            if rest:
                self._switch(rest[: rest.find(b"\n") + 1] or rest)

    def _switch(self, line: bytes | None) -> None:
        """Go on with the next run."""
        seam = self._seams[0]
        after = self._seams[1].at if len(self._seams) > 1 else None
        if seam.needs_lines and line is not None and after is not None:
            found = line_ns(line)
            if found is not None and found >= after:
                self._seams.popleft()
                return
        old, new = self.writer, seam.open(line)
        self._seams.popleft()
        self.writer = new
        if old is not None and old is not new:
            self._leave(old)

    def _leave(self, old: RunWriter) -> None:
        gaps, self.tail.gaps = self.tail.gaps, []
        self._left(old, gaps)

    def _at_end(self) -> None:
        """Everything is read that there is now."""
        now, here = time.monotonic(), self.tail.position
        if self._still is None or self._still[1] != here:
            self._still = (now, here)
            self.tail.wake()
        still = now - self._still[0]
        while self._seams and (self.tail.started or (self._over and still >= _NO_FILE_S)):
            if self._seams[0].needs_lines:
                self._seams.popleft()
            else:
                self._switch(None)
        later = self._until is not None and self._last is not None and self._last > self._until
        enough = still >= (_LATE_S if later else _SETTLE_S)
        if self._over and not self._seams and enough and self.writer is not None:
            old, self.writer = self.writer, None
            self._over, self._still = False, None
            self._leave(old)

    def drop(self) -> None:
        """Let go of the links to files whose bytes are safe in the archive.

        Raises:
            DiskFull: They are not safe yet.
        """
        with self.lock:
            number = self.tail.number
            if self.writer is None or number <= self._kept_from or self._seams:
                return
            if self._pending is not None:
                return
            self.writer.flush(sync=True)
            for part in parts_in(self.tail.folder):
                if part.number < number:
                    with suppress(OSError):
                        (self.tail.folder / part.name).unlink()
            self._kept_from = number

    def close(self) -> None:
        """Stop; the run stays partial, and goes on where its durable bytes end."""
        with self.lock:
            if self.writer is not None:
                with suppress(DiskFull):
                    self.writer.flush(sync=True)
                self.writer.close()
                self.writer = None
            self._seams.clear()
            self.tail.close()


def line_ns(line: bytes) -> int | None:
    """Return the time of a line of a json-file in nanoseconds since 1970, None if it has none."""
    told = line_time(line, "docker-json")
    return nanoseconds(told) if told is not None else None


def _later(at: int) -> Callable[[bytes], bool]:
    def is_later(line: bytes) -> bool:
        found = line_ns(line)
        return found is not None and found >= at

    return is_later


def _first(piece: bytes, at: int) -> int:
    """Return where the first line of a time or later begins; the end if there is none."""
    end = len(piece)
    found = line_ns(piece[piece.rfind(b"\n", 0, end - 1) + 1 :])
    if found is not None and found < at:
        return end
    later = _later(at)
    place = 0
    while place < end:
        stop = piece.find(b"\n", place) + 1 or end
        if later(piece[place:stop]):
            return place
        place = stop
    return end
