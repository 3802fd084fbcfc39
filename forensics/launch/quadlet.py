"""Podman's quadlets: `.container` units, whose keys are options of `podman run`.

Keys: podman-systemd.unit(5), "Container units [Container]". Values are split and quoted as those
of `ExecStart=`, into which Podman writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.launch import commandline, grammar, quoting
from forensics.launch.common import Beside, environment_of, model_of, nothing_beside
from forensics.launch.forms import same_thing, words_for
from forensics.launch.model import CannotChange, Launch, Option, Splice, Word, line_of
from forensics.launch.unitform import UnitForm
from forensics.launch.unittext import (
    SECTION,
    Setting,
    in_force,
    variables_of,
    with_drop_ins,
    words_in,
)

#: Keys that stand once, by the option that they are.
_SCALARS = {
    "--entrypoint": "Entrypoint",
    "--health-cmd": "HealthCmd",
    "--health-interval": "HealthInterval",
    "--health-retries": "HealthRetries",
    "--health-start-period": "HealthStartPeriod",
    "--health-timeout": "HealthTimeout",
    "--hostname": "HostName",
    "--log-driver": "LogDriver",
    "--memory": "Memory",
    "--name": "ContainerName",
    "--pids-limit": "PidsLimit",
    "--pull": "Pull",
    "--shm-size": "ShmSize",
    "--stop-signal": "StopSignal",
    "--stop-timeout": "StopTimeout",
    "--tz": "Timezone",
    "--user": "User",
    "--userns": "UserNS",
    "--workdir": "WorkingDir",
}
#: Keys that each add one.
_LISTS = {
    "--add-host": "AddHost",
    "--annotation": "Annotation",
    "--cap-add": "AddCapability",
    "--cap-drop": "DropCapability",
    "--device": "AddDevice",
    "--dns": "DNS",
    "--env-file": "EnvironmentFile",
    "--group-add": "GroupAdd",
    "--label": "Label",
    "--log-opt": "LogOpt",
    "--mount": "Mount",
    "--network": "Network",
    "--publish": "PublishPort",
    "--secret": "Secret",
    "--sysctl": "Sysctl",
    "--tmpfs": "Tmpfs",
    "--ulimit": "Ulimit",
    "--volume": "Volume",
}
_SWITCHES = {"--init": "RunInit", "--read-only": "ReadOnly", "--env-host": "EnvironmentHost"}
_TRUE = {"true", "yes", "on", "1"}
#: Keys whose value may name several things in one line.
_SEVERAL = {"AddCapability", "DropCapability", "Annotation", "Label", "Sysctl"}


class QuadletForm(UnitForm):
    """A unit's `[Container]`."""

    def __init__(
        self,
        launch: Launch,
        tail: Word | None,
        found: Sequence[Setting],
        environment: Sequence[Setting],
    ) -> None:
        executed = in_force(found, "Exec")
        super().__init__(launch, tail, environment, executed[-1].file if executed else "")
        self.found = found

    def _last(self, key: str) -> Setting | None:
        """Return the setting of a key that counts, if it stands in the given file.

        Raises:
            CannotChange: A drop-in has the last word.
        """
        setting = next((s for s in reversed(self.found) if s.key == key), None)
        if setting is not None and setting.file:
            raise CannotChange(f"{key}= is written in {setting.file}: change it there")
        return setting

    def _line(self, key: str, value: str) -> list[Splice]:
        """Write a new setting below the others of the container."""
        text = self.launch.text
        own = [s for s in self.found if not s.file]
        same = [s for s in own if s.key == key]
        if not own:
            raise CannotChange("the container is described in another file")
        end = (same or own)[-1].end
        return [Splice(end, end, f"\n{key}={value}")] if end <= len(text) else []

    def _written(self, setting: Setting, value: str) -> list[Splice]:
        return [Splice(setting.start, setting.end, value)]

    def _append(self, name: str, value: str | None) -> list[Splice]:
        if self.tail is None and self._last("Exec") is None:
            words = " ".join(quoting.systemd(word) for word in words_for(name, value))
            return self._line("Exec", words)
        return super()._append(name, value)

    def set_image(self, reference: str) -> list[Splice]:
        """Run another image."""
        setting = self._last("Image")
        if setting is None:
            raise CannotChange("this unit names no image")
        return self._written(setting, reference)

    def set_variable(self, name: str, value: str | None) -> list[Splice]:
        """Set a variable by `Environment=`."""
        own = [s for s in self.found if not s.file]
        return self.set_by_setting(name, value, own[0].line_start if own else 0)

    def set_option(self, name: str, value: str | None) -> list[Splice]:
        """Set an option of `podman run`, by its key where it has one."""
        if name == "--rm":
            raise CannotChange("Podman removes a unit's container itself; its log is the journal's")
        if name not in grammar.RUN_SWITCHES | grammar.RUN_VALUES:
            raise CannotChange(f"{name} is no option of podman run")
        if name == "--restart":
            raise CannotChange("a unit is started again by Restart= of its [Service]")
        if name in grammar.RUN_SWITCHES:
            return self._switch(name, value or "true")
        if value is None:
            raise CannotChange(f"which value {name} should have is for you to say")
        if value.startswith(("~", "$HOME")):
            value = "%h" + value.removeprefix("~").removeprefix("$HOME")
        by_argument = [o for o in self.launch.options if o.name == name and o.words]
        listed = name in grammar.RUN_LISTS
        if listed:
            by_argument = [o for o in by_argument if o.value and same_thing(name, o.value, value)]
        if by_argument:
            return self._put(by_argument[-1], value)
        if name in _SCALARS:
            setting = self._last(_SCALARS[name])
            if setting is not None:
                return self._written(setting, value)
            return self._line(_SCALARS[name], value)
        if name not in _LISTS:
            return self._line("PodmanArgs", quoting.systemd(f"{name}={value}"))
        for setting in in_force(self.found, _LISTS[name]):
            if same_thing(name, setting.value, value) and not setting.file:
                return [] if setting.value == value else self._written(setting, value)
        return self._line(_LISTS[name], value)

    def _switch(self, name: str, value: str) -> list[Splice]:
        if value == "false":
            return self.drop_option(name)
        if self.launch.option(name) is not None:
            return []
        setting = self._last(_SWITCHES[name]) if name in _SWITCHES else None
        if setting is not None:
            return self._written(setting, "true")
        if name in _SWITCHES:
            return self._line(_SWITCHES[name], "true")
        return self._line("PodmanArgs", name)

    def drop_option(self, name: str) -> list[Splice]:
        """Take an option of `podman run` out."""
        if name == "--rm":
            raise CannotChange("Podman removes a unit's container itself; its log is the journal's")
        key = _SCALARS.get(name) or _LISTS.get(name) or _SWITCHES.get(name)
        found: list[Splice] = []
        for setting in (s for s in self.found if s.key == key):
            if setting.file:
                raise CannotChange(f"{key}= is written in {setting.file}: change it there")
            end = min(len(self.launch.text), setting.end + 1)
            found.append(Splice(setting.line_start, end, ""))
        for option in self.launch.options:
            if option.name == name and option.words:
                found += self.remove(option.words)
        if not found:
            raise CannotChange(f"{name} is not written in this unit")
        return found


