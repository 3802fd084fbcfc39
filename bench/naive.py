"""What a script written in an hour does: each line against each pattern, with `re`.

python -m bench.naive LOG PATTERNS      (patterns are separated by NUL) prints the lines that match
"""

import re
import sys
from pathlib import Path


def main(log: str, patterns: str) -> int:
    """Print how many lines of a log match any of the patterns; return the exit code."""
    compiled = []
    for text in Path(patterns).read_text(encoding="utf-8").split("\0"):
        try:
            compiled.append(re.compile(text))
        except re.error:
            print("left out, not for the standard library:", text, file=sys.stderr)
    matched = 0
    with Path(log).open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            for pattern in compiled:
                if pattern.search(line):
                    matched += 1
                    break
    print(matched)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
