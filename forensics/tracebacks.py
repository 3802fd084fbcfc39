"""Tracebacks out of interleaved lines.

`Assembler` is fed records in order and gives exceptions. Lines of different processes (and of
the logger and the raw output of one process) are kept apart by process, pid and logging call.
Understood are: chains ("direct cause", "During handling"), exception groups with their gutters,
messages of several lines, pydantic's header lines, and bare exception lines without a traceback.
Formats: CPython's `traceback` module and pydantic-core's error text.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from forensics.model import Frame, Record

HEADER = "Traceback (most recent call last):"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_FRAME = re.compile(
    r'\s{2,}File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,7}), in (?P<function>.{1,200})$'
)
_GUTTER = re.compile(r"^ {2,}(?:[|+] ?)(?P<body>.*)$", re.DOTALL)
_RULE = re.compile(r"^[-+]{4,}|^-\+-")
_TYPE = re.compile(r"^(?P<type>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:: ?(?P<message>.*))?$", re.DOTALL)
#: Exception lines that are believed without a traceback before them.
BARE = (
    r"^(?:(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|ExceptionGroup)|Exception|KeyboardInterrupt)"
    r"|(?:[A-Za-z_]\w*\.)+Unsupported)(?::|$)"
)
_BARE = re.compile(BARE)
_PYDANTIC = re.compile(r"^\d+ validation errors? for ")
#: pydantic error kinds whose message names nothing: the field's name above it is what tells.
_NAMELESS = re.compile(r"\[type=(?:unexpected_keyword_argument|extra_forbidden|missing\w*)\b")
#: Raw lines that may follow any exception and never belong to its message.
_FOREIGN = re.compile(
    r"nanobind: |/\S+\.py:\d+: \w*Warning|Process [\w:-]+:$|Loading safetensors|\[rank\d+\]:"
    r"|Traceback \(|terminate called|\[[IWEF]\d{4} |\*\*\* "
)
#: Progress bars (tqdm and its kin) are written between the lines of a traceback.
_PROGRESS = re.compile(
    r"\d{1,3}%\||\[\d\d:\d\d[,<]|\d(?:\.\d+)?[kMG]?B? \[\d\d:|[\d?][a-zA-Z]*/s\]"
)
_LOWER_CASE = {"error", "timeout", "gaierror", "herror"}
_MAX_FRAMES = 200
_MAX_EXTRA = 80
_MAX_BARE_EXTRA = 12
_GRACE = 8
_MAX_STREAMS = 256
_MAX_OPEN = 8
#: Lines of others that may stand between a traceback and its exception line.
_MAX_STRANGERS = 40

#: Lines of one message have all of these in common; raw output has the process at most.
Key = tuple[str | None, int | None, str | None, str | None, str | None]
#: Lines without any prefix.
_RAW: Key = (None, None, None, None, None)


class Raised(Struct):
    """An exception under construction, then finished; indices refer to the assembler's output."""

    type: str
    message: str
    record: Record
    header: int | None
    frames: tuple[Frame, ...]
    relation: Literal["cause", "context"] | None
    cause: int | None
    extra: list[tuple[int, str, str]]
    number: int = 0
    in_group: bool = False


class _Open(Struct):
    """A traceback whose exception line has not come yet."""

    header: int
    frames: list[Frame]
    relation: Literal["cause", "context"] | None
    cause: int | None
    in_group: bool
    strangers: int = 0


class _Stream(Struct):
    """What one source of lines is in the middle of; `owner` printed the message's first line."""

    open: list[_Open]
    owner: Record | None = None
    collecting: Raised | None = None
    last: int | None = None
    relation: Literal["cause", "context"] | None = None
    blank: bool = False
    touched: int = 0


