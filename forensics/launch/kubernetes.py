"""Kubernetes manifests: every container that starts a server, read and changed in its own terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from forensics.launch import commandline, quoting, yamltext
from forensics.launch.common import model_of
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
from forensics.launch.yamlform import Line, YamlForm, read_line
from forensics.launch.yamltext import entries, entry_of, get, items, scalar

_GPU = re.compile(r"(?:nvidia|amd)\.com/(?:gpu|mig-.*)\Z")
#: `$(NAME)`; `$$(` stands for the characters themselves.
_REFERENCE = re.compile(r"(?<!\$)\$\(([A-Za-z_][\w.-]*)\)|\$\$\(")
_UNITS = {"b": "", "k": "Ki", "m": "Mi", "g": "Gi", "": ""}


class KubernetesForm(YamlForm):
    """One container of a pod."""

    def __init__(
        self,
        launch: Launch,
        tail: Word | None,
        line: Line,
        container: Any,  # noqa: ANN401
        pod: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(launch, tail, line, dollars=False, empty=self._args)
        self.container, self.pod = container, pod

    def _args(self, values: list[str]) -> list[Splice]:
        lines = ["", *(f"  - {quoting.yaml_scalar(v)}" for v in values)]
        return [yamltext.add_key(self.launch.text, self.container, "args", lines)]

    def set_image(self, reference: str) -> list[Splice]:
        """Run another image."""
        node = get(self.container, "image")
        if node is None or node.id != "scalar":
            raise CannotChange("this container names no image")
        return [yamltext.put(self.launch.text, node, reference)]

    def set_variable(self, name: str, value: str | None) -> list[Splice]:
        """Set a variable under `env`."""
        text, entry = self.launch.text, entry_of(self.container, "env")
        if value is not None and quoting.is_reference(value):
            raise CannotChange(f"{name} should come from a Secret (valueFrom.secretKeyRef)")
        written = quoting.yaml_scalar(value or "", '"')
        if entry is None:
            if value is None:
                return []
            lines = ["", f"  - name: {name}", f"    value: {written}"]
            return [yamltext.add_key(text, self.container, "env", lines)]
        for item in items(entry.node):
            if scalar(get(item, "name")) != name:
                continue
            if value is None:
                return [yamltext.drop_item(text, entry.node, item)]
            old = get(item, "value")
            if old is None:
                raise CannotChange(f"{name} comes from somewhere else (valueFrom)")
            return [yamltext.put(text, old, value)]
        if value is None:
            return []
        if entry.node.flow_style or not entry.node.value:
            raise CannotChange("env is written in a way that has no room for more")
        last = entry.node.value[-1]
        column = last.start_mark.column
        body = f"name: {name}\n{' ' * column}value: {written}"
        return [yamltext.add_item(text, entry.node, [body])]

    def set_option(self, name: str, value: str | None) -> list[Splice]:
        """Set what `docker run` would say by an option, where a pod has the like."""
        text = self.launch.text
        host = {("--ipc", "host"): "hostIPC", ("--network", "host"): "hostNetwork"}.get(
            (name, value or "")
        )
        if host is not None:
            entry = entry_of(self.pod, host)
            if entry is not None:
                return (
                    [yamltext.put(text, entry.node, "true")] if scalar(entry.node) != "true" else []
                )
            return [_bare(yamltext.add_key(text, self.pod, host, ["true"]))]
        if name == "--memory" and value is not None:
            found = re.fullmatch(r"(\d+)([bkmg]?)", value.lower())
            node = get(self.container, "resources", "limits", "memory")
            if found and node is not None:
                return [yamltext.put(text, node, f"{found[1]}{_UNITS[found[2]]}")]
        if name == "--shm-size":
            raise CannotChange(
                "a pod gets shared memory by a volume: emptyDir {medium: Memory} at /dev/shm"
            )
        if name == "--gpus":
            raise CannotChange("how many GPUs is for you to say: resources.limits nvidia.com/gpu")
        raise CannotChange(f"{name} has no counterpart that could be written into a pod")

    def drop_option(self, name: str) -> list[Splice]:
        """Take out what `docker run` would say by an option."""
        raise CannotChange(f"a pod has no {name}")


def _bare(splice: Splice) -> Splice:
    """Write a boolean without quotes."""
    return Splice(splice.start, splice.end, re.sub(r"""['"](true)['"]""", r"\1", splice.text))


# --- reading -----------------------------------------------------------------------------------


def looks_like(root: Any) -> bool:  # noqa: ANN401 - ruamel's nodes
    """Say whether a document is a Kubernetes manifest."""
    return get(root, "apiVersion") is not None and get(root, "kind") is not None


def read(text: str, name: str) -> list[KubernetesForm]:
    """Return every container that starts a server; all if none is known."""
    forms: list[KubernetesForm] = []
    roots = yamltext.documents(text, name)
    config = _config_maps(roots)
    for root in roots:
        for one in items(get(root, "items")) or [root]:
            for pod in _pods(one):
                forms += [
                    _container(text, name, container, pod, config)
                    for container in items(get(pod, "containers"))
                    if container.id == "mapping"
                ]
    known = [f for f in forms if f.launch.program is not None]
    return known or forms


