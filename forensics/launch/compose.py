"""Compose files: every service that starts a server, read and changed in its own terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from forensics.launch import commandline, quoting, yamltext
from forensics.launch.common import Beside, model_of, nothing_beside, read_env_file
from forensics.launch.composition import Composition, Foreign, Mixed, env_files, place_of
from forensics.launch.forms import same_thing
from forensics.launch.model import (
    CannotChange,
    Launch,
    Option,
    Problem,
    Splice,
    Variable,
    Word,
    line_of,
)
from forensics.launch.yamlform import Line, YamlForm, interpolate, read_line
from forensics.launch.yamltext import Entry, entries, entry_of, get, items, scalar

#: Options of `docker run` that a service writes as one scalar.
_SCALARS = {
    "--ipc": "ipc",
    "--shm-size": "shm_size",
    "--network": "network_mode",
    "--restart": "restart",
    "--runtime": "runtime",
    "--memory": "mem_limit",
    "--memory-swap": "memswap_limit",
    "--cpus": "cpus",
    "--platform": "platform",
    "--name": "container_name",
    "--hostname": "hostname",
    "--user": "user",
    "--userns": "userns_mode",
    "--pids-limit": "pids_limit",
    "--pid": "pid",
    "--pull": "pull_policy",
    "--workdir": "working_dir",
    "--stop-signal": "stop_signal",
    "--privileged": "privileged",
    "--init": "init",
    "--read-only": "read_only",
    "--tty": "tty",
    "--entrypoint": "entrypoint",
}
#: And those that it writes as a list.
_LISTS = {
    "--publish": "ports",
    "--volume": "volumes",
    "--device": "devices",
    "--cap-add": "cap_add",
    "--cap-drop": "cap_drop",
    "--dns": "dns",
    "--tmpfs": "tmpfs",
    "--group-add": "group_add",
    "--security-opt": "security_opt",
    "--add-host": "extra_hosts",
    "--env-file": "env_file",
}
_HEALTH = {
    "--health-cmd": "test",
    "--health-interval": "interval",
    "--health-timeout": "timeout",
    "--health-retries": "retries",
    "--health-start-period": "start_period",
}
_SWITCHES = {"--privileged", "--init", "--read-only", "--tty"}
_GPUS = [
    "",
    "  resources:",
    "    reservations:",
    "      devices:",
    "        - driver: nvidia",
    "          count: all",
    "          capabilities: [gpu]",
]


class ComposeForm(YamlForm):
    """One service of a compose file."""

    def __init__(self, launch: Launch, tail: Any, line: Line, service: Any) -> None:  # noqa: ANN401
        super().__init__(launch, tail, line, dollars=True, empty=self._appended)
        self.service = service

    def _appended(self, values: list[str]) -> list[Splice]:
        """Write a command; one of another file is written here as a whole, which overrides it."""
        return self._command([*self._words(), *values])

    def _words(self) -> list[str]:
        """Return the words of `command` in another file."""
        node = get(self.service, "command")
        if node is None:
            return []
        place_of(self.service, "command")  # another file may have the last word
        if not isinstance(node, Foreign):
            raise CannotChange("there is no place for more words in this command")
        line = read_line(node.text, [node.original], None)
        if not all(word.exact and "$" not in word.value for word in line.words):
            raise CannotChange(f"the command is written in {node.source}, with variables")
        return [word.value for word in line.words]

    def replace(self, word: Word, value: str) -> list[Splice]:
        """Write another value in a word's place."""
        if not self._is_foreign(word):
            return super().replace(word, value)
        words, place = self._words(), self._place(word)
        return self._command([*words[:place], value, *words[place + 1 :]])

    def remove(self, words: Sequence[Word]) -> list[Splice]:
        """Take neighbouring words out."""
        if not any(self._is_foreign(word) for word in words):
            return super().remove(words)
        gone = {self._place(word) for word in words}
        return self._command([w for i, w in enumerate(self._words()) if i not in gone])

    def insert(self, after: Word, values: Sequence[str]) -> list[Splice]:
        """Write new words after another."""
        if not self._is_foreign(after):
            return super().insert(after, values)
        words, place = self._words(), self._place(after) + 1
        return self._command([*words[:place], *values, *words[place:]])

    def _is_foreign(self, word: Word) -> bool:
        node = get(self.service, "command")
        return isinstance(node, Foreign) and any(word is w for w in self.line.words)

    def _place(self, word: Word) -> int:
        """Return which word of a command of another file a word is."""
        at = next(i for i, w in enumerate(self.line.words) if w is word)
        place = at - (len(self.line.words) - len(self._words()))
        if place < 0:
            raise CannotChange("it is written in the entrypoint")
        return place

    def _command(self, values: list[str]) -> list[Splice]:
        style = [quoting.yaml_scalar(self._yaml(v), '"') for v in values]
        return [
            yamltext.add_key(self.launch.text, self.service, "command", [f"[{', '.join(style)}]"])
        ]

    def _key(self, key: str, value: str) -> list[Splice]:
        """Write one scalar of the service."""
        text, entry = self.launch.text, place_of(self.service, key)
        if entry is None:
            return [yamltext.add_key(text, self.service, key, [quoting.yaml_scalar(value)])]
        if entry.node.id != "scalar":
            raise CannotChange(f"{key} is written as more than one value")
        return [yamltext.put(text, entry.node, value)]

    def set_image(self, reference: str) -> list[Splice]:
        """Run another image."""
        if entry_of(self.service, "image") is None:
            raise CannotChange("this service names no image")
        return self._key("image", reference)

    def set_variable(self, name: str, value: str | None) -> list[Splice]:
        """Set a variable under `environment`."""
        text, entry = self.launch.text, place_of(self.service, "environment")
        if value is not None:
            reference = quoting.is_reference(value)
            value = f"${{{value[1:]}}}" if reference else self._yaml(value)
        if entry is None:
            if value is None:
                return []
            written = quoting.yaml_scalar(value, '"')
            return [
                yamltext.add_key(text, self.service, "environment", ["", f"  {name}: {written}"])
            ]
        if entry.node.id == "mapping":
            return _in_mapping(text, entry.node, name, value)
        return _in_list(text, entry, name, value)

    def set_option(self, name: str, value: str | None) -> list[Splice]:
        """Set what `docker run` would say by an option."""
        if name == "--rm":
            raise CannotChange("a compose file has no --rm: it is given to docker compose run")
        if name in _SWITCHES:
            return self._switch(name[2:].replace("-", "_"), value or "true")
        if value is None:
            raise CannotChange(f"which value {name} should have is for you to say")
        if name == "--gpus":
            return self._gpus(value)
        if name in _SCALARS:
            return self._key(_SCALARS[name], value)
        if name in _LISTS:
            return self._list(name, value)
        if name == "--ulimit":
            return self._in_part("ulimits", *value.split("=", 1))
        if name == "--stop-timeout":
            return self._key("stop_grace_period", f"{value}s")
        if name == "--log-driver":
            return self._in_part("logging", "driver", value)
        if name == "healthcheck.start_period":
            name = "--health-start-period"
        if name in _HEALTH:
            return self._health(name, value)
        raise CannotChange(f"{name} has no known place in a compose file")

    def _switch(self, key: str, value: str) -> list[Splice]:
        text, entry = self.launch.text, place_of(self.service, key)
        if value not in {"true", "false"}:
            raise CannotChange(f"{key} is true or false")
        if entry is None:
            return [yamltext.add_key(text, self.service, key, [value])]
        start, end = yamltext.span(entry.node)
        return [Splice(start, end, value)]

    def _health(self, name: str, value: str) -> list[Splice]:
        key = _HEALTH[name]
        if key != "test":
            return self._in_part("healthcheck", key, value)
        text, part = self.launch.text, place_of(self.service, "healthcheck")
        command = quoting.yaml_scalar(self._yaml(value), '"')
        test = f'["CMD-SHELL", {command}]'
        if part is None:
            return [yamltext.add_key(text, self.service, "healthcheck", ["", f"  test: {test}"])]
        old = place_of(part.node, "test")
        if old is None:
            return [yamltext.add_key(text, part.node, "test", [test])]
        start, end = yamltext.span(old.node)
        if old.node.id == "sequence" and not old.node.flow_style:
            raise CannotChange("the health check's test is a list of several lines")
        return [Splice(start, end, test)]

    def _in_part(self, part: str, key: str, value: str) -> list[Splice]:
        text, entry = self.launch.text, place_of(self.service, part)
        written = quoting.yaml_scalar(value) if not re.fullmatch(r"-?\d+", value) else value
        if entry is None:
            return [yamltext.add_key(text, self.service, part, ["", f"  {key}: {written}"])]
        old = place_of(entry.node, key)
        if old is None:
            return [yamltext.add_key(text, entry.node, key, [written])]
        if old.node.id != "scalar":
            raise CannotChange(f"{part}.{key} is written as more than one value")
        start, end = yamltext.span(old.node)
        return [Splice(start, end, written)]

    def _gpus(self, value: str) -> list[Splice]:
        if value != "all":
            raise CannotChange("which GPUs the service should have is for you to say")
        text = self.launch.text
        if self.launch.option("--gpus") is not None:
            raise CannotChange("the service already reserves GPUs in its own way")
        if place_of(self.service, "deploy") is None:
            return [yamltext.add_key(text, self.service, "deploy", _GPUS)]
        return self._key("gpus", "all")

    def _list(self, name: str, value: str) -> list[Splice]:
        text, entry = self.launch.text, place_of(self.service, _LISTS[name])
        value = value.replace("$", "$$") if "$HOME" not in value else value.replace("$HOME", "~")
        written = quoting.yaml_scalar(value, '"')
        if entry is None:
            return [yamltext.add_key(text, self.service, _LISTS[name], ["", f"  - {written}"])]
        if entry.node.id != "sequence" or not entry.node.value:
            raise CannotChange(f"{_LISTS[name]} is not written as a list")
        for item in entry.node.value:
            old = scalar(item)
            if old is not None and same_thing(name, old, value) and not _elsewhere(item):
                return [] if old == value else [yamltext.put(text, item, value)]
        return [yamltext.add_item(text, entry.node, [written])]

    def drop_option(self, name: str) -> list[Splice]:
        """Take out what `docker run` would say by an option."""
        if name == "--rm":
            raise CannotChange("a compose file has no --rm: it is given to docker compose run")
        key = _SCALARS.get(name) or _LISTS.get(name)
        entry = place_of(self.service, key) if key else None
        if entry is None:
            raise CannotChange(f"{name} is not written in this service")
        return [yamltext.drop_key(self.launch.text, entry)]


