r"""What a pattern means, and how it is looked for.

Finding has two halves: a `Finder` names lines and patterns that *may* match, quickly (see
`forensics.hyperscan_finder`), and `confirm` decides on the message of one line with `regex`. The
plain finder, which offers every line to every pattern, is the definition of right; a fast one
must only never miss.

To never miss, a pattern is relaxed before it is compiled for Hyperscan: a `^` is dropped (there
the text still has its prefix), bounds of repeats are opened (Hyperscan counts bytes, `regex`
characters), what can match a character beyond ASCII may match several bytes, and negated classes
are kept from crossing a line end. `\\d`, `\\s`, `\\w` and `\\b` mean ASCII in both.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Protocol

#: Seconds that one pattern may take on one line before it is given up (untrusted rules).
MATCH_TIMEOUT_S = 1.0
#: Upper bounds of repeats up to this are kept for Hyperscan.
_SMALL = 3
#: A pattern cut shorter than this would match too much.
_MIN_SHORT = 4
#: Characters of a line that patterns see; longer lines are cut.
MAX_MESSAGE = 65_536

_CAPTURE_TAIL = re.compile(
    r"(?:\(\?P<\w+>|\()(?P<atom>\\[SwdD]|\.|\[\^?(?:\\.|[^\]\\])+\])"
    r"(?P<quant>\+|\*|\{(?P<least>\d+),\d*\})\??\)$"
)
_PLAIN_TAIL = re.compile(
    r"(?P<atom>\\[SwdD]|(?<!\\)\.|\[\^?(?:\\.|[^\]\\])+\])(?P<quant>\+|\*|\{(?P<least>\d+),\d*\})\??$"
)
#: One thing that a repeat can follow; the openings of groups and look-arounds stand alone.
ATOM = re.compile(
    r"\((?:\?(?:P<\w+>|P=\w+\)|:|<?[=!]|>|[A-Za-z-]+[:)]))?|\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"(?:[?*+]|\{(?:\d+(?:,\d*)?|,\d+)\})[?+]?")
_WIDE = {".", r"\S", r"\W", r"\D"}


def relax(pattern: str) -> str:
    """Return a pattern for Hyperscan that matches at least wherever `pattern` does in a line.

    Args:
        pattern: A pattern as in rules and signals (`^` and `$` mean the message's ends).
    """
    out: list[str] = []
    i = 0
    while i < len(pattern):
        found = ATOM.match(pattern, i)
        atom = found[0] if found else pattern[i]
        i += len(atom)
        text, wide = _atom(atom)
        repeat = None if atom[0] == "(" else _REPEAT.match(pattern, i)
        if repeat:
            i = repeat.end()
        if text:
            out.append(text + _repeats(repeat[0] if repeat else "", wide=wide))
    return _shorten("".join(out))


def _atom(atom: str) -> tuple[str, bool]:
    """Return an atom for bytes, and whether one character of it may be several bytes."""
    if atom in {"^", r"\A"}:
        return "", False
    if atom in {r"\Z", r"\z"}:
        return "$", False
    if atom[0] != "[" or len(atom) == 1:
        return (atom, atom in _WIDE) if atom.isascii() else (f"(?:{atom})", False)
    if not atom.isascii():
        return r"[^\n]", True
    negated = atom.startswith("[^")
    members = atom[1 + negated : -1]
    if members[:1] in {"]", "-"}:
        # First in a class they stand for themselves; after the newline put there they would not.
        members = "\\" + members
    wide = negated or any(f"\\{letter}" in members for letter in "SWD")
    return (rf"[^\n{members}]" if negated else f"[{members}]"), wide


def _repeats(repeat: str, *, wide: bool) -> str:
    """Return a repeat without its upper bound, where that is large or counts characters."""
    plain = repeat[:-1] if len(repeat) > 1 and repeat[-1] in "?+" else repeat
    if plain[:1] == "{":
        least, _, most = plain[1:-1].partition(",")
        small = (most or least).isdecimal() and int(most or least) <= _SMALL and bool(least)
        if small and not wide and (most or "," not in plain):
            return plain
        return "*" if int(least or 0) == 0 else f"{{{int(least)},}}"
    if wide:
        return {"": "+", "?": "*"}.get(plain, plain)
    return plain


def _shorten(pattern: str) -> str:
    """Cut an open repeat at the end: it would report each further character as a match."""
    for tail in (_CAPTURE_TAIL, _PLAIN_TAIL):
        found = tail.search(pattern)
        if found and not pattern[: found.start()].endswith("\\"):
            least = int(found["least"] or 0) if found["least"] else int(found["quant"] == "+")
            atom = found["atom"]
            shorter = pattern[: found.start()] + (
                atom if least == 1 else f"{atom}{{{least}}}" if least else ""
            )
            if len(shorter) >= _MIN_SHORT and "|" not in pattern[: found.start()]:
                return shorter
    return pattern


@functools.cache
def compiled(pattern: str) -> Any:  # noqa: ANN401 - regex.Pattern, kept lazy
    """Return the `regex` pattern, compiled once."""
    import regex

    return regex.compile(pattern, regex.ASCII)


def confirm(pattern: str, message: str) -> dict[str, str] | None:
    """Search a pattern in one message.

    Args:
        pattern: The pattern as written.
        message: The text, cut at `MAX_MESSAGE` characters.

    Returns:
        The named groups that took part, or None where the pattern does not match.

    Raises:
        TimeoutError: It took longer than `MATCH_TIMEOUT_S`.
    """
    found = compiled(pattern).search(message[:MAX_MESSAGE], timeout=MATCH_TIMEOUT_S)
    if found is None:
        return None
    return {key: value for key, value in found.groupdict().items() if value is not None}


class Finder(Protocol):
    """Names candidates in a block of clean text."""

    def candidates(self, block: bytes, *, statistics: bool = True) -> list[tuple[int, int]]:
        """Return (offset of a byte in the line or of its end, pattern index), by offset.

        Args:
            block: Clean text of whole lines.
            statistics: Whether lines of running statistics are wanted.
        """


class PlainFinder:
    """Every line, every pattern: slow, obviously right."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns

    def candidates(self, block: bytes, *, statistics: bool = True) -> list[tuple[int, int]]:
        """Return every line with every pattern."""
        del statistics
        found: list[tuple[int, int]] = []
        start = 0
        indices = range(len(self.patterns))
        for line in block.split(b"\n"):
            end = start + len(line)
            found.extend((end, index) for index in indices)
            start = end + 1
        return found


def required_literal(pattern: str) -> str:
    """Return the longest text that every match of a pattern holds.

    Empty where there is none, and for patterns with flags (letters without regard to case).
    """
    # The parsed tree of a pattern has no public reader.
    from re import _parser as parser  # type: ignore[attr-defined]

    if "(?i" in pattern or "(?x" in pattern:
        return ""
    return _literal(list(parser.parse(pattern)))


def _literal(tree: list[Any]) -> str:
    """Return the longest mandatory run of literals in a parsed pattern."""
    best = run = ""
    for op, argument in tree:
        name = str(op)
        if name == "LITERAL":
            run += chr(argument)
        elif name == "SUBPATTERN" and all(str(o) == "LITERAL" for o, _ in argument[3]):
            run += "".join(chr(code) for _, code in argument[3])
        else:
            run = ""
            best = max(best, _inner_literal(name, argument), key=len)
        best = max(best, run, key=len)
    return best


def _inner_literal(name: str, argument: Any) -> str:  # noqa: ANN401 - parsed pattern
    if name == "SUBPATTERN":
        return _literal(list(argument[3]))
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"} and argument[0] > 0:
        return _literal(list(argument[2]))
    return ""
