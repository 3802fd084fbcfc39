"""The text of systemd's units: settings with their places, words of a value, drop-ins.

Grammar: systemd.syntax(7), systemd.service(5) "Command lines", systemd.exec(5) "Environment". No
library reads it; the little that is needed is here: lines joined by a backslash, comments between
them, quotes with C escapes, `%%` and `$$`, `${NAME}` from `Environment=`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from forensics.launch.common import Beside, read_env_file
from forensics.launch.model import Variable, Word, line_of

SECTION = re.compile(r"^\[(\w[\w -]*)\]\s*$", re.MULTILINE)
_KEY = re.compile(r"^[ \t]*([A-Za-z]\w*)[ \t]*=[ \t]*", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n(?:[ \t]*[#;][^\n]*\n)*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_SPECIFIER = re.compile(r"%[A-Za-z]")
#: `systemctl cat` says before each part which file it is.
_PRINTED = re.compile(r"^# /\S+\.d/\S+\.conf$", re.MULTILINE)
_DROP_IN = re.compile(r"[^/]+\.(?:service|container)\.d/[^/]+\.conf\Z")
_MOST_DROP_INS = 50


class Setting(Struct, frozen=True):
    """One `Key=value` with the place of its value (continuation lines included).

    Attributes:
        key: Its key.
        start: Where its value begins.
        end: Where it ends.
        line_start: Where its line begins.
        text: The text that it stands in.
        section: The section that it stands in.
        file: The drop-in that it stands in; empty for the given file.
    """

    key: str
    start: int
    end: int
    line_start: int
    text: str
    section: str = ""
    file: str = ""

    @property
    def value(self) -> str:
        """Return the value as it is written, without blanks around it."""
        return self.text[self.start : self.end].strip()


def settings(text: str, file: str = "") -> Iterator[Setting]:
    """Yield the settings of a unit in order."""
    position, section = 0, ""
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        found = _KEY.match(text, position, end)
        titled = SECTION.match(text, position, end)
        section = titled[1] if titled else section
        if found is None or text[position:end].lstrip()[:1] in {"#", ";"}:
            position = end + 1
            continue
        stop = end
        while stop < len(text) and text[stop - 1] == "\\":
            joined = _CONTINUED.match(text, stop - 1)
            following = joined.end() if joined else stop + 1
            stop = text.find("\n", following)
            stop = len(text) if stop < 0 else stop
        yield Setting(found[1], found.end(), stop, position, text, section, file)
        position = stop + 1


def with_drop_ins(text: str, name: str, beside: Beside) -> tuple[list[Setting], list[str]]:
    """Return the settings of a unit and of the drop-ins beside it, as systemd puts them together.

    Drop-ins of `NAME.d` come after the unit, in the order of their names (systemd.unit(5)); for
    an instance `a@b.service` those of its template `a@.service.d` too.

    Args:
        text: The unit.
        name: Its name.
        beside: Reads files beside it.

    Returns:
        The settings in order, and what was read as well or not seen.
    """
    found = list(settings(text))
    path = name.replace("\\", "/")
    if _DROP_IN.search(path):
        return found, ["this is a drop-in: the unit that it changes was not seen"]
    base = path.rpartition("/")[2]
    if not base.endswith((".service", ".container")) or _PRINTED.search(text):
        return found, []
    template = re.sub(r"@[^@]+(?=\.\w+\Z)", "@", base)
    files: dict[str, str] = {}
    for folder in dict.fromkeys((template, base)):
        names = (beside(f"{folder}.d/") or "").splitlines()
        files |= {one: f"{folder}.d/{one}" for one in names if one.endswith(".conf")}
    limits = []
    for one in sorted(files)[:_MOST_DROP_INS]:
        body = beside(files[one])
        if body is None:
            limits.append(f"{files[one]} could not be read")
            continue
        limits.append(f"{files[one]} was read as well")
        found += settings(body.replace("\r\n", "\n"), files[one])
    return found, limits


def in_force(found: Sequence[Setting], key: str) -> list[Setting]:
    """Return the settings of one list key that count: an empty one takes back all before it."""
    kept: list[Setting] = []
    for setting in (s for s in found if s.key == key):
        kept = [*kept, setting] if setting.value else []
    return kept


def variables_of(
    found: Sequence[Setting], text: str, beside: Beside, anchor: int
) -> tuple[list[Setting], list[Variable]]:
    """Return the settings that set variables, and the variables; the last one wins.

    Args:
        found: All settings.
        text: The given unit.
        beside: Reads the environment files.
        anchor: What stands for a place in another file.
    """
    environment = in_force(found, "Environment")
    variables: list[Variable] = []
    for setting in environment:
        for word in words_in(setting, {}, anchor):
            key, equals, value = word.value.partition("=")
            if equals:
                variables.append(Variable(key, value, line_of(text, word.start)))
    for setting in in_force(found, "EnvironmentFile"):
        body = beside(setting.value.lstrip("-"))
        variables += [Variable(k, v) for k, v in read_env_file(body or "").items()]
    return environment, variables


def words_in(setting: Setting, variables: Mapping[str, str], anchor: int) -> list[Word]:
    """Split a setting's value into words; those of a drop-in have no place in the given file."""
    words = words_of(setting.text, setting.start, setting.end, variables)
    if not setting.file:
        return words
    return [Word(w.value, anchor, anchor, w.exact, whole=False) for w in words]


