"""What the leaves over a launch command ask: options, problems, tables by release, the model.

In: a leaf and the facts. Out: plain truths (None where it cannot be told) and captures;
`forensics.conditions` makes answers of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from forensics import knowledge
from forensics.knowledge import Tables, between, history
from forensics.model import Evidence, LaunchFacts, Run
from forensics.rules_schema import ImageLeaf, LaunchLeaf, ListedLeaf, ModelLeaf
from forensics.versions import parse

Compare = Callable[[str, Any, Any], bool | None]
_ARCHES = {"x86_64": "amd64", "aarch64": "arm64", "amd64": "amd64", "arm64": "arm64"}
#: A variable that begins like vLLM's own and is none of the table's.
_OWN = re.compile(r"VLLM_[A-Z0-9_]+\Z")


class Listed(Struct, frozen=True):
    """One thing that a table speaks of: its captures and where it stands."""

    captures: dict[str, str]
    place: str


def launch(
    leaf: LaunchLeaf, facts: LaunchFacts | None, compare: Compare
) -> tuple[list[bool | None], str | None]:
    """Return the truths of a `launch` leaf, and which line proves it."""
    checks: list[bool | None] = []
    place: str | None = None
    if leaf.before_start is not None:
        checks.append((facts is not None and facts.before_start) == leaf.before_start)
    if leaf.runtime:
        checks.append((facts.runtime or "none") in leaf.runtime if facts else None)
    if leaf.option is not None:
        place = f"option:{leaf.option}"
        if facts is None:
            checks.append(None)
        else:
            values = facts.options.get(leaf.option)
            if leaf.op in {"exists", "absent"}:
                checks.append(compare(leaf.op, values, leaf.value))
            elif not values:
                checks.append(False)
            else:
                found = [compare(leaf.op, value, leaf.value) for value in values]
                checks.append(True if True in found else None if None in found else False)
    if leaf.problem is not None:
        place = f"problem:{leaf.problem}"
        checks.append(leaf.problem in facts.problems if facts else None)
    return checks, place


def image(leaf: ImageLeaf, run: Run, digest: str | None, tables: Tables) -> list[bool | None]:
    """Return the truths of an `image` leaf that need the table of images."""
    checks: list[bool | None] = []
    if leaf.pinned is not None:
        checks.append((digest is not None) == leaf.pinned)
    if leaf.digest_known is not None:
        entry = knowledge.image(tables, run.image or "")
        known = entry is not None and bool(entry.get("digest"))
        checks.append(known == leaf.digest_known)
    if leaf.other_arch is not None:
        entry = knowledge.image(tables, run.image or "")
        arches = (entry or {}).get("arches") or []
        host = _ARCHES.get(run.hardware.arch or "")
        checks.append((host not in arches) == leaf.other_arch if arches and host else None)
    return checks


def model_config(leaf: ModelLeaf, evidence: Evidence) -> bool | None:
    """Say whether a number of the model is not divisible by an argument."""
    facts = evidence.context.facts
    config = facts.model_config if facts else None
    if config is None or leaf.config is None:
        return None
    value = config.get(leaf.config)
    if not isinstance(value, int):
        inner = config.get("text_config") or config.get("llm_config") or {}
        value = inner.get(leaf.config) if isinstance(inner, dict) else None
    if leaf.not_divisible_by is None:
        return value is not None
    by = (evidence.arguments or {}).get(leaf.not_divisible_by)
    if not isinstance(value, int) or not isinstance(by, int) or by <= 0:
        return None
    return value % by != 0


# --- tables by release -------------------------------------------------------------------------


def listed(leaf: ListedLeaf, evidence: Evidence, tables: Tables) -> list[Listed] | None:
    """Return every thing of the launch that a table knows as the leaf says, None if unknown."""
    engine = evidence.run.engine
    table = tables.get("flags" if leaf.table in {"choices", "json"} else _TABLE[leaf.table]) or {}
    if engine is None or table.get("engine") != engine:
        return None
    find = _FINDERS[leaf.table]
    version = evidence.versions.get(engine)
    return [one for state, one in find(evidence, table, version) if state in leaf.state]


_TABLE = {
    "flags": "flags",
    "environment": "environment",
    "speculative_keys": "speculative_keys",
    "speculative_methods": "speculative_keys",
}
Found = Iterator[tuple[str, Listed]]


def newest_of(table: Mapping[str, Any]) -> str:
    """Return the newest release that a table was made from."""
    return str((table.get("versions") or [""])[-1])


def _state(
    entry: Mapping[str, Any] | None, table: Mapping[str, Any], version: str | None
) -> str | None:
    """Return `unknown`, `removed` or `later`; None where this release has it or cannot be told."""
    if entry is None:
        now, newest = parse(version or ""), parse(str(newest_of(table)))
        beyond = now is not None and newest is not None and now > newest
        return None if beyond else "unknown"
    if between(entry, version) is not False:
        return None
    open_end = {**entry, "until": None}
    return "later" if between(open_end, version) is False else "removed"


def _named(
    name: str, entries: Mapping[str, Any], table: Mapping[str, Any], version: str | None, value: str
) -> dict[str, str]:
    """Return the captures for something that a table should know."""
    entry = entries.get(name)
    versions = [str(v) for v in table.get("versions") or []]
    found = {"option": name, "value": value, "history": history(name, entry, versions)}
    if entry is None:
        known = [k for k, e in entries.items() if between(e, version) is not False]
        close = get_close_matches(name, known, n=1, cutoff=0.78)
        if close:
            found["did_you_mean"] = close[0]
    successors = (entry or {}).get("successors") or [(entry or {}).get("successor")]
    if entry is not None and successors and successors[0]:
        found["successor"] = str(successors[0])
    return {k: v for k, v in found.items() if v}


def _arguments(evidence: Evidence) -> Iterator[tuple[str, Any]]:
    """Yield options as they are spelt with dashes, and their values."""
    for name, value in (evidence.arguments or {}).items():
        yield f"--{name.replace('_', '-')}", value


def _flag_entry(name: str, flags: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
    entry = flags.get(name)
    if entry is None and f"--no-{name[2:]}" in flags:
        return f"--no-{name[2:]}", flags[f"--no-{name[2:]}"]
    return name, entry


def _flags(evidence: Evidence, table: Mapping[str, Any], version: str | None) -> Found:
    flags: Mapping[str, Any] = table.get("flags") or {}
    places = (evidence.context.facts.places if evidence.context.facts else {}) or {}
    for name, value in _arguments(evidence):
        if name in {"--model", "--help"} or f"argument:{_key(name)}" not in places:
            continue
        known, entry = _flag_entry(name, flags)
        state = _state(entry, table, version)
        if state is not None:
            text = "" if value is True else str(value)
            yield (
                state,
                Listed(_named(known, flags, table, version, text), f"argument:{_key(name)}"),
            )


def _key(name: str) -> str:
    return name[2:].replace("-", "_")


def _choices(evidence: Evidence, table: Mapping[str, Any], version: str | None) -> Found:
    flags: Mapping[str, Any] = table.get("flags") or {}
    for name, value in _arguments(evidence):
        choices = (flags.get(name) or {}).get("choices")
        oldest = parse(str((flags.get(name) or {}).get("choices_since") or "0"))
        now_version = parse(version or "")
        if not choices or not isinstance(value, str) or "$" in value or now_version is None:
            continue
        if now_version < oldest or now_version > parse(newest_of(table)):
            continue
        now = {str(k) for k, e in choices.items() if between(e or {}, version) is not False}
        same = {_plain(choice) for choice in now}
        if not now or _plain(value) in same:
            continue
        close = get_close_matches(value, sorted(now), n=1, cutoff=0.6)
        captures = {"option": name, "value": value, "choices": ", ".join(sorted(now))}
        captures |= {"did_you_mean": close[0]} if close else {}
        entry = choices.get(value)
        if entry is not None:
            versions = [str(v) for v in table.get("versions") or []]
            captures["history"] = history(value, entry, versions)
        yield "outside", Listed(captures, f"argument:{_key(name)}")


def _plain(value: str) -> str:
    return value.lower().replace("-", "_")


#: How JSON looks that went wrong on its way, the most telling first.
_BROKEN = (
    ("typographic", re.compile("[\u2018\u2019\u201c\u201d\u00ab\u00bb]")),
    ("single_quotes", re.compile(r"^\s*\{\s*'")),
    ("unquoted", re.compile(r"^\s*\{?\s*[A-Za-z_]\w*\s*:")),
    ("broken", re.compile(r"^\s*[\[{\"']")),
)


def _json(evidence: Evidence, table: Mapping[str, Any], _: str | None) -> Found:
    for name in table.get("json_options") or []:
        value = (evidence.arguments or {}).get(_key(name))
        if isinstance(value, str) and "$" not in value:
            state = next((kind for kind, shape in _BROKEN if shape.search(value)), None)
            if state is not None:
                yield state, Listed({"option": name, "value": value}, f"argument:{_key(name)}")


def _environment(evidence: Evidence, table: Mapping[str, Any], version: str | None) -> Found:
    entries: Mapping[str, Any] = table.get("environment") or {}
    for name, value in (evidence.context.environment or {}).items():
        if not _OWN.match(name):
            continue
        state = _state(entries.get(name), table, version)
        if state is not None:
            captures = _named(name, entries, table, version, value)
            yield state, Listed(captures, f"environment:{name}")


def _speculative(evidence: Evidence) -> Mapping[str, Any]:
    config = (evidence.arguments or {}).get("speculative_config")
    return config if isinstance(config, Mapping) else {}


def _speculative_keys(evidence: Evidence, table: Mapping[str, Any], version: str | None) -> Found:
    entries: Mapping[str, Any] = table.get("keys") or {}
    for name, value in _speculative(evidence).items():
        state = _state(entries.get(name), table, version)
        if state is not None:
            captures = _named(name, entries, table, version, str(value))
            yield state, Listed(captures, "argument:speculative_config")


def _speculative_methods(
    evidence: Evidence, table: Mapping[str, Any], version: str | None
) -> Found:
    entries: Mapping[str, Any] = table.get("methods") or {}
    method = _speculative(evidence).get("method")
    if not isinstance(method, str) or method.endswith("_mtp"):
        return
    state = _state(entries.get(method), table, version)
    if state is not None:
        captures = _named(method, entries, table, version, method)
        yield state, Listed(captures, "argument:speculative_config")


_FINDERS: dict[str, Callable[[Evidence, Mapping[str, Any], str | None], Found]] = {
    "flags": _flags,
    "choices": _choices,
    "json": _json,
    "environment": _environment,
    "speculative_keys": _speculative_keys,
    "speculative_methods": _speculative_methods,
}
