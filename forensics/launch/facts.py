"""A launch to what rules may ask: the `Context` of a run, with the lines that say each thing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from forensics.knowledge import Tables, image
from forensics.launch import grammar
from forensics.launch.commandline import program_of_image
from forensics.launch.model import Launch
from forensics.launch.values import arguments
from forensics.model import Context, Hardware, LaunchFacts
from forensics.versions import is_moving, satisfies, split_image

_RELEASE = re.compile(r"v(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?)(?=$|[-_])")


def context_of(
    launch: Launch,
    *,
    before_start: bool = False,
    versions: Mapping[str, str] | None = None,
    hardware: Hardware | None = None,
    model_config: dict[str, Any] | None = None,
    host: dict[str, str] | None = None,
) -> Context:
    """Return what a launch says of the run that it starts.

    Args:
        launch: The launch.
        before_start: Whether it is what is examined (then its lines are what is cited).
        versions: Versions by engine, where known.
        hardware: The machine, where known.
        model_config: The model's `config.json`, where known.
        host: What the machine says, where it was asked.
    """
    launch = _of_release(launch, versions or {})
    auto_remove = any(o.name == "--rm" for o in launch.options)
    named = arguments(launch.arguments)
    if launch.model is not None and launch.program is not None:
        named.setdefault("model", launch.model)
    reference = launch.image
    return Context(
        image=reference,
        digest=split_image(reference)[2] if reference else None,
        container=launch.service if launch.runtime in {"docker", "podman", "nerdctl"} else None,
        launch=launch.words or None,
        arguments=named if launch.program is not None else None,
        environment={v.name: v.value or "" for v in launch.environment},
        auto_remove=auto_remove if launch.runtime in {"docker", "podman", "nerdctl"} else None,
        hardware=hardware or Hardware(),
        versions=dict(versions or {}),
        whole=before_start,
        facts=LaunchFacts(
            before_start=before_start,
            runtime=launch.runtime,
            options=_options(launch),
            problems={p.kind: p.text for p in launch.problems},
            places=places_of(launch),
            lines=tuple(launch.text.splitlines()),
            model_config=model_config,
            host=host,
        ),
    )


def _of_release(launch: Launch, versions: Mapping[str, str]) -> Launch:
    """Read short options as the release did that is started."""
    for engine, release, short, name, key in grammar.SHORT_BEFORE:
        version = versions.get(engine)
        if launch.program != engine or version is None or not satisfies(version, f"<{release}"):
            continue
        own = [
            replace(o, name=name, key=o.key or ("" if (o.value or "").startswith("{") else key))
            if o.words and o.words[0].value.startswith(short)
            else o
            for o in launch.arguments
        ]
        launch = replace(launch, arguments=tuple(own))
    return launch


def _options(launch: Launch) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for option in launch.options:
        found.setdefault(option.name, []).append(option.value or "")
    return found


def places_of(launch: Launch) -> dict[str, int]:
    """Return the line of everything that a rule can ask for."""
    found: dict[str, int] = dict(launch.positions)
    for option in launch.options:
        found[f"option:{option.name}"] = option.line
    for variable in launch.environment:
        if variable.line:
            found[f"environment:{variable.name}"] = variable.line
    for argument in launch.arguments:
        name = argument.name.lstrip("-").replace("-", "_")
        found[f"argument:{name}"] = argument.line
        found[f"argument:{name.removeprefix('no_')}"] = argument.line
    for problem in launch.problems:
        found[f"problem:{problem.kind}"] = problem.line
    return found


def version_of_image(reference: str | None, tables: Tables) -> dict[str, str]:
    """Return the engine's version that an image holds, empty where nothing tells.

    The table of images is asked first (by digest, or by a tag that does not move), then the tag:
    `v1.2.3` names the release where the image is the engine's own.
    """
    if reference is None:
        return {}
    entry = None if is_moving(reference) else image(tables, reference)
    if entry is not None and (entry.get("vllm_version") or entry.get("engine_version")):
        if entry.get("vllm_version"):
            return {"vllm": str(entry["vllm_version"])}
        return {str(entry["engine"]): str(entry["engine_version"])}
    name, tag, _ = split_image(reference)
    program = program_of_image(name)
    found = _RELEASE.match(tag or "")
    return {program: found[1]} if found and program else {}
