"""Which tier a log would get, and why: what `forensics watch --check` answers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from msgspec import Struct

from forensics.archive.store import Archive
from forensics.collector.engine import Engine, EngineError
from forensics.collector.readers import Readers
from forensics.errors import ForensicsError

_ROOM = 1 << 30


class Answer(Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: What.
        good: Whether it is as it should be.
        text: What was found, and what to do about it.
    """

    name: str
    good: bool
    text: str


class Checked(Struct, frozen=True):
    """What was found.

    Attributes:
        tier: Which way logs of containers with the engine's own driver come.
        answers: What was looked at, in order.
    """

    tier: str
    answers: list[Answer]


def check(engine: Engine, folder: Path) -> Checked:
    """Look at everything on which the tier depends; nothing is changed.

    Args:
        engine: The engine.
        folder: The archive's folder.
    """
    driver = str(engine.info.get("LoggingDriver") or "unknown")
    answers = [
        Answer("engine", good=True, text=f"{engine.kind} {engine.version} at {engine.host}"),
        _driver(driver),
    ]
    root = engine.data_root
    answers.append(_files(engine, root))
    tier = "api"
    if root is not None and driver == "json-file":
        tier = "file"
    elif driver == "journald":
        readers = Readers(engine, lambda _: None)
        tier = readers.tier(driver) or "none"
        readers.close()
    elif driver == "none":
        tier = "none"
    answers += [_removal(tier), _archive(folder), *_running(engine, tier)]
    return Checked(tier, answers)


def _driver(driver: str) -> Answer:
    if driver == "none":
        text = "none: what containers print is kept nowhere; start them with --log-driver json-file"
        return Answer("log driver", good=False, text=text)
    return Answer("log driver", good=True, text=f"{driver}, unless a container has its own")


def _files(engine: Engine, root: Path | None) -> Answer:
    if root is not None:
        return Answer("log files", good=True, text=f"can be read in {root}")
    named = engine.info.get("DockerRootDir")
    if not engine.host.startswith("unix://"):
        text = "the engine is on another machine"
    elif os.geteuid() != 0:
        text = f"{named} belongs to root (the docker group does not suffice): run it as root"
    elif engine.kind == "podman":
        text = "Podman's files are not read: its API, or `forensics guard`"
    else:
        text = f"{named} cannot be read here (Docker Desktop, or a container without that mount)"
    return Answer("log files", good=False, text=text)


def _removal(tier: str) -> Answer:
    if tier in {"file", "journal"}:
        return Answer(
            "--rm", good=True, text="logs of containers that are removed at once are kept"
        )
    text = (
        "a container started with --rm may be gone before its log is read; start it with "
        "`forensics guard`, run this as root beside the engine, or use the journald driver"
    )
    return Answer("--rm", good=False, text=text)


def _archive(folder: Path) -> Answer:
    try:
        place = folder
        while not place.exists() and place != place.parent:
            place = place.parent
        free = shutil.disk_usage(place).free
        if folder.exists():
            Archive.open(folder)
        elif not os.access(place, os.W_OK):
            return Answer("archive", good=False, text=f"{folder} cannot be made")
    except (ForensicsError, OSError) as error:
        return Answer("archive", good=False, text=str(error))
    text = f"{folder}, {free / 2**30:,.1f} GiB free"
    return Answer("archive", good=free >= _ROOM, text=text)


def _running(engine: Engine, tier: str) -> list[Answer]:
    """Name running containers that would lose their log, or get another tier."""
    found = []
    try:
        containers = engine.containers()
    except EngineError as error:
        return [Answer("containers", good=False, text=str(error))]
    for one in containers:
        if one.get("State") != "running":
            continue
        inspect = engine.inspect(str(one.get("Id"))) or {}
        host = inspect.get("HostConfig") or {}
        driver = str((host.get("LogConfig") or {}).get("Type") or "")
        name = str(inspect.get("Name") or "").lstrip("/")
        if driver == "none":
            found.append(Answer(name, good=False, text="its log driver is none: no log"))
        elif host.get("AutoRemove") and (tier == "api" or driver not in {"json-file", "journald"}):
            text = "started with --rm: its log may go with it"
            found.append(Answer(name, good=False, text=text))
    return found
