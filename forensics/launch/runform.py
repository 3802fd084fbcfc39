"""Options of `docker run` set and taken out, where the launch is such a command line."""

from __future__ import annotations

from abc import abstractmethod

from forensics.launch import grammar
from forensics.launch.commandline import Run
from forensics.launch.forms import Form, same_thing
from forensics.launch.model import CannotChange, Splice, Word


class RunForm(Form):
    """A launch that may be a container command, in a script or a unit.

    Attributes:
        run: The container command, None for a bare one.
        noun: What it is called to people.
    """

    run: Run | None
    noun = "command"

    @abstractmethod
    def new_option(self, name: str, value: str, skip: str = "") -> list[Splice]:
        """Write an option that does not stand there yet, not beside the one to `skip`."""

    def set_option(self, name: str, value: str | None) -> list[Splice]:
        """Set an option of `docker run`."""
        if self.run is None:
            raise CannotChange(f"this {self.noun} starts no container")
        if name not in grammar.RUN_SWITCHES | grammar.RUN_VALUES:
            raise CannotChange(f"{name} is no option of {self.run.runtime} run")
        if value is not None and value in {"true", "false"} and name in grammar.RUN_SWITCHES:
            if value == "false":
                return self.drop_option(name)
            value = None
        if (value is None) != (name in grammar.RUN_SWITCHES):
            raise CannotChange(f"which value {name} should have is for you to say")
        found = [o for o in self.run.options if o.name == name]
        if value is None:
            return [] if found else self.insert(self.last_option(), [name])
        if name in grammar.RUN_LISTS and name != "--network":
            if any(o.value == value for o in found):
                return []
            found = [o for o in found if o.value and same_thing(name, o.value, value)]
        if found:
            return self._put(found[-1], value)
        if name == "--restart" and self.run_has("--rm"):
            return [*self.drop_option("--rm"), *self.new_option(name, value, skip="--rm")]
        return self.new_option(name, value)

    def drop_option(self, name: str) -> list[Splice]:
        """Take an option of `docker run` out."""
        if self.run is None:
            raise CannotChange(f"this {self.noun} starts no container")
        return [s for o in self.run.options if o.name == name for s in self.remove(o.words)]

    def run_has(self, name: str) -> bool:
        """Say whether the container command has an option."""
        return self.run is not None and any(o.name == name for o in self.run.options)

    def last_option(self, skip: str = "") -> Word:
        """Return the word after which a new option goes."""
        assert self.run is not None  # noqa: S101 - callers have asked
        words = [w for o in self.run.options if o.name != skip for w in o.words]
        return words[-1] if words else self.run.head[-1]