def _pods(root: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield every pod specification below a node (Pod, Deployment, LeaderWorkerSet, …)."""
    for node in yamltext.walk(root):
        if node.id == "mapping" and any(
            e.key == "containers" and e.node.id == "sequence" for e in entries(node)
        ):
            yield node


def _config_maps(roots: list[Any]) -> dict[str, dict[str, str]]:
    """Return what the ConfigMaps among the documents hold, by name."""
    found: dict[str, dict[str, str]] = {}
    for root in roots:
        for one in items(get(root, "items")) or [root]:
            name = scalar(get(one, "metadata", "name"))
            if scalar(get(one, "kind")) == "ConfigMap" and name:
                data = entries(get(one, "data"))
                found[name] = {e.key: e.node.value for e in data if e.node.id == "scalar"}
    return found


def _environment(
    container: Any,  # noqa: ANN401
    config: Mapping[str, Mapping[str, str]],
    at: Callable[[Any], int],
) -> tuple[list[Variable], list[str]]:
    """Return the variables, and which ConfigMaps and Secrets they come from that are not here.

    A variable whose value is not known has none; those of a Secret stay unknown in any case.
    """
    found: list[Variable] = []
    unknown: dict[str, None] = {}
    for item in items(get(container, "envFrom")):
        name = scalar(get(item, "configMapRef", "name"))
        secret = scalar(get(item, "secretRef", "name"))
        if name is not None and name in config:
            prefix = scalar(get(item, "prefix")) or ""
            found += [Variable(prefix + k, v, at(item)) for k, v in config[name].items()]
        elif name or secret:
            unknown[f"ConfigMap {name}" if name else f"Secret {secret}"] = None
    for item in items(get(container, "env")):
        if item.id != "mapping":
            continue
        value = scalar(get(item, "value"))
        source = get(item, "valueFrom", "configMapKeyRef")
        if value is None and source is not None:
            name, key = scalar(get(source, "name")), scalar(get(source, "key"))
            value = config.get(name or "", {}).get(key or "")
            if value is None:
                unknown[f"ConfigMap {name}"] = None
        found.append(Variable(scalar(get(item, "name")) or "", value, at(item)))
    return found, list(unknown)


def _filled(line: Line, known: Mapping[str, str]) -> Line:
    """Fill `$(NAME)` in, as the kubelet does; one that is not known stays, and is not exact."""

    def fill(word: Word) -> Word:
        if "$(" not in word.value:
            return word
        value = _REFERENCE.sub(lambda m: known.get(m[1], m[0]) if m[1] else "$(", word.value)
        sure = not _REFERENCE.search(value)
        return replace(word, value=value, exact=word.exact and sure, whole=False)

    return Line([fill(word) for word in line.words], line.spots, line.problems)


def _container(
    text: str,
    name: str,
    container: Any,  # noqa: ANN401
    pod: Any,  # noqa: ANN401
    config: Mapping[str, Mapping[str, str]],
) -> KubernetesForm:
    def at(node: Any) -> int:  # noqa: ANN401
        return line_of(text, node.start_mark.index)

    image = scalar(get(container, "image"))
    command, args = get(container, "command"), get(container, "args")
    environment, unknown = _environment(container, config, at)
    known = {v.name: v.value for v in environment if v.value is not None}
    line = _filled(read_line(text, [command, args], None), known)
    server = commandline.read_server(
        line.words, lambda w: line_of(text, w.start), None if command is not None else image
    )
    model, place = model_of(server, environment)
    positions = {"command": at(args or command or container)}
    positions |= {"image": at(get(container, "image"))} if image else {}
    positions |= {"model": line_of(text, place.start)} if place else {}
    launch = Launch(
        kind="kubernetes",
        name=name,
        text=text,
        service=scalar(get(container, "name")),
        runtime="kubernetes",
        words=tuple(w.value for w in line.words),
        options=tuple(_options(container, pod, at)),
        environment=tuple(environment),
        image=image,
        program=server.program if server else commandline.program_of_image(image or ""),
        model=model,
        arguments=server.arguments if server else (),
        positions=positions,
        problems=tuple(Problem(*p) for p in line.problems),
        limits=tuple(f"what {source} holds is not known" for source in unknown),
    )
    words = [w for w in line.words if w.start in line.spots and w.whole]
    tail = words[-1] if words and (server is not None or args is not None) else None
    return KubernetesForm(launch, tail, line, container, pod)


def _options(container: Any, pod: Any, at: Any) -> Iterator[Option]:  # noqa: ANN401
    """Yield what the pod says of the container, in the terms of `docker run`."""
    for part in ("limits", "requests"):
        for entry in entries(get(container, "resources", part)):
            if _GPU.match(entry.key) and part == "limits":
                yield Option("--gpus", scalar(entry.node), (), at(entry.key_node))
            elif entry.key == "memory" and part == "limits":
                yield Option("--memory", scalar(entry.node), (), at(entry.key_node))
    for key, name in (("hostIPC", "--ipc"), ("hostNetwork", "--network")):
        node = get(pod, key)
        if scalar(node) == "true":
            yield Option(name, "host", (), at(node))
    volumes = {scalar(get(v, "name")): v for v in items(get(pod, "volumes"))}
    for mount in items(get(container, "volumeMounts")):
        path, source = scalar(get(mount, "mountPath")), scalar(get(mount, "name"))
        volume = volumes.get(source)
        yield Option("--volume", f"{source}:{path}", (), at(mount))
        if path == "/dev/shm" and scalar(get(volume, "emptyDir", "medium")) == "Memory":  # noqa: S108
            size = scalar(get(volume, "emptyDir", "sizeLimit")) or "half of the memory"
            yield Option("--shm-size", size, (), at(mount))
    for port in items(get(container, "ports")):
        number = scalar(get(port, "containerPort"))
        if number:
            yield Option("--publish", f"{number}:{number}", (), at(port))
