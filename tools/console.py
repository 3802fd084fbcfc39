"""Run the commands shown in pages and keep their output true.

A block that begins ```console and whose first line is `$ forensics …` holds that command's real
output. `# …` at the end of a command is not run. A last line `…` stands for the rest.

    python tools/console.py            write the outputs
    python tools/console.py --check    say which pages are stale (exit code 1 if any)
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"```console\n\$ (?P<command>forensics [^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def run(command: str) -> str:
    """Return what a command prints (both streams), without trailing blanks."""
    words = shlex.split(command, comments=True)
    done = subprocess.run(  # noqa: S603 - the commands of our own pages
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())


def refreshed(text: str) -> str:
    """Return a page with the output of each command as it is today."""

    def block(found: re.Match[str]) -> str:
        output = run(found["command"])
        shown = found["output"].rstrip().splitlines()
        if shown and shown[-1] == "…":
            output = "\n".join([*output.splitlines()[: len(shown) - 1], "…"])
        return f"```console\n$ {found['command']}\n{output}\n```"

    return BLOCK.sub(block, text)


def main() -> int:
    """Write or check the pages; return the exit code."""
    stale = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]:
        text = page.read_text(encoding="utf-8")
        new = refreshed(text)
        if new != text:
            stale.append(page.relative_to(ROOT))
            if "--check" not in sys.argv[1:]:
                page.write_text(new, encoding="utf-8")
    sys.stdout.write("".join(f"stale: {page}\n" for page in stale if "--check" in sys.argv[1:]))
    return int("--check" in sys.argv[1:] and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
