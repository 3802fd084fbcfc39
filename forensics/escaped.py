r"""Patterns for text that stands in JSON strings as a container runtime writes them.

A log wrapped in JSON can be searched without unwrapping it, if each pattern also takes the
escapes: `"` is written `\"`, `<` is written `\u003c`, a tab is written `\t`. What comes out may
match more than it should, and never less: `forensics.patterns.confirm` decides on clean text.
Format: Go's `encoding/json`, moby `jsonfilelog/jsonlog`.
"""

from __future__ import annotations

import re

from forensics.patterns import ATOM

#: Whatever JSON writes for one character in more than its own bytes.
_ANY_ESCAPE = r"\\(?:u[0-9a-fA-F]{4}|[^u\n])"
_WRITTEN = {'"': r'\\?"', "\\": r"\\\\?", "\t": r"(?:\t|\\t)"}
_WRITTEN |= {c: rf"(?:{c}|\\u00{ord(c):02x}|\\u00{ord(c):02X})" for c in "<>&"}
#: Characters of each kind that is ever escaped.
_ESCAPED = '"\\<>&\t\x01\x7f\u2028\ufffd'
#: Conditions that the bytes around a text decide, and escapes change those.
_PLACES = frozenset({"^", "$", r"\b", r"\B", r"\A", r"\Z"})
#: Escapes of the pattern language that stand for one character.
_NAMED = {r"\t": "\t"}
_CLASSES = frozenset("dDwWsS")


def escaped(pattern: str) -> str:
    """Return a pattern that matches the JSON form of every text that `pattern` matches.

    Args:
        pattern: A pattern as Hyperscan takes it (see `forensics.patterns.relax`).
    """
    return "".join(_written(found[0]) for found in ATOM.finditer(pattern))


def _written(atom: str) -> str:
    if atom in _PLACES:
        return ""
    if atom[0] == "(" or atom in {")", "|", "?", "*", "+", "{", "}"}:
        return atom
    if atom == "." or (atom[0] == "[" and len(atom) > 1):
        return _class(atom)
    character = _NAMED.get(atom, atom[-1])
    if len(atom) > 1 and atom[1].isalnum() and atom not in _NAMED:
        return _class(atom) if atom[1] in _CLASSES else atom
    if not character.isascii():
        return rf"(?:{character}|{_ANY_ESCAPE})"
    return _WRITTEN.get(character, atom)


def _class(atom: str) -> str:
    one = re.compile(atom, re.ASCII)
    if any(one.match(character) for character in _ESCAPED):
        return f"(?:{atom}|{_ANY_ESCAPE})"
    return atom
