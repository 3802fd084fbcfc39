"""systemd units: the server that `ExecStart=` starts, bare or by `docker run`, and `Environment=`.

Grammar: systemd.syntax(7), systemd.service(5) "Command lines", systemd.exec(5) "Environment". No
library reads it; the little that is needed is here: lines joined by a backslash, comments between
them, quotes with C escapes, `%%` and `$$`, `${NAME}` from `Environment=`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from forensics.launch import commandline, grammar, quoting, shell
from forensics.launch.common import Beside, environment_of, model_of, nothing_beside, read_env_file
from forensics.launch.forms import Form, same_thing
from forensics.launch.model import (
    CannotChange,
    Launch,
    Splice,
    Variable,
    Word,
    line_of,
)

_SECTION = re.compile(r"^\[(\w[\w -]*)\]\s*$", re.MULTILINE)
_KEY = re.compile(r"^[ \t]*([A-Za-z]\w*)[ \t]*=[ \t]*", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n(?:[ \t]*[#;][^\n]*\n)*")
_GAP = re.compile(r"(?:[ \t]|\\\n(?:[ \t]*[#;][^\n]*\n)*)*\Z")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_SPECIFIER = re.compile(r"%[A-Za-z]")
#: Prefixes of the executable in `ExecStart=`.
_PREFIXES = "@-:+!|"


class Setting(Struct, frozen=True):
    """One `Key=value` with the place of its value (continuation lines included)."""

    key: str
    start: int
    end: int
    line_start: int


def settings(text: str) -> Iterator[Setting]:
    """Yield the settings of a unit in order."""
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        found = _KEY.match(text, position, end)
        if found is None or text[position:end].lstrip()[:1] in {"#", ";"}:
            position = end + 1
            continue
        stop = end
        while stop < len(text) and text[stop - 1] == "\\":
            joined = _CONTINUED.match(text, stop - 1)
            following = joined.end() if joined else stop + 1
            stop = text.find("\n", following)
            stop = len(text) if stop < 0 else stop
        yield Setting(found[1], found.end(), stop, position)
        position = stop + 1


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


class SystemdForm(Form):
    """A unit's `ExecStart=`."""

    def __init__(
        self,
        launch: Launch,
        run: commandline.Run | None,
        server: commandline.Server | None,
        exec_start: Setting,
        environment: Sequence[Setting],
    ) -> None:
        words = server.words if server else ()
        tail = words[-1] if words else (run.image if run else None)
        super().__init__(launch, tail)
        self.run, self.exec_start, self.settings = run, exec_start, environment

    def replace(self, word: Word, value: str) -> list[Splice]:
        """Write another value in a word's place."""
        self.must_change([word])
        return [Splice(word.start, word.end, quoting.systemd(value))]

    def remove(self, words: Sequence[Word]) -> list[Splice]:
        """Take neighbouring words out, with what separates them from the word before."""
        self.must_change(words)
        text, start, end = self.launch.text, words[0].start, words[-1].end
        gap = _GAP.search(text, self.exec_start.start, start)
        before = gap.start() if gap else start
        if gap and re.search(r"[#;]", gap[0]):
            after = re.compile(r"[ \t]*(?:\\\n[ \t]*)?").match(text, end)
            return [Splice(start, after.end() if after else end, "")]
        return [Splice(before, end, "")]

    def insert(self, after: Word, values: Sequence[str]) -> list[Splice]:
        """Write new words after another."""
        self.must_change([after])
        body = text = self.launch.text[self.exec_start.start : self.exec_start.end]
        found = re.findall(r"\\\n([ \t]*)(?![ \t#;])", body)
        separator = f" \\\n{found[-1]}" if found else " "
        del text
        encoded = " ".join(quoting.systemd(value) for value in values)
        return [Splice(after.end, after.end, f"{separator}{encoded}")]

    def set_image(self, reference: str) -> list[Splice]:
        """Run another image."""
        if self.run is None or self.run.image is None:
            raise CannotChange("this unit names no image")
        return self.replace(self.run.image, reference)

    def set_variable(self, name: str, value: str | None) -> list[Splice]:
        """Set a variable by `-e` of `docker run`, else by `Environment=`."""
        if value is not None and quoting.is_reference(value):
            raise CannotChange(f"{name} should come from an EnvironmentFile=")
        if self.run is not None:
            found = [
                o
                for o in self.run.options
                if o.name == "--env" and (o.value or "").partition("=")[0] == name
            ]
            if value is None:
                return [s for o in found for s in self.remove(o.words)]
            if found:
                return self._put(found[-1], f"{name}={value}")
            return self.insert(self._last(), ["-e", f"{name}={value}"])
        text = self.launch.text
        for setting in reversed(self.settings):
            for word in words_of(text, setting.start, setting.end, {}):
                if word.value.partition("=")[0] != name:
                    continue
                if value is not None:
                    return [Splice(word.start, word.end, _assignment(name, value))]
                only = text[setting.start : setting.end].strip() == text[word.start : word.end]
                if only:
                    return [Splice(setting.line_start, min(len(text), setting.end + 1), "")]
                return [Splice(word.start, min(setting.end, word.end + 1), "")]
        if value is None:
            return []
        line = f"Environment={_assignment(name, value)}\n"
        return [Splice(self.exec_start.line_start, self.exec_start.line_start, line)]

    def set_option(self, name: str, value: str | None) -> list[Splice]:
        """Set an option of `docker run`."""
        if self.run is None:
            raise CannotChange("this unit starts no container")
        if name not in grammar.RUN_SWITCHES | grammar.RUN_VALUES:
            raise CannotChange(f"{name} is no option of {self.run.runtime} run")
        if name in grammar.RUN_SWITCHES:
            if value == "false":
                return self.drop_option(name)
            has = any(o.name == name for o in self.run.options)
            return [] if has else self.insert(self._last(), [name])
        if value is None:
            raise CannotChange(f"which value {name} should have is for you to say")
        found = [o for o in self.run.options if o.name == name]
        if name in grammar.RUN_LISTS and name != "--network":
            if any(o.value == value for o in found):
                return []
            found = [o for o in found if o.value and same_thing(name, o.value, value)]
        if found:
            return self._put(found[-1], value)
        if value.startswith(("~", "$")):
            raise CannotChange("a unit has no home folder to write into a path")
        return self.insert(self._last(), [name, value])

    def drop_option(self, name: str) -> list[Splice]:
        """Take an option of `docker run` out."""
        if self.run is None:
            raise CannotChange("this unit starts no container")
        return [s for o in self.run.options if o.name == name for s in self.remove(o.words)]

    def _last(self) -> Word:
        assert self.run is not None  # noqa: S101 - callers have asked
        words = [w for o in self.run.options for w in o.words]
        return words[-1] if words else self.run.head[-1]


