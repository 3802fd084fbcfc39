"""A corrected launch for people: what was changed and why, and the difference, words marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from forensics.model import LaunchChange, SuggestedLaunch
from forensics.reporters.view import visible, wrap

#: A piece of text and its style.
Piece = tuple[str, str]
Line = list[Piece]
_WORD = re.compile(r"\s+|[^\s\"'{},:]+|[\"'{},:]")
_RISK = {
    "safe": "",
    "review": "look at this one before you use it",
    "lossy": "costs quality, context or speed",
}
_ALTERNATIVES = 3
#: Two lines that share so much are one line changed.
_ALIKE = 0.4
_REBUILT = {
    "inspect": "rebuilt from the inspect data",
    "log": "rebuilt from the arguments that the log printed",
}


def lines(suggested: SuggestedLaunch, width: int, *, color: bool, verbose: bool) -> Iterator[Line]:
    """Yield the lines of the section, each as pieces with styles.

    Args:
        suggested: The corrected launch.
        width: Columns for sentences; lines of the launch itself are never cut.
        color: Whether styles are shown; without, changed words get a line of marks below.
        verbose: Whether to show every alternative with its difference.
    """
    changes = suggested.changes
    origin = _REBUILT.get(suggested.kind)
    if changes:
        count = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
        yield [(f"Corrected launch: {count}" + (f", {origin}" if origin else ""), "bold")]
        for number, change in enumerate(changes, 1):
            yield from _change(number, change, width)
        yield []
        if origin:
            yield from ([(f"  {visible(line)}", "")] for line in suggested.text.splitlines())
        else:
            yield from _marked(suggested.diff, color=color)
    refused = [c for c in suggested.not_changed if c.problem != "the launch is already so"]
    if refused:
        yield []
        yield [("Not written into it", "bold")]
        for one in refused if verbose else refused[:6]:
            yield from _wrapped(f"{one.text.rstrip('.')}: {one.problem}", "  - ", width)
    yield from _others(suggested, width, color=color, verbose=verbose)


def _change(number: int, change: LaunchChange, width: int) -> Iterator[Line]:
    risk = _RISK[change.safety]
    yield from _wrapped(change.text, f"  {number}. ", width, "bold green")
    yield from _wrapped(change.why + (f" ({risk})" if risk else ""), "     ", width)


def _wrapped(text: str, first: str, width: int, style: str = "") -> Iterator[Line]:
    yield from ([(line, style)] for line in wrap(text, width, first, " " * len(first)))


def _others(
    suggested: SuggestedLaunch, width: int, *, color: bool, verbose: bool
) -> Iterator[Line]:
    if not suggested.alternatives:
        return
    yield []
    yield [("Instead of these" if suggested.changes else "One of these by itself", "bold")]
    for one in suggested.alternatives[: None if verbose else _ALTERNATIVES]:
        for change in one.changes:
            risk = _RISK[change.safety]
            said = f"{change.text.rstrip('.')}: {change.why}" + (f" ({risk})" if risk else "")
            yield from _wrapped(said, "  - ", width)
        if verbose:
            yield from _marked(one.diff, color=color)
    left = len(suggested.alternatives) - _ALTERNATIVES
    if not verbose:
        more = f" and {left} more" if left > 0 else ""
        yield from _wrapped(f"-v shows their differences{more}.", "    ", width, "dim")


# --- differences -------------------------------------------------------------------------------


def _marked(diff: str, *, color: bool) -> Iterator[Line]:
    """Yield a unified diff with the words that changed marked."""
    rows = diff.splitlines()[2:]
    i = 0
    while i < len(rows):
        if rows[i][:1] not in "+-":
            yield [(f"  {visible(rows[i])}", "dim")]
            i += 1
            continue
        start = i
        while i < len(rows) and rows[i][:1] in {"-", "+"}:
            i += 1
        old = [r[1:] for r in rows[start:i] if r[0] == "-"]
        new = [r[1:] for r in rows[start:i] if r[0] == "+"]
        yield from _block(old, new, color=color)


def _block(old: list[str], new: list[str], *, color: bool) -> Iterator[Line]:
    """Yield one changed stretch; lines are paired by likeness."""
    partner = _pairs(old, new)
    for i, line in enumerate(old):
        gone = _spans(line, new[partner[i]])[0] if i in partner else [(0, len(line))]
        yield from _row("-", line, gone, "red", color=color, mark=i in partner)
    back = {n: o for o, n in partner.items()}
    for i, line in enumerate(new):
        came = _spans(old[back[i]], line)[1] if i in back else [(0, len(line))]
        yield from _row("+", line, came, "green", color=color, mark=i in back)


def _pairs(old: list[str], new: list[str]) -> dict[int, int]:
    found: dict[int, int] = {}
    for i, line in enumerate(old):
        free = [n for n in range(len(new)) if n not in found.values()]
        best = max(
            free, key=lambda n: difflib.SequenceMatcher(None, line, new[n]).ratio(), default=None
        )
        if best is not None and difflib.SequenceMatcher(None, line, new[best]).ratio() > _ALIKE:
            found[i] = best
    return found


def _spans(old: str, new: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return what differs between two lines, word by word."""
    a, b = _WORD.findall(old), _WORD.findall(new)
    starts_a, starts_b = _starts(a), _starts(b)
    gone: list[tuple[int, int]] = []
    came: list[tuple[int, int]] = []
    for kind, a1, a2, b1, b2 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            gone += [(starts_a[a1], starts_a[a2])] if a2 > a1 else []
            came += [(starts_b[b1], starts_b[b2])] if b2 > b1 else []
    return gone, came


def _starts(words: list[str]) -> list[int]:
    found = [0]
    for word in words:
        found.append(found[-1] + len(word))
    return found


def _row(
    sign: str, line: str, spans: list[tuple[int, int]], style: str, *, color: bool, mark: bool
) -> Iterator[Line]:
    pieces: Line = [(f"  {sign}", style)]
    place = 0
    for start, end in spans if mark else []:
        pieces.append((visible(line[place:start]), style))
        pieces.append((visible(line[start:end]), f"bold underline {style}"))
        place = end
    pieces.append((visible(line[place:]), style))
    yield pieces
    if not color and mark and spans and sign == "+":
        marks = [" "] * len(line)
        for start, end in spans:
            marks[start:end] = ["^" if c.strip() else " " for c in line[start:end]]
        text = "".join(marks).rstrip()
        if text:
            yield [(f"   {text}", "")]
