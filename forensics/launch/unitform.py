"""What the units of systemd have in common: words of one setting, and `Environment=`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forensics.launch import quoting
from forensics.launch.forms import Form
from forensics.launch.model import CannotChange, Launch, Splice, Word
from forensics.launch.unittext import Setting, settings, words_of

_GAP = re.compile(r"(?:[ \t]|\\\n(?:[ \t]*[#;][^\n]*\n)*)*\Z")


class UnitForm(Form):
    """A unit.

    Args:
        launch: What was read.
        tail: The word after which arguments go.
        environment: The settings that set variables.
        elsewhere: The drop-in that holds the server's command; empty for the given file.
    """

    def __init__(
        self, launch: Launch, tail: Word | None, environment: Sequence[Setting], elsewhere: str = ""
    ) -> None:
        super().__init__(launch, tail)
        self.settings = environment
        if elsewhere:
            self.elsewhere = f"is written in {elsewhere}: change it there"

    def replace(self, word: Word, value: str) -> list[Splice]:
        """Write another value in a word's place."""
        self.must_change([word])
        return [Splice(word.start, word.end, quoting.systemd(value))]

    def remove(self, words: Sequence[Word]) -> list[Splice]:
        """Take neighbouring words out, with what separates them from the word before."""
        self.must_change(words)
        text, start, end = self.launch.text, words[0].start, words[-1].end
        gap = _GAP.search(text, 0, start)
        before = gap.start() if gap else start
        if (gap and re.search(r"[#;]", gap[0])) or text[:before].endswith("="):
            after = re.compile(r"[ \t]*(?:\\\n[ \t]*)?").match(text, end)
            return [Splice(start, after.end() if after else end, "")]
        return [Splice(before, end, "")]

    def insert(self, after: Word, values: Sequence[str]) -> list[Splice]:
        """Write new words after another, on a line of their own where that is the habit."""
        self.must_change([after])
        text = self.launch.text
        own = next(s for s in settings(text) if s.start <= after.start <= s.end)
        found = re.findall(r"\\\n([ \t]*)(?![ \t#;])", text[own.start : own.end])
        separator = f" \\\n{found[-1]}" if found else " "
        encoded = " ".join(quoting.systemd(value) for value in values)
        return [Splice(after.end, after.end, f"{separator}{encoded}")]

    def set_by_setting(self, name: str, value: str | None, before: int) -> list[Splice]:
        """Set a variable by `Environment=`; None takes it out.

        Args:
            name: Its name.
            value: Its value.
            before: Where a new line goes.

        Raises:
            CannotChange: A drop-in has the last word.
        """
        if value is not None and quoting.is_reference(value):
            raise CannotChange(f"{name} should come from an EnvironmentFile=")
        text = self.launch.text
        for setting in reversed(self.settings):
            for word in words_of(setting.text, setting.start, setting.end, {}):
                if word.value.partition("=")[0] != name:
                    continue
                if setting.file:
                    raise CannotChange(f"{name} is set in {setting.file}: change it there")
                if value is not None:
                    return [Splice(word.start, word.end, _assignment(name, value))]
                only = setting.value == text[word.start : word.end]
                if only:
                    return [Splice(setting.line_start, min(len(text), setting.end + 1), "")]
                return [Splice(word.start, min(setting.end, word.end + 1), "")]
        if value is None:
            return []
        return [Splice(before, before, f"Environment={_assignment(name, value)}\n")]


def _assignment(name: str, value: str) -> str:
    """Write `NAME=value` for `Environment=` (where a dollar sign means nothing special)."""
    text = quoting.systemd(f"{name}={value}".replace("$", "\0"))
    return text.replace("\\x00", "$").replace("\0\0", "$").replace("\0", "$")
