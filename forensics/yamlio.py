"""YAML with places: plain data from a file, and the line of every key in it.

Only what JSON could say is accepted: no tags, no anchors (an alias can make a small file huge),
no duplicate keys. This is the one door through which YAML comes in.
"""

from __future__ import annotations

from typing import Any

import yaml

from forensics.errors import RuleError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover - libyaml is part of PyYAML's wheels
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

#: A rule file is a page or two; a table a few hundred kilobytes.
MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 40
_TAGS = "tag:yaml.org,2002:"
_COLLECTIONS = (yaml.MappingNode, yaml.SequenceNode)
_COLLECTION_TAGS = {f"{_TAGS}map", f"{_TAGS}seq"}

Places = dict[str, int]


def load(text: str, file: str) -> tuple[Any, Places]:
    """Read one YAML document.

    Args:
        text: The document.
        file: Its name for messages.

    Returns:
        The data (dicts, lists, str, int, float, bool, None) and the 1-based line of each value
        by its path, written as msgspec writes paths (`$.fixes[0].action`).

    Raises:
        RuleError: The text is no YAML, is too large or deep, or uses tags, anchors, aliases or
            a key twice.
    """
    if len(text) > MAX_BYTES:
        raise RuleError(f"larger than {MAX_BYTES} bytes", file)
    loader = _Loader(text)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise RuleError("anchors and aliases are not allowed", file, _line(event))
        node = loader.get_single_node()
        places: Places = {}
        data = _build(loader, node, "$", places, file, 0) if node is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise RuleError(
            f"not valid YAML: {problem}", file, mark.line + 1 if mark else None
        ) from None
    except RecursionError:
        raise RuleError("nested too deeply", file) from None
    finally:
        loader.dispose()
    return data, places


def _line(thing: Any) -> int:  # noqa: ANN401 - yaml nodes and events share no typed base
    return int(thing.start_mark.line) + 1


def _build(
    loader: Any,  # noqa: ANN401 - PyYAML's loaders have no common public type
    node: yaml.Node,
    path: str,
    places: Places,
    file: str,
    depth: int,
) -> Any:  # noqa: ANN401 - YAML data
    places[path] = _line(node)
    if depth > MAX_DEPTH:
        raise RuleError("nested too deeply", file, _line(node))
    plain = not isinstance(node, _COLLECTIONS) or node.tag in _COLLECTION_TAGS
    if not (plain and node.tag.startswith(_TAGS)):
        raise RuleError(f"the tag {node.tag} is not allowed", file, _line(node))
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node)
            if not isinstance(key, str):
                key = str(key_node.value)
            if key in found:
                raise RuleError("this key stands here twice", file, _line(key_node), key)
            places[f"{path}.{key}"] = _line(key_node)
            found[key] = _build(loader, value_node, f"{path}.{key}", places, file, depth + 1)
            places[f"{path}.{key}"] = _line(key_node)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [
            _build(loader, child, f"{path}[{i}]", places, file, depth + 1)
            for i, child in enumerate(node.value)
        ]
    value = loader.construct_object(node)
    # Dates and binary are YAML conveniences that no rule needs: keep what was written.
    return value if isinstance(value, str | int | float | bool | None) else node.value
