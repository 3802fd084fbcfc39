"""YAML documents with places: what stands where, and splices that change it and nothing else.

ruamel.yaml composes (anchors, aliases and merge keys resolved, every node with its place); the
text itself is never rendered, so comments, quotes and layout survive whatever is changed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from forensics.errors import SourceError
from forensics.launch import quoting
from forensics.launch.model import CannotChange, Splice

MAX_CHARS = 2_000_000
_MAX_DEPTH = 60
#: Aliases make a small text large: no real file of this kind comes near.
_MAX_NODES = 200_000
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "0": "\0", " ": " "}


class Entry(Struct, frozen=True):
    """One key of a mapping, with the mapping that it really stands in (merge keys resolved)."""

    key: str
    node: Any
    key_node: Any
    mapping: Any


def documents(text: str, name: str) -> list[Any]:
    """Return the root nodes of all documents.

    Raises:
        SourceError: It is no YAML.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 - only where YAML is read
    from ruamel.yaml.error import ReusedAnchorWarning, YAMLError  # noqa: PLC0415

    if len(text) > MAX_CHARS:
        raise SourceError(f"{name} is too large for a launch file")
    try:
        with warnings.catch_warnings():
            # An anchor that is set again counts from there on, as in every reader.
            warnings.simplefilter("ignore", ReusedAnchorWarning)
            nodes = list(YAML(typ="rt", pure=True).compose_all(text))
        found = [node for node in nodes if node is not None]
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        place = f", line {mark.line + 1}" if mark else ""
        raise SourceError(f"{name} is no valid YAML{place}", problem) from None
    except (RecursionError, ValueError) as error:
        raise SourceError(f"{name} is no valid YAML", str(error)[:200]) from None
    for node in found:
        _count(node, 0, [0], name)
    return found


def _count(node: Any, depth: int, seen: list[int], name: str) -> None:  # noqa: ANN401
    seen[0] += 1
    if depth > _MAX_DEPTH or seen[0] > _MAX_NODES:
        raise SourceError(f"{name} is nested too deeply, or its aliases make it too large")
    if node.id == "mapping":
        for key, value in node.value:
            _count(key, depth + 1, seen, name)
            _count(value, depth + 1, seen, name)
    elif node.id == "sequence":
        for child in node.value:
            _count(child, depth + 1, seen, name)


def entries(mapping: Any) -> list[Entry]:  # noqa: ANN401 - ruamel's nodes
    """Return the keys of a mapping in order; its own win over merged ones."""
    found: dict[str, Entry] = {}
    merged: list[Entry] = []
    if hasattr(mapping, "entries"):
        return list(mapping.entries())  # put together of several
    if mapping is None or mapping.id != "mapping":
        return []
    for key, value in mapping.value:
        if key.id != "scalar":
            continue
        if key.value == "<<":
            for source in value.value if value.id == "sequence" else [value]:
                merged += entries(source)
        else:
            found[key.value] = Entry(key.value, value, key, mapping)
    for entry in merged:
        found.setdefault(entry.key, entry)
    return list(found.values())


def get(mapping: Any, *path: str) -> Any:  # noqa: ANN401
    """Return the node at a path of keys, None where there is none."""
    for key in path:
        entry = entry_of(mapping, key)
        if entry is None:
            return None
        mapping = entry.node
    return mapping


def entry_of(mapping: Any, key: str) -> Entry | None:  # noqa: ANN401
    """Return one key of a mapping."""
    return next((e for e in entries(mapping) if e.key == key), None)


def items(node: Any) -> list[Any]:  # noqa: ANN401
    """Return the items of a list; a lone scalar is a list of one."""
    if node is None:
        return []
    if node.id == "sequence":
        return list(node.value)
    return [node] if node.id == "scalar" and node.value != "" else []


def scalar(node: Any) -> str | None:  # noqa: ANN401
    """Return a scalar as text, None where the node is none or empty."""
    return node.value if node is not None and node.id == "scalar" and node.value != "" else None


def span(node: Any) -> tuple[int, int]:  # noqa: ANN401
    """Return where a node begins and where its last character stands."""
    return node.start_mark.index, leaf_end(node)


def leaf_end(node: Any) -> int:  # noqa: ANN401
    """Return where the text of a node ends (block collections end where their last item does)."""
    flow = getattr(node, "flow_style", None)
    if node.id != "scalar" and not flow and node.value:
        last = node.value[-1]
        if node.id == "mapping":
            end = leaf_end(last[1])
            return max(end, leaf_end(last[0]))
        return leaf_end(last)
    return int(node.end_mark.index)


def inner(text: str, node: Any) -> tuple[str, list[int]]:  # noqa: ANN401
    """Return a scalar's text and the offset of each of its characters (and of its end).

    Folding of lines is left out: a line break stays one, so that places can be told.
    """
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    if node.style in {"|", ">"}:
        begin = text.find("\n", start, end) + 1 or end
        body = text[begin:end].rstrip("\n ")
        return body, list(range(begin, begin + len(body) + 1))
    if node.style not in {"'", '"'}:
        return text[start:end], list(range(start, end + 1))
    out, offsets, i = "", [], start + 1
    while i < end - 1:
        offsets.append(i)
        two = text[i : i + 2]
        if node.style == "'" and two == "''":
            out, i = out + "'", i + 2
        elif node.style == '"' and two[0] == "\\" and len(two) > 1:
            char, used = _escaped(text, i)
            out, i = out + char, i + used
        else:
            out, i = out + text[i], i + 1
    return out, [*offsets, end - 1]


def _escaped(text: str, i: int) -> tuple[str, int]:
    """Return the character that an escape in double quotes stands for, and its length."""
    digits = {"x": 2, "u": 4, "U": 8}.get(text[i + 1], 0)
    if digits:
        return chr(int(text[i + 2 : i + 2 + digits], 16)), 2 + digits
    return _ESCAPES.get(text[i + 1], text[i + 1]), 2


