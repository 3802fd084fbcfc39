"""`docker events` (or podman's) to what was done to containers, and when.

Formats: JSON lines of `--format '{{json .}}'` (Docker Engine API, EventMessage; podman's own), and
the plain form `TIME container ACTION ID (key=value, …)` (docker/cli `command/system/events.go`).
The message of each is the plain form without its time, which rules look at.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from forensics.beside.told import Told
from forensics.times import moment

_PLAIN = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?\S{0,12}(?: [+-]\d{4} [A-Z]{2,5})?) "
    r"(?P<type>[a-z]{1,20}) (?P<action>[a-z_]{1,30}(?:: [^(]{1,200}?)?) (?P<id>\S{1,128})"
    r"(?: \((?P<details>.*)\))?\s*$"
)
#: Values may hold blanks, commas and brackets (labels): a key follows a comma or stands first.
_DETAIL = re.compile(r"(?:^|, )(?P<key>[\w./-]{1,200})=(?P<value>.*?)(?=, [\w./-]{1,200}=|$)")
_HEX = re.compile(r"[0-9a-f]{12,64}\Z")
_ACTIONS = {"died": "die", "oom": "oom"}
#: Labels of a container are in each of its events: only what tells of its end is kept.
_KEPT = ("exitCode", "execDuration", "signal", "name", "image")


def parse(text: str, source: str, line: int) -> Told | None:
    """Read one event.

    Args:
        text: A line.
        source: Name of the file.
        line: Its physical number.

    Returns:
        What it tells; None where it is no event of a container.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        return _of_json(stripped, source, line)
    found = _PLAIN.match(stripped)
    if found is None or found["type"] != "container":
        return None
    details = {m["key"]: m["value"] for m in _DETAIL.finditer(found["details"] or "")}
    return _told(text, source, line, found["at"], found["action"], found["id"], details)


def is_event(text: str) -> bool:
    """Say whether a line is an event of a container engine, of whatever it may be."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        found = _PLAIN.match(stripped)
        return found is not None and found["type"] in {
            "container", "image", "network", "volume", "daemon", "builder", "plugin", "pod",
        }  # fmt: skip
    data = _object(stripped)
    return data is not None and (
        {"Type", "Action", "Actor"} <= data.keys() or {"Type", "Status", "Time"} <= data.keys()
    )


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _of_json(text: str, source: str, line: int) -> Told | None:
    data = _object(text)
    if data is None or data.get("Type") != "container":
        return None
    actor = data.get("Actor")
    actor = actor if isinstance(actor, dict) else {}
    given = actor.get("Attributes") or data.get("Attributes")
    details = {
        str(key): str(value)
        for key, value in (given.items() if isinstance(given, dict) else ())
        if isinstance(value, str | int | float)
    }
    if "ContainerExitCode" in data:  # podman
        details.setdefault("exitCode", str(data["ContainerExitCode"]))
    for key, name in (("name", "Name"), ("image", "Image")):
        if isinstance(data.get(name), str):
            details.setdefault(key, data[name])
    action = str(data.get("Action") or data.get("Status") or "")
    identity = str(actor.get("ID") or data.get("ID") or data.get("id") or "")
    return _told(text, source, line, _time(data), action, identity, details)


def _time(data: dict[str, Any]) -> str | None:
    """Return an event's time: nanoseconds, seconds, or (podman) text."""
    nanoseconds, seconds = data.get("timeNano"), data.get("time", data.get("Time"))
    if type(nanoseconds) is int and nanoseconds > 0:
        seconds = nanoseconds / 1e9
    if isinstance(seconds, str):
        return seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()
    except (OverflowError, ValueError):
        return None


def _told(  # noqa: PLR0913, PLR0917 - what an event is made of
    text: str,
    source: str,
    line: int,
    at: str | None,
    action: str,
    identity: str,
    details: dict[str, str],
) -> Told:
    action = _ACTIONS.get(action, action)
    kept = {key: details[key] for key in _KEPT if key in details}
    said = ", ".join(f"{key}={value}" for key, value in sorted(kept.items()))
    zoned = re.sub(r" ([+-]\d{2})(\d{2}) [A-Z]{2,5}$", r"\1:\2", at or "").replace(" ", "T", 1)
    when = moment(zoned)
    return Told(
        source=source,
        line=line,
        text=text,
        message=f"container {action} {identity} ({said})",
        origin="events",
        at=zoned if when is not None else None,
        moment=when,
        container=identity if _HEX.match(identity) else None,
        action=action.partition(":")[0],
        details=kept,
    )
