"""Rule files to a checked `RuleSet`.

In: folders of YAML. Out: rules in a fixed order, with a digest of their content. Errors name
file, line and key, and all of them are reported in one go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

from forensics.errors import RuleError
from forensics.rules_schema import (
    COMPOSITES,
    LEAVES,
    All,
    AnyOf,
    Condition,
    ExceptionLeaf,
    FixSpec,
    HostLeaf,
    LineLeaf,
    ListedLeaf,
    NextStepSpec,
    NoneOf,
    Rule,
    Sequence,
)

_ID = re.compile(r"^[a-z0-9][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*)+$")
_PLACEHOLDER = re.compile(r"\{([a-z_][\w.]*(?:[=+*/<>-][\d.]+)*)\}")
#: A leaf may be written short: `- line: 'pattern'`.
_SHORT = {"line": "pattern", "rule": "id"}
#: Keys that take one value or a list.
_LISTS = {"type", "frame", "level", "code", "ending", "last", "runtime", "state"}


#: What a `listed` leaf captures.
LISTED_CAPTURES = {"option", "value", "choices", "did_you_mean", "history", "successor"}
#: Path of a value in a document to its line, see `forensics.yamlio`.
Places = dict[str, int]


class RuleSet(Struct, frozen=True):
    """Rules that belong together.

    Attributes:
        rules: In order of id.
        digest: SHA-256 over the content of all rule and table files.
        files: Rule id to the file it came from.
        tables: Table name to its data.
    """

    rules: tuple[Rule, ...]
    digest: str
    files: dict[str, str]
    tables: dict[str, Any]

    def get(self, rule_id: str) -> Rule | None:
        """Return the rule with this id, or None."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)


def builtin_folder() -> Path:
    """Return the folder of the shipped rules: inside the wheel, else in the checkout."""
    inside = resources.files("forensics") / "_rules"
    if inside.is_dir():
        return Path(str(inside))
    return Path(__file__).resolve().parent.parent / "rules"


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (see read_folder)
        return file.read()


