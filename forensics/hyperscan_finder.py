"""The fast finder: all patterns in one pass over whole blocks, compiled once and kept.

It only names candidates; `forensics.patterns.confirm` decides. Scanning releases the interpreter
lock, so that blocks can be scanned in threads.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from typing import Any

from forensics import cache
from forensics.envelopes.quiet import CODES, UNEVEN
from forensics.escaped import escaped
from forensics.patterns import PlainFinder, relax, required_literal

#: Part of the cache's key: raise it when `relax` or the flags change what is compiled.
_ALGORITHM = 4
#: A text of this length that every match holds is looked for in place of the pattern: plain texts
#: are found several times faster, and one this long rarely stands in a line that does not match.
_TELLING = 12
#: Indices of what is looked for in wrapped logs besides the patterns.
_UNEVEN_ID, _CODES_ID = 1_000_000, 1_000_001


class HyperscanFinder:
    """One pass over the block for all patterns.

    Every reported match costs a call, so there is a second, leaner database without the lines of
    running statistics, for the parts of a log in which those are not wanted.

    Args:
        patterns: What to look for, by index.
        statistics: Texts that mark lines of running statistics.

    Raises:
        ImportError: There is no Hyperscan for this machine.
    """

    def __init__(self, patterns: tuple[str, ...], statistics: tuple[str, ...] = ()) -> None:
        import hyperscan

        self.patterns = patterns
        everything = dict(enumerate(patterns))
        lean = {i: p for i, p in everything.items() if not any(s in p for s in statistics)}
        full_database = _database(hyperscan, everything)
        lean_database = (
            full_database if len(lean) == len(everything) else _database(hyperscan, lean)
        )
        self._full = (full_database, hyperscan.Scratch(full_database))
        self._lean = (lean_database, hyperscan.Scratch(lean_database))
        self._wanted = lean

    def clone(self) -> HyperscanFinder:
        """Return a finder for another thread (a scratch space serves one scan at a time)."""
        twin = object.__new__(HyperscanFinder)
        twin.patterns, twin._wanted = self.patterns, self._wanted
        twin._full = (self._full[0], self._full[1].clone())
        twin._lean = (self._lean[0], self._lean[1].clone())
        return twin

    def candidates(self, block: bytes, *, statistics: bool = True) -> list[tuple[int, int]]:
        """Return the (end offset, pattern index) of each match, by offset.

        Args:
            block: Clean text of whole lines.
            statistics: Whether lines of running statistics are wanted.
        """
        database, scratch = self._full if statistics else self._lean
        found: list[tuple[int, int]] = []
        database.scan(block, match_event_handler=_collect, context=found.append, scratch=scratch)
        found.sort()
        return found

    def wrapped(self) -> WrappedFinder:
        """Return what finds where in a json-file log a pattern may match (no statistics)."""
        import hyperscan

        return WrappedFinder(_database(hyperscan, self._wanted, wrapped=True))


class WrappedFinder:
    """Says where a log must be unwrapped: without that, most of it need never be.

    Args:
        database: The patterns as they look within JSON.
    """

    def __init__(self, database: Any) -> None:  # noqa: ANN401 - untyped module
        import hyperscan

        self._database, self._scratch = database, hyperscan.Scratch(database)

    def clone(self) -> WrappedFinder:
        """Return a finder for another thread."""
        twin = object.__new__(WrappedFinder)
        twin._database, twin._scratch = self._database, self._scratch.clone()
        return twin

    def places(self, raw: bytes) -> list[int] | None:
        """Return where lines must be read, ascending; None where parts of lines may stand.

        Args:
            raw: Whole records of Docker's json-file driver.
        """
        found: list[tuple[int, int]] = []
        self._database.scan(
            raw, match_event_handler=_collect, context=found.append, scratch=self._scratch
        )
        if any(index == _UNEVEN_ID for _, index in found):
            return None
        return sorted({end - 1 for end, _ in found})


def _collect(index: int, _start: int, end: int, _flags: int, append: Any) -> None:  # noqa: ANN401
    append((end, index))


def finder(
    patterns: tuple[str, ...], statistics: tuple[str, ...] = ()
) -> HyperscanFinder | PlainFinder:
    """Return the fastest finder that this machine has."""
    try:
        return HyperscanFinder(patterns, statistics)
    except ImportError:
        return PlainFinder(patterns)


def _database(
    hyperscan: Any,  # noqa: ANN401 - untyped module
    patterns: dict[int, str],
    *,
    wrapped: bool = False,
) -> Any:  # noqa: ANN401
    """Load the compiled database of these patterns, or compile and keep it."""
    stamp = f"{_ALGORITHM}|{wrapped}|{hyperscan.__version__}|{sys.platform}|{sys.version_info[:2]}"
    listed = (f"{i} {p}" for i, p in patterns.items())
    key = hashlib.sha256("\0".join((stamp, *listed)).encode()).hexdigest()[:32]
    name = f"patterns-{key}"
    body = cache.read(name)
    if body is not None:
        try:
            database = hyperscan.loadb(body, hyperscan.HS_MODE_BLOCK)
            hyperscan.Scratch(database)
        except Exception:  # noqa: BLE001, S110 - whatever a foreign database raises: build anew
            pass
        else:
            return database
    database = compile_database(hyperscan, patterns, wrapped=wrapped)
    cache.write(name, hyperscan.dumpb(database))
    return database


def compile_database(
    hyperscan: Any,  # noqa: ANN401 - untyped module
    patterns: dict[int, str],
    *,
    wrapped: bool = False,
) -> Any:  # noqa: ANN401
    """Compile patterns, each under its index.

    A pattern that Hyperscan cannot take as it is (look-around, back-reference) is compiled in
    prefilter mode, which may only match more; of one that it cannot take at all every line is a
    candidate.
    """
    plain = hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_ALLOWEMPTY
    if wrapped:
        found = {i: (escaped(searched_for(p)), plain) for i, p in patterns.items()}
        found |= {_UNEVEN_ID: (UNEVEN, plain), _CODES_ID: (CODES, plain)}
    else:
        found = {i: (searched_for(p), plain) for i, p in patterns.items()}
    try:
        return _compile(hyperscan, found)
    except hyperscan.HyperscanError:
        for i, (text, _) in found.items():
            for attempt in (
                (text, plain),
                (text, plain | hyperscan.HS_FLAG_PREFILTER),
                ("$", plain),
            ):
                try:
                    _compile(hyperscan, {i: attempt})
                except hyperscan.HyperscanError:
                    continue
                found[i] = attempt
                break
        return _compile(hyperscan, found)


def searched_for(pattern: str) -> str:
    """Return what Hyperscan looks for in place of a pattern."""
    literal = required_literal(pattern)
    return re.escape(literal) if len(literal) >= _TELLING else relax(pattern)


def _compile(hyperscan: Any, expressions: dict[int, tuple[str, int]]) -> Any:  # noqa: ANN401
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[text.encode() for text, _ in expressions.values()],
        ids=list(expressions),
        flags=[flags for _, flags in expressions.values()],
        elements=len(expressions),
    )
    return database


def unsupported(patterns: Iterable[str]) -> list[str]:
    """Return the patterns that Hyperscan cannot take as they are (none, where it is missing)."""
    try:
        import hyperscan
    except ImportError:
        return []
    found = []
    for pattern in patterns:
        flags = hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_ALLOWEMPTY
        try:
            _compile(hyperscan, {0: (relax(pattern), flags)})
        except hyperscan.HyperscanError:
            found.append(pattern)
    return found
