"""Command lines inside YAML: lists of words, one string, or a script given to a shell.

What compose files and Kubernetes manifests share. Words know which node they stand in; a change
is quoted first for the shell (where there is one) and then for YAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from forensics.launch import quoting, shell, yamltext
from forensics.launch.commandline import find_server, skip_starters
from forensics.launch.forms import Form, words_for
from forensics.launch.model import CannotChange, Launch, Splice, Word, line_of

_SHELLS = {"bash", "sh", "dash", "zsh"}
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:?[-?+])([^{}]*))?\}|\$(\w+)")


class Spot(Struct, frozen=True):
    """Where a word stands: `item` of a list, or in the `text` of a scalar."""

    kind: str
    node: Any
    sequence: Any = None


class Line(Struct):
    """A command line found in YAML: its words and where each stands."""

    words: list[Word]
    spots: dict[int, Spot]
    problems: list[tuple[str, int, str]]


def interpolate(value: str, variables: Mapping[str, str] | None) -> tuple[str, bool]:
    """Fill compose's variables in; None: the file knows none, text is text.

    Returns:
        The text, and whether it is sure (a variable without value or default stays written).
    """
    if variables is None or "$" not in value:
        return value, True
    sure = True

    def fill(found: re.Match[str]) -> str:
        nonlocal sure
        if found[0] == "$$":
            return "$"
        name = found[1] or found[4]
        known = variables.get(name)
        if known is not None and (known or not (found[2] or "").startswith(":")):
            return known
        if found[2] in {"-", ":-"}:
            return found[3] or ""
        sure = False
        return found[0]

    return _VARIABLE.sub(fill, value), sure


def read_line(
    text: str,
    nodes: Sequence[Any],
    variables: Mapping[str, str] | None,
    before: Sequence[Word] = (),
) -> Line:
    """Read one command line from the nodes that make it up (entrypoint, command, args …).

    Args:
        text: The whole text.
        nodes: Scalars (one string, split as a shell would) or lists of words; None is skipped.
        variables: What the file's own variables are; None where it has none.
        before: Words that stand before them.
    """
    line = Line([*before], {}, [])
    for node in nodes:
        if node is None:
            continue
        if node.id == "scalar":
            if node.value:
                _take_text(text, node, line, variables, script=False)
            continue
        for item in node.value if node.id == "sequence" else ():
            if item.id == "scalar":
                _take_item(text, node, item, line, variables)
    return line


def _take_item(
    text: str,
    sequence: Any,  # noqa: ANN401
    item: Any,  # noqa: ANN401
    line: Line,
    variables: Mapping[str, str] | None,
) -> None:
    before = [w.value for w in line.words[-2:]]
    shells = len(before) == 2 and before[0].rpartition("/")[2] in _SHELLS  # noqa: PLR2004
    if shells and re.fullmatch(r"-[a-z]*c", before[1]):
        known = len(line.words)
        _take_text(text, item, line, variables, script=True)
        if len(line.words) > known:
            return
    value, sure = interpolate(item.value, variables)
    start, end = yamltext.span(item)
    word = Word(value, start, end, sure)
    line.words.append(word)
    line.spots[start] = Spot("item", item, sequence)
    if re.match(r"--?[A-Za-z][\w.-]*[ \t]+\S", value):
        line.problems.append(("two-words-in-one-item", line_of(text, start), value))


def _take_text(
    text: str,
    node: Any,  # noqa: ANN401
    line: Line,
    variables: Mapping[str, str] | None,
    *,
    script: bool,
) -> None:
    """Take the words of a scalar; of a script only those of the command that starts a server."""
    body, offsets = yamltext.inner(text, node)
    if not script:
        body = re.sub(r"(?<!\\)\n", " ", body)
    known = dict(variables or {})
    parsed = shell.parse(body, known)
    commands = parsed.commands
    words: Sequence[Word] = commands[0].words if commands else ()
    if script:
        found = [c.words[skip_starters(c.words) :] for c in commands]
        words = next((w for w in found if find_server(w) is not None), ())
    for word in words:
        start = offsets[word.start]
        value = word.value.replace("$$", "$") if variables is not None else word.value
        line.words.append(Word(value, start, offsets[word.end], word.exact, word.whole))
        line.spots[start] = Spot("text", node)


class YamlForm(Form):
    """A launch inside YAML.

    Args:
        launch: What was read.
        tail: The word after which arguments go.
        line: Its command line.
        dollars: Whether a dollar sign in text has to be doubled.
        empty: Makes the splice that writes a command where there is none yet.
    """

    def __init__(
        self,
        launch: Launch,
        tail: Word | None,
        line: Line,
        *,
        dollars: bool,
        empty: Callable[[list[str]], list[Splice]] | None = None,
    ) -> None:
        super().__init__(launch, tail)
        self.line, self.dollars, self._empty = line, dollars, empty

    def _spot(self, word: Word) -> Spot:
        self.must_change([word])
        spot = self.line.spots.get(word.start)
        if spot is None:
            raise CannotChange(f"{word.value} is not written in this file")
        return spot

    def _yaml(self, value: str) -> str:
        return quoting.compose_text(value) if self.dollars else value

    def _in_text(self, value: str, node: Any) -> str:  # noqa: ANN401
        """Quote a word for the shell and then for the scalar that it stands in."""
        text = self._yaml(quoting.shell(value))
        if node.style == "'":
            return text.replace("'", "''")
        if node.style == '"':
            return text.replace("\\", "\\\\").replace('"', '\\"')
        if node.style is None and re.search(r":\s|\s#|:\Z", text):
            raise CannotChange("the value does not fit into a YAML text without quotes")
        return text

    def replace(self, word: Word, value: str) -> list[Splice]:
        """Write another value in a word's place."""
        spot = self._spot(word)
        if spot.kind == "item":
            return [yamltext.put(self.launch.text, spot.node, self._yaml(value))]
        return [Splice(word.start, word.end, self._in_text(value, spot.node))]

    def remove(self, words: Sequence[Word]) -> list[Splice]:
        """Take neighbouring words out."""
        text = self.launch.text
        spots = [self._spot(word) for word in words]
        if all(spot.kind == "item" for spot in spots):
            if len({id(spot.sequence) for spot in spots}) == 1 and spots[0].sequence.flow_style:
                return [yamltext.drop_flow(text, words[0].start, words[-1].end)]
            return _together([yamltext.drop_item(text, s.sequence, s.node) for s in spots])
        start, end = words[0].start, words[-1].end
        gap = re.search(r"(?:[ \t]|\\?\r?\n)*\Z", text[:start])
        begin = gap.start() if gap else start
        first = spots[0].node
        if begin > first.start_mark.index + 1 and text[begin - 1] not in "|>":
            return [Splice(begin, end, "")]
        after = re.compile(r"(?:[ \t]|\\?\r?\n)*").match(text, end)
        return [Splice(start, after.end() if after else end, "")]

    def insert(self, after: Word, values: Sequence[str]) -> list[Splice]:
        """Write new words after another."""
        spot = self._spot(after)
        text = self.launch.text
        if spot.kind == "item":
            scalars = [
                quoting.yaml_scalar(self._yaml(v), self._style(spot.sequence)) for v in values
            ]
            if self._joins() and len(scalars) == 2 and values[0].startswith("--"):  # noqa: PLR2004
                joined = self._yaml(f"{values[0]}={values[1]}")
                scalars = [quoting.yaml_scalar(joined, self._style(spot.sequence))]
            return [yamltext.add_item(text, spot.sequence, scalars, spot.node)]
        separator = " "
        for word in self.line.words:
            gap = re.search(r"(?:[ \t]|\\?\r?\n)*\Z", text[: word.start])
            if word.value.startswith("-") and gap and "\n" in gap[0] and ">" not in gap[0]:
                indent = gap[0].rpartition("\n")[2]
                separator = f" \\\n{indent}" if "\\" in gap[0] else f"\n{indent}"
        body = " ".join(self._in_text(value, spot.node) for value in values)
        return [Splice(after.end, after.end, f"{separator}{body}")]

    def _style(self, sequence: Any) -> str | None:  # noqa: ANN401
        styles = [
            i.style for i in sequence.value if i.id == "scalar" and i.style in {"'", '"', None}
        ]
        return styles[0] if styles and all(s == styles[0] for s in styles) else None

    def _joins(self) -> bool:
        """Say whether this list writes `--name=value` as its habit."""
        joined = sum(option.joined for option in self.launch.arguments)
        apart = sum(len(option.words) > 1 for option in self.launch.arguments)
        return joined > apart

    def _append(self, name: str, value: str | None) -> list[Splice]:
        if self.tail is None and self._empty is not None:
            return self._empty(words_for(name, value))
        return super()._append(name, value)


def _together(splices: list[Splice]) -> list[Splice]:
    """Join splices that touch or overlap (neighbouring items of a list on one line)."""
    found: list[Splice] = []
    for one in sorted(splices):
        if found and one.start <= found[-1].end:
            found[-1] = Splice(found[-1].start, max(one.end, found[-1].end), "")
        else:
            found.append(one)
    return found
