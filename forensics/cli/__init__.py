"""The command `forensics`: options in, one call, print, exit code. No logic.

Exit codes: 0 nothing wrong found, 1 a failure was found, 2 usage error or unusable input,
130 interrupted.
"""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command and end the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        # Answered without building the command tree: this is the start-up that people notice.
        from forensics import __version__

        sys.stdout.write(f"forensics {__version__}\n")
        raise SystemExit(0)
    # Imports and the rules make objects that live as long as the process: passes of the cyclic
    # collector over them find nothing. It runs again, more rarely, for what comes after.
    gc.disable()
    try:
        from forensics.cli.app import run
    except KeyboardInterrupt:
        sys.stderr.write("forensics: interrupted\n")
        raise SystemExit(130) from None
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    raise SystemExit(run())
