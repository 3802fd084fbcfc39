"""What a pattern means, and how it is looked for.

Finding has two halves: a `Finder` names lines and patterns that *may* match, quickly (see
`forensics.hyperscan_finder`), and `confirm` decides on the message of one line with `regex`. The
plain finder, which offers every line to every pattern, is the definition of right; a fast one
must only never miss.

To never miss, a pattern is relaxed before it is compiled for Hyperscan: a `^` is dropped (there
the text still has its prefix), bounds of repeats are opened (Hyperscan counts bytes, `regex`
characters), and negated classes are kept from crossing a line end.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Protocol

#: Seconds that one pattern may take on one line before it is given up (untrusted rules).
MATCH_TIMEOUT_S = 1.0
#: Characters of a line that patterns see; longer lines are cut.
MAX_MESSAGE = 65_536

_CAPTURE_TAIL = re.compile(
    r"(?:\(\?P<\w+>|\()(?P<atom>\\[SwdD]|\.|\[\^?(?:\\.|[^\]\\])+\])"
    r"(?P<quant>\+|\*|\{(?P<least>\d+),\d*\})\??\)$"
)
_PLAIN_TAIL = re.compile(
    r"(?P<atom>\\[SwdD]|(?<!\\)\.|\[\^?(?:\\.|[^\]\\])+\])(?P<quant>\+|\*|\{(?P<least>\d+),\d*\})\??$"
)
_RANGE = re.compile(r"\{(\d+),(\d+)\}")


def relax(pattern: str) -> str:
    """Return a pattern for Hyperscan that matches at least wherever `pattern` does in a line.

    Args:
        pattern: A pattern as in rules and signals (`^` and `$` mean the message's ends).
    """
    out: list[str] = []
    i, in_class = 0, False
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            out.append(pattern[i : i + 2])
            i += 2
            continue
        if in_class:
            in_class = char != "]" or out[-1] in {"[", r"[^\n"}
            out.append(char)
        elif char == "[":
            in_class = True
            negated = pattern.startswith("^", i + 1)
            out.append(r"[^\n" if negated else "[")
            i += int(negated)
            if negated and pattern.startswith("-", i + 1):
                out.append(r"\-")  # a plain dash would make a range of the newline
                i += 1
        elif char == "{" and (found := _RANGE.match(pattern, i)):
            least, most = int(found[1]), int(found[2])
            out.append(found[0] if most <= 3 else "*" if least == 0 else f"{{{least},}}")
            i = found.end()
            continue
        elif char != "^":
            out.append(char)
        i += 1
    return _shorten("".join(out))


def _shorten(pattern: str) -> str:
    """Cut an open repeat at the end: it would report each further character as a match."""
    for tail in (_CAPTURE_TAIL, _PLAIN_TAIL):
        found = tail.search(pattern)
        if found and not pattern[: found.start()].endswith("\\"):
            least = int(found["least"] or 0) if found["least"] else int(found["quant"] == "+")
            atom = found["atom"]
            shorter = pattern[: found.start()] + (atom if least == 1 else f"{atom}{{{least}}}" if least else "")
            if len(shorter) >= 4 and "|" not in pattern[: found.start()]:
                return shorter
    return pattern


@functools.cache
def compiled(pattern: str) -> Any:  # noqa: ANN401 - regex.Pattern, kept lazy
    """Return the `regex` pattern, compiled once."""
    import regex

    return regex.compile(pattern)


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