def _assignment(name: str, value: str) -> str:
    """Write `NAME=value` for `Environment=` (where a dollar sign means nothing special)."""
    text = quoting.systemd(f"{name}={value}".replace("$", "\0"))
    return text.replace("\\x00", "$").replace("\0\0", "$").replace("\0", "$")


# --- reading -----------------------------------------------------------------------------------


def looks_like(text: str) -> bool:
    """Say whether a text is a service unit (or a drop-in of one)."""
    sections = {m[1] for m in _SECTION.finditer(text)}
    return "Service" in sections and re.search(r"^\s*Exec\w+\s*=", text, re.MULTILINE) is not None


def _in_force(found: Sequence[Setting], text: str, key: str) -> list[Setting]:
    """Return the settings of one list key that count: an empty one takes back all before it."""
    kept: list[Setting] = []
    for setting in (s for s in found if s.key == key):
        kept = [*kept, setting] if text[setting.start : setting.end].strip() else []
    return kept


def read(text: str, name: str, beside: Beside = nothing_beside) -> list[SystemdForm]:
    """Return the command of the last `ExecStart=` in force, with the variables in force.

    A unit with its drop-ins after it (what `systemctl cat` prints) is read the way systemd reads
    it: an empty `ExecStart=`, `Environment=` or `EnvironmentFile=` takes back what was said before
    (systemd.service(5), systemd.exec(5)), and what a file sets wins over `Environment=`.
    """
    found = list(settings(text))
    starts = _in_force(found, text, "ExecStart")
    if not starts:
        return []
    environment = _in_force(found, text, "Environment")
    variables: list[Variable] = []
    for setting in environment:
        for word in words_of(text, setting.start, setting.end, {}):
            key, equals, value = word.value.partition("=")
            if equals:
                variables.append(Variable(key, value, line_of(text, word.start)))
    for setting in _in_force(found, text, "EnvironmentFile"):
        body = beside(text[setting.start : setting.end].strip().lstrip("-"))
        variables += [Variable(k, v) for k, v in read_env_file(body or "").items()]
    return [_form(text, name, starts[-1], environment, variables)]


def _inside_shell(words: Sequence[Word]) -> list[Word]:
    """Return the words of `sh -c '…'` that start a server: they can be read, not changed."""
    for i, word in enumerate(words[:-2]):
        if re.search(r"(?:^|/)(?:ba|da|z)?sh$", word.value) and words[i + 1].value.endswith("c"):
            place = words[i + 2]
            for command in shell.parse(place.value).commands:
                own = command.words[commandline.skip_starters(command.words) :]
                if commandline.find_server(own) is not None:
                    at = place.start, place.end
                    return [Word(w.value, *at, w.exact, whole=False) for w in own]
    return []


def _form(
    text: str,
    name: str,
    exec_start: Setting,
    environment: Sequence[Setting],
    variables: list[Variable],
) -> SystemdForm:
    known = {v.name: v.value for v in variables if v.value is not None}
    words = words_of(text, exec_start.start, exec_start.end, known)
    if words:
        first = words[0]
        bare = first.value.lstrip(_PREFIXES)
        words[0] = Word(bare, first.end - len(bare), first.end, first.exact)

    def line(word: Word) -> int:
        return line_of(text, word.start)

    run = commandline.read_run(words, line)
    inside = _inside_shell(run.command if run else words)
    image = run.image.value if run and run.image else None
    server = commandline.read_server(inside or (run.command if run else words), line, image)
    if run is not None:
        variables = environment_of(run.options)
    model, place = model_of(server, variables)
    positions = {"command": line_of(text, exec_start.start)}
    positions |= {"image": line(run.image)} if run and run.image else {}
    positions |= {"model": line(place)} if place else {}
    opaque = re.search(r"(?:^|/)(?:ba|da|z)?sh$", words[0].value) if words else None
    launch = Launch(
        kind="systemd",
        name=name,
        text=text,
        runtime=run.runtime if run else None,
        words=tuple(w.value for w in words),
        options=run.options if run else (),
        environment=tuple(variables),
        image=image,
        program=server.program if server else commandline.program_of_image(image or ""),
        model=model,
        arguments=server.arguments if server else (),
        positions=positions,
        limits=("what the shell in ExecStart= runs was not read",) if opaque and not server else (),
    )
    return SystemdForm(launch, run, server, exec_start, environment)
