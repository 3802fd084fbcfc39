"""What a compose service is in the end: `extends` and override files put together, by its rules.

A service is layers, the one that wins first. Nodes of the given file stay what they are, with
their places; those of another file stand where they are brought in, and know where they come from.
Rules: Compose Specification, `extends` (mappings are merged, lists of most kinds joined, `command`
and `entrypoint` replaced) and "Merge Compose files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from forensics.errors import SourceError
from forensics.launch import yamltext
from forensics.launch.common import Beside
from forensics.launch.model import CannotChange
from forensics.launch.yamltext import Entry, entries, entry_of, get, items, scalar, written

_MAX_CHAIN = 20
#: Lists in which what is below stays, and what is above is added. Of the others the upper one wins.
_JOINED = {
    "ports", "expose", "external_links", "dns", "dns_search", "tmpfs", "env_file", "devices",
    "volumes", "cap_add", "cap_drop", "security_opt", "group_add", "extra_hosts", "environment",
    "labels", "sysctls", "capabilities", "device_ids", "device_cgroup_rules",
}  # fmt: skip
#: What a service does not take from the one that it extends.
_OWN = {"extends", "depends_on", "links", "volumes_from"}
#: Beside one of these names compose reads an override file unasked.
_DEFAULT_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")


class Foreign:
    """A node of another file, as if it stood where it is brought in.

    Attributes:
        source: Name of that file.
        original: The node itself.
        text: That file's text.
    """

    def __init__(self, node: Any, mark: Any, source: str, text: str, folder: str) -> None:  # noqa: ANN401
        self.id, self.original, self.source, self.text = node.id, node, source, text
        self.style = getattr(node, "style", None)
        self.flow_style, self.tag = getattr(node, "flow_style", None), getattr(node, "tag", None)
        self.start_mark = self.end_mark = mark
        #: None of it stands in the given file.
        self.written = None
        self.value: Any
        if node.id == "scalar":
            self.value = node.value
        elif node.id == "sequence":
            self.value = [Foreign(item, mark, source, text, folder) for item in node.value]
        else:
            self.value = [
                (
                    Foreign(e.key_node, mark, source, text, folder),
                    _located(e, Foreign(e.node, mark, source, text, folder), folder),
                )
                for e in entries(node)
            ]


def _located(entry: Entry, node: Foreign, folder: str) -> Foreign:
    """Paths of env files count from the file that names them."""
    if entry.key == "env_file" and folder:
        for one in [node] if node.id == "scalar" else node.value:
            if one.id == "scalar" and not one.value.startswith("/"):
                one.value = f"{folder}/{one.value}"
    return node


class Merged:
    """A mapping or list of two layers; what is changed or added stands in the upper one.

    Attributes:
        upper: The layer that wins.
        lower: The other one.
    """

    def __init__(self, upper: Any, lower: Any) -> None:  # noqa: ANN401
        self.id, self.upper, self.lower = upper.id, upper, lower
        self.flow_style, self.style = upper.flow_style, None
        self.start_mark, self.end_mark = upper.start_mark, upper.end_mark
        #: The layer that stands in the given file, the upper one if both do.
        self.written = written(upper) or written(lower)
        self.source = _source(upper) or _source(lower)
        self.value: list[Any]
        if self.id == "sequence":
            self.value = [*lower.value, *upper.value]
        else:
            self.value = [(e.key_node, e.node) for e in self.entries()]

    def entries(self) -> list[Entry]:
        """Return the keys of both layers, each as it is in the end."""
        above = {entry.key: entry for entry in entries(self.upper)}
        below = {entry.key: entry for entry in entries(self.lower)}
        found = []
        for key, entry in above.items():
            if _tagged(entry.node, "!reset"):
                below.pop(key, None)
                continue
            other = below.get(key)
            node = entry.node if other is None else _of_two(key, entry.node, other.node)
            found.append(Entry(key, node, entry.key_node, entry.mapping))
        return found + [entry for key, entry in below.items() if key not in above]


def _tagged(node: Any, tag: str) -> bool:  # noqa: ANN401
    """Say whether a node carries a tag of Compose's own (`!reset`, `!override`)."""
    return str(getattr(node, "tag", "")) == tag


