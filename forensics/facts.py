"""Signals to facts: version, arguments, model, hardware.

In: the `fact` signals of a log and the context beside it. Out: a `Run` and the server's arguments.
The first statement wins where a fact is printed once per process; context (inspect, launch) wins
over the log.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

from forensics.model import Context, Hardware, Run, SignalEvent

#: `non-default args` and `Namespace` lines are Python literals; larger ones are not read.
_MAX_LITERAL = 60_000
_OBJECT = re.compile(r"(?<==)<[^<>]{1,300}>")
_SPEC_NONE = re.compile(r"speculative_config=None\b")
_SPEC = re.compile(r"speculative_config=SpeculativeConfig\((?P<body>[^)]{0,2000})\)")
_SPEC_ITEM = re.compile(r"(?P<key>\w+)=(?P<value>'[^']{0,500}'|[\w.+-]{1,100})")


def literal(text: str) -> dict[str, Any] | None:
    """Read a Python dict as vLLM prints its arguments; None where it is none.

    Values that are no literals (`<Enum.X: 1>`, class instances) are kept as text.
    """
    if len(text) > _MAX_LITERAL:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _loose(text)
    return value if isinstance(value, dict) else None


def _loose(text: str) -> dict[str, Any] | None:
    """Read a dict some of whose values are no literals."""
    found: dict[str, Any] = {}
    for key, value in re.findall(
        r"'(\w{1,80})': ((?:'[^']{0,500}'|\{[^{}]{0,1000}\}|[^,{}]{1,200}))", text
    ):
        try:
            found[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found[key] = value
    return found or None


def namespace(text: str) -> dict[str, Any] | None:
    """Read the inside of `Namespace(a=1, b='x')` (vLLM 0.4 to 0.8): all arguments, defaults too."""
    if len(text) > _MAX_LITERAL:
        return None
    # Objects without a literal form (`<function serve at 0x7f…>`) become text.
    text = _OBJECT.sub(lambda found: repr(found[0]), text)
    try:
        tree = ast.parse(f"dict({text})", mode="eval")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(tree.body, ast.Call):
        return None
    found: dict[str, Any] = {}
    for keyword in tree.body.keywords:
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = ast.unparse(keyword.value)
        if keyword.arg and value is not None and value is not False:
            found[keyword.arg] = value
    return found


def speculative(config: str) -> dict[str, Any] | None:
    """Read the speculative configuration out of an engine banner's text.

    Returns:
        A dict (empty where speculation is off), or None where the text does not say.
    """
    if _SPEC_NONE.search(config):
        return {}
    found = _SPEC.search(config)
    if found is None:
        return None
    names = {"num_spec_tokens": "num_speculative_tokens"}
    result: dict[str, Any] = {}
    for item in _SPEC_ITEM.finditer(found["body"]):
        key, value = item["key"], item["value"]
        if value == "None":
            continue
        text = value.strip("'")
        result[names.get(key, key)] = int(text) if text.isdecimal() else text
    return result


def _first(signals: Iterable[SignalEvent], *keys: str) -> str | None:
    for signal in signals:
        for key in keys:
            if signal.kind in {"fact", "statistics"} and signal.groups.get(key):
                return signal.groups[key]
    return None


def arguments_of(signals: tuple[SignalEvent, ...], context: Context) -> dict[str, Any] | None:
    """Return the server's arguments, None when neither log nor context tells."""
    found: dict[str, Any] | None = None
    text = _first(signals, "arguments")
    if text is not None:
        found = literal(text)
    else:
        text = _first(signals, "namespace")
        found = namespace(text) if text is not None else None
    if context.arguments is not None:
        found = {**(found or {}), **context.arguments}
    banner = _first(signals, "config")
    spec = speculative(banner) if banner is not None else None
    if spec is not None and (found is None or "speculative_config" not in found):
        found = found if found is not None or not spec else {}
        if spec and found is not None:
            found["speculative_config"] = spec
    return found


def architectures_of(signals: tuple[SignalEvent, ...]) -> tuple[str, ...]:
    """Return the architectures the log names, in order, the target's first."""
    names = (s.groups["architecture"] for s in signals if "architecture" in s.groups)
    return tuple(dict.fromkeys(names))


def versions_of(
    signals: tuple[SignalEvent, ...], engine: str | None, context: Context
) -> dict[str, str]:
    """Return versions by component: the engine under its name, torch and others where printed."""
    found: dict[str, str] = {}
    for key in ("torch", "flashinfer", "triton", "cuda", "driver"):
        value = _first(signals, key)
        if value:
            found[key] = value
    version = _first((s for s in signals if s.dialect == engine), "version")
    if engine and version:
        found[engine] = version
    return {**found, **context.versions}


def hardware_of(signals: tuple[SignalEvent, ...], context: Context) -> Hardware:
    """Return what is known of the machine."""
    return Hardware(
        gpu=context.hardware.gpu or _first(signals, "gpu"),
        compute_capability=context.hardware.compute_capability or _first(signals, "capability"),
        arch=context.hardware.arch or _first(signals, "arch"),
    )


def run_of(signals: tuple[SignalEvent, ...], engine: str | None, context: Context) -> Run:
    """Put the facts of one run together."""
    arguments = arguments_of(signals, context)
    versions = versions_of(signals, engine, context)
    given = arguments or {}
    named = given.get("model") or given.get("model_tag") or given.get("model_path")
    model = named if isinstance(named, str) else _first(signals, "model")
    return Run(
        engine=engine,
        engine_version=versions.get(engine or ""),
        image=context.image,
        digest=context.digest,
        container=context.container,
        launch=list(context.launch or ()),
        arguments=arguments or {},
        model=model,
        hardware=hardware_of(signals, context),
        exit_code=context.exit_code,
        oom_killed=context.oom_killed,
        started_at=context.started_at,
        finished_at=context.finished_at,
    )
