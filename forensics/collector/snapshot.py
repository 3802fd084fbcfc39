"""What an engine says of a container, as a run's record keeps it: without secrets.

In: inspect data of container and image, events; all of it untrusted. Out: values of
`archive.model`. Everything is redacted here, before it is written anywhere. Format: Docker Engine
API, ContainerInspect, ImageInspect and the events of containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from forensics import redaction
from forensics.archive.model import ContainerFacts, ExitFacts, ImageFacts

_KILL, _TERM, _STOPPED = 9, 15, 143
_KILLED, _SEGV, _ABORT = 137, 139, 134
_NOT_STARTED = {
    125: "the engine could not start the container",
    126: "the command cannot be executed",
    127: "the command was not found",
    128: "the container could not be set up (user, mounts, log driver …)",
}
#: Labels of the engine's tools that tell what a container belongs to.
_HEALTH_KEPT = 5


class Servers:
    """Knows a model server by its image or command.

    Args:
        table: `rules/tables/servers.yaml`.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        self._images = _texts(table.get("images"))
        self._commands = _texts(table.get("commands"))
        self.kept = tuple(_texts(table.get("environment")))

    def looks_like(self, inspect: dict[str, Any]) -> bool:
        """Say whether a container looks like a model server."""
        config = _part(inspect, "Config")
        image = name_of_image(str(config.get("Image") or "")).lower()
        words = [*_words(config.get("Entrypoint")), *_words(config.get("Cmd"))]
        words += [str(inspect.get("Path") or ""), *_words(inspect.get("Args"))]
        return any(fnmatchcase(image, glob) for glob in self._images) or any(
            fnmatchcase(word.lower(), glob) for word in words for glob in self._commands
        )


