"""Arguments as values: JSON, dotted forms and switches of a server as one mapping."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from forensics.launch.model import Option, Values


def typed(value: str) -> Any:  # noqa: ANN401 - JSON data
    """Return a value as JSON says it, else as text."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def merged(base: Any, more: Any) -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data with other data laid over it; objects are merged."""
    if isinstance(base, dict) and isinstance(more, dict):
        return {**base, **{k: merged(base.get(k), v) for k, v in more.items()}}
    return more


def nested(key: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON data
    """Return `{"a": {"b": value}}` for the key `a.b`."""
    first, _, rest = key.partition(".")
    return {first: nested(rest, value) if rest else value}


def arguments(options: Iterable[Option]) -> Values:
    """Return arguments by name with underscores; dotted forms are laid into their objects.

    A switch is True; `--no-x` is `x: False`.
    """
    found: Values = {}
    for option in options:
        name = option.name.lstrip("-").replace("-", "_")
        if option.value is None and name.startswith("no_") and not option.key:
            found[name.removeprefix("no_")] = False
            continue
        value: Any = True if option.value is None else typed(option.value)
        if option.key:
            have = found.get(name)
            have = have if isinstance(have, dict) else {}
            found[name] = merged(have, nested(option.key, value))
        else:
            found[name] = value
    return found


def compact(value: Any) -> str:  # noqa: ANN401 - JSON data
    """Return JSON on one line without blanks, as command lines want it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def as_text(value: Any) -> str:  # noqa: ANN401 - JSON data
    """Return a value as one would type it after an option."""
    return value if isinstance(value, str) else compact(value)
