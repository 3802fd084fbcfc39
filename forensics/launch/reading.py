"""The one door: a text of any kind to the launches that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from forensics.errors import SourceError
from forensics.launch import (
    compose,
    inspected,
    kubernetes,
    logged,
    quadlet,
    script,
    systemd,
    yamltext,
)
from forensics.launch.commandline import read_server
from forensics.launch.common import Beside, model_of, nothing_beside
from forensics.launch.forms import Form
from forensics.launch.model import Launch, NothingStarted, Word, line_of

MAX_CHARS = 1_000_000


def read_all(text: str, name: str, beside: Beside = nothing_beside) -> list[Form]:
    """Return every launch in a text, those of known servers only where there is one.

    Args:
        text: A shell script, compose file, systemd unit, Kubernetes manifest, inspect output or
            a command alone.
        name: Its name, for messages and (by its ending) for what it is.
        beside: Reads files that it names (env files).

    Raises:
        SourceError: Nothing in it starts a container or a server.
    """
    if len(text) > MAX_CHARS or "\0" in text:
        raise SourceError(
            f"{name} is no launch file", "give a script, compose file, unit or inspect JSON"
        )
    found: list[Form] = []
    if inspected.looks_like(text):
        return [from_inspect(text, name)]
    if quadlet.looks_like(text):
        found = [*quadlet.read(text, name, beside)]
    elif systemd.looks_like(text):
        found = [*systemd.read(text, name, beside)]
    elif _is_yaml(text, name):
        roots = yamltext.documents(text, name)
        if any(compose.looks_like(root) for root in roots):
            found = [*compose.read(text, name, beside)]
        elif any(kubernetes.looks_like(root) for root in roots):
            found = [*kubernetes.read(text, name)]
    else:
        found = [*script.read(text, name, beside)]
    if not found:
        raise NothingStarted(
            f"{name} starts no container and no server that is known",
            "give a script with docker run, a compose file, a unit, a manifest or inspect JSON",
        )
    known = [form for form in found if form.launch.program is not None]
    return known or found


def _is_yaml(text: str, name: str) -> bool:
    if name.endswith((".yaml", ".yml")):
        return True
    if name.endswith((".sh", ".bash")) or text.startswith("#!"):
        return False
    heads = ("services:", "apiVersion:", "version:", "name:", "x-")
    return any(line.startswith(heads) for line in text.splitlines())


def read_one(text: str, name: str, beside: Beside = nothing_beside) -> Form:
    """Return the first launch of a text; the others are named in its limits.

    Raises:
        SourceError: Nothing in it starts a container or a server.
    """
    forms = read_all(text, name, beside)
    first = forms[0]
    if len(forms) > 1:
        said = f"{name} holds {len(forms)} launches: the first one was taken ({label(first)})"
        first.launch = replace(first.launch, limits=(*first.launch.limits, said))
    return first


def label(form: Form) -> str:
    """Return a few words that tell one launch of a text from another."""
    launch = form.launch
    line = launch.positions.get("command", 1)
    return f"{launch.service}, line {line}" if launch.service else f"line {line}"


def from_inspect(text: str, name: str) -> Form:
    """Return the `docker run` of a container that inspect output describes.

    Raises:
        SourceError: It is no inspect output.
    """
    container, image = inspected.container_of(text, name)
    body = inspected.to_script(container, image)
    form = script.read(body, name)[0]
    entrypoint = [str(w) for w in container.get("Config", {}).get("Entrypoint") or []]
    limits = form.launch.limits
    if image is None:
        limits = (
            *limits,
            "the image's own configuration is not known: what equals it is written out as well",
        )
    launch = replace(form.launch, kind="inspect", limits=limits)
    if launch.program is None or not launch.arguments:
        launch = _with_entrypoint(form, launch, entrypoint)
    form.launch = launch
    return form


def _with_entrypoint(form: script.ScriptForm, launch: Launch, entrypoint: list[str]) -> Launch:
    """Read the arguments once more, now that the image's entrypoint is known."""
    if form.run is None:
        return launch
    head = [Word(w, 0, 0, whole=False) for w in entrypoint]
    server = read_server([*head, *form.run.command], lambda w: line_of(launch.text, w.start))
    if server is None:
        return launch
    form.server = server
    if form.run.command:
        form.tail = form.run.command[-1]
    model, _ = model_of(server, launch.environment)
    return replace(launch, program=server.program, arguments=server.arguments, model=model)


def from_log(
    engine: str | None, arguments: Mapping[str, Any], model: str | None, name: str
) -> Form | None:
    """Return the command that a log's own arguments stand for, None where it does not say."""
    body = logged.to_script(engine or "", arguments, model)
    if body is None:
        return None
    form = script.read(body, name)[0]
    form.launch = replace(form.launch, kind="log")
    return form
