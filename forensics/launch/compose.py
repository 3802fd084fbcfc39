"""Compose files: every service that starts a server, with all that it is put together of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from forensics.launch import commandline
from forensics.launch.common import Beside, model_of, nothing_beside, read_env_file
from forensics.launch.composeform import HEALTH, LISTS, SCALARS, SWITCHES, ComposeForm
from forensics.launch.composition import Composition, Foreign, Mixed, env_files
from forensics.launch.model import (
    Launch,
    Option,
    Problem,
    Variable,
    line_of,
)
from forensics.launch.yamlform import Line, interpolate, read_line
from forensics.launch.yamltext import Entry, entries, get, items, scalar


def looks_like(root: Any) -> bool:  # noqa: ANN401 - ruamel's nodes
    """Say whether a document is a compose file."""
    services = get(root, "services")
    return services is not None and services.id == "mapping"


def read(text: str, name: str, beside: Beside = nothing_beside) -> list[ComposeForm]:
    """Return every service that starts a server; all services with an image if none is known."""
    variables = read_env_file(beside(".env") or "")
    composition = Composition(text, name, beside)
    forms: list[ComposeForm] = []
    for entry in composition.services():
        if get(entry.node, "image") or get(entry.node, "command"):
            limits = composition.limits.get(entry.key, ())
            forms.append(_service(text, name, entry, variables, beside, limits))
    known = [f for f in forms if f.launch.program is not None] or forms
    told = {f.launch.service for f in known}
    missing = [f"{s}: {'; '.join(w)}" for s, w in composition.limits.items() if s not in told]
    files = [f"{file} was read as well" for file in composition.files]
    for form in known:
        more = (*form.launch.limits, *files, *(f"not checked: {one}" for one in missing))
        form.launch = replace(form.launch, limits=more)
    return known


def _service(
    text: str,
    name: str,
    entry: Entry,
    variables: Mapping[str, str],
    beside: Beside,
    limits: Sequence[str],
) -> ComposeForm:
    service = entry.node

    def at(node: Any) -> int:  # noqa: ANN401
        return line_of(text, node.start_mark.index)

    raw_image = scalar(get(service, "image"))
    image = interpolate(raw_image, variables)[0] if raw_image else None
    command, entrypoint = get(service, "command"), get(service, "entrypoint")
    line = _line(text, (entrypoint, command), variables)
    server = commandline.read_server(
        line.words, lambda w: line_of(text, w.start), None if entrypoint is not None else image
    )
    environment = [Variable(k, v) for f in _env_files(service, beside) for k, v in f.items()]
    environment += list(_environment(service, variables, at))
    options = tuple(_options(service, variables, at))
    model, place = model_of(server, environment)
    positions = {"command": at(command or entry.key_node)}
    positions |= {"image": at(get(service, "image"))} if image else {}
    positions |= {"model": line_of(text, place.start)} if place else {}
    program = server.program if server else commandline.program_of_image(image or "")
    launch = Launch(
        kind="compose",
        name=name,
        text=text,
        service=entry.key,
        runtime="compose",
        words=tuple(w.value for w in line.words),
        options=options,
        environment=tuple(environment),
        image=image,
        program=program,
        model=model,
        arguments=server.arguments if server else (),
        positions=positions,
        problems=tuple(Problem(*p) for p in line.problems),
        limits=tuple(limits),
    )
    words = [w for w in line.words if w.start in line.spots and w.whole]
    tail = words[-1] if words and server is not None else None
    return ComposeForm(launch, tail, line, service)


def _line(text: str, nodes: Sequence[Any], variables: Mapping[str, str]) -> Line:
    """Read the command line, of which parts may stand in other files."""
    line = Line([], {}, [])
    for node in nodes:
        if not isinstance(node, Foreign):
            more = read_line(text, [node], variables, line.words)
            line = Line(more.words, line.spots | more.spots, [*line.problems, *more.problems])
            continue
        more = read_line(node.text, [node.original], variables, line.words)
        here = node.start_mark.index
        own = [replace(w, start=here, end=here, origin=None) for w in more.words[len(line.words) :]]
        line.words += own
        at = line_of(text, here)
        line.problems += [(kind, at, value) for kind, _, value in more.problems]
    return line


def _env_files(service: Any, beside: Beside) -> Iterator[dict[str, str]]:  # noqa: ANN401
    for path in env_files(service):
        body = beside(path)
        if body is not None:
            yield read_env_file(body)


At = Callable[[Any], int]


def _environment(service: Any, variables: Mapping[str, str], at: At) -> Iterator[Variable]:  # noqa: ANN401
    yield from _variables(get(service, "environment"), variables, at)


def _variables(node: Any, variables: Mapping[str, str], at: At) -> Iterator[Variable]:  # noqa: ANN401
    if node is None:
        return
    if isinstance(node, Mixed):
        # One layer writes a mapping and the other a list: what comes later wins.
        yield from _variables(node.lower, variables, at)
        yield from _variables(node.upper, variables, at)
        return
    for entry in entries(node):
        value = scalar(entry.node)
        yield Variable(
            entry.key,
            interpolate(value, variables)[0] if value is not None else None,
            at(entry.key_node),
        )
    for item in items(node) if node.id == "sequence" else ():
        key, equals, value = (scalar(item) or "").partition("=")
        yield Variable(key, interpolate(value, variables)[0] if equals else None, at(item))


def _options(service: Any, variables: Mapping[str, str], at: At) -> Iterator[Option]:  # noqa: ANN401
    """Yield what the service says of its container, in the terms of `docker run`."""

    def option(name: str, node: Any, value: str | None = None) -> Option:  # noqa: ANN401
        text = scalar(node) if value is None else value
        return Option(name, interpolate(text or "", variables)[0], (), at(node))

    for name, key in SCALARS.items():
        node = get(service, key)
        if scalar(node) is not None:
            if name in SWITCHES:
                if scalar(node) == "true":
                    yield Option(name, None, (), at(node))
            else:
                yield option(name, node)
    for name, key in LISTS.items():
        for item in items(get(service, key)):
            yield option(name, item, scalar(item) or _long(item))
    for entry in entries(get(service, "ulimits")):
        soft, hard = scalar(get(entry.node, "soft")), scalar(get(entry.node, "hard"))
        value = scalar(entry.node) or f"{soft}:{hard}"
        yield option("--ulimit", entry.key_node, f"{entry.key}={value}")
    for key, name in ((v, k) for k, v in HEALTH.items()):
        node = get(service, "healthcheck", key)
        if node is not None:
            value = " ".join(scalar(i) or "" for i in items(node))
            yield option(name, node, re.sub(r"^CMD(?:-SHELL)? ", "", value))
    yield from _resources(service, option)


def _long(item: Any) -> str:  # noqa: ANN401
    """Write the long form of a port or volume in the short one."""
    source, target = scalar(get(item, "source")), scalar(get(item, "target"))
    published = scalar(get(item, "published"))
    if published is not None or (target or "").isdecimal():
        return f"{published}:{target}" if published else f"{target}"
    path = scalar(get(item, "path"))
    return path or (f"{source}:{target}" if source else f"{target}")


def _resources(service: Any, option: Callable[..., Option]) -> Iterator[Option]:  # noqa: ANN401
    gpus = get(service, "gpus")
    if gpus is not None:
        yield option("--gpus", gpus, scalar(gpus) or "all")
    resources = get(service, "deploy", "resources")
    for device in items(get(resources, "reservations", "devices")):
        wanted = [scalar(i) for i in items(get(device, "capabilities"))]
        ids = [scalar(i) or "" for i in items(get(device, "device_ids"))]
        driver = scalar(get(device, "driver"))
        if "gpu" in wanted or driver == "nvidia":
            value = f"device={','.join(ids)}" if ids else scalar(get(device, "count")) or "all"
            yield option("--gpus", device, value)
        elif driver == "cdi":
            yield from (option("--device", device, one) for one in ids)
    memory = get(resources, "limits", "memory")
    if memory is not None:
        yield option("--memory", memory)
    driver = get(service, "logging", "driver")
    if driver is not None:
        yield option("--log-driver", driver)
