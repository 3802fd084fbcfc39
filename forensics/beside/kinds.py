"""A file beside a log, by its content: inspect data, events, a kernel log, nvidia-smi's output.

Names tell nothing here; what is recognised is read to the end, but only lines that rules know (or
that say of whom those speak) are kept.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from forensics import inspection
from forensics.beside import events, gpus, kernel
from forensics.beside.told import Told
from forensics.envelopes import Block, Pipeline, pipeline
from forensics.envelopes.text import clean
from forensics.errors import SourceError
from forensics.model import Context, Hardware
from forensics.patterns import confirm
from forensics.times import Moment

Candidates = list[tuple[int, int]]
Finder = Callable[[bytes], Candidates]

#: JSON and reports are read whole; a kernel log or events may be of any size.
MAX_WHOLE = 64 * 1024 * 1024
#: Lines kept of one file: the first and the last ones.
KEEP_FIRST, KEEP_LAST = 1_000, 3_000
_HEAD_LINES = 60
_MAX_LINE = 65_536
_JSON = re.compile(rb"\s*(?:\[\s*\{|\{)")
_KERNEL_TRANSPORT = re.compile(
    rb'_TRANSPORT"?\s?[:=]\s?"?kernel|SYSLOG_IDENTIFIER"?\s?[:=]\s?"?kernel'
    rb"|^<\d{1,3}>1 \S+ \S+ kernel ",
    re.MULTILINE,
)
_HINT = (
    "give `docker inspect` or `docker events` output, a kernel log (dmesg, journalctl -k), "
    "or nvidia-smi output"
)


class Reader(Protocol):
    """What is needed of an open file."""

    @property
    def head(self) -> bytes:
        """Return its first bytes."""

    def runs(self) -> Iterator[bytes]:
        """Yield its bytes in runs of whole lines."""


class Beside(Struct, frozen=True):
    """What one file says.

    Attributes:
        name: The file.
        kind: `inspect`, `events`, `kernel` or `gpus`.
        context: What it states of the container or the machine, None where nothing.
        told: Its lines that may matter, in order.
        dropped: Further such lines that were not kept.
    """

    name: str
    kind: str
    context: Context | None = None
    told: tuple[Told, ...] = ()
    dropped: int = 0


def read(
    reader: Reader, name: str, find: Finder, patterns: tuple[str, ...], rules: frozenset[int]
) -> Beside:
    """Read a file.

    Args:
        reader: The file, open and unpacked.
        name: Its name.
        find: Names candidates for patterns in clean text.
        patterns: All patterns.
        rules: Indices of those that rules use.

    Raises:
        SourceError: It is of no kind that is known.
    """
    head = clean(_whole(reader.head), 1).text
    lines = [line for line in head.decode("utf-8", "replace").split("\n") if line.strip()]
    first = lines[:_HEAD_LINES]
    if gpus.is_gpus("\n".join(first)):
        return _gpus(reader, name)
    if first and events.is_event(first[0]):
        return _events(reader, name)
    keep = _Keeper(name, find, patterns, rules)
    if kernel.is_kernel(first):
        return keep.all(reader, Pipeline((), reader.head))
    inside = pipeline(reader.head)
    if inside.name is not None and _wraps_kernel(reader.head, pipeline(reader.head)):
        return keep.all(reader, inside)
    if _JSON.match(head):
        return _inspect(reader, name)
    raise SourceError(f"{name} is nothing that --with knows", _HINT)


def _whole(head: bytes) -> bytes:
    """Return whole lines only, where there is one."""
    end = head.rfind(b"\n") + 1
    return head[:end] if end else head


def _wraps_kernel(head: bytes, inside: Pipeline) -> bool:
    if _KERNEL_TRANSPORT.search(head):
        return True
    blocks = [*inside.feed(_whole(head)), *inside.finish()]
    text = b"".join(block.text for _, block in blocks).decode("utf-8", "replace")
    return kernel.is_kernel([line for line in text.split("\n") if line.strip()][:_HEAD_LINES])


def _bytes(reader: Reader, name: str) -> bytes:
    out, size = [], 0
    for run in reader.runs():
        size += len(run)
        if size > MAX_WHOLE:
            raise SourceError(f"{name} holds more than {MAX_WHOLE:,} bytes", _HINT)
        out.append(run)
    return b"".join(out)


def _inspect(reader: Reader, name: str) -> Beside:
    return Beside(name, "inspect", inspection.read(_bytes(reader, name), name, only=True))


def _gpus(reader: Reader, name: str) -> Beside:
    text = clean(_bytes(reader, name), 1).text.decode("utf-8", "replace")
    found = gpus.parse(text.split("\n"), name)
    facts = found.facts
    versions = {key: value for key, value in facts.items() if key != "gpu"}
    context = Context(hardware=Hardware(gpu=facts.get("gpu")), versions=versions)
    return Beside(name, "gpus", context, found.told[: KEEP_FIRST + KEEP_LAST])


def _events(reader: Reader, name: str) -> Beside:
    kept = _Kept()
    for number, text in _lines(reader):
        told = events.parse(text, name, number)
        if told is not None and told.action not in {"exec_create", "exec_start", "exec_die", "top"}:
            kept.add(told)
    return Beside(name, "events", None, kept.all(), kept.dropped)


def _lines(reader: Reader) -> Iterator[tuple[int, str]]:
    first = 1
    for run in reader.runs():
        block = clean(run, first)
        first += block.lines
        for place, line in enumerate(block.text.split(b"\n")):
            if line.strip():
                yield block.first_line + place, line[:_MAX_LINE].decode("utf-8", "replace")


class _Kept:
    """The first and the last of many lines."""

    def __init__(self) -> None:
        self._first: list[Told] = []
        self._last: deque[Told] = deque(maxlen=KEEP_LAST)
        self._count = 0

    def add(self, told: Told) -> None:
        self._count += 1
        if len(self._first) < KEEP_FIRST:
            self._first.append(told)
        else:
            self._last.append(told)

    @property
    def dropped(self) -> int:
        return self._count - len(self._first) - len(self._last)

    def all(self) -> tuple[Told, ...]:
        return (*self._first, *self._last)


class _Keeper:
    """Keeps the lines of a kernel log that a rule knows."""

    def __init__(
        self, name: str, find: Finder, patterns: tuple[str, ...], rules: frozenset[int]
    ) -> None:
        self._name, self._find = name, find
        self._patterns, self._rules = patterns, rules
        self._kept = _Kept()
        self._reader = kernel.Reader(name)
        self._relative: bool | None = None

    def all(self, reader: Reader, inside: Pipeline) -> Beside:
        for run in reader.runs():
            for _, block in inside.feed(run):
                self._block(block)
        for _, block in inside.finish():
            self._block(block)
        told = self._kept.all()
        if self._reader.boot is not None:
            told = tuple(_since(one, self._reader.boot) for one in told)
        return Beside(self._name, "kernel", None, told, self._kept.dropped)

    def _block(self, block: Block) -> None:
        wanted = self._wanted(block.text)
        if self._relative is None:
            # Whether times are counted from line to line shows in the first block.
            self._relative = b"[  +0.0" in block.text or b"] [+" in block.text
        if self._relative or b"[  +" in block.text:
            self._relative = True
            self._every(block, wanted)
            return
        newlines = place = 0
        for start in sorted(wanted):
            newlines += block.text.count(b"\n", place, start)
            place = start
            self._line(block, start, newlines, wanted[start])

    def _every(self, block: Block, wanted: dict[int, set[int]]) -> None:
        start = 0
        for newlines, line in enumerate(block.text.split(b"\n")):
            if start in wanted:
                self._line(block, start, newlines, wanted[start])
            else:
                self._reader.tick(line[:200].decode("utf-8", "replace"))
            start += len(line) + 1

    def _wanted(self, text: bytes) -> dict[int, set[int]]:
        """Return the offsets of lines to look at, with the patterns that may hold there."""
        found: dict[int, set[int]] = {}
        start, end = 0, -1
        for offset, index in self._find(text):
            if index not in self._rules:
                continue
            if offset > end:
                start = text.rfind(b"\n", 0, offset) + 1
                end = text.find(b"\n", offset)
                end = len(text) if end < 0 else end
            found.setdefault(start, set()).add(index)
        for match in kernel.CONTEXT.finditer(text):
            found.setdefault(text.rfind(b"\n", 0, match.start()) + 1, set())
        return found

    def _line(self, block: Block, start: int, newlines: int, indices: Iterable[int]) -> None:
        end = block.text.find(b"\n", start)
        raw = block.text[start : len(block.text) if end < 0 else end][:_MAX_LINE]
        text = raw.decode("utf-8", "replace")
        at, number = block.time_at(newlines, start), block.line_at(newlines, start)
        told = self._reader.told(text, number, self._reader.tick(text), at)
        if any(self._holds(index, told.message) for index in sorted(indices)):
            self._kept.add(told)

    def _holds(self, index: int, message: str) -> bool:
        try:
            return confirm(self._patterns[index], message) is not None
        except TimeoutError:
            return False


def _since(told: Told, boot: float) -> Told:
    """Give a line its time, where it says only how long the machine had been up."""
    if told.moment is not None or told.uptime is None:
        return told
    then = kernel.of_epoch(boot + told.uptime)
    return replace(told, at=then, moment=Moment(boot + told.uptime))
