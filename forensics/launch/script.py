"""Shell scripts and pasted commands: `docker run …` and bare server commands, read and changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from forensics.launch import quoting, shell
from forensics.launch.commandline import (
    Run,
    Server,
    canonical,
    find_server,
    program_of_image,
    read_run,
    read_server,
    skip_starters,
)
from forensics.launch.common import (
    Beside,
    environment_of,
    model_of,
    nothing_beside,
    read_env_file,
)
from forensics.launch.model import (
    CannotChange,
    Launch,
    Problem,
    Splice,
    Variable,
    Word,
    line_of,
)
from forensics.launch.runform import RunForm
from forensics.launch.values import typed

_SHELLS = {"bash", "sh", "dash", "zsh"}
_BLANK_AFTER = re.compile(r"\\[ \t]+$", re.MULTILINE)
_COMMENT_INSIDE = re.compile(r"\\\n[ \t]*#[^\n]*")
_GAP = re.compile(r"(?:[ \t]|\\?\r?\n)*\Z")


class ScriptForm(RunForm):
    """A command in a shell script.

    Args:
        launch: What was read.
        run: The container command, None for a bare one.
        server: The server's command.
        command: Where the shell command stands.
        nested: The quote inside of which the server's command stands (`bash -c '…'`), or None.
    """

    def __init__(
        self,
        launch: Launch,
        run: Run | None,
        server: Server | None,
        command: shell.Command,
        nested: str | None = None,
    ) -> None:
        self.run, self.server, self.command, self.nested = run, server, command, nested
        super().__init__(launch, _tail(run, server))

    def _inside(self, word: Word) -> bool:
        """Say whether a word stands inside of the quoted command."""
        server = self.server
        if self.nested is None or server is None:
            return False
        own = [*server.head, *(w for a in server.arguments for w in a.words), *server.rest]
        return word in own or word is server.model

    def _encode(self, value: str, word: Word) -> str:
        text = quoting.shell(value)
        if self._inside(word):
            inside = {"'": quoting.within_single, '"': quoting.within_double}
            text = inside[self.nested or "'"](text)
        return text

    # --- primitives ----------------------------------------------------------------------------

    def replace(self, word: Word, value: str) -> list[Splice]:
        """Write another value in a word's place, or where its variable is set."""
        self.must_change([word])
        start, end = word.origin or (word.start, word.end)
        raw = self.launch.text[start:end]
        if word.origin and self.launch.text[end : end + 1] == "}":
            if not re.fullmatch(r"[\w./:@+-]+", value):
                start, end = word.start, word.end
            return [Splice(start, end, self._encode(value, word))]
        quote = raw[:1] if raw[:1] == raw[-1:] and len(raw) > 1 else ""
        if quote == '"' and not re.search(r'[\\"$`!]', value) and not self._inside(word):
            return [Splice(start, end, f'"{value}"')]
        if quote == "'" and "'" not in value and not self._inside(word):
            return [Splice(start, end, f"'{value}'")]
        return [Splice(start, end, self._encode(value, word))]

    def requoted(self, target: str) -> list[Splice] | None:
        """Put JSON that the shell would take apart between quotes, as it was meant."""
        option = self.launch.argument(canonical(target)[0])
        word = option.words[-1] if option is not None and option.words else None
        if option is None or word is None or (len(option.words) == 1 and not option.joined):
            return None
        raw = self.launch.text[word.start : word.end]
        head, equals, body = raw.partition("=") if option.joined else ("", "", raw)
        if body[:1] == body[-1:] == '"':
            body = body[1:-1]
        if self._inside(word) or not isinstance(typed(body), dict):
            return None
        return [Splice(word.start, word.end, quoting.shell(f"{head}{equals}{body}"))]

    def remove(self, words: Sequence[Word]) -> list[Splice]:
        """Take neighbouring words out, with what separates them from the word before."""
        self.must_change(words)
        text = self.launch.text
        start, end = words[0].start, words[-1].end
        gap = _GAP.search(text, 0, start)
        before = gap.start() if gap else start
        if before and text[before - 1] not in "(;|&" and not self._comment_at(before):
            return [Splice(before, end, "")]
        if text[start - 1 : start] in {" ", "\t"} and not text[:start].rsplit("\n", 1)[-1].strip():
            line_end = text.find("\n", end)
            if line_end >= 0 and not text[end:line_end].strip():
                return [Splice(text.rfind("\n", 0, start) + 1, line_end + 1, "")]
        tail = end + (len(text[end:]) - len(text[end:].lstrip(" \t")))
        return [Splice(start, tail, "")]

    def _comment_at(self, offset: int) -> bool:
        line = self.launch.text[:offset].rsplit("\n", 1)[-1]
        return re.search(r"(?:^|\s)#", line) is not None

    def insert(self, after: Word, values: Sequence[str]) -> list[Splice]:
        """Write new words after another, on a line of their own where that is the habit."""
        encoded = " ".join(self._encode(value, after) for value in values)
        return self._insert_text(after, encoded)

    def _insert_text(self, after: Word, encoded: str) -> list[Splice]:
        self.must_change([after])
        return [Splice(after.end, after.end, f"{self._separator(after)}{encoded}")]

    def _separator(self, word: Word) -> str:
        """Return what stands between two options in this command, nearest to a word."""
        text = self.launch.text
        around = sorted(
            self._starts(), key=lambda start: (start < word.start, abs(start - word.start))
        )
        gaps = []
        for start in around:
            found = _GAP.search(text, 0, start)
            if found and found.start() < start:
                gaps.append(found[0])
        best = next((gap for gap in gaps if "\n" in gap), None)
        if best is None or "\n" not in best:
            return " "
        indent = best.rpartition("\n")[2]
        return f" \\\n{indent}" if "\\" in best else f"\n{indent}"

    def _starts(self) -> Iterator[int]:
        """Yield where options begin, of the list to which a new word would belong."""
        for option in (*self.launch.options, *self.launch.arguments):
            if option.words:
                yield option.words[0].start
        if self.run is not None and self.run.image is not None:
            yield self.run.image.start

    # --- image, environment, options -----------------------------------------------------------

    def set_image(self, reference: str) -> list[Splice]:
        """Run another image."""
        if self.run is None or self.run.image is None:
            raise CannotChange("this command names no image")
        return self.replace(self.run.image, reference)

    def set_variable(self, name: str, value: str | None) -> list[Splice]:
        """Set a variable by `-e`, or before a bare command."""
        if self.run is None:
            return self._shell_variable(name, value)
        found = [o for o in self.run.options if o.name == "--env" and _name(o.value) == name]
        if value is None:
            return [s for o in found for s in self.remove(o.words)]
        reference = quoting.is_reference(value)
        text = name if reference and value[1:] == name else f"{name}={value}"
        if found:
            return self._put(found[-1], text)
        spelt = "-e" if self._spelling("--env") == "-e" else "--env"
        if reference and value[1:] != name:
            return self._insert_text(self.last_option(), f'{spelt} {name}="{value}"')
        return self.insert(self.last_option(), [spelt, text])

    def _shell_variable(self, name: str, value: str | None) -> list[Splice]:
        text = self.launch.text
        own = [w for n, w in self.command.assignments if n == name]
        if value is None:
            if not own:
                raise CannotChange(f"{name} is set for the whole script: unset it there")
            start = text.rfind(name, 0, own[0].start)
            end = own[0].end + (len(text[own[0].end :]) - len(text[own[0].end :].lstrip(" ")))
            return [Splice(start, end, "")]
        encoded = f'"{value}"' if quoting.is_reference(value) else quoting.shell(value)
        place = next((w for w in own), None) or self._exported(name)
        if place is not None:
            return [Splice(place.start, place.end, encoded)]
        start = self.command.start
        line = text.rfind("\n", 0, start) + 1
        if not text[line:start].strip() and "\\\n" not in text[max(0, line - 2) : line]:
            indent = text[line:start]
            return [Splice(line, line, f"{indent}export {name}={encoded}\n")]
        return [Splice(start, start, f"{name}={encoded} ")]

    def _exported(self, name: str) -> Word | None:
        script = shell.parse(self.launch.text)
        return next((w for n, w in reversed(script.exported) if n == name), None)

    def new_option(self, name: str, value: str, skip: str = "") -> list[Splice]:
        """Write an option that does not stand there yet, in the spelling of the command."""
        spelt = self._spelling(name)
        after = self.last_option(skip)
        path = re.match(r"(~|\$HOME)(/.*)\Z", value)
        if path and not self._inside(after):
            return self._insert_text(after, f"{spelt} {path[1]}{quoting.shell(path[2])}")
        return self.insert(after, [spelt, value])

    def _spelling(self, name: str) -> str:
        """Return the spelling of an option that the command already uses (`-v` or `--volume`)."""
        assert self.run is not None  # noqa: S101 - callers have asked
        for option in self.run.options:
            if option.name == name and option.words:
                return option.words[0].value.partition("=")[0]
        return name


