"""What every form can do: change arguments, whatever quoting and layout stands around them.

A form reads one text into one `Launch` and turns a change into splices of that text. It supplies
three primitives (replace a word, remove words, insert words); the changes of arguments are built
from them here, those of image, environment and runtime options by each form.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from forensics.launch import grammar
from forensics.launch.commandline import canonical
from forensics.launch.model import CannotChange, Launch, Option, Splice, Word
from forensics.launch.values import as_text, compact, merged, nested, typed


class Form(ABC):
    """One launch in its text.

    Args:
        launch: What was read.
        tail: The word after which new arguments go; None where there is no place for them.
    """

    #: Why a word that has no place of its own in the text cannot be changed.
    elsewhere = "shares its place with other words (a variable, or a quoted script)"

    def __init__(self, launch: Launch, tail: Word | None) -> None:
        self.launch = launch
        self.tail = tail

    # --- primitives ----------------------------------------------------------------------------

    @abstractmethod
    def replace(self, word: Word, value: str) -> list[Splice]:
        """Write another value in a word's place."""

    @abstractmethod
    def remove(self, words: Sequence[Word]) -> list[Splice]:
        """Take neighbouring words out."""

    @abstractmethod
    def insert(self, after: Word, values: Sequence[str]) -> list[Splice]:
        """Write new words after another."""

    # --- what forms do in their own ways -------------------------------------------------------

    @abstractmethod
    def set_image(self, reference: str) -> list[Splice]:
        """Run another image."""

    @abstractmethod
    def set_variable(self, name: str, value: str | None) -> list[Splice]:
        """Set an environment variable of the server; None takes it out."""

    @abstractmethod
    def set_option(self, name: str, value: str | None) -> list[Splice]:
        """Set an option of the container runtime, in the terms of its command line."""

    @abstractmethod
    def drop_option(self, name: str) -> list[Splice]:
        """Take an option of the container runtime out."""

    # --- arguments -----------------------------------------------------------------------------

    def set_argument(self, target: str, value: str | None) -> list[Splice]:
        """Set an argument of the server.

        Args:
            target: Its name; after a dot a key within its JSON.
            value: Its value; an object is laid over the one that stands there. None: a switch.
        """
        name, key = canonical(target)
        opposite = self.launch.argument(_opposite(name)) if value is None else None
        if opposite is not None and len(opposite.words) == 1:
            return self.replace(_first(opposite), target)
        option = self.launch.argument(name, key)
        if key:
            whole = self.launch.argument(name)
            if whole is not None:
                data = self._object(whole)
                return self._put(whole, merged(data, nested(key, _typed(value))))
            if option is None:
                return self._append(name, compact(nested(key, _typed(value))))
        if option is None:
            return self._append(target, value)
        if value is None:
            return []
        new = typed(value)
        if isinstance(new, dict):
            return self._put(option, merged(self._object(option), new))
        return self._put(option, value)

    def requoted(self, target: str) -> list[Splice] | None:
        """Put JSON that the shell would take apart between quotes, as it was meant.

        None where that is not what is wrong with the value, or this form has no shell.
        """
        del target
        return None

    def remove_argument(self, target: str) -> list[Splice]:
        """Take an argument out, with its value; after a dot only a key within its JSON."""
        name, key = canonical(target)
        found: list[Splice] = []
        for option in self.launch.arguments:
            if option.name != name or (key and option.key not in {"", key}):
                continue
            if key and not option.key:
                data = self._object(option)
                if _without(data, key) != data:
                    found += self._put(option, _without(data, key))
                continue
            self._must_be_whole(option)
            found += self.remove(option.words)
        return found

    def rename_argument(self, target: str, new: str) -> list[Splice]:
        """Write another name before the same value, or another key within its JSON."""
        name, key = canonical(target)
        option = self.launch.argument(name, key)
        if option is None and key and self.launch.argument(name) is not None:
            whole = self.launch.argument(name)
            assert whole is not None  # noqa: S101 - asked one line above
            data, other = self._object(whole), canonical(new)[1]
            return self._put(whole, {(other if k == key else k): v for k, v in data.items()})
        if option is None:
            return []
        self._must_be_whole(option)
        word = _first(option)
        text = f"{new}={option.value}" if option.joined else new
        return self.replace(word, text)

    def _append(self, name: str, value: str | None) -> list[Splice]:
        if self.tail is None:
            raise CannotChange("there is no command line of a server to add it to")
        return self.insert(self.tail, words_for(name, value))

    def _put(self, option: Option, value: Any) -> list[Splice]:  # noqa: ANN401 - JSON data
        """Write another value for an option that stands there."""
        text = value if isinstance(value, str) else _like(option.value, value)
        if not option.words:
            raise CannotChange(f"{option.name} is not written here by itself")
        if option.joined:
            written = option.words[0].value.partition("=")[0]
            self._must_be_whole(option)
            return self.replace(option.words[0], f"{written}={text}")
        if option.words[1:] and _looks_like_option(text):
            written = option.words[0].value
            self._must_be_whole(option)
            return [
                *self.replace(option.words[0], f"{written}={text}"),
                *self.remove(option.words[1:]),
            ]
        if len(option.words) == 1:
            return self.insert(option.words[0], [text])
        if any(not w.whole for w in option.words[1:]):
            raise CannotChange(f"the value of {option.name} {self.elsewhere}")
        found = self.replace(option.words[1], text)
        return found + (self.remove(option.words[2:]) if option.words[2:] else [])

    def _object(self, option: Option) -> dict[str, Any]:
        data = typed(option.value or "")
        if not isinstance(data, dict):
            raise CannotChange(
                f"the value of {option.name} is no JSON object that could be changed"
            )
        return data

    def _must_be_whole(self, option: Option) -> None:
        if not option.words or any(not word.whole for word in option.words):
            raise CannotChange(f"{option.name} {self.elsewhere}")

    def must_change(self, words: Sequence[Word]) -> None:
        """Refuse words that share their place with others."""
        if any(not word.whole for word in words):
            raise CannotChange(f"it {self.elsewhere}")