def _of_two(key: str, upper: Any, lower: Any) -> Any:  # noqa: ANN401
    if _tagged(upper, "!override"):
        return upper
    if upper.id == lower.id == "mapping":
        return Merged(upper, lower)
    if upper.id == lower.id == "sequence" and key in _JOINED:
        return Merged(upper, lower)
    if key == "environment" and {upper.id, lower.id} == {"mapping", "sequence"}:
        return Mixed(upper, lower)
    return upper


def _source(node: Any) -> str | None:  # noqa: ANN401
    """Return the file that a node comes from; None for the given one."""
    return getattr(node, "source", None)


class Mixed:
    """Variables that one layer writes as a mapping and the other as a list."""

    def __init__(self, upper: Any, lower: Any) -> None:  # noqa: ANN401
        self.upper, self.lower = upper, lower
        self.id, self.value = upper.id, upper.value
        self.flow_style, self.style = upper.flow_style, None
        self.start_mark, self.end_mark = upper.start_mark, upper.end_mark
        self.written = written(upper)
        self.source = _source(upper) or "another file"


def place_of(mapping: Any, key: str) -> Entry | None:  # noqa: ANN401
    """Return the entry of a key that can be changed in the given file.

    None where the key is not there, or only below the given file: a new one wins.

    Raises:
        CannotChange: Another file has the last word.
    """
    if isinstance(mapping, Merged):
        above = entry_of(mapping.upper, key)
        if above is None:
            below = entry_of(mapping.lower, key)
            if below is not None and written(below.node) is None and written(mapping.upper):
                return None
            return place_of(mapping.lower, key)
        entry = entry_of(mapping, key)
        return entry if entry and isinstance(entry.node, Merged) else place_of(mapping.upper, key)
    entry = entry_of(mapping, key)
    if entry is not None and isinstance(entry.node, Foreign):
        raise CannotChange(f"{key} is written in {entry.node.source}")
    return entry


