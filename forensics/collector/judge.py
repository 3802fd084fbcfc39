"""Diagnoses runs in a process of its own: rules and tables need memory that a collector has not.

`python -m forensics.collector.judge ARCHIVE` reads names of runs and answers each when its
diagnosis is written. `Judge` starts it when there is something to do, and lets it go afterwards.
"""

from __future__ import annotations

import os
import queue
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_LIMIT_S = 600.0
#: A process that is not needed for so long is ended; one that has done so much is replaced.
_IDLE_S = 15.0
_MOST = 50


class Judge:
    """Diagnoses runs, one after the other.

    Args:
        archive: The archive's folder.
        done: Called with each run when it is done, in a thread of its own.
    """

    def __init__(self, archive: Path, done: Callable[[str], None]) -> None:
        self._archive, self._done = archive, done
        self._runs: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        self._stopped = False
        self._left = 0
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    def add(self, run: str) -> None:
        """Diagnose a run when its turn comes."""
        self._left += 1
        self._runs.put(run)

    def wait(self, stop: threading.Event) -> None:
        """Wait until all is done, or something says stop."""
        while self._left and not stop.wait(0.05):
            pass

    def close(self) -> None:
        """Stop; runs that wait are left as they are (`forensics why` diagnoses them when asked)."""
        self._stopped = True
        self._runs.put(None)
        self._thread.join(30)

    def _work(self) -> None:
        while True:
            try:
                run = self._runs.get(timeout=_IDLE_S)
            except queue.Empty:
                self._end()
                continue
            if run is None or self._stopped:
                break
            # A run that ends the process (memory, a defect) is tried once more, alone.
            if not self._diagnose(run) and not self._stopped:
                self._diagnose(run)
            self._done(run)
            self._left -= 1
        self._end()

    def _diagnose(self, run: str) -> bool:
        if self._process is None or self._count >= _MOST:
            self._end()
            self._start()
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return False
        self._count += 1
        try:
            process.stdin.write(f"{run}\n".encode())
            process.stdin.flush()
        except OSError:
            self._end()
            return False
        if self._answered(process):
            return True
        self._end()
        return False

    def _answered(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for one line; a process that takes too long or ends gives none."""
        if process.stdout is None:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            left = _LIMIT_S
            while left > 0 and not self._stopped:
                if selector.select(0.5):
                    return bool(process.stdout.readline())
                left -= 0.5
        return False

    def _start(self) -> None:
        with suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                [sys.executable, "-P", "-m", "forensics.collector.judge", str(self._archive)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._count = 0

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(0.0 if self._stopped else 5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def main(folder: str) -> int:
    """Diagnose the runs that are named on standard input."""
    from forensics.analysis import prepare
    from forensics.archive.reading import diagnose_run
    from forensics.archive.store import Archive
    from forensics.errors import ForensicsError

    with suppress(OSError):
        os.nice(5)  # what is being written comes first
    archive, engine = Archive.open(Path(folder)), None
    for line in sys.stdin:
        engine = engine or prepare()
        run = line.strip()
        try:
            diagnose_run(archive, run, engine)
        except ForensicsError as error:
            sys.stderr.write(f"forensics: {error}\n")
        sys.stdout.write(f"{run}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
