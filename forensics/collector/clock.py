"""Times as an engine says them (RFC 3339, up to nanoseconds), to the nanosecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|z|[+-]\d\d:\d\d)?")
_SECOND = 1_000_000_000
#: What the engine says of something that never was.
NEVER = "0001-01-01T00:00:00Z"


@lru_cache(maxsize=4096)
def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def nanoseconds(text: str | None) -> int | None:
    """Return an RFC 3339 time in nanoseconds since 1970; None for none, or one that never was."""
    if not text or text.startswith("0001-"):
        return None
    found = _TIME.match(text)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    zone = "+00:00" if zone in {None, "Z", "z"} else zone
    try:
        seconds = _seconds(f"{day}T{clock}{zone}")
    except ValueError:
        return None
    return seconds * _SECOND + int((fraction or "0").ljust(9, "0"))


def text_of(ns: int) -> str:
    """Return nanoseconds since 1970 as an RFC 3339 time in UTC."""
    seconds, rest = divmod(ns, _SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def now_text() -> str:
    """Return the time of now."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