def _in_mapping(text: str, mapping: Any, name: str, value: str | None) -> list[Splice]:  # noqa: ANN401
    entry = place_of(mapping, name)
    if value is None:
        if entry is None and entry_of(mapping, name) is not None:
            raise CannotChange(f"{name} is set in another file")
        if entry is None:
            return []
        if len(entry.mapping.value) == 1:
            raise CannotChange(f"{name} is the only variable: take the whole environment out")
        return [yamltext.drop_key(text, entry)]
    if entry is not None:
        return [yamltext.put(text, entry.node, value)]
    return [yamltext.add_key(text, mapping, name, [quoting.yaml_scalar(value, '"')])]


def _in_list(text: str, entry: Entry, name: str, value: str | None) -> list[Splice]:
    for item in entry.node.value if entry.node.id == "sequence" else ():
        if (scalar(item) or "").partition("=")[0] == name:
            if value is not None and _elsewhere(item):
                continue  # a new one wins
            if value is None:
                return [yamltext.drop_item(text, entry.node, item)]
            return [yamltext.put(text, item, f"{name}={value}")]
    if value is None:
        return []
    if entry.node.id != "sequence" or not entry.node.value:
        raise CannotChange("environment is written in a way that has no room for more")
    return [yamltext.add_item(text, entry.node, [quoting.yaml_scalar(f"{name}={value}")])]


def _elsewhere(item: Any) -> bool:  # noqa: ANN401
    """Say whether an item of a list stands in another file."""
    return yamltext.written(item) is None


# --- reading -----------------------------------------------------------------------------------


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
    if any(get(root, "include") is not None for root in yamltext.documents(text, name)):
        files.append("what `include` brings in was not read: give those files as well")
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

    for name, key in _SCALARS.items():
        node = get(service, key)
        if scalar(node) is not None:
            if name in _SWITCHES:
                if scalar(node) == "true":
                    yield Option(name, None, (), at(node))
            else:
                yield option(name, node)
    for name, key in _LISTS.items():
        for item in items(get(service, key)):
            yield option(name, item, scalar(item) or _long(item))
    for entry in entries(get(service, "ulimits")):
        soft, hard = scalar(get(entry.node, "soft")), scalar(get(entry.node, "hard"))
        value = scalar(entry.node) or f"{soft}:{hard}"
        yield option("--ulimit", entry.key_node, f"{entry.key}={value}")
    for key, name in ((v, k) for k, v in _HEALTH.items()):
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