class Composition:
    """The services of one compose file, put together.

    Args:
        text: The file.
        name: Its name, for messages.
        beside: Reads files beside it.
    """

    def __init__(self, text: str, name: str, beside: Beside) -> None:
        self.text, self.name, self._beside = text, name, beside
        #: What could not be read, by service.
        self.limits: dict[str, list[str]] = {}
        self.files: list[str] = []

    def services(self) -> Iterator[Entry]:
        """Yield the services in order, those of override and included files too."""
        roots = yamltext.documents(self.text, self.name)
        above = self._override(roots)
        for root in roots:
            known = {entry.key: entry for entry in entries(get(root, "services"))}

            def find(service: str, known: dict[str, Entry] = known) -> Any:  # noqa: ANN401
                return known[service].node if service in known else None

            for entry in known.values():
                node = self._extended(entry.key, entry.node, find, (f"{entry.key}",))
                over = above.get(entry.key)
                if over is not None:
                    node = Merged(over, node)
                yield Entry(entry.key, node, entry.key_node, entry.mapping)
            yield from self._included(root, set(known))

    def _included(self, root: Any, known: set[str]) -> Iterator[Entry]:  # noqa: ANN401
        """Yield the services of files that `include` names; they stand where it names them."""
        for item in items(get(root, "include")):
            for place in [item] if item.id == "scalar" else items(get(item, "path")):
                file = scalar(place) or ""
                for service, node in self._services_of(file, place.start_mark).items():
                    if service in known:
                        continue
                    known.add(service)
                    whole = self._extended(
                        service, node, self._finder(file, place), (f":{service}",)
                    )
                    yield Entry(service, whole, place, root)

    def _finder(self, file: str, place: Any) -> Callable[[str], Any]:  # noqa: ANN401
        return lambda name: self._services_of(file, place.start_mark).get(name)

    def _services_of(self, file: str, mark: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the services of another file; none, and a limit, where it cannot be read."""
        body = self._beside(file) if file else None
        try:
            if body is not None:
                return self._foreign(file, body, mark)
        except SourceError:
            pass
        self._limit("include", f"what it brings in from {file} was not read")
        return {}

    def _foreign(self, file: str, body: str, mark: Any) -> dict[str, Foreign]:  # noqa: ANN401
        """Return the services that the text of another file holds, and note that it was read.

        Raises:
            SourceError: It is no YAML.
        """
        roots = yamltext.documents(body, file)
        if file not in self.files:
            self.files.append(file)
        folder = file.rpartition("/")[0]
        return {
            e.key: Foreign(e.node, mark, file, body, folder)
            for root in roots
            for e in entries(get(root, "services"))
            if e.node.id == "mapping"
        }

    def _override(self, roots: list[Any]) -> dict[str, Foreign]:
        """Return the services of the override file that compose reads unasked."""
        base = self.name.replace("\\", "/").rpartition("/")[2]
        services = next((s for s in (get(r, "services") for r in roots) if s is not None), None)
        if base not in _DEFAULT_NAMES or services is None:
            return {}
        for stem in ("compose.override", "docker-compose.override"):
            for ending in (".yaml", ".yml"):
                body = self._beside(stem + ending)
                if body is not None:
                    return self._foreign(stem + ending, body, services.start_mark)
        return {}

    def _extended(
        self,
        service: str,
        node: Any,  # noqa: ANN401
        find: Callable[[str], Any],
        chain: tuple[str, ...],
    ) -> Any:  # noqa: ANN401
        wanted = entry_of(node, "extends") if node.id == "mapping" else None
        if wanted is None:
            return node
        named = scalar(wanted.node) or scalar(get(wanted.node, "service"))
        file = scalar(get(wanted.node, "file"))
        step = f"{file or ''}:{named}"
        if named is None or step in chain or len(chain) > _MAX_CHAIN:
            self._limit(service, "`extends` names no service, or goes round in a circle")
            return node
        if file is None:
            base = find(named)
            if base is None or base.id != "mapping":
                self._limit(service, f"`extends` names {named}, which this file does not have")
                return node
            base = self._extended(service, base, find, (*chain, step))
            return Merged(node, _without_own(base))
        base = self._of_file(service, file, named, wanted, (*chain, step))
        return node if base is None else Merged(node, _without_own(base))

    def _of_file(
        self, service: str, file: str, named: str, wanted: Entry, chain: tuple[str, ...]
    ) -> Any:  # noqa: ANN401
        body = self._beside(file)
        if body is None:
            self._limit(service, f"what `extends` takes from {file} was not read")
            return None
        try:
            known = self._foreign(file, body, wanted.key_node.start_mark)
        except SourceError as error:
            self._limit(service, f"what `extends` takes from {file} was not read: {error}")
            return None
        node = known.get(named)
        if node is None:
            self._limit(service, f"`extends` names {named}, which {file} does not have")
            return None
        return self._extended(service, node, known.get, chain)

    def _limit(self, service: str, text: str) -> None:
        self.limits.setdefault(service, []).append(text)


class _Part:
    """A mapping less some keys."""

    id = "mapping"

    def __init__(self, node: Any, without: set[str]) -> None:  # noqa: ANN401
        self.node, self._without = node, without
        self.flow_style, self.style = node.flow_style, None
        self.start_mark, self.end_mark = node.start_mark, node.end_mark
        self.written, self.source = written(node), _source(node)
        self.value = [(e.key_node, e.node) for e in self.entries()]

    def entries(self) -> list[Entry]:
        return [e for e in entries(self.node) if e.key not in self._without]


def _without_own(node: Any) -> Any:  # noqa: ANN401
    return _Part(node, _OWN)


def env_files(service: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the paths of the env files of a service, in the order in which they count."""
    for item in items(get(service, "env_file")):
        path = scalar(item) if item.id == "scalar" else scalar(get(item, "path"))
        if path:
            yield path
