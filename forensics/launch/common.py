"""What every form asks of what it has read: the environment, the model, files beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from forensics.launch.commandline import Server
from forensics.launch.model import Option, Variable, Word

#: Reads a file beside the launch (an env file); None where there is none. Of a folder (its name
#: ends in a slash) it gives the names of the files in it, one a line.
Beside = Callable[[str], str | None]


def nothing_beside(_: str) -> str | None:
    """Read no file beside the launch."""
    return None


def read_env_file(body: str) -> dict[str, str]:
    """Read `NAME=value` lines; comments and lines without a value are left out."""
    found: dict[str, str] = {}
    for line in body.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def environment_of(options: Sequence[Option]) -> list[Variable]:
    """Return what `--env` options set."""
    return [
        Variable(
            (o.value or "").partition("=")[0],
            o.value.partition("=")[2] if "=" in o.value else None,
            o.line,
        )
        for o in options
        if o.name == "--env" and o.value
    ]


def model_of(
    server: Server | None, variables: Sequence[Variable]
) -> tuple[str | None, Word | None]:
    """Return the model that a server is given, and the word that says so."""
    if server is None:
        return None, None
    for option in reversed(server.arguments):
        if option.name in {"--model", "--model-path", "--model-id", "--hf-repo"} and option.value:
            return option.value, option.words[-1] if option.words else None
    if server.model is not None:
        return server.model.value, server.model
    named = {v.name: v.value for v in variables}
    return named.get("MODEL_ID"), None