def _name(value: str | None) -> str:
    return (value or "").partition("=")[0]


def _tail(run: Run | None, server: Server | None) -> Word | None:
    if server is not None and server.words:
        return server.words[-1]
    if run is not None and run.image is not None and not run.command:
        return run.image
    return None


# --- reading -----------------------------------------------------------------------------------


def read(text: str, name: str, beside: Beside = nothing_beside) -> list[ScriptForm]:
    """Return every command of a script that starts a server, those of unknown servers last."""
    script = shell.parse(text)
    forms = [f for c in script.commands for f in _command(c, script, text, name, beside)]
    return sorted(forms, key=lambda f: f.launch.program is None)


def _command(
    command: shell.Command, script: shell.Script, text: str, name: str, beside: Beside
) -> Iterator[ScriptForm]:
    def line(word: Word) -> int:
        return line_of(text, word.start)

    run = read_run(command.words, line)
    if run is None:
        words = command.words[skip_starters(command.words) :]
        inner, nested = _nested(words, text)
        server = read_server(inner, line)
        if server is None or (words and words[0].value in {"which", "echo", "printf", "pip"}):
            return
        run_like = read_run(words, line)
        if run_like is not None:
            return
        yield _form(command, script, text, name, (None, server, nested), {})
        return
    all_words = [*_entrypoint(run), *run.command]
    inner, nested = _nested(all_words, text)
    image = run.image.value if run.image else None
    server = read_server(inner, line, None if _entrypoint(run) else image)
    yield _form(command, script, text, name, (run, server, nested), _files(run, beside))


