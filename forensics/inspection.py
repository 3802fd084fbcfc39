"""`docker inspect` JSON to what is known beside the log.

The data is untrusted: only the fields named here are read, and each is checked for its type.
Format: Docker Engine API, ContainerInspect (State, Config, HostConfig).
"""

from __future__ import annotations

import json
from typing import Any

from forensics.errors import SourceError
from forensics.model import Context

_NEVER = "0001-01-01T00:00:00Z"
#: Architectures as the kernel calls them, by the engine's names.
ARCHES = {"amd64": "x86_64", "arm64": "aarch64"}


def read(raw: bytes, name: str, *, only: bool = False) -> Context:
    """Read inspect output (the array that the command prints, or one object).

    Args:
        raw: The JSON.
        name: Its name for messages.
        only: Whether to refuse output that speaks of several containers.

    Raises:
        SourceError: It is no inspect output, or of several containers.
    """
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        raise SourceError(f"{name} is not JSON", "give what `docker inspect NAME` prints") from None
    if isinstance(data, list):
        if only and len(data) > 1:
            raise SourceError(
                f"{name} holds {len(data)} containers", "give the one whose log this is"
            )
        data = data[0] if data else None
    if not isinstance(data, dict) or not isinstance(data.get("State"), dict):
        raise SourceError(
            f"{name} is not the inspect output of a container",
            "give what `docker inspect NAME` prints",
        )
    return context_of(data)


def _part(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def context_of(data: dict[str, Any]) -> Context:
    """Return what inspect data say of a container, as far as each part is of its type.

    Args:
        data: What the engine's API calls ContainerInspect.
    """
    state, config, host = _part(data, "State"), _part(data, "Config"), _part(data, "HostConfig")
    running = state.get("Running") is True or _text(state.get("Status")) in {"running", "paused"}
    code = state.get("ExitCode")
    words = _words(config.get("Entrypoint")) + _words(config.get("Cmd"))
    variables = [v.split("=", 1) for v in _words(config.get("Env")) if "=" in v]
    image = _text(config.get("Image"))
    digest = image.partition("@")[2] if image and "@" in image else None
    oom = state.get("OOMKilled")
    finished = _text(state.get("FinishedAt"))
    started = _text(state.get("StartedAt"))
    removed = host.get("AutoRemove")
    pid = state.get("Pid")
    return Context(
        exit_code=code if type(code) is int and not running else None,
        oom_killed=oom if isinstance(oom, bool) else None,
        running=running,
        image=image,
        digest=digest,
        container=(_text(data.get("Name")) or "").lstrip("/") or None,
        launch=tuple(words) if words else None,
        arguments=arguments_of(words),
        environment=dict(variables),
        auto_remove=removed if isinstance(removed, bool) else None,
        started_at=None if started == _NEVER else started,
        finished_at=None if finished == _NEVER else finished,
        container_id=_text(data.get("Id")),
        pid=pid if type(pid) is int and pid > 0 else None,
    )


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [w for w in value if isinstance(w, str)] if isinstance(value, list) else []


def arguments_of(words: list[str]) -> dict[str, Any] | None:
    """Read `--name value`, `--name=value` and switches out of a server's command line.

    Args:
        words: The command's words.

    Returns:
        Values by name with underscores; None where there is no option at all.
    """
    found: dict[str, Any] = {}
    name: str | None = None
    for word in words:
        if word.startswith("--") and word != "--":
            key, equals, value = word[2:].partition("=")
            name = key.replace("-", "_")
            found[name] = _typed(value) if equals else True
            name = None if equals else name
        elif name is not None:
            found[name] = _typed(word)
            name = None
    return found or None


def _typed(value: str) -> Any:  # noqa: ANN401 - JSON data
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
