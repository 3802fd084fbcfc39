"""Which containers are collected."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from forensics.collector.snapshot import Servers, name_of_image

LABEL = "forensics.collect"


class Selection(Struct, frozen=True):
    """What a person asked for; without any wish, what looks like a model server.

    Attributes:
        servers: Knows model servers.
        everything: Take all.
        images: Globs over the image as it was typed, or its name without registry and tag.
        names: Globs over the container's name.
        labels: `KEY` or `KEY=VALUE`.
        containers: Ids, names or beginnings of ids, exactly as asked for; None for any.
    """

    servers: Servers
    everything: bool = False
    images: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    containers: tuple[str, ...] | None = None

    def wants(self, inspect: dict[str, Any]) -> bool:
        """Say whether a container is wanted. A label of its own decides over everything else."""
        config = inspect.get("Config")
        config = config if isinstance(config, dict) else {}
        labels = config.get("Labels")
        labels = labels if isinstance(labels, dict) else {}
        name = str(inspect.get("Name") or "").lstrip("/")
        if self.containers is not None:
            return self._named(str(inspect.get("Id")), name)
        own = str(labels.get(LABEL, "")).lower()
        if own in {"true", "false"}:
            return own == "true"
        if self.images or self.names or self.labels:
            image = str(config.get("Image") or "")
            return (
                (not self.images or _any(self.images, image, name_of_image(image)))
                and (not self.names or _any(self.names, name))
                and (not self.labels or any(_has(labels, label) for label in self.labels))
            )
        return self.everything or self.servers.looks_like(inspect)

    def _named(self, container: str, name: str) -> bool:
        wanted = self.containers or ()
        return any(w == name or (len(w) >= 4 and container.startswith(w)) for w in wanted)  # noqa: PLR2004


def _any(globs: tuple[str, ...], *texts: str) -> bool:
    return any(fnmatchcase(text, glob) for text in texts for glob in globs)


def _has(labels: dict[str, Any], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return key in labels and (not equals or str(labels[key]) == value)