# --- changes -----------------------------------------------------------------------------------


def written(node: Any) -> Any:  # noqa: ANN401
    """Return the node that stands in the given text; None if it came from another one."""
    return getattr(node, "written", node)


def _here(node: Any) -> Any:  # noqa: ANN401
    found = written(node)
    if found is None:
        raise CannotChange(f"it is written in {node.source}")
    return found


def put(text: str, node: Any, value: str) -> Splice:  # noqa: ANN401
    """Write another scalar in a scalar's place, quoted as it was; variables keep their names."""
    start, end = span(_here(node))
    raw = text[start:end]
    default = re.fullmatch(r"(['\"]?)\$\{\w+:?-([^{}$]*)\}\1", raw)
    if default and re.fullmatch(r"[\w./:@+-]+", value):
        return Splice(start + default.start(2), start + default.end(2), value)
    if node.style in {"|", ">"}:
        end = start + len(text[start:end].rstrip("\n "))
        return Splice(start, end, quoting.yaml_scalar(value))
    style = node.style if node.style in {"'", '"'} else None
    written = quoting.yaml_scalar(value, style)
    return Splice(start, end, f" {written}" if start == end and text[start - 1] == ":" else written)


def add_key(text: str, mapping: Any, key: str, lines: list[str]) -> Splice:  # noqa: ANN401
    """Write a new key into a mapping, beside its others.

    Args:
        text: The text.
        mapping: The mapping.
        key: The key.
        lines: Its value: one line, or an empty one and the lines below with relative indent.
    """
    mapping = _here(mapping)
    own = [(k, v) for k, v in mapping.value if k.id == "scalar"]
    if mapping.flow_style or not own:
        if len(lines) > 1:
            raise CannotChange(f"{key} does not fit into a mapping on one line")
        if own:
            end = leaf_end(own[-1][1])
            return Splice(end, end, f", {key}: {lines[0]}")
        if not mapping.flow_style:
            raise CannotChange(f"there is no place for {key}")
        start = int(mapping.start_mark.index) + 1
        return Splice(start, start, f"{key}: {lines[0]}")
    column = own[0][0].start_mark.column
    single = [v for _, v in own if v.id == "scalar" and v.style not in {"|", ">"} and v.value]
    indent = " " * column
    body = f"{key}: {lines[0]}".rstrip() + "".join(f"\n{indent}{line}" for line in lines[1:])
    if single and text.count("\n", *span(single[-1])) == 0:
        return _line_after(text, leaf_end(single[-1]), f"{indent}{body}")
    start = int(own[0][0].start_mark.index)
    return Splice(start, start, f"{body}\n{indent}")


def _line_after(text: str, offset: int, line: str) -> Splice:
    end = text.find("\n", offset)
    if end < 0:
        return Splice(len(text), len(text), f"\n{line}")
    return Splice(end + 1, end + 1, f"{line}\n")


def drop_key(text: str, entry: Entry) -> Splice:
    """Take a key out of its mapping."""
    _here(entry.node)
    if entry.mapping.flow_style:
        return drop_flow(text, int(entry.key_node.start_mark.index), leaf_end(entry.node))
    end = max(leaf_end(entry.node), int(entry.key_node.end_mark.index))
    return _drop_lines(text, int(entry.key_node.start_mark.index), end)


def add_item(text: str, sequence: Any, scalars: list[str], after: Any = None) -> Splice:  # noqa: ANN401
    """Write new items into a list, at its end or after an item."""
    sequence = _here(sequence)
    last = _here(after) if after is not None else sequence.value[-1]
    start, end = span(last)
    if sequence.flow_style:
        gap = re.search(r"\n[ \t]*\Z", text[:start])
        return Splice(end, end, "".join(f",{gap[0] if gap else ' '}{one}" for one in scalars))
    dash = text.rfind("-", 0, start)
    column = dash - text.rfind("\n", 0, dash) - 1
    if text[text.rfind("\n", 0, dash) + 1 : dash].strip():
        raise CannotChange("this list is written in a way that has no room for more")
    if last.id == "scalar" and last.style in {"|", ">"}:
        end = start + len(text[start:end].rstrip("\n "))
    return _line_after(text, end, "\n".join(f"{' ' * column}- {one}" for one in scalars))


def drop_item(text: str, sequence: Any, item: Any) -> Splice:  # noqa: ANN401
    """Take an item out of a list."""
    start, end = span(_here(item))
    if _here(sequence).flow_style:
        return drop_flow(text, start, end)
    return _drop_lines(text, text.rfind("-", 0, start), end)


def _drop_lines(text: str, start: int, end: int) -> Splice:
    """Take whole lines out, from the one of `start` to the one of `end`."""
    begin = text.rfind("\n", 0, start) + 1
    if text[begin:start].strip():
        raise CannotChange("it shares its line with something else")
    while end > start and text[end - 1] in "\n ":
        end -= 1
    stop = text.find("\n", end)
    return Splice(begin, len(text) if stop < 0 else stop + 1, "")


def drop_flow(text: str, start: int, end: int) -> Splice:
    """Take a stretch of a list or mapping on one line out, with one comma."""
    behind = re.compile(r"\s*,\s*").match(text, end)
    if behind:
        return Splice(start, behind.end(), "")
    before = re.search(r"\s*,\s*\Z", text[:start])
    return Splice(before.start() if before else start, end, "")


def walk(node: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield a node and all below it."""
    yield node
    if node.id == "mapping":
        for key, value in node.value:
            yield from walk(key)
            yield from walk(value)
    elif node.id == "sequence":
        for child in node.value:
            yield from walk(child)