def read_folder(folder: Path) -> list[tuple[str, bytes]]:
    """Return name (relative to the folder's parent) and content of each YAML file, sorted.

    Raises:
        RuleError: The folder does not exist or a file cannot be read.
    """
    if not folder.is_dir():
        raise RuleError("no such folder of rules", str(folder))
    top = "" if folder == Path() else folder.as_posix().rstrip("/") + "/"  # as rglob prefixes
    try:
        # Strings from here on: with hundreds of files, to sort and relate paths costs more than
        # to read them.
        names = [path.as_posix()[len(top) :] for path in folder.rglob("*.yaml")]
        names = [name for name in names if "/." not in f"/{name}"]
        names.sort(key=lambda name: name.split("/"))
        return [(f"{folder.name}/{name}", _content(top + name)) for name in names]
    except OSError as error:
        raise RuleError(f"cannot be read: {error.strerror}", str(error.filename)) from None


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 over names and contents."""
    total = hashlib.sha256()
    for name, content in files:
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def parse(files: list[tuple[str, bytes]]) -> tuple[RuleSet, list[RuleError]]:
    """Turn file contents into a rule set.

    Args:
        files: Name and content; names with a `tables/` part are tables.

    Returns:
        The rules that are sound, and an error for everything that is not.
    """
    rules: dict[str, Rule] = {}
    origin: dict[str, str] = {}
    tables: dict[str, Any] = {}
    errors: list[RuleError] = []
    for name, content in files:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            errors.append(RuleError("not UTF-8 text", name))
            continue
        try:
            if "tables" in name.split("/")[:-1]:
                tables[Path(name).stem] = _yaml(text, name)[0]
                continue
            rule = parse_rule(text, name)
        except RuleError as error:
            errors.append(error)
            continue
        if rule.id in rules:
            errors.append(RuleError(f"{rule.id} is already in {origin[rule.id]}", name, 1, "id"))
            continue
        rules[rule.id] = rule
        origin[rule.id] = name
    ordered = tuple(rules[key] for key in sorted(rules))
    return RuleSet(ordered, digest_of(files), origin, tables), errors


def _yaml(text: str, name: str) -> tuple[Any, Places]:
    """Read YAML; its library is slow to import, and not needed where the rules are cached."""
    from forensics import yamlio

    return yamlio.load(text, name)


def parse_rule(text: str, name: str) -> Rule:
    """Read one rule file.

    Args:
        text: Its YAML.
        name: `…/<family>/<name>.yaml`; the id must be `<family>.<name>`.

    Raises:
        RuleError: With file, line and key of the first problem.
    """
    data, places = _yaml(text, name)
    if not isinstance(data, dict):
        raise RuleError("a rule file holds one mapping", name, 1)
    data = dict(data)
    for key in ("match",):
        if key not in data:
            raise RuleError("this key is missing", name, 1, key)
        data[key] = _condition(data[key], f"$.{key}", places, name)
    for key in ("fixes", "next_steps"):
        for i, item in enumerate(_listed(data.get(key))):
            if isinstance(item, dict) and "when" in item:
                item["when"] = _condition(item["when"], f"$.{key}[{i}].when", places, name)
            if isinstance(item, dict) and isinstance(item.get("value"), int | float):
                item["value"] = str(item["value"])
    _text_captures(data)
    rule: Rule = _convert(data, Rule, "$", places, name)
    _check_ids(rule, places, name)
    for condition in walk(rule.match):
        _check_leaf(condition, name, places)
    return rule


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - YAML data
    """Return a list as it is; what should be one and is none is refused later."""
    return value if isinstance(value, list) else []


def _text_captures(data: dict[str, Any]) -> None:
    """Captures are text: write numbers of YAML back as text."""
    tests = data.get("tests")
    for kind in ("match", "no_match"):
        for case in _listed(tests.get(kind)) if isinstance(tests, dict) else []:
            captures = case.get("captures") if isinstance(case, dict) else None
            if isinstance(captures, dict):
                case["captures"] = {
                    k: v if isinstance(v, str) else str(v) for k, v in captures.items()
                }


def _convert(data: Any, kind: Any, path: str, places: Places, name: str) -> Any:  # noqa: ANN401
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `")
        where = path + where.rstrip("`").removeprefix("$")
        unknown = re.search(r"unknown field `([^`]+)`", problem)
        if unknown:
            where = f"{where}.{unknown[1]}"
            problem = "unknown key"
        missing = re.search(r"missing required field `([^`]+)`", problem)
        if missing:
            problem = f"the key {missing[1]} is missing"
        key = where.removeprefix("$.").removeprefix("$")
        raise RuleError(problem, name, _nearest(where, places), key or None) from None


def _nearest(path: str, places: Places) -> int | None:
    while path and path not in places:
        path = re.sub(r"(?:\.[^.\[\]]*|\[\d*\]|\[\.\.\.\])$", "", path) if path != "$" else ""
    return places.get(path)


def _condition(data: Any, path: str, places: Places, name: str) -> Condition:  # noqa: ANN401
    """Turn one node of a `match` tree into a condition."""
    if not isinstance(data, dict) or not data:
        raise RuleError("a condition is a mapping", name, _nearest(path, places), path[2:])
    parts = [_keyed(key, value, f"{path}.{key}", places, name) for key, value in data.items()]
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _keyed(key: str, value: Any, path: str, places: Places, name: str) -> Condition:  # noqa: ANN401
    line = _nearest(path, places)
    if key in COMPOSITES:
        if not isinstance(value, list) or not value:
            raise RuleError("takes a list of conditions", name, line, path[2:])
        items = tuple(_condition(v, f"{path}[{i}]", places, name) for i, v in enumerate(value))
        return COMPOSITES[key](items)
    if key not in LEAVES:
        known = ", ".join([*COMPOSITES, *LEAVES])
        raise RuleError(f"unknown condition (one of: {known})", name, line, path[2:])
    if key == "version" and isinstance(value, dict):
        value = {"ranges": value}
    elif key == "engine" and isinstance(value, str | list):
        value = {"name": [value] if isinstance(value, str) else value}
    elif isinstance(value, str) and key in _SHORT:
        value = {_SHORT[key]: value}
    if isinstance(value, dict):
        value = {k: [v] if k in _LISTS and not isinstance(v, list) else v for k, v in value.items()}
    leaf: Condition = _convert(value, LEAVES[key], path, places, name)
    return leaf


def _check_ids(rule: Rule, places: Places, name: str) -> None:
    parts = name.removesuffix(".yaml").split("/")
    expected = ".".join(parts[-2:])
    if not _ID.match(rule.id) or (len(parts) > 1 and rule.id != expected):
        raise RuleError(f"must be {expected}, as the file's place says", name, places["$.id"], "id")
    if not 0 <= rule.confidence <= 1:
        raise RuleError("must lie between 0 and 1", name, places.get("$.confidence"), "confidence")


def _check_leaf(leaf: Condition, name: str, places: Places) -> None:
    for pattern in patterns_of(leaf):
        try:
            re.compile(pattern)
        except (re.error, OverflowError) as error:
            line = next((n for n in sorted(places.values()) if n), None)
            line = _line_of_text(pattern, places) or line
            raise RuleError(f"bad pattern {pattern!r}: {error}", name, line, "match") from None


def _line_of_text(_: str, places: Places) -> int | None:
    return places.get("$.match")


def patterns_of(leaf: Condition) -> list[str]:
    """Return the regular expressions of one leaf."""
    if isinstance(leaf, LineLeaf):
        return [leaf.pattern]
    if isinstance(leaf, ExceptionLeaf) and leaf.message is not None:
        return [leaf.message]
    return []


def walk(condition: Condition | None) -> Iterable[Condition]:
    """Yield a condition and all below it, parents first."""
    if condition is None:
        return
    yield condition
    if isinstance(condition, All | AnyOf | NoneOf | Sequence):
        for item in condition.items:
            yield from walk(item)


def conditions_of(rule: Rule) -> Iterable[Condition]:
    """Yield every condition of a rule: of its match, its fixes and its next steps."""
    yield from walk(rule.match)
    extra: tuple[FixSpec | NextStepSpec, ...] = (*rule.fixes, *rule.next_steps)
    for item in extra:
        yield from walk(item.when)


def placeholders(rule: Rule) -> dict[str, str]:
    """Return every `{placeholder}` of a rule's texts with the key in which it stands."""
    texts = {"title": rule.title, "cause": rule.cause}
    for i, fix in enumerate(rule.fixes):
        for key in ("target", "value", "text", "why"):
            texts[f"fixes[{i}].{key}"] = getattr(fix, key) or ""
    for i, step in enumerate(rule.next_steps):
        texts[f"next_steps[{i}]"] = f"{step.command} {step.why} {step.tells}"
    return {found: key for key, text in texts.items() for found in _PLACEHOLDER.findall(text)}


