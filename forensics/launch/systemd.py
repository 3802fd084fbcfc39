"""systemd units: the server that `ExecStart=` starts, bare or by `docker run`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from forensics.launch import commandline, quoting, shell
from forensics.launch.common import Beside, environment_of, model_of, nothing_beside
from forensics.launch.model import (
    CannotChange,
    Launch,
    NothingStarted,
    Splice,
    Variable,
    Word,
    line_of,
)
from forensics.launch.runform import RunForm
from forensics.launch.unitform import UnitForm
from forensics.launch.unittext import (
    SECTION,
    Setting,
    in_force,
    variables_of,
    with_drop_ins,
    words_in,
)

#: Prefixes of the executable in `ExecStart=`.
_PREFIXES = "@-:+!|"


class SystemdForm(UnitForm, RunForm):
    """A unit's `ExecStart=`."""

    noun = "unit"

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
        super().__init__(launch, tail, environment, exec_start.file)
        self.run = run
        self.before = 0 if exec_start.file else exec_start.line_start

    def set_image(self, reference: str) -> list[Splice]:
        """Run another image."""
        if self.run is None or self.run.image is None:
            raise CannotChange("this unit names no image")
        return self.replace(self.run.image, reference)

    def set_variable(self, name: str, value: str | None) -> list[Splice]:
        """Set a variable by `-e` of `docker run`, else by `Environment=`."""
        if self.run is None:
            return self.set_by_setting(name, value, self.before)
        if value is not None and quoting.is_reference(value):
            raise CannotChange(f"{name} should come from an EnvironmentFile=")
        found = [
            o
            for o in self.run.options
            if o.name == "--env" and (o.value or "").partition("=")[0] == name
        ]
        if value is None:
            return [s for o in found for s in self.remove(o.words)]
        if found:
            return self._put(found[-1], f"{name}={value}")
        return self.insert(self.last_option(), ["-e", f"{name}={value}"])

    def new_option(self, name: str, value: str, skip: str = "") -> list[Splice]:
        """Write an option of `docker run` that does not stand there yet."""
        if value.startswith(("~", "$")):
            raise CannotChange("a unit has no home folder to write into a path")
        return self.insert(self.last_option(skip), [name, value])


# --- reading -----------------------------------------------------------------------------------


def looks_like(text: str) -> bool:
    """Say whether a text is a service unit (or a drop-in of one)."""
    sections = {m[1] for m in SECTION.finditer(text)}
    return "Service" in sections and re.search(r"^\s*\w+\s*=", text, re.MULTILINE) is not None


def read(text: str, name: str, beside: Beside = nothing_beside) -> list[SystemdForm]:
    """Return the command of the last `ExecStart=` in force, with the variables in force.

    A unit with its drop-ins (those beside it, or after it as `systemctl cat` prints them) is read
    the way systemd reads it: an empty `ExecStart=`, `Environment=` or `EnvironmentFile=` takes
    back what was said before (systemd.service(5), systemd.exec(5)), and what a file sets wins over
    `Environment=`.
    """
    found, limits = with_drop_ins(text, name, beside)
    starts = in_force(found, "ExecStart")
    if found and not any(s.key == "ExecStart" for s in found):
        raise NothingStarted(
            f"{name} has no ExecStart=", "give the unit itself, or what systemctl cat prints of it"
        )
    if not starts:
        return []
    own = next((s for s in reversed(found) if s.key == "ExecStart" and not s.file), None)
    anchor = own.start if own else 0
    environment, variables = variables_of(found, text, beside, anchor)
    form = _form(text, name, starts[-1], environment, variables, anchor)
    form.launch = replace(form.launch, limits=(*limits, *form.launch.limits))
    return [form]


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
    anchor: int,
) -> SystemdForm:
    known = {v.name: v.value for v in variables if v.value is not None}
    words = words_in(exec_start, known, anchor)
    if words:
        first = words[0]
        bare = first.value.lstrip(_PREFIXES)
        start = first.end - len(bare) if first.whole else first.start
        words[0] = Word(bare, start, first.end, first.exact, first.whole)

    def line(word: Word) -> int:
        return line_of(text, word.start)

    run = commandline.read_run(words, line)
    inside = _inside_shell(run.command if run else words)
    image = run.image.value if run and run.image else None
    server = commandline.read_server(inside or (run.command if run else words), line, image)
    if run is not None:
        variables = environment_of(run.options)
    model, place = model_of(server, variables)
    positions = {"command": line_of(text, anchor if exec_start.file else exec_start.start)}
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
