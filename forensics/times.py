"""Times as logs have them: RFC 3339 from envelopes, `MM-DD HH:MM:SS` from vLLM.

A printed clock without a year gets one only from a known later moment (when the file was last
written); without that it stays unknown. A clock without a zone stays without one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_CLOCK = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")
#: A file may be copied, or its host be ahead; a log does not end later than this after it.
_SLACK = timedelta(days=1)


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