def words_of(text: str, start: int, end: int, variables: Mapping[str, str]) -> list[Word]:
    """Split a setting's value into words.

    Args:
        text: The unit.
        start: Where the value begins.
        end: Where it ends.
        variables: What `Environment=` sets, for `$NAME` and `${NAME}`.
    """
    found: list[Word] = []
    i = start
    while i < end:
        joined = _CONTINUED.match(text, i, end)
        if joined or text[i] in " \t\n":
            i = joined.end() if joined else i + 1
            continue
        begin, out = i, ""
        quote = ""
        while i < end and (
            quote or (text[i] not in " \t\n" and not _CONTINUED.match(text, i, end))
        ):
            char = text[i]
            if quote and char == quote:
                quote, i = "", i + 1
            elif not quote and char in "'\"":
                quote, i = char, i + 1
            elif char == "\\":
                value, i = _escaped(text, i, end)
                out += value
            else:
                out, i = out + char, i + 1
        found += _expanded(text, begin, i, out, variables)
    return found


def _escaped(text: str, i: int, end: int) -> tuple[str, int]:
    """Return the character that an escape stands for, and where it ends."""
    joined = _CONTINUED.match(text, i, end)
    if joined:
        return " ", joined.end()
    numeric = re.compile(
        r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))"
    ).match(text, i, end)
    if numeric:
        digits = next(d for d in numeric.groups() if d)
        code = int(digits, 8 if numeric[4] else 16)
        return chr(code) if code <= sys.maxunicode else "", numeric.end()
    char = text[i + 1 : i + 2]
    return _ESCAPES.get(char, char if char in "\\\"'" else f"\\{char}"), i + 2


def _expanded(
    text: str, start: int, end: int, value: str, variables: Mapping[str, str]
) -> Iterator[Word]:
    bare = re.fullmatch(r"\$(\w+)", text[start:end])
    if bare and bare[1] in variables:
        parts = variables[bare[1]].split()
        for part in parts:
            yield Word(part, start, end, whole=parts == [part])
        return
    sure = True

    def fill(found: re.Match[str]) -> str:
        nonlocal sure
        if found[0] in {"%%", "$$"}:
            return found[0][0]
        known = variables.get(found[1] or "")
        sure &= known is not None
        return known if known is not None else found[0]

    filled = re.sub(r"%%|\$\$|\$\{(\w+)\}", fill, value)
    yield Word(filled, start, end, sure and not _SPECIFIER.search(value))
