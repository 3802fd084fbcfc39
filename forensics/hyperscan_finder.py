"""The fast finder: all patterns in one pass over whole blocks, compiled once and kept.

It only names candidates; `forensics.patterns.confirm` decides. Scanning releases the interpreter
lock, so that blocks can be scanned in threads.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from typing import Any

from forensics import cache
from forensics.patterns import PlainFinder, relax


class HyperscanFinder:
    """One pass over the block for all patterns.

    Args:
        patterns: The patterns as written.

    Raises:
        ImportError: There is no Hyperscan for this machine.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        import hyperscan

        self._hyperscan = hyperscan
        self.patterns = patterns
        self._database = _database(hyperscan, patterns)
        self._scratch = hyperscan.Scratch(self._database)
        self._first = True

    def clone(self) -> HyperscanFinder:
        """Return a finder for another thread (a scratch space serves one scan at a time)."""
        twin = object.__new__(HyperscanFinder)
        twin._hyperscan, twin.patterns = self._hyperscan, self.patterns
        twin._database, twin._scratch = self._database, self._scratch.clone()
        return twin

    def candidates(self, block: bytes) -> list[tuple[int, int]]:
        """Return the (end offset, pattern index) of each match, by offset."""
        found: list[tuple[int, int]] = []
        self._database.scan(
            block, match_event_handler=_collect, context=found.append, scratch=self._scratch
        )
        found.sort()
        return found


def _collect(index: int, _start: int, end: int, _flags: int, append: Any) -> None:  # noqa: ANN401
    append((end, index))


def finder(patterns: tuple[str, ...]) -> HyperscanFinder | PlainFinder:
    """Return the fastest finder that this machine has."""
    try:
        return HyperscanFinder(patterns)
    except ImportError:
        return PlainFinder(patterns)


def _database(hyperscan: Any, patterns: tuple[str, ...]) -> Any:  # noqa: ANN401 - untyped module
    """Load the compiled database of these patterns, or compile and keep it."""
    stamp = f"{hyperscan.__version__}|{sys.platform}|{sys.version_info[:2]}"
    key = hashlib.sha256("\0".join((stamp, *patterns)).encode()).hexdigest()[:32]
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
    database = compile_database(hyperscan, patterns)
    cache.write(name, hyperscan.dumpb(database))
    return database


def compile_database(hyperscan: Any, patterns: Iterable[str]) -> Any:  # noqa: ANN401
    """Compile patterns, each under its index.

    A pattern that Hyperscan cannot take as it is (look-around, back-reference) is compiled in
    prefilter mode, which may only match more; one that it cannot take at all matches every line.
    """
    relaxed = [relax(p) for p in patterns]
    flags = [hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_ALLOWEMPTY] * len(relaxed)
    try:
        return _compile(hyperscan, relaxed, flags)
    except hyperscan.HyperscanError:
        for i, pattern in enumerate(relaxed):
            for flag, text in (
                (flags[i], pattern),
                (flags[i] | hyperscan.HS_FLAG_PREFILTER, pattern),
                (flags[i], "$"),
            ):
                try:
                    _compile(hyperscan, [text], [flag])
                except hyperscan.HyperscanError:
                    continue
                relaxed[i], flags[i] = text, flag
                break
        return _compile(hyperscan, relaxed, flags)


def _compile(hyperscan: Any, expressions: list[str], flags: list[int]) -> Any:  # noqa: ANN401
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[e.encode() for e in expressions],
        ids=list(range(len(expressions))),
        flags=flags,
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
            _compile(hyperscan, [relax(pattern)], [flags])
        except hyperscan.HyperscanError:
            found.append(pattern)
    return found
