"""Times as logs have them: RFC 3339 from envelopes, `MM-DD HH:MM:SS` from vLLM.

A printed clock without a year gets one only from a known later moment (when the file was last
written); without that it stays unknown. A clock without a zone stays without one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

_CLOCK = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")
#: A file may be copied, or its host be ahead; a log does not end later than this after it.
_SLACK = timedelta(days=1)
_YEAR_S = 366 * 86_400


def parsed(text: str) -> datetime | None:
    """Read an RFC 3339 time (zone may be missing), None where it is none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def between(first: str, then: str) -> float | None:
    """Return the seconds from one time to another, None where that cannot be told."""
    a, b = parsed(first), parsed(then)
    if a is None or b is None:
        return None
    if (a.tzinfo is None) != (b.tzinfo is None):
        return None
    return round((b - a).total_seconds(), 3)


def with_year(clock: str, end: str) -> str | None:
    """Give a printed clock the year in which it was last before a known moment.

    Args:
        clock: `MM-DD HH:MM:SS`.
        end: When the log was last written (RFC 3339).

    Returns:
        `YYYY-MM-DDTHH:MM:SS` without a zone, or None.
    """
    found, last = _CLOCK.match(clock), parsed(end)
    if found is None or last is None:
        return None
    month, day, hour, minute, second = (int(part) for part in found.groups())
    if last.tzinfo is not None:
        last = last.astimezone(UTC).replace(tzinfo=None)
    # 29 February stands only in leap years: at most eight years back.
    for year in range(last.year + 1, last.year - 8, -1):
        try:
            moment = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - no zone is known
        except ValueError:
            continue
        if moment <= last + _SLACK:
            return moment.isoformat()
    return None


class Moment(Struct, frozen=True):
    """A point in time as far as a line tells it.

    Attributes:
        seconds: Since 1970; a printed time without a zone counts as UTC, one without a year as of
            the year 2000.
        zoned: Whether the line says its zone.
        dated: Whether it says its year.
    """

    seconds: float
    zoned: bool = True
    dated: bool = True


def moment(at: str | None, clock: str | None = None) -> Moment | None:
    """Read the time of a line, None where it has none.

    Args:
        at: RFC 3339, the zone may be missing.
        clock: `MM-DD HH:MM:SS`, used where `at` says nothing.
    """
    found = parsed(at) if at else None
    if found is not None:
        zoned = found.tzinfo is not None
        return Moment((found if zoned else found.replace(tzinfo=UTC)).timestamp(), zoned)
    printed = _CLOCK.match(clock or "")
    if printed is None:
        return None
    month, day, hour, minute, second = (int(part) for part in printed.groups())
    try:  # 2000 has a 29 February
        then = datetime(2000, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return Moment(then.timestamp(), zoned=False, dated=False)


def gap(first: Moment, then: Moment) -> float:
    """Return the seconds from one moment to another.

    Where one of them has no year they are taken as at most half a year apart.
    """
    if first.dated and then.dated:
        return then.seconds - first.seconds
    if not first.dated and not then.dated:
        return (then.seconds - first.seconds + _YEAR_S / 2) % _YEAR_S - _YEAR_S / 2
    if not first.dated:
        return -gap(then, first)
    year = datetime.fromtimestamp(first.seconds, UTC).year
    spans = [_in_year(then, y) - first.seconds for y in (year - 1, year, year + 1)]
    return min(spans, key=abs)


def _in_year(undated: Moment, year: int) -> float:
    try:
        return datetime.fromtimestamp(undated.seconds, UTC).replace(year=year).timestamp()
    except ValueError:  # 29 February
        return undated.seconds + (year - 2000) * 365.25 * 86_400