def _entrypoint(run: Run) -> list[Word]:
    """Return the words of `--entrypoint`, which stand before the command."""
    option = next((o for o in reversed(run.options) if o.name == "--entrypoint"), None)
    if option is None or not option.value:
        return []
    place = option.words[-1]
    return [Word(option.value, place.start, place.end, place.exact, whole=False)]


def _nested(words: Sequence[Word], text: str) -> tuple[Sequence[Word], str | None]:
    """Return the words of `bash -c '…'` that start a server, and the quote around them."""
    for i, word in enumerate(words[:-1]):
        shells = word.value.rpartition("/")[2] in _SHELLS
        if not shells or not re.match(r"-[a-z]*c\Z", words[i + 1].value) or i + 2 >= len(words):
            continue
        script = words[i + 2]
        raw = text[script.start : script.end]
        quote = raw[:1]
        plain = len(raw) > 1 and raw[-1] == quote and quote in "'\"" and script.whole
        body = raw[1:-1]
        plain = plain and quote not in body.replace('\\"', "" if quote == "'" else "\\")
        if not plain or (quote == '"' and re.search(r'\\["$`\\]', body)):
            inner = shell.parse(script.value)
            found = [
                Word(w.value, script.start, script.end, w.exact, whole=False)
                for w in _serving(inner)
            ]
            return (found or words), (quote if found else None)
        padded = re.sub(r"[^\n]", " ", text[: script.start + 1]) + body
        found = list(_serving(shell.parse(padded)))
        return (found or words), (quote if found else None)
    return words, None


def _serving(script: shell.Script) -> Sequence[Word]:
    for command in script.commands:
        words = command.words[skip_starters(command.words) :]
        if find_server(words) is not None:
            return words
    return ()


def _files(run: Run, beside: Beside) -> dict[str, str]:
    """Return the variables of `--env-file` files that can be read."""
    found: dict[str, str] = {}
    for option in run.options:
        body = beside(option.value) if option.name == "--env-file" and option.value else None
        found.update(read_env_file(body or ""))
    return found


def _form(
    command: shell.Command,
    script: shell.Script,
    text: str,
    name: str,
    parts: tuple[Run | None, Server | None, str | None],
    files: Mapping[str, str],
) -> ScriptForm:
    run, server, nested = parts
    options = run.options if run else ()
    variables = [Variable(k, v) for k, v in files.items()]
    if run is not None:
        variables += environment_of(options)
    else:
        placed = [*script.exported, *command.assignments]
        variables += [Variable(n, w.value, line_of(text, w.start)) for n, w in placed]
        variables += _from_env(command.words, text)
    image = run.image.value if run and run.image else None
    positions = {"command": line_of(text, command.start)}
    if run and run.image:
        positions["image"] = line_of(text, run.image.start)
    model, place = model_of(server, variables)
    if place is not None:
        positions["model"] = line_of(text, place.start)
    program = server.program if server else (program_of_image(image) if image else None)
    launch = Launch(
        kind="script",
        name=name,
        text=text,
        service=next((o.value for o in options if o.name == "--name"), None),
        runtime=run.runtime if run else None,
        words=tuple(w.value for w in command.words),
        options=options,
        environment=tuple(variables),
        image=image,
        program=program,
        model=model,
        arguments=server.arguments if server else (),
        positions=positions,
        problems=tuple(_problems(command, text)),
        limits=("the shell's grammar could not read all of the script",) if script.broken else (),
    )
    return ScriptForm(launch, run, server, command, nested)


def _from_env(words: Sequence[Word], text: str) -> Iterator[Variable]:
    """Yield what `env A=b` sets before a command."""
    for word in words[: skip_starters(words)]:
        found = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word.value, re.DOTALL)
        if found:
            yield Variable(found[1], found[2], line_of(text, word.start))


def _problems(command: shell.Command, text: str) -> Iterator[Problem]:
    """Yield habits that end a command earlier than it looks."""
    after = text[command.end : command.end + 2000]
    body = text[command.start : command.end]
    last = command.words[-1] if command.words else None
    if last is not None and last.value in {" ", "\t"}:
        after, body = "", body + "\\ "
    for found in _BLANK_AFTER.finditer(body + after.split("\n", 1)[0]):
        number = line_of(text, command.start + found.start())
        yield Problem("blank-after-backslash", number, found[0])
    inside = _COMMENT_INSIDE.match(text, command.end) or _COMMENT_INSIDE.match(
        text, command.end + 1
    )
    following = text[inside.end() :].lstrip("\n") if inside else ""
    if inside and following.lstrip(" \t").startswith("-"):
        yield Problem("comment-ends-command", line_of(text, inside.start()) + 1, inside[0])
