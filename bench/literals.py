"""Takes from each rule pattern the longest text that every match of it must contain.

A search for fixed strings (ripgrep, grep) needs such a list. It is a smaller task than the rules
set: a pattern without such a text (an alternation at its top) gives none, and is left out.

    python -m bench.literals OUT      writes one literal a line, and prints counts as JSON

It also writes the patterns themselves, separated by NUL, to OUT with the ending `.patterns`.
"""

import argparse
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from forensics import ruleset

SHORTEST: Final = 4

# The standard library's own parser of patterns: it has no public name and no types.
_parser: Any = importlib.import_module("re._parser")


def longest_literal(pattern: str) -> str | None:
    """Return the longest text in every match of a pattern; None if there is none.

    Letters under `(?i)` count as unknown. None, too, for a pattern that the standard library cannot
    read, and for a text shorter than four characters. A text ends at a line feed, because the
    tools that it is for work line by line.
    """
    try:
        tree = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError):
        return None
    runs = [""]
    _walk(tree, tree.state.flags, runs)
    best = max(runs, key=len)
    return best if len(best) >= SHORTEST else None


def _walk(tree: Any, flags: int, runs: list[str]) -> None:  # noqa: ANN401 - a private type
    """Append to the last run what must follow it; start a new run after what can vary."""
    for opcode, argument in tree:
        match str(opcode):
            case "LITERAL":
                _literal(chr(argument), flags, runs)
            case "SUBPATTERN":
                _, added, removed, inner = argument
                _walk(inner, (flags | added) & ~removed, runs)
            case "ATOMIC_GROUP":
                _walk(argument, flags, runs)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                # A long fixed repeat is no text that anybody searches for.
                for _ in range(min(least, 64)):
                    _walk(inner, flags, runs)
                if least != most or least > 64:
                    runs.append("")
            case "AT" | "ASSERT" | "ASSERT_NOT":
                pass  # no width: what stands before and after it stays adjacent
            case _:
                runs.append("")


def _literal(character: str, flags: int, runs: list[str]) -> None:
    """Append one character, unless it may also be another one or ends a line."""
    folds = flags & re.IGNORECASE and character.lower() != character.upper()
    if folds or character in "\r\n":
        runs.append("")
    else:
        runs[-1] += character


def main(arguments: list[str] | None = None) -> int:
    """Write the literals of the shipped rules and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.literals", description=__doc__)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    rules = ruleset.load().rules
    patterns = [
        pattern
        for rule in rules
        for leaf in ruleset.walk(rule.match)
        for pattern in ruleset.patterns_of(leaf)
    ]
    literals = sorted({text for text in map(longest_literal, patterns) if text is not None})
    given.out.write_text("".join(f"{text}\n" for text in literals), encoding="utf-8")
    given.out.with_suffix(".patterns").write_text("\0".join(patterns), encoding="utf-8")
    print(json.dumps({"rules": len(rules), "patterns": len(patterns), "literals": len(literals)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
