"""A service of a compose file, changed where what it says is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from forensics.launch import quoting, yamltext
from forensics.launch.composition import Foreign, place_of
from forensics.launch.forms import same_thing
from forensics.launch.model import (
    CannotChange,
    Launch,
    Splice,
    Word,
)
from forensics.launch.yamlform import Line, YamlForm, read_line
from forensics.launch.yamltext import Entry, entry_of, get, scalar

#: Options of `docker run` that a service writes as one scalar.
SCALARS = {
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
LISTS = {
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
HEALTH = {
    "--health-cmd": "test",
    "--health-interval": "interval",
    "--health-timeout": "timeout",
    "--health-retries": "retries",
    "--health-start-period": "start_period",
}
SWITCHES = {"--privileged", "--init", "--read-only", "--tty"}
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
        if name in SWITCHES:
            return self._switch(name[2:].replace("-", "_"), value or "true")
        if value is None:
            raise CannotChange(f"which value {name} should have is for you to say")
        if name == "--gpus":
            return self._gpus(value)
        if name in SCALARS:
            return self._key(SCALARS[name], value)
        if name in LISTS:
            return self._list(name, value)
        if name == "--ulimit":
            return self._in_part("ulimits", *value.split("=", 1))
        if name == "--stop-timeout":
            return self._key("stop_grace_period", f"{value}s")
        if name == "--log-driver":
            return self._in_part("logging", "driver", value)
        if name == "healthcheck.start_period":
            name = "--health-start-period"
        if name in HEALTH:
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
        key = HEALTH[name]
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
        text, entry = self.launch.text, place_of(self.service, LISTS[name])
        value = value.replace("$", "$$") if "$HOME" not in value else value.replace("$HOME", "~")
        written = quoting.yaml_scalar(value, '"')
        if entry is None:
            return [yamltext.add_key(text, self.service, LISTS[name], ["", f"  - {written}"])]
        if entry.node.id != "sequence" or not entry.node.value:
            raise CannotChange(f"{LISTS[name]} is not written as a list")
        for item in entry.node.value:
            old = scalar(item)
            if old is not None and same_thing(name, old, value) and not _elsewhere(item):
                return [] if old == value else [yamltext.put(text, item, value)]
        return [yamltext.add_item(text, entry.node, [written])]

    def drop_option(self, name: str) -> list[Splice]:
        """Take out what `docker run` would say by an option."""
        if name == "--rm":
            raise CannotChange("a compose file has no --rm: it is given to docker compose run")
        key = SCALARS.get(name) or LISTS.get(name)
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
