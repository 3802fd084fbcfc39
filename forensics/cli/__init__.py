"""The command `forensics`: options in, one call, print, exit code. No logic.

Exit codes: 0 nothing wrong found, 1 a failure was found, 2 usage error or unusable input,
130 interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command and end the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        # Answered without building the command tree: this is the start-up that people notice.
        from forensics import __version__

        sys.stdout.write(f"forensics {__version__}\n")
        raise SystemExit(0)
    try:
        from forensics.cli.app import run
    except KeyboardInterrupt:
        sys.stderr.write("forensics: interrupted\n")
        raise SystemExit(130) from None
    raise SystemExit(run())