def captures_of(rule: Rule) -> set[str]:
    """Return the names that a rule's patterns capture."""
    found = {
        group
        for condition in walk(rule.match)
        for pattern in patterns_of(condition)
        for group in re.compile(pattern).groupindex
    }
    listed = any(isinstance(condition, ListedLeaf) for condition in walk(rule.match))
    found |= {c.name for c in walk(rule.match) if isinstance(c, HostLeaf)}
    return found | (LISTED_CAPTURES if listed else set())


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a rule file, for editors.

    The tree under `match` is described as people write it (short leaves, one value or a list),
    not as the loader stores it.
    """
    _, components = msgspec.json.schema_components([Rule, *LEAVES.values()])
    leaves: dict[str, Any] = {}
    for key, kind in LEAVES.items():
        found = dict(components[kind.__name__])
        found["properties"] = {
            k: {"anyOf": [v["items"], v]} if k in _LISTS and "items" in v else v
            for k, v in found["properties"].items()
            if k != "is"
        }
        found["required"] = [k for k in found.get("required", []) if k in found["properties"]]
        leaves[key] = {"anyOf": [{"type": "string"}, found]} if key in _SHORT else found
    one_or_more = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    leaves["engine"] = one_or_more
    leaves["version"] = {"type": "object", "additionalProperties": {"type": "string"}}
    node = {"$ref": "#/$defs/Condition"}
    many = {"type": "array", "items": node, "minItems": 1}
    schema = dict(components["Rule"])
    schema["properties"] = {**schema["properties"], "match": node}
    defs = {
        k: v
        for k, v in components.items()
        if k not in {"Rule", *(c.__name__ for c in get_args(Condition))}
    }
    for spec in ("FixSpec", "NextStepSpec"):
        defs[spec] = {**defs[spec], "properties": {**defs[spec]["properties"], "when": node}}
    defs["Condition"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": {**dict.fromkeys(COMPOSITES, many), **leaves},
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A rule of llm-forensics"
    text = msgspec.json.encode({**schema, "$defs": defs}).decode()
    result: dict[str, Any] = msgspec.json.decode(text.replace("#/$defs/All", "#/$defs/Condition"))
    return result


def with_rule(rules: RuleSet, rule: Rule, file: str) -> RuleSet:
    """Return a rule set with one rule added or replaced."""
    others = {r.id: r for r in rules.rules} | {rule.id: rule}
    ordered = tuple(others[key] for key in sorted(others))
    return RuleSet(ordered, rules.digest, {**rules.files, rule.id: file}, rules.tables)


def load(folders: Iterable[Path] = (), *, builtin: bool = True) -> RuleSet:
    """Load the shipped rules and those of more folders.

    Args:
        folders: Further rule packs; a rule there with a shipped id replaces the shipped one.
        builtin: Whether to begin with the shipped rules.

    Raises:
        RuleError: The first problem found; `parse` gives all of them.
    """
    merged, errors = load_all(folders, builtin=builtin)
    if errors:
        raise errors[0]
    return merged


def load_all(
    folders: Iterable[Path] = (), *, builtin: bool = True
) -> tuple[RuleSet, list[RuleError]]:
    """Load as `load` does, but return all problems instead of raising the first."""
    packs = [read_folder(builtin_folder())] if builtin else []
    packs += [read_folder(Path(folder)) for folder in folders]
    return merge([parse(pack) for pack in packs])


def merge(
    packs: list[tuple[RuleSet, list[RuleError]]],
) -> tuple[RuleSet, list[RuleError]]:
    """Join packs: later ones replace rules and tables of earlier ones."""
    rules: dict[str, Rule] = {}
    files: dict[str, str] = {}
    tables: dict[str, Any] = {}
    for pack, _ in packs:
        rules.update({rule.id: rule for rule in pack.rules})
        files.update(pack.files)
        tables.update(pack.tables)
    digest = (
        packs[0][0].digest
        if len(packs) == 1
        else hashlib.sha256("".join(p.digest for p, _ in packs).encode()).hexdigest()
    )
    joined = RuleSet(tuple(rules[k] for k in sorted(rules)), digest, files, tables)
    return joined, [error for _, errors in packs for error in errors]