# --- reading -----------------------------------------------------------------------------------


def looks_like(text: str) -> bool:
    """Say whether a text is a `.container` unit (or a drop-in of one)."""
    return any(m[1] == "Container" for m in SECTION.finditer(text))


def read(text: str, name: str, beside: Beside = nothing_beside) -> list[QuadletForm]:
    """Return the container of a unit, with the drop-ins beside it."""
    every, limits = with_drop_ins(text, name, beside)
    found = [s for s in every if s.section == "Container"]
    if not any(s.key == "Image" for s in found):
        return []
    own = [s for s in found if not s.file]
    anchor = own[0].line_start if own else 0

    def line(word: Word) -> int:
        return line_of(text, word.start)

    environment, variables = variables_of(found, text, beside, anchor)
    options = [*_options(found, text, anchor), *_by_argument(found, anchor, line)]
    variables += environment_of(options)
    image = next(s for s in reversed(found) if s.key == "Image")
    words = [w for s in in_force(found, "Exec")[-1:] for w in words_in(s, {}, anchor)]
    entrypoint = next((o.value for o in options if o.name == "--entrypoint" and o.value), None)
    head = [Word(entrypoint, anchor, anchor, whole=False)] if entrypoint else []
    server = commandline.read_server([*head, *words], line, None if head else image.value)
    model, place = model_of(server, variables)
    at = line_of(text, anchor if image.file else image.start)
    executed = next((line(w) for w in words), at)
    positions = {"command": executed, "image": at}
    positions |= {"model": line(place)} if place else {}
    named = next((o.value for o in options if o.name == "--name"), None)
    launch = Launch(
        kind="systemd",
        name=name,
        text=text,
        service=named,
        runtime="podman",
        words=tuple(w.value for w in words),
        options=tuple(options),
        environment=tuple(variables),
        image=image.value,
        program=server.program if server else commandline.program_of_image(image.value),
        model=model,
        arguments=server.arguments if server else (),
        positions=positions,
        limits=tuple(limits),
    )
    return [QuadletForm(launch, words[-1] if words and server else None, found, environment)]


def _options(found: Sequence[Setting], text: str, anchor: int) -> Iterator[Option]:
    """Yield what keys say, in the terms of `podman run`."""

    def at(setting: Setting) -> int:
        return line_of(text, anchor if setting.file else setting.start)

    for name, key in _SCALARS.items():
        for setting in [s for s in found if s.key == key and s.value][-1:]:
            yield Option(name, setting.value, (), at(setting))
    for name, key in _LISTS.items():
        for setting in in_force(found, key):
            values = setting.value.split() if key in _SEVERAL else [setting.value]
            yield from (Option(name, value, (), at(setting)) for value in values)
    for name, key in _SWITCHES.items():
        for setting in [s for s in found if s.key == key][-1:]:
            if setting.value.lower() in _TRUE:
                yield Option(name, None, (), at(setting))


def _by_argument(found: Sequence[Setting], anchor: int, line: commandline.Line) -> Iterator[Option]:
    """Yield the options that stand in `PodmanArgs=`."""
    head = [Word(w, anchor, anchor, whole=False) for w in ("podman", "run")]
    last = Word("image", anchor, anchor, whole=False)
    for setting in in_force(found, "PodmanArgs"):
        run = commandline.read_run([*head, *words_in(setting, {}, anchor), last], line)
        yield from run.options if run is not None else ()
