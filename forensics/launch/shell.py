"""Shell scripts to commands, each a list of words with their places, by a real grammar.

tree-sitter-bash parses; this module decodes its words (quotes, variables and arrays defined above,
`${X:-default}`) and leaves what only running could tell (`$(…)`, variables from outside) as it is
written. Nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from forensics.launch.model import Word

#: A script is a page or two.
MAX_CHARS = 1_000_000
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "e": "\x1b", "a": "\a"}
_TEXTUAL = {"word", "number", "variable_name", "string_content", "special_variable_name"}
_MAX_DEPTH = 200


class Command(Struct, frozen=True):
    """A simple command.

    Attributes:
        words: Its words; assignments before it are not among them.
        assignments: `NAME=value` before the command's name, with the place of the whole.
        start: Where it begins (assignments included).
        end: Where it ends.
    """

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...]
    start: int
    end: int


class Script(Struct):
    """What a script does, as far as it can be read without running it.

    Attributes:
        commands: Simple commands in order of text.
        exported: `export NAME=value` in order, with the place of each assignment.
        variables: Variables (text, or words of an array) as they are at the end.
        comments: Places of comments.
        broken: Whether the grammar could not read all of it.
    """

    commands: list[Command]
    exported: list[tuple[str, Word]]
    variables: dict[str, str | tuple[Word, ...]]
    comments: list[tuple[int, int]]
    broken: bool = False


def parse(text: str, variables: Mapping[str, str] | None = None) -> Script:
    """Read a script.

    Args:
        text: The script.
        variables: Variables that are known from elsewhere.
    """
    from tree_sitter import Language, Parser  # noqa: PLC0415 - only where a script is read
    from tree_sitter_bash import language  # noqa: PLC0415

    raw = text[:MAX_CHARS].encode("utf-8", "replace")
    tree = Parser(Language(language())).parse(raw)
    reader = _Reader(text, _offsets(text[:MAX_CHARS], raw), dict(variables or {}))
    reader.walk(tree.root_node, 0)
    reader.script.broken = tree.root_node.has_error
    return reader.script


def _offsets(text: str, raw: bytes) -> list[int] | None:
    """Return the character of each byte, None where they are the same."""
    if len(text) == len(raw):
        return None
    found: list[int] = []
    for number, char in enumerate(text):
        found += [number] * len(char.encode("utf-8", "replace"))
    return [*found, len(text)]


class _Reader:
    def __init__(
        self, text: str, offsets: list[int] | None, variables: dict[str, str | tuple[Word, ...]]
    ) -> None:
        self.text = text
        self.offsets = offsets
        self.script = Script([], [], variables, [])
        self.origins: dict[str, tuple[int, int]] = {}

    def at(self, byte: int) -> int:
        return self.offsets[byte] if self.offsets else byte

    def source(self, node: Any) -> str:  # noqa: ANN401 - tree_sitter.Node
        return self.text[self.at(node.start_byte) : self.at(node.end_byte)]

    # --- statements ----------------------------------------------------------------------------

    def walk(self, node: Any, depth: int) -> None:  # noqa: ANN401
        """Take what stands in a node, in order of text."""
        if depth > _MAX_DEPTH:
            self.script.broken = True
            return
        kind = node.type
        if kind == "comment":
            self.script.comments.append((self.at(node.start_byte), self.at(node.end_byte)))
        elif kind == "command":
            self.command(node)
        elif kind == "variable_assignment":
            self.assignment(node)
        elif kind == "declaration_command":
            exports = node.children[0].type == "export" if node.children else False
            for child in node.children:
                if child.type == "variable_assignment":
                    self.assignment(child, exports=exports)
                elif child.type == "variable_name" and exports:
                    name = self.source(child)
                    value = self.script.variables.get(name)
                    if isinstance(value, str):
                        place = self.place(child, value)
                        self.script.exported.append((name, place))
        else:
            for child in node.children:
                self.walk(child, depth + 1)

    def command(self, node: Any) -> None:  # noqa: ANN401
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        for child in node.children:
            if child.type == "variable_assignment":
                name, word = self._assigned(child)
                assignments.append((name, word))
            elif child.type == "command_name" and child.children:
                words += self.words(child.children[0])
            elif child.type == "comment":
                self.script.comments.append((self.at(child.start_byte), self.at(child.end_byte)))
            elif child.is_named and child.type not in {"file_redirect", "herestring_redirect"}:
                words += self.words(child)
        start, end = self.at(node.start_byte), self.at(node.end_byte)
        self.script.commands.append(Command(tuple(words), tuple(assignments), start, end))

    def assignment(self, node: Any, *, exports: bool = False) -> None:  # noqa: ANN401
        array = next((c for c in node.children if c.type == "array"), None)
        if array is None:
            name, word = self._assigned(node)
            appends = any(c.type == "+=" for c in node.children)
            before = self.script.variables.get(name)
            value = word.value
            if appends and isinstance(before, str):
                value = before + value
            self.script.variables[name] = value
            self.origins.pop(name, None)
            if not appends and word.end > word.start:
                self.origins[name] = (word.start, word.end)
            if exports:
                self.script.exported.append((name, word))
            return
        name = self.source(node.children[0])
        words: list[Word] = []
        for child in array.children:
            if child.type == "comment":
                self.script.comments.append((self.at(child.start_byte), self.at(child.end_byte)))
            elif child.is_named:
                words += self.words(child)
        before = self.script.variables.get(name)
        if any(c.type == "+=" for c in node.children) and isinstance(before, tuple):
            words = [*before, *words]
        self.script.variables[name] = tuple(words)

    def _assigned(self, node: Any) -> tuple[str, Word]:  # noqa: ANN401
        name = self.source(node.children[0])
        value = node.children[-1] if node.children[-1].type not in {"=", "+="} else None
        if value is None:
            end = self.at(node.end_byte)
            return name, Word("", end, end)
        text, exact = self.decode(value)
        return name, self.place(value, text, exact=exact)

    def place(self, node: Any, value: str, *, exact: bool = True) -> Word:  # noqa: ANN401
        return Word(value, self.at(node.start_byte), self.at(node.end_byte), exact)

    # --- words ---------------------------------------------------------------------------------

    def words(self, node: Any) -> Iterator[Word]:  # noqa: ANN401
        """Yield the words that one word of the text becomes."""
        array = self._array(node)
        if array is not None:
            yield from array
            return
        value, exact = self.decode(node)
        bare = node.type in {"simple_expansion", "expansion"}
        if bare and exact and (value.split() != [value]):
            # An unquoted variable is split into words; an empty one vanishes.
            for part in value.split():
                place = self.place(node, part)
                yield Word(part, place.start, place.end, whole=False)
            return
        if node.type == "concatenation" and node.children[0].type == "word":
            braces = _braces(self.source(node))
            if braces:
                place = self.place(node, "")
                for part in braces:
                    yield Word(part, place.start, place.end, whole=False)
                return
        place = self.place(node, value, exact=exact)
        yield Word(value, place.start, place.end, exact, origin=self._origin(place))

    def _origin(self, place: Word) -> tuple[int, int] | None:
        """Return where the value of a word stands that is nothing but a variable."""
        source = self.text[place.start : place.end]
        found = re.fullmatch(r'"?\$(?:(\w+)|\{(\w+)(?::?-([\w./:@+-]*))?\})"?', source)
        if found is None:
            return None
        name = found[1] or found[2]
        if name in self.script.variables:
            return self.origins.get(name)
        return (place.start + found.start(3), place.start + found.end(3)) if found[3] else None

    def _array(self, node: Any) -> tuple[Word, ...] | None:  # noqa: ANN401
        found = re.fullmatch(r'"?\$\{(\w+)\[[@*]\]\}"?', self.source(node))
        value = self.script.variables.get(found[1]) if found else None
        return value if isinstance(value, tuple) else None

    def decode(self, node: Any) -> tuple[str, bool]:  # noqa: ANN401 - one a kind of node
        """Return the text that a node stands for, and whether it is sure."""
        kind, source = node.type, self.source(node)
        if kind == "raw_string":
            return source[1:-1], True
        if kind == "ansi_c_string":
            return re.sub(r"\\(.)", lambda m: _ANSI.get(m[1], m[0]), source[2:-1]), True
        if kind in {"string", "translated_string"}:
            return self._string(node)
        if kind == "concatenation":
            return self._joined(node)
        if kind in {"simple_expansion", "expansion"}:
            return self._expansion(source)
        if kind in {"word", "number", "test_operator"} or not node.child_count:
            if kind in _TEXTUAL or kind == "test_operator" or not node.is_named:
                return re.sub(r"\\(\n?)(.?)", _unescape, source), True
            return source, False
        return source, False

    def _joined(self, node: Any) -> tuple[str, bool]:  # noqa: ANN401
        texts, sure, end = "", True, node.start_byte
        for child in node.children:
            texts += self.text[self.at(end) : self.at(child.start_byte)]
            text, exact = self.decode(child)
            texts, sure, end = texts + text, sure and exact, child.end_byte
        return texts, sure

    def _string(self, node: Any) -> tuple[str, bool]:  # noqa: ANN401
        start, end = self.at(node.start_byte) + 1, self.at(node.end_byte) - 1
        if self.text[start - 1] == "$":
            start += 1
        out, sure, place = "", True, start
        for child in node.children:
            if child.type in {
                "simple_expansion",
                "expansion",
                "command_substitution",
                "arithmetic_expansion",
            }:
                out += _double(self.text[place : self.at(child.start_byte)])
                text, exact = self.decode(child)
                out, sure, place = out + text, sure and exact, self.at(child.end_byte)
        return out + _double(self.text[place:end]), sure

    def _expansion(self, source: str) -> tuple[str, bool]:
        found = re.fullmatch(r"\$(?:(\w+)|\{(\w+)(?:(:?[-=?+])(.*))?\})", source, re.DOTALL)
        if found is None:
            return source, False
        name, operator, rest = found[1] or found[2], found[3], found[4]
        value = self.script.variables.get(name)
        if isinstance(value, str) and (value or not operator):
            return (value, "$" not in value) if operator not in {"+", ":+"} else (rest, False)
        if operator in {"-", ":-", "=", ":="} and "$" not in rest and "`" not in rest:
            return rest.strip("\"'"), True
        return source, False


def _double(text: str) -> str:
    return re.sub(r'\\(["\\$`]|\n)', lambda m: "" if m[1] == "\n" else m[1], text)


def _unescape(found: re.Match[str]) -> str:
    return found[2]


def _braces(source: str) -> list[str]:
    """Return what brace expansion makes of an unquoted word, empty if it does nothing."""
    found = re.fullmatch(r"([^{}'\"$]*)\{(.*,.*)\}([^{}'\"$]*)", source, re.DOTALL)
    if found is None or "{" in found[2] or "}" in found[2]:
        return []
    parts = re.sub(r"[\"']", "", found[2]).split(",")
    return [f"{found[1]}{part}{found[3]}" for part in parts]
