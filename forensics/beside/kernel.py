r"""Lines of a kernel log: when, and of which process and container they speak.

In: clean lines of `dmesg` (plain, `-T`, `-H`, `-x`, `--time-format iso`, `-r`) or of a journal or
syslog (`journalctl -k` in any short form, `kern.log`), or bare messages with a time from an
envelope. Out: `Told`. Formats: util-linux `dmesg.c`, systemd `logs-show.c`, RFC 3164; the kernel's
`mm/oom_kill.c`, `mm/memcontrol.c`, and NVIDIA's catalogue of Xid events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from forensics.beside.told import Told
from forensics.times import Moment, moment

_NAMES = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_MONTHS = {name: number for number, name in enumerate(_NAMES.split(), 1)}
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?)"
_SENDER = r"\S{1,255} (?P<sender>[^\s\[:]{1,200})(?:\[\d{1,10}\])?: ?"
#: `<4>` of `dmesg -r`, `kern  :warn  : ` of `dmesg -x`.
_LEVEL = re.compile(r"<\d{1,3}>|\w{1,10} {0,8}:\w{1,8} {0,8}: ")

_UPTIME = re.compile(r"\[ {0,10}(?P<uptime>\d{1,10}\.\d{1,9})\] ?")
_HUMAN = re.compile(rf"\[{_DAY} {_MONTH} {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK} (?P<year>\d{{4}})\] ?")
_MINUTE = re.compile(rf"\[{_MONTH} {{1,2}}(?P<day>\d{{1,2}}) ?(?P<clock>\d\d:\d\d)\] ?")
_DELTA = re.compile(r"\[ {0,10}\+ {0,10}(?P<delta>\d{1,10}\.\d{1,9})\] ?")
_ISO = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?) "
)
_SHORT = re.compile(rf"{_MONTH} {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK} {_SENDER}")
_FULL = re.compile(
    rf"{_DAY} (?P<date>\d{{4}}-\d\d-\d\d) {_CLOCK} (?P<zone>[A-Z]{{2,5}}|[+-]\d\d) {_SENDER}"
)
_EPOCH = re.compile(rf"(?P<epoch>\d{{9,11}}\.\d{{1,9}}) {_SENDER}")
_SENT = re.compile(_SENDER)

_XID = re.compile(
    r"NVRM: Xid \([^)]{1,60}\): \d{1,4}(?:, pid='?(?P<pid>\d{1,10}|[^,']{0,40})'?)?"
    r"(?:, name='?(?P<name>[^,']{1,40}))?"
)
_KILLED = re.compile(
    r"Kill(?:ed|ing)? process (?P<pid>\d{1,10}),? (?:UID \d+,? )?\((?P<name>[^()]{1,40})\)"
)
_OOM = re.compile(r"oom-kill:.{0,2000}?\btask=(?P<name>.{1,40}?),pid=(?P<pid>\d{1,10})\b")
_TRAP = re.compile(r"(?:^|traps: )(?P<name>[^\s\[]{1,20})\[(?P<pid>\d{1,10})\][: ]")
_CGROUP = re.compile(r"(?:task_memcg=|Task in )(?P<path>[^\s,]{1,1000})")
_ID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])|(?<=docker-)[0-9a-f]{4,63}(?=\.scope)|(?<=/docker/)[0-9a-f]{4,63}(?![0-9a-f])"
)
_RTC = re.compile(r"setting system clock to \S{10,40} UTC \((?P<epoch>\d{9,11})\)")
#: Lines that say of whom the next ones speak, or when the machine started.
CONTEXT = re.compile(rb"oom-kill:|Task in /|setting system clock to ")
#: Lines from the one that names a killed process's group to the one that says it is killed.
_REPORT_LINES = 5000


class Stamp(Struct, frozen=True):
    """What stands before a message.

    Attributes:
        message: What is left of the line.
        known: Whether the line has one of the forms at all.
        sender: `kernel` and the like; None where the form names none.
        at: RFC 3339, the zone may be missing.
        moment: The time to reckon with.
        uptime: Seconds since the machine started.
        minute: Whether the time is only a minute, from which deltas count (`dmesg -H`).
        delta: Seconds since the line before.
    """

    message: str
    known: bool = False
    sender: str | None = None
    at: str | None = None
    moment: Moment | None = None
    uptime: float | None = None
    minute: bool = False
    delta: float | None = None


def stamped(text: str) -> Stamp:
    """Take time and sender off a line of a kernel log."""
    level = _LEVEL.match(text)
    if level is not None:
        text = text[level.end() :]
    for pattern, understand in _FORMS:
        found = pattern.match(text)
        if found is not None:
            return understand(found, text[found.end() :])
    return Stamp(text, known=level is not None)


def _uptime(found: re.Match[str], rest: str) -> Stamp:
    sent = _SENT.match(rest)
    # `journalctl -o short-monotonic` names host and sender, dmesg does not.
    if sent is not None and sent["sender"] in {"kernel", "systemd"}:
        return Stamp(
            rest[sent.end() :], known=True, sender=sent["sender"], uptime=float(found["uptime"])
        )
    return Stamp(rest, known=True, uptime=float(found["uptime"]))


def _iso(found: re.Match[str], rest: str) -> Stamp:
    at = found["at"].replace(",", ".").replace(" ", "T", 1)
    if re.search(r"[+-]\d{4}$", at):
        at = f"{at[:-2]}:{at[-2:]}"
    # dmesg writes the fraction after a comma and names no sender; journals and syslog do.
    sent = None if "," in found["at"] else _SENT.match(rest)
    if sent is None:
        return Stamp(rest, known=True, at=at, moment=moment(at))
    inner = _UPTIME.match(rest, sent.end())
    rest = rest[inner.end() if inner else sent.end() :]
    return Stamp(rest, known=True, sender=sent["sender"], at=at, moment=moment(at))


def _human(found: re.Match[str], rest: str) -> Stamp:
    month = _MONTHS[found["month"]]
    at = f"{found['year']}-{month:02}-{int(found['day']):02}T{found['clock']}"
    return Stamp(rest, known=True, at=at, moment=moment(at))


def _short(found: re.Match[str], rest: str) -> Stamp:
    clock = f"{_MONTHS[found['month']]:02}-{int(found['day']):02} {found['clock']}"
    inner = _UPTIME.match(rest)
    rest = rest[inner.end() :] if inner else rest
    return Stamp(rest, known=True, sender=found["sender"], moment=moment(None, clock))


def _minute(found: re.Match[str], rest: str) -> Stamp:
    clock = f"{_MONTHS[found['month']]:02}-{int(found['day']):02} {found['clock']}:00"
    return Stamp(rest, known=True, moment=moment(None, clock), minute=True)


def _delta(found: re.Match[str], rest: str) -> Stamp:
    return Stamp(rest, known=True, delta=float(found["delta"]))


def _full(found: re.Match[str], rest: str) -> Stamp:
    zone = "+00:00" if found["zone"] in {"UTC", "GMT"} else ""
    at = f"{found['date']}T{found['clock']}{zone}"
    return Stamp(rest, known=True, sender=found["sender"], at=at, moment=moment(at))


def _epoch(found: re.Match[str], rest: str) -> Stamp:
    at = of_epoch(float(found["epoch"]))
    return Stamp(rest, known=True, sender=found["sender"], at=at, moment=moment(at) if at else None)


def of_epoch(seconds: float) -> str | None:
    """Return seconds since 1970 as RFC 3339, None where there is no such time."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return None