class Assembler:
    """Records in, exceptions out.

    `feed` every record from the first trigger (a header or a bare exception line) on; while
    `busy` is true, the next lines matter. `take` gives what is finished, `finish` the rest.
    """

    def __init__(self) -> None:
        self._streams: dict[Key, _Stream] = {}
        self._count = 0
        self._fed = 0
        self._active = 0
        self._done: list[Raised] = []

    @property
    def busy(self) -> bool:
        """Whether a traceback is open or has just ended (a chain may follow)."""
        return self._fed < self._active

    def feed(self, record: Record) -> None:
        """Take the next record."""
        self._fed += 1
        if record.kind in {"access", "request", "dump"}:
            return
        key = _RAW
        if record.origin is not None:
            key = (record.process, record.pid, record.origin, record.level, record.clock)
        elif record.process is not None:
            key = (record.process, record.pid, None, None, None)
        if record.spills:
            # A new message begins, whose further lines look like raw output.
            key = _RAW
            if key in self._streams:
                self._close(self._streams[key])
        body, in_group = record.message, False
        gutter = _GUTTER.match(body)
        if gutter:
            body, in_group = gutter["body"], True
        stream = self._streams.get(key)
        if body.rstrip().endswith(HEADER):
            self._header(self._stream(key), record, in_group=in_group)
        elif stream is None:
            if self._is_bare(record, body):
                self._raise(self._stream(key), record, body, None)
        else:
            self._continue(stream, record, body)

    def take(self) -> list[Raised]:
        """Return the exceptions finished since the last call."""
        done, self._done = self._done, []
        return done

    def finish(self) -> list[Raised]:
        """Close everything and return the exceptions finished since the last `take`."""
        for stream in self._streams.values():
            self._close(stream)
        self._streams.clear()
        return self.take()

    def _stream(self, key: Key) -> _Stream:
        if key not in self._streams and len(self._streams) >= _MAX_STREAMS:
            # The one that began first is the likeliest to be over, however it ended.
            self._close(self._streams.pop(next(iter(self._streams))))
        return self._streams.setdefault(key, _Stream([]))

    @staticmethod
    def _is_bare(record: Record, body: str) -> bool:
        quiet = record.level in {"DEBUG", "INFO", "WARNING"}
        return not quiet and _BARE.match(body) is not None

    def _touch(self, lines: int = _GRACE) -> None:
        self._active = max(self._active, self._fed + lines)

    def _header(self, stream: _Stream, record: Record, *, in_group: bool) -> None:
        self._close(stream)
        cause = stream.last if stream.relation else None
        if record.spills or cause is None:
            stream.owner = record if record.spills else None
        stream.open.append(
            _Open(record.line, [], stream.relation if cause is not None else None, cause, in_group)
        )
        stream.relation = None
        if len(stream.open) > _MAX_OPEN:
            stream.open.pop(0)
        self._touch(400)

    def _continue(self, stream: _Stream, record: Record, body: str) -> None:
        text = body.strip()
        if text in {_CAUSE, _CONTEXT}:
            self._close(stream)
            stream.relation = "cause" if text == _CAUSE else "context"
            self._touch()
        elif stream.open:
            self._inside(stream, record, body)
        elif self._is_bare(record, body) and not _announces(stream.collecting):
            self._close(stream)
            self._raise(stream, record, body, None)
        elif stream.collecting is not None:
            self._extra(stream, record, body)

    def _inside(self, stream: _Stream, record: Record, body: str) -> None:
        """Take a line that comes between a header and its exception."""
        current = stream.open[-1]
        frame = _FRAME.match(body)
        if frame:
            current.strangers = 0
            if len(current.frames) < _MAX_FRAMES:
                current.frames.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
            self._touch(60)
        elif body[:1].isspace() or not body or _RULE.match(body):
            self._touch(20)
        elif self._ends(record, body):
            stream.open.pop()
            self._raise(stream, record, body, current)
        else:
            current.strangers += 1
            if current.strangers > _MAX_STRANGERS:
                stream.open.pop()

    @staticmethod
    def _ends(record: Record, body: str) -> bool:
        found = _TYPE.match(body)
        if found is None or (record.origin is None and record.level is not None):
            return False
        if _PROGRESS.search(body):
            return False
        # A word before a colon must look like a type; the library's few lower-case ones are dotted.
        name = found["type"].rpartition(".")[2]
        known = "." in found["type"] and name in _LOWER_CASE
        return (
            known or name[:1].isupper() or (found["message"] is None and "." not in found["type"])
        )

    def _raise(self, stream: _Stream, record: Record, body: str, opened: _Open | None) -> None:
        found = _TYPE.match(body.rstrip())
        if found is None:
            return
        owner = stream.owner if opened else None
        if owner is not None:
            record = replace(record, process=owner.process, pid=owner.pid, level=owner.level)
        relation = opened.relation if opened else stream.relation
        cause = opened.cause if opened else (stream.last if stream.relation else None)
        raised = Raised(
            type=found["type"],
            message=found["message"] or "",
            record=record,
            header=opened.header if opened else None,
            frames=tuple(opened.frames) if opened else (),
            relation=relation if cause is not None else None,
            cause=cause,
            extra=[],
            number=self._count,
            in_group=opened.in_group if opened else False,
        )
        self._count += 1
        stream.collecting, stream.last, stream.relation, stream.blank = (
            raised,
            raised.number,
            None,
            False,
        )
        self._touch(_MAX_BARE_EXTRA + _GRACE)

    def _extra(self, stream: _Stream, record: Record, body: str) -> None:
        """Take a line after an exception line: it may belong to the message."""
        raised = stream.collecting
        if raised is None:
            return
        logged = record.origin is not None
        limit = _MAX_EXTRA if logged or body[:1].isspace() else _MAX_BARE_EXTRA
        foreign = _FOREIGN.match(body) is not None or (not logged and record.level is not None)
        foreign = foreign or (raised.in_group and _RULE.match(body) is not None)
        # Raw output has no end mark: a blank line and then an unindented one is something new.
        over = (
            not logged
            and stream.blank
            and not body[:1].isspace()
            and not _PYDANTIC.match(raised.message)
        )
        if foreign or over or len(raised.extra) >= limit:
            self._close(stream)
            return
        stream.blank = not body.strip()
        raised.extra.append((record.line, record.text, body))
        self._touch()

    def _close(self, stream: _Stream) -> None:
        raised = stream.collecting
        if raised is None:
            return
        stream.collecting = None
        while raised.extra and not raised.extra[-1][2].strip():
            raised.extra.pop()
        self._done.append(raised)


def _announces(raised: Raised | None) -> bool:
    """Say whether the next line is what an exception only announces (`backend='x' raised:`)."""
    return raised is not None and not raised.extra and raised.message.rstrip().endswith("raised:")


def telling(raised: Raised) -> tuple[int, str]:
    """Return line and text of what says most: under pydantic's header it is a line below.

    Args:
        raised: A finished exception.
    """
    own = (raised.record.line, raised.record.text)
    if raised.message.rstrip().endswith("raised:") and raised.extra:
        return raised.extra[0][0], raised.extra[0][1]
    if not _PYDANTIC.match(raised.message) or not raised.extra:
        return own
    field: tuple[int, str] | None = None
    for line, text, body in raised.extra:
        if not body.strip():
            continue
        if body[:1].isspace():
            return field if field and _NAMELESS.search(body) else (line, text)
        field = (line, text)
    return own


def full_message(raised: Raised) -> str:
    """Return the message with its continuation lines."""
    return "\n".join((raised.message, *(body.rstrip() for _, _, body in raised.extra))).rstrip()
