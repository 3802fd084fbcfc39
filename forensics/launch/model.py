"""The frozen values of a launch; offsets are characters of the text that they were read from."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from forensics.errors import SourceError
from forensics.model import Action, Safety

Kind = Literal["script", "compose", "systemd", "kubernetes", "inspect", "log"]


class Word(Struct, frozen=True):
    """One word of a command line.

    Attributes:
        value: What the program gets, as far as it can be known; what cannot (`$(…)`, variables
            that are set elsewhere) stays as it is written.
        start: Where it begins in the text.
        end: Where it ends.
        exact: Whether `value` is what the program gets.
        whole: Whether the place in the text holds this word and nothing else. A variable that
            is split into several words has one place for all of them: it is never changed.
        origin: Where its value is written, if it is nothing but a variable that is set above
            (or has a default): a change belongs there.
    """

    value: str
    start: int
    end: int
    exact: bool = True
    whole: bool = True
    origin: tuple[int, int] | None = None


class Option(Struct, frozen=True):
    """One option with its value.

    Attributes:
        name: Canonical name: long, with dashes (`--volume` for `-v`).
        value: Its value; None for a switch.
        words: The words that it is made of, in order; empty if no word of the text says it.
        line: 1-based line of the text.
        joined: Whether name and value are one word (`--name=value`).
        key: For a dotted option (`--speculative-config.method`): what stands after the dot.
    """

    name: str
    value: str | None
    words: tuple[Word, ...] = ()
    line: int = 0
    joined: bool = False
    key: str = ""


class Variable(Struct, frozen=True):
    """An environment variable of the server; value None: passed through from outside."""

    name: str
    value: str | None
    line: int = 0


class Problem(Struct, frozen=True):
    """Something in the way the launch is written that makes it another one than it looks like."""

    kind: str
    line: int
    text: str


class Launch(Struct, frozen=True):
    """What starts a server.

    Attributes:
        kind: The form that it came in.
        name: Where it came from, for messages.
        text: The whole text.
        service: Name of the service, container or unit within the text, if it has one.
        runtime: `docker`, `podman`, `nerdctl`, `compose`, `kubernetes`; None without a container.
        words: The server's command line, or the whole `docker run`.
        options: Options of the container runtime, in its command line's terms.
        environment: The server's variables, last one wins.
        image: The image's reference.
        program: Name of the engine whose server this starts.
        model: The model that it is given.
        arguments: The server's arguments, in order.
        positions: Lines of things that rules may cite: `image`, `model`, `command`.
        problems: What is written otherwise than meant.
        limits: What could not be known.
    """

    kind: Kind
    name: str
    text: str
    service: str | None = None
    runtime: str | None = None
    words: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    environment: tuple[Variable, ...] = ()
    image: str | None = None
    program: str | None = None
    model: str | None = None
    arguments: tuple[Option, ...] = ()
    positions: dict[str, int] = {}
    problems: tuple[Problem, ...] = ()
    limits: tuple[str, ...] = ()

    def option(self, name: str) -> Option | None:
        """Return the last option of the runtime with this name."""
        return next((o for o in reversed(self.options) if o.name == name), None)

    def argument(self, name: str, key: str = "") -> Option | None:
        """Return the last argument of the server with this name (and key after the dot)."""
        return next((a for a in reversed(self.arguments) if (a.name, a.key) == (name, key)), None)

    def variable(self, name: str) -> Variable | None:
        """Return a variable."""
        return next((v for v in reversed(self.environment) if v.name == name), None)


class Splice(Struct, frozen=True, order=True):
    """Replace a stretch of a text."""

    start: int
    end: int
    text: str


class Applied(Struct, frozen=True):
    """One fix as it was applied, or why it was not.

    Attributes:
        action: The fix's action.
        target: What it changes.
        value: To what; None where there is none.
        text: In words.
        why: Why it helps.
        safety: What it risks.
        rule: The finding it comes from.
        problem: Why it was not applied; None if it was.
    """

    action: Action
    target: str
    value: str | None
    text: str
    why: str
    safety: Safety
    rule: str
    problem: str | None = None


Values = dict[str, Any]


class NothingStarted(SourceError):  # noqa: N818 - it says what is so, and may be passed over
    """A text starts no container and no server that is known."""


class CannotChange(Exception):  # noqa: N818 - control flow: the reason is shown, nothing failed
    """A form cannot make a change; the message says why, for people."""


def spliced(text: str, splices: list[Splice]) -> str:
    """Return a text with stretches replaced; they do not overlap."""
    for one in sorted(splices, reverse=True):
        text = text[: one.start] + one.text + text[one.end :]
    return text


def line_of(text: str, offset: int) -> int:
    """Return the 1-based line of an offset."""
    return text.count("\n", 0, offset) + 1
