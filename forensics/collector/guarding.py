"""The command that is guarded: what in it is changed so that its container's evidence survives.

In: the words that a person typed. Out: the words to run, and what was taken on with them. Nothing
is run here.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from forensics.errors import UsageError
from forensics.launch import commandline
from forensics.launch.model import Option, Word

#: Whose container it is, and whether it is to be removed once its evidence is safe.
LABEL, REMOVE = "forensics.guard", "forensics.guard.remove"
#: Drivers whose log can be read back by any client of the engine.
_READABLE = frozenset({"json-file", "local", "journald"})


class Guarded(Struct, frozen=True):
    """A command made safe.

    Attributes:
        words: What to run.
        runtime: `docker`, `podman` or `nerdctl`.
        prefix: The words before `run`: the client with its own options (`sudo docker --context x`).
        kind: `run`, or `compose` for `docker compose up`.
        remove: The container is to be removed afterwards (`--rm` was asked for).
        detached: The client returns at once.
        tty: The container has a terminal.
        kept: Why its log cannot be kept, in words; None where it can.
        changes: What was changed, in words for a person.
    """

    words: tuple[str, ...]
    runtime: str
    prefix: tuple[str, ...]
    kind: str = "run"
    remove: bool = False
    detached: bool = False
    tty: bool = False
    kept: str | None = None
    changes: tuple[str, ...] = ()


def guarded(words: Sequence[str], token: str, default_driver: str | None = None) -> Guarded:
    """Return a command that leaves its evidence behind.

    Args:
        words: The command: `docker run …`, `podman run …`, `docker compose up …`, also behind
            `sudo`, `env` or `exec`.
        token: Marks the container as ours (twelve hexadecimal digits).
        default_driver: The engine's log driver, if known.

    Raises:
        UsageError: It is no such command.
    """
    placed = [Word(value=word, start=i, end=i) for i, word in enumerate(words)]
    compose = _compose(placed)
    if compose is not None:
        return compose
    run = commandline.read_run(placed, lambda _: 0)
    if run is None or run.image is None or run.head[-1].value != "run":
        raise UsageError(
            "this is no command that starts a container",
            "forensics guard -- docker run … IMAGE (or podman run, docker compose up)",
        )
    return _run(run, token, default_driver)


def _run(run: commandline.Run, token: str, default_driver: str | None) -> Guarded:
    names = {option.name for option in run.options}
    removed = [o for o in run.options if o.name == "--rm" and _on(o)]
    gone = {word.start for option in removed for word in option.words}
    added = [f"--label={LABEL}={token}"]
    changes = []
    if removed:
        added.append(f"--label={REMOVE}=true")
        changes.append("--rm is done by forensics, once the evidence is safe")
    if "--name" not in names:
        added.append(f"--name=guarded-{token}")
        changes.append(f"the container is called guarded-{token}")
    driver = _last(run.options, "--log-driver") or default_driver
    kept = None
    if driver is not None and driver not in _READABLE:
        if "--log-driver" in names:
            if driver == "none":
                kept = "its log driver is none: what it prints is kept nowhere"
        else:
            added.append("--log-driver=json-file")
            changes.append(f"its log goes to json-file instead of the engine's {driver}")
    options = [w.value for o in _words_of(run) for w in o if w.start not in gone]
    head = [word.value for word in run.head]
    image = [run.image.value] if run.image is not None else []
    return Guarded(
        words=(*head, *added, *options, *image, *(w.value for w in run.command)),
        runtime=run.runtime,
        prefix=tuple(head[: -2 if head[-2] == "container" else -1]),
        remove=bool(removed),
        detached=any(o.name == "--detach" and _on(o) for o in run.options),
        tty=any(o.name == "--tty" and _on(o) for o in run.options),
        kept=kept,
        changes=tuple(changes),
    )


def _words_of(run: commandline.Run) -> list[list[Word]]:
    """Return the words of the options, each once (`-it` is one word and two options)."""
    seen: set[int] = set()
    found = []
    for option in run.options:
        mine = [word for word in option.words if word.start not in seen]
        seen |= {word.start for word in mine}
        found.append(mine)
    return found


def _on(option: Option) -> bool:
    return option.value is None or option.value.lower() in {"true", "1", "t"}


def _last(options: Sequence[Option], name: str) -> str | None:
    values = [option.value for option in options if option.name == name]
    return values[-1] if values else None


#: Options of `docker compose` before its command that take a value.
_COMPOSE_VALUES = frozenset(
    ("-f", "--file", "-p", "--project-name", "--profile", "--env-file", "--project-directory",
     "--ansi", "--parallel", "--progress")
)  # fmt: skip


def _compose(words: Sequence[Word]) -> Guarded | None:
    """Read `docker compose … up …` and `docker-compose … up …`; None for anything else."""
    start = commandline.skip_starters(words)
    values = [word.value for word in words]
    rest = values[start:]
    if not rest:
        return None
    base = rest[0].rpartition("/")[2]
    place = start + 1
    if base in {"docker", "podman", "nerdctl"}:
        while place < len(values) and values[place].startswith("-"):
            place += 1 if "=" in values[place] or values[place] in {"-D", "--debug", "--tls"} else 2
        if place >= len(values) or values[place] != "compose":
            return None
        client = values[:place]
        place += 1
    elif base in {"docker-compose", "podman-compose"}:
        client = [*values[:start], base.partition("-")[0]]
        base = base.partition("-")[0]
    else:
        return None
    while place < len(values) and values[place].startswith("-"):
        joined = "=" in values[place] or values[place] not in _COMPOSE_VALUES
        place += 1 if joined else 2
    if place >= len(values) or values[place] not in {"up", "run"}:
        raise UsageError(
            "of docker compose only `up` can be guarded", "forensics guard -- docker compose up"
        )
    if values[place] == "run":
        raise UsageError("docker compose run cannot be guarded", "`docker compose up SERVICE` can")
    return Guarded(
        words=tuple(values),
        runtime=base,
        prefix=tuple(client),
        kind="compose",
        detached=any(w in {"-d", "--detach", "--wait"} for w in values[place:]),
    )