def name_of_image(reference: str) -> str:
    """Return the name in a reference, without registry, tag and digest."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.partition(':')[0]}"
    first, slash, rest = name.partition("/")
    return rest if slash and ("." in first or ":" in first or first == "localhost") else name


def _part(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> list[str]:
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


def _words(value: object) -> list[str]:
    return [value] if isinstance(value, str) else _texts(value)


def secrets(inspect: dict[str, Any]) -> list[str]:
    """Return the values of variables whose names say that they are secret: to be masked in logs."""
    found = (v.partition("=") for v in _texts(_part(inspect, "Config").get("Env")))
    return [value for name, _, value in found if value and redaction.is_secret(name)]


def container_facts(inspect: dict[str, Any], kept: Sequence[str] = ()) -> ContainerFacts:
    """Return what a record says of a container.

    Args:
        inspect: Its inspect data.
        kept: Globs of variables whose values may be kept.
    """
    config, host = _part(inspect, "Config"), _part(inspect, "HostConfig")
    policy = _part(host, "RestartPolicy")
    labels = {str(k): str(v) for k, v in _part(config, "Labels").items()}
    removed = host.get("AutoRemove")
    return ContainerFacts(
        id=str(inspect.get("Id", "")),
        name=(_text(inspect.get("Name")) or "").lstrip("/") or None,
        labels=redaction.value(labels),
        entrypoint=redaction.value(_words(config.get("Entrypoint"))),
        arguments=redaction.value(_words(config.get("Cmd"))),
        environment=_environment(_texts(config.get("Env")), kept),
        tty=config.get("Tty") is True,
        auto_remove=removed is True,
        log_driver=_text(_part(host, "LogConfig").get("Type")),
        restart_policy=_policy(policy),
    )


def _policy(policy: dict[str, Any]) -> str | None:
    name, most = _text(policy.get("Name")), policy.get("MaximumRetryCount")
    return f"{name}:{most}" if name and most else name


def _environment(variables: Iterable[str], kept: Sequence[str]) -> dict[str, str]:
    found = {}
    for variable in variables:
        name, _, value = variable.partition("=")
        safe = any(fnmatchcase(name, glob) for glob in kept) and not redaction.is_secret(name)
        found[name] = redaction.text(value) if safe else redaction.MASK
    return found


def image_facts(inspect: dict[str, Any], image: dict[str, Any] | None) -> ImageFacts:
    """Return what a record says of a container's image.

    Args:
        inspect: The container's inspect data.
        image: The image's, None if it is gone.
    """
    reference = _text(_part(inspect, "Config").get("Image"))
    own = _text(inspect.get("Image"))
    image = image or {}
    digests = _texts(image.get("RepoDigests"))
    name = reference.partition("@")[0].rpartition(":")[0] if reference else ""
    same = [d for d in digests if d.partition("@")[0] in {name, reference}] or digests
    digest = reference.partition("@")[2] if reference and "@" in reference else None
    return ImageFacts(
        reference=reference,
        id=_text(image.get("Id")) or own,
        digest=digest or (same[0].partition("@")[2] if same else None),
        repo_digests=digests,
        repo_tags=_texts(image.get("RepoTags")),
        architecture=_text(image.get("Architecture")),
        created=_text(image.get("Created")),
        labels=redaction.value(
            {str(k): str(v) for k, v in _part(_part(image, "Config"), "Labels").items()}
        ),
    )


def redacted_inspect(inspect: dict[str, Any], kept: Sequence[str] = ()) -> dict[str, Any]:
    """Return inspect data without secrets.

    Args:
        inspect: The inspect data of a container or an image.
        kept: Globs of variables whose values may be kept.
    """
    found: dict[str, Any] = redaction.value(inspect)
    config = _part(inspect, "Config")
    if config:
        found["Config"]["Env"] = [
            f"{name}={value}"
            for name, value in _environment(_texts(config.get("Env")), kept).items()
        ]
    return found


def event_kept(event: dict[str, Any]) -> dict[str, Any]:
    """Return what a record keeps of an event: what, when, and its own attributes."""
    actor = _part(event, "Actor")
    wanted = ("exitCode", "signal", "oldName", "name", "execDuration", "image")
    attributes = {k: v for k, v in _part(actor, "Attributes").items() if k in wanted}
    # `exec_start: <command>` repeats a whole command.
    action = str(event.get("Action") or event.get("status") or "")
    action = action if action.startswith("health_status") else action.partition(":")[0]
    kept = {"action": action, "time_ns": event.get("timeNano"), "attributes": attributes}
    result: dict[str, Any] = redaction.value(kept)
    return result


def signals_of(events: Iterable[dict[str, Any]]) -> list[int]:
    """Return the signals that were sent through the engine, in order."""
    found = []
    for event in events:
        if event.get("action") == "kill":
            signal = str(_part(event, "attributes").get("signal", ""))
            found += [int(signal)] if signal.isdecimal() else []
    return found


def exit_facts(
    inspect: dict[str, Any] | None, events: Sequence[dict[str, Any]], *, code: int | None = None
) -> ExitFacts:
    """Return how a start of a container ended.

    Args:
        inspect: Its inspect data after the end, None if it was gone by then.
        events: The events of this start, as `event_kept` gives them.
        code: The exit code, where inspect data cannot say it (an event, a later start).
    """
    state = _part(inspect or {}, "State")
    own = state.get("ExitCode")
    running = state.get("Running") is True and state.get("Restarting") is not True
    if code is None and type(own) is int and not running and state:
        code = own
    said = state.get("OOMKilled")
    oom = said if isinstance(said, bool) else None
    if any(event.get("action") == "oom" for event in events):
        oom = True
    signals = signals_of(events)
    status = _text(state.get("Status")) if inspect else "removed"
    error = _text(state.get("Error"))
    count = (inspect or {}).get("RestartCount")
    return ExitFacts(
        code=code,
        oom_killed=oom,
        error=redaction.text(error) if error else None,
        status="exited" if status in {"running", "restarting"} else status,
        signals=signals,
        reading=reading(code, status, signals, oom=oom),
        restart_count=count if type(count) is int else None,
        health=_health(state),
    )


def reading(
    code: int | None, status: str | None, signals: Sequence[int], *, oom: bool | None
) -> str | None:
    """Return what exit code, signals and the engine's flag mean together, in words."""
    if code is None or status == "created":
        return _NOT_STARTED.get(code or 0)
    if oom:
        whose = "the main process" if code == _KILLED else "one of its processes"
        return f"memory ran out inside the container's limit: {whose} was killed"
    if code == _KILLED and _KILL not in signals:
        return "killed from outside the engine (by the host's memory killer, say)"
    if code == _KILLED:
        slow = signals.index(_KILL) > 0
        slowly = "stopped, did not end in time, and was killed by the engine"
        return slowly if slow else "killed through the engine"
    if code in {_SEGV, _ABORT}:
        return "crashed in native code"
    stopped = "stopped through the engine" if _TERM in signals else None
    return stopped or ("ended by a signal to stop" if code == _STOPPED else None)


def _health(state: dict[str, Any]) -> dict[str, Any] | None:
    health = _part(state, "Health")
    if not health:
        return None
    log = health.get("Log")
    kept = log[-_HEALTH_KEPT:] if isinstance(log, list) else []
    found: dict[str, Any] = redaction.value(
        {"status": health.get("Status"), "streak": health.get("FailingStreak"), "log": kept}
    )
    return found
