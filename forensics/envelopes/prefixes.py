"""Envelopes that put something before each line: times, container names, syslog headers.

Formats: moby `httputils/logstream`, kubelet `logs.go`, containerd `internal/cri/io/logger.go`,
docker/compose `cmd/formatter/logs.go`, systemd `logs-show.c`, RFC 3164 and 5424.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from forensics.envelopes.batch import Batch, Envelope, Layer, Lines
from forensics.envelopes.parts import Joiner
from forensics.envelopes.text import strip_escapes

#: Where container runtimes cut lines.
PART_BYTES = 16_384

_DAY = rb"\d{4}-\d\d-\d\d"
_ZONE = rb"(?:Z|[+-]\d\d:?\d\d)"
_SERVICE = rb"[A-Za-z0-9][\w.-]{0,200}"
_SYSLOG_TAG = rb"(?P<tag>[^\s\[:]{1,200})(?:\[\d+\])?"

DOCKER_TS = re.compile(
    rb"(?P<at>" + _DAY + rb"T\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d))(?: |\r?$)"
)
ACTIONS_TS = re.compile(rb"(?P<at>" + _DAY + rb"T\d\d:\d\d:\d\d\.\d{7}Z)(?: |\r?$)")
CRI = re.compile(
    rb"(?P<at>"
    + _DAY
    + rb"T\d\d:\d\d:\d\d(?:\.\d{1,9})?"
    + _ZONE
    + rb") (?P<stream>stdout|stderr) "
    rb"(?P<tag>[PF])(?::[^ \n]{0,200})?(?: |\r?$)"
)
KUBECTL = re.compile(rb"\[(?:pod|node)/(?P<service>[^\]\n]{1,300})\](?: |\r?$)")
COMPOSE = re.compile(rb"(?P<service>" + _SERVICE + rb") +\|(?: |\r?$)")
COMPOSE_EXIT = re.compile(rb"(?P<service>" + _SERVICE + rb") exited with code (?P<code>\d{1,3})\b")
JOURNAL_ISO = re.compile(
    rb"(?P<at>"
    + _DAY
    # journald prints microseconds at most: nine digits are Docker's own time.
    + rb"T\d\d:\d\d:\d\d(?:\.\d{1,6})?"
    + _ZONE
    + rb") \S{1,255} "
    + _SYSLOG_TAG
    + rb":(?: |\r?$)"
)
SYSLOG_3164 = re.compile(
    rb"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? \S{1,255} "
    + _SYSLOG_TAG
    + rb":(?: |\r?$)"
)
SYSLOG_5424 = re.compile(
    rb"(?:\d{1,6} )?<\d{1,3}>1 (?P<at>\S{1,40}) \S{1,255} \S{1,48} \S{1,128} \S{1,32} "
    rb'(?:-|(?:\[(?:[^\]\\"\n]|"(?:\\.|[^"\\\n])*")*\])+)(?: (?:\xef\xbb\xbf)?|\r?$)'
)
PIPE_TS = re.compile(rb"(?P<at>" + _DAY + rb" \d\d:\d\d:\d\d\.\d{3}) \|(?: |\r?$)")

#: The first line that `script` writes into its file.
_SCRIPT = b"Script started on "
_NOTICE = re.compile(rb"-- |\s|$")


class PrefixLayer:
    """Takes a prefix off each line; a line without it passes as it is.

    Args:
        pattern: The prefix, with groups `at`, `service`, `stream`, `tag` where it has them.
        again: Whether the prefix stands again before each later part of a long line.
        indent: Whether the further lines of a message are indented by the prefix's width.
    """

    def __init__(
        self, pattern: re.Pattern[bytes], *, again: bool = False, indent: bool = False
    ) -> None:
        names = pattern.groupindex
        self._match = pattern.match
        self._at, self._service = "at" in names, "service" in names
        self._parts = "stream" in names
        self._again, self._indent = again, indent
        self._width = 0
        self._joiner = Joiner()
        self._last: str | None = None
        #: Exit codes by service, where the envelope says them.
        self.exits: dict[str, int] = {}

    def feed(self, batch: Batch) -> Batch:
        """Take lines and return what was inside them."""
        out = Lines()
        lines = batch.text.split(b"\n")
        ended = not lines[-1]
        if ended:
            lines.pop()
        begun = False  # whether the last line is a part that waits for its next one
        for index, line in enumerate(lines):
            begun = self._line(out, line, batch, index)
        return out.batch(ended=ended or begun)

    def _line(self, out: Lines, line: bytes, batch: Batch, index: int) -> bool:
        number = batch.numbers[index]
        found = self._match(line)
        if found is None and line[:1] in {b"\x1b", b"\r"}:
            line = strip_escapes(line).lstrip(b"\r")
            found = self._match(line)
        if found is None:
            self._bare(out, line, batch, index)
            return False
        at = _rfc3339(found["at"]) if self._at else (batch.times[index] if batch.times else None)
        service = None
        if self._service:
            service = self._last = found["service"].decode("utf-8", "replace")
        rest = line[found.end() :]
        if self._parts:
            last = found["tag"] == b"F"
            self._joiner.add(out, found["stream"], rest, number, at, service, last=last)
            return not last
        if self._again and len(rest) > PART_BYTES:
            rest = join_parts(found[0], rest)
        self._width = found.end()
        out.add(rest, number, at, service)
        return False

    def _bare(self, out: Lines, line: bytes, batch: Batch, index: int) -> None:
        """Pass a line on that has no prefix: the runtime's own words, or more of a message."""
        at = batch.times[index] if batch.times else None
        service = self._last
        if self._service and (ending := COMPOSE_EXIT.match(line)):
            service = ending["service"].decode()
            self.exits[service] = int(ending["code"])
        if self._indent and self._width and line[: self._width].isspace():
            line = line[self._width :]
        out.add(line, batch.numbers[index], at, service)

    def finish(self) -> Batch:
        """Return lines whose last part never came."""
        out = Lines()
        self._joiner.rest(out)
        return out.batch(ended=False)