_FORMS = (
    (_UPTIME, _uptime),
    (_HUMAN, _human),
    (_MINUTE, _minute),
    (_DELTA, _delta),
    (_ISO, _iso),
    (_SHORT, _short),
    (_FULL, _full),
    (_EPOCH, _epoch),
)


def is_kernel(lines: Iterable[str]) -> bool:
    """Say whether lines are those of a kernel log.

    Args:
        lines: The first ones of a file, not empty.
    """
    known = kernel = total = 0
    for line in lines:
        if line.startswith("-- "):  # "-- Boot 0123 --", "-- Journal begins at … --"
            continue
        total += 1
        stamp = stamped(line)
        known += stamp.known
        kernel += (
            stamp.sender == "kernel"
            or (stamp.known and stamp.sender is None and not _any_log(line))
            or _speaks(stamp)
        )
    return total > 0 and known * 10 >= total * 6 and kernel > 0


def _any_log(line: str) -> bool:
    """Say whether a line begins with a time in a form that any log may have."""
    found = _ISO.match(line)
    return found is not None and "," not in found["at"]


def _speaks(stamp: Stamp) -> bool:
    """Say whether a message is the kernel's by its words, where its form could be any log's."""
    return stamp.known and stamp.message.startswith(("NVRM:", "oom-kill:", "Out of memory:"))


class Reader:
    """Makes `Told` of the lines of one kernel log, in order.

    Args:
        source: Its name.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._groups: dict[int, tuple[int, str]] = {}
        self._task: tuple[int, str] | None = None
        self._now: Moment | None = None
        #: When the machine started, where a line tells it.
        self.boot: float | None = None

    def tick(self, text: str) -> Stamp:
        """Take the time of a line; `dmesg -H` counts from line to line."""
        stamp = stamped(text)
        if stamp.minute:
            self._now = stamp.moment
        elif stamp.delta is not None and self._now is not None:
            self._now = Moment(
                self._now.seconds + stamp.delta, zoned=self._now.zoned, dated=self._now.dated
            )
            return replace(stamp, moment=self._now)
        return stamp

    def told(self, text: str, line: int, stamp: Stamp, at: str | None) -> Told:
        """Return what a line tells.

        Args:
            text: The line as it stands in the file.
            line: Its physical number.
            stamp: What `tick` said of it.
            at: Its time from an envelope, None where it has none.
        """
        message = stamp.message
        clock = _RTC.search(message)
        if clock is not None and stamp.uptime is not None:
            self.boot = float(clock["epoch"]) - stamp.uptime
        found = _XID.search(message) or _OOM.search(message) or _KILLED.search(message)
        found = found or _TRAP.search(message)
        pid = int(found["pid"]) if found and (found["pid"] or "").isdecimal() else None
        name = found["name"] if found else None
        return Told(
            source=self._source,
            line=line,
            text=text,
            message=message,
            origin="kernel",
            at=at or stamp.at,
            moment=moment(at) if at else stamp.moment,
            uptime=stamp.uptime,
            pid=pid,
            process=None if name is None or name.startswith("<") else name.strip(),
            container=self._container(message, line, pid),
        )

    def _container(self, message: str, line: int, pid: int | None) -> str | None:
        """Return the container of a line that is about a killed process."""
        group = _CGROUP.search(message)
        ids = _ID.findall(group["path"]) if group is not None else []
        if ids:
            # The innermost one: a pod's group holds those of its containers.
            if pid is not None:
                self._groups[pid] = (line, ids[-1])
            else:
                self._task = (line, ids[-1])
        if _KILLED.search(message) is None:
            return ids[-1] if ids else None
        for known in (self._groups.get(pid or -1), self._task):
            if known is not None and 0 <= line - known[0] <= _REPORT_LINES:
                return known[1]
        return None
