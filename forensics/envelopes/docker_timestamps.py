"""`docker logs -t` and `kubectl logs --timestamps`: an RFC 3339 time of 9 digits and a blank.

Docker writes the prefix before each part of a line longer than 16,384 bytes, so the same time
stands again in the middle of such a line; those are taken out. (moby: httputils/logstream;
kubelet: timeFormatOut.)
"""

from __future__ import annotations

import re

from forensics.envelopes.envelope import Envelope

_PREFIX = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d))(?: (?P<rest>.*))?$",
    re.DOTALL,
)
_PART_BYTES = 16_384


def _wraps(lines: list[str]) -> bool:
    return sum(_PREFIX.match(line) is not None for line in lines) * 10 >= len(lines) * 9


def _split(line: str) -> tuple[str | None, str]:
    found = _PREFIX.match(line)
    if found is None:
        return None, line
    at, rest = found["at"], found["rest"] or ""
    if len(rest) > _PART_BYTES // 4 and f"{at} " in rest:
        rest = _join_parts(at, rest)
    return at, rest


def _join_parts(at: str, rest: str) -> str:
    """Remove the repeated prefix where a part of exactly 16,384 bytes ended."""
    mark, data, out = f"{at} ".encode(), rest.encode("utf-8", "surrogateescape"), []
    while data.startswith(mark, _PART_BYTES):
        out.append(data[:_PART_BYTES])
        data = data[_PART_BYTES + len(mark) :]
    out.append(data)
    return b"".join(out).decode("utf-8", "replace")


DOCKER_TIMESTAMPS = Envelope(name="docker-timestamps", wraps=_wraps, split=_split)
