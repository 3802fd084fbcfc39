"""The tables under `rules/tables/`: look-ups that turn captures into words.

Tables are plain data (their shapes stand at their heads). Every look-up answers with text only,
and with less rather than with a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, cast

from forensics.versions import parse, split_image

Tables = Mapping[str, Any]


def lookup(tables: Tables, table: str, key: str, version: str | None) -> dict[str, str]:
    """Return the captures that one look-up adds.

    Args:
        tables: All tables by name.
        table: `flags`, `speculative_keys`, `xids`, `images` or `baselines`.
        key: What to look up, as printed.
        version: Version of the engine, if known.
    """
    find = _LOOKUPS[table]
    return find(tables.get(table) or {}, key, version)


def between(entry: Mapping[str, Any], version: str | None) -> bool | None:
    """Say whether a release has an option; None where the table cannot tell.

    Args:
        entry: With `since` and `until` as the tables write them.
        version: The release.
    """
    now = parse(version) if version else None
    if now is None:
        return None
    base = parse(now.base_version)
    begun, ended = _since(entry.get("since"), base), _until(entry.get("until"), base)
    if False in {begun, ended}:
        return False
    return None if None in {begun, ended} else True


def _since(since: Any, base: Any) -> bool | None:  # noqa: ANN401 - table data, Version
    """Say whether a release is at or after the first that has something."""
    if isinstance(since, Mapping):
        if base <= parse(since["after"]):
            return False
        return None if base < parse(since["by"]) else True
    return since is None or bool(base >= parse(since))


def _until(until: Any, base: Any) -> bool | None:  # noqa: ANN401 - table data, Version
    """Say whether a release is at or before the last that has something."""
    if isinstance(until, Mapping):
        if base >= parse(until["by"]):
            return False
        return None if base > parse(until["after"]) else True
    return until is None or bool(base <= parse(until))


def history(name: str, entry: Mapping[str, Any] | None, versions: list[str]) -> str:
    """Say in one sentence in which releases something exists."""
    if entry is None:
        oldest, newest = (versions[0], versions[-1]) if versions else ("?", "?")
        return f"None of the vLLM releases {oldest} to {newest} that are on record has {name}."
    parts = []
    since, until = entry.get("since"), entry.get("until")
    if isinstance(since, Mapping):
        parts.append(f"came after vLLM {since['after']} and by {since['by']}")
    elif since is not None:
        parts.append(f"exists since vLLM {since}")
    if isinstance(until, Mapping):
        parts.append(f"was there up to {until['after']} and is gone by {until['by']}")
    elif until is not None:
        parts.append(f"was last in vLLM {until}")
    if not parts:
        parts.append(f"exists in all releases on record ({versions[0]} to {versions[-1]})")
    said = f"{name} {' and '.join(parts)}."
    successors = entry.get("successors") or []
    if until is not None and successors:
        said += f" In its place: {', '.join(successors)}."
    return said


_FLAG = re.compile(r"--?[A-Za-z][\w-]*(?:\.[\w.-]+)?")


def _flags(table: Mapping[str, Any], key: str, version: str | None) -> dict[str, str]:
    found = _FLAG.match(key.strip())
    if found is None:
        return {}
    flag = found[0]
    plain = flag.split(".", 1)[0].replace("_", "-")
    flags: Mapping[str, Any] = table.get("flags") or {}
    entry = option(table, flag)
    result = {"flag": flag, "flag_history": history(plain, entry, table.get("versions") or [])}
    if entry is None:
        known = [name for name, e in flags.items() if between(e, version) is not False]
        close = get_close_matches(plain, known, n=1, cutoff=0.78)
        if close:
            result["did_you_mean"] = close[0]
            result["flag_history"] += f" {history(close[0], flags[close[0]], table['versions'])}"
    elif entry.get("until") is not None and entry.get("successors"):
        result["successor"] = entry["successors"][0]
    return result


def _speculative_keys(table: Mapping[str, Any], key: str, version: str | None) -> dict[str, str]:
    name = key.strip().strip("'\"")
    keys: Mapping[str, Any] = table.get("keys") or {}
    entry = keys.get(name)
    result = {"key": name, "key_history": history(name, entry, table.get("versions") or [])}
    if entry is None:
        known = [k for k, e in keys.items() if between(e, version) is not False]
        close = get_close_matches(name, known, n=1, cutoff=0.6)
        if close:
            result["did_you_mean"] = close[0]
    return result


def option(table: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the entry of an option by any of its spellings, None if it is not on record."""
    plain = name.split(".", 1)[0].replace("_", "-")
    flags: Mapping[str, Any] = table.get("flags") or {}
    if plain in flags:
        return cast("Mapping[str, Any]", flags[plain])
    for long, entry in flags.items():
        if plain in (entry.get("short") or []) or plain == f"--no-{long.removeprefix('--')}":
            return cast("Mapping[str, Any]", entry)
    return None


