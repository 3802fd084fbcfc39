"""A `forensics watch` of a test's own, and what it has kept, line by line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from forensics.archive.listing import log_lines
from forensics.archive.model import RunRecord
from forensics.archive.reading import open_run
from forensics.archive.store import Archive
from forensics.errors import SourceError
from tests.engines import Dockerd, wait_for


class Watcher:
    """The command as a person runs it, in a process that can be killed.

    Args:
        engine: What it watches.
        folder: Its archive; notices go beside it.
        options: Further words.
    """

    def __init__(self, engine: Dockerd, folder: Path, *options: str) -> None:
        self.engine, self.folder, self.options = engine, folder, options
        self.errors = folder.with_name(f"{folder.name}.err")
        self.lines = folder.with_name(f"{folder.name}.out")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Watcher:
        """Start it (again); it holds the engine's files when this returns."""
        before = self.notices().count("watching ")
        with self.errors.open("ab") as errors, self.lines.open("ab") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forensics", "watch", "--all",
                 "--archive", str(self.folder), *self.options],
                env=self.engine.environment, stdout=lines, stderr=errors,
            )  # fmt: skip
        wait_for(lambda: self.notices().count("watching ") > before or self.ended())
        assert not self.ended(), self.notices()
        return self

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def notices(self) -> str:
        return self.errors.read_text(errors="replace") if self.errors.exists() else ""

    def told(self) -> list[str]:
        return self.lines.read_text(errors="replace").splitlines()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(120)
        if how is signal.SIGTERM:
            assert code == 0, self.notices()

    def stop(self) -> None:
        """End it in order."""
        self.kill(signal.SIGTERM)

    # --- what it has kept --------------------------------------------------------------------

    @property
    def archive(self) -> Archive:
        return Archive.open(self.folder)

    def runs(self, container: str | None = None) -> list[RunRecord]:
        """Return the records, of one container or of all, by time."""
        if not (self.folder / "runs").is_dir():
            return []
        archive = self.archive
        found = (archive.record(run) for run in archive.ids())
        return [
            run for run in found
            if container is None or (run.container is not None and run.container.id == container)
        ]  # fmt: skip

    def final(self, count: int, container: str | None = None) -> list[RunRecord]:
        """Wait until so many runs are final, and no other is open; return them."""

        def done() -> list[RunRecord]:
            found = self.runs(container)
            return found if len(found) >= count and all(r.state == "final" for r in found) else []

        try:
            wait_for(done, every=0.2)
        except TimeoutError:
            states = [(run.id, run.state, run.reasons) for run in self.runs(container)]
            raise AssertionError(f"{states}\n{self.notices()}") from None
        found = self.runs(container)
        assert len(found) == count, [(run.id, run.started_at, run.reasons) for run in found]
        return found

    def text(self, run: RunRecord) -> bytes:
        """Return what the container wrote, as the archive has it."""
        try:
            opened, _ = open_run(self.archive, run.id)
        except SourceError:
            return b""  # nothing was printed, or nothing is there yet
        with contextlib.closing(opened.file):
            envelope = run.log.envelope if run.log is not None else "raw"
            return b"".join(log_lines(opened, envelope))


@contextlib.contextmanager
def watching(engine: Dockerd, folder: Path, *options: str) -> Iterator[Watcher]:
    """Give a watcher that runs; it is gone afterwards."""
    watcher = Watcher(engine, folder, *options)
    try:
        yield watcher.start()
    finally:
        if watcher.process is not None and watcher.process.poll() is None:
            watcher.process.kill()
            watcher.process.wait(60)
        if os.environ.get("SHOW_WATCHER"):
            sys.stderr.write(watcher.notices())


def numbers(count: int, first: int = 1) -> bytes:
    """Return what `seq` prints."""
    return b"".join(b"%d\n" % n for n in range(first, first + count))