def _rfc3339(raw: bytes) -> str | None:
    text = raw.decode("ascii", "replace")
    if text[10:11] == " ":
        text = text.replace(" ", "T", 1)
    if text[-5:-4] in {"+", "-"}:
        text = f"{text[:-2]}:{text[-2:]}"
    return text if text[:1].isdigit() else None


def join_parts(mark: bytes, rest: bytes) -> bytes:
    """Remove a repeated prefix where a part of exactly 16,384 bytes ended.

    Args:
        mark: The prefix with its blank.
        rest: The line after its first prefix.
    """
    out = []
    while rest.startswith(mark, PART_BYTES):
        out.append(rest[:PART_BYTES])
        rest = rest[PART_BYTES + len(mark) :]
    out.append(rest)
    return b"".join(out)


def head_lines(head: bytes) -> list[bytes]:
    """Return the first lines that have text."""
    lines = [line.lstrip(b"\r") for line in strip_escapes(head).split(b"\n")[:50]]
    return [line for line in lines if line.strip() and not line.startswith(_SCRIPT)]


def _wraps(pattern: re.Pattern[bytes], *, indent: bool = False) -> Callable[[bytes], bool]:
    def wraps(head: bytes) -> bool:
        lines = head_lines(head)
        if indent:
            lines = [line for line in lines if not _NOTICE.match(line)]
        return (
            bool(lines) and sum(pattern.match(x) is not None for x in lines) * 10 >= len(lines) * 9
        )

    return wraps


def _wraps_compose(head: bytes) -> bool:
    """Say whether lines begin with names padded to one width before a pipe."""
    lines = [line for line in head_lines(head) if not COMPOSE_EXIT.match(line)]
    # Before the containers' lines `up` prints what it does.
    while lines and not COMPOSE.match(lines[0]) and len(lines) > 1:
        lines.pop(0)
    columns = [line.index(b"|") for line in lines if COMPOSE.match(line)]
    return (
        bool(columns)
        and len(set(columns)) == 1
        and len(columns) * 10 >= len(lines) * 9
        and columns[0] > 1
        and lines[0][columns[0] - 1 : columns[0]] == b" "
    )


def _layer(
    pattern: re.Pattern[bytes], *, again: bool = False, indent: bool = False
) -> Callable[[bytes], Layer]:
    return lambda _: PrefixLayer(pattern, again=again, indent=indent)


PREFIXES: tuple[Envelope, ...] = (
    Envelope("cri", _wraps(CRI), _layer(CRI)),
    Envelope("kubectl-prefix", _wraps(KUBECTL), _layer(KUBECTL)),
    Envelope("compose", _wraps_compose, _layer(COMPOSE)),
    Envelope("syslog-rfc5424", _wraps(SYSLOG_5424), _layer(SYSLOG_5424)),
    Envelope("journal-iso", _wraps(JOURNAL_ISO, indent=True), _layer(JOURNAL_ISO, indent=True)),
    Envelope("syslog", _wraps(SYSLOG_3164, indent=True), _layer(SYSLOG_3164, indent=True)),
    Envelope("docker-timestamps", _wraps(DOCKER_TS), _layer(DOCKER_TS, again=True)),
    Envelope("github-actions", _wraps(ACTIONS_TS), _layer(ACTIONS_TS)),
    Envelope("pipe-timestamps", _wraps(PIPE_TS), _layer(PIPE_TS)),
)