def exists(tables: Tables, target: str, value: str | None, version: str | None) -> bool | None:
    """Say whether a release of vLLM has an option or variable (and takes this value).

    Args:
        tables: All tables by name.
        target: `--option`, `--option.key` or `VARIABLE`.
        value: The value to give it; checked where the table lists choices.
        version: The release.

    Returns:
        None where the tables cannot tell, or do not know the name.
    """
    if target.startswith("-"):
        entry = option(tables.get("flags") or {}, target)
        if target.startswith("--speculative-config.") and entry is not None:
            keys = (tables.get("speculative_keys") or {}).get("keys") or {}
            entry = keys.get(target.removeprefix("--speculative-config."))
    else:
        variables = (tables.get("environment") or {}).get("environment") or {}
        entry = variables.get(target)
    if entry is None:
        return None
    there = between(entry, version)
    choice = (entry.get("choices") or {}).get(value)
    if there is True and choice is not None:
        return between(choice, version)
    return there


def _xids(table: Mapping[str, Any], key: str, _: str | None) -> dict[str, str]:
    xids: Mapping[str, Any] = table.get("xids") or {}
    entry = xids.get(key.strip())
    if not entry:
        return {}
    return {f"xid_{part}": str(entry[part]) for part in ("name", "severity", "meaning", "action")}


def image(tables: Tables, reference: str) -> Mapping[str, Any] | None:
    """Return the entry of an image by table id, digest or unmoving tag, None if unknown."""
    entries: list[Mapping[str, Any]] = (tables.get("images") or {}).get("images") or []
    name, tag, digest = split_image(reference)
    for entry in entries:
        digests = [
            entry.get("digest"),
            *(d.get("digest") for d in entry.get("other_digests") or []),
        ]
        if entry.get("id") == reference or (digest and digest in digests):
            return entry
    for entry in entries:
        repository = str(entry.get("repository") or "")
        tagged = bool(tag) and not digest and tag in (entry.get("tags") or [])
        same = name in {repository, f"docker.io/{repository}"}
        if tagged and same and not entry.get("moving"):
            return entry
        if entry.get("ref") == reference:
            return entry
    return None


def _images(table: Mapping[str, Any], key: str, _: str | None) -> dict[str, str]:
    entry = image({"images": table}, key)
    return {"image_facts": str(entry["summary"])} if entry and entry.get("summary") else {}


def _baselines(table: Mapping[str, Any], key: str, _: str | None) -> dict[str, str]:
    for entry in table.get("baselines") or []:
        if any(fnmatchcase(key.lower(), glob.lower()) for glob in entry.get("models") or []):
            return {"baseline": str(entry["summary"])}
    return {}


_LOOKUPS = {
    "flags": _flags,
    "speculative_keys": _speculative_keys,
    "xids": _xids,
    "images": _images,
    "baselines": _baselines,
}