def _first(option: Option) -> Word:
    return option.words[0]


def words_for(name: str, value: str | None) -> list[str]:
    """Return an option and its value as words; a value that looks like an option is joined."""
    if value is None:
        return [name]
    return [f"{name}={value}"] if _looks_like_option(value) else [name, value]


def _looks_like_option(value: str) -> bool:
    return value.startswith("-") and re.fullmatch(r"-\d+(?:\.\d+)?", value) is None


def _opposite(name: str) -> str:
    return f"--{name[5:]}" if name.startswith("--no-") else f"--no-{name[2:]}"


def _typed(value: str | None) -> Any:  # noqa: ANN401 - JSON data
    return True if value is None else typed(value)


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    inner = data.get(first)
    if rest and isinstance(inner, dict):
        return {**data, first: _without(inner, rest)}
    return {k: v for k, v in data.items() if k != first or rest}


def _like(old: str | None, value: Any) -> str:  # noqa: ANN401 - JSON data
    """Write JSON with blanks where the old value had them."""
    if isinstance(value, dict | list) and old and re.search(r'":\s', old):
        return json.dumps(value, ensure_ascii=False)
    return as_text(value)


def same_thing(name: str, old: str, new: str) -> bool:
    """Say whether two values of a repeatable option speak of one thing, so that only one can stand.

    Args:
        name: The option.
        old: A value that stands there.
        new: Another.
    """
    if name in grammar.RUN_KEYED:
        mark = grammar.RUN_KEYED[name]
        return old.partition(mark)[0] == new.partition(mark)[0]
    if name == "--publish":
        return _inside_port(old) == _inside_port(new)
    if name in {"--volume", "--tmpfs"}:
        return _inside_path(old) == _inside_path(new)
    return old == new


def _inside_port(value: str) -> str:
    port = value.rpartition(":")[2]
    return port if "/" in port else f"{port}/tcp"


def _inside_path(value: str) -> str:
    parts = value.split(":")
    return parts[1] if len(parts) > 1 else parts[0]
