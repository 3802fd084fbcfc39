"""One run of `forensics watch` or `collect`: puts the parts together, and apart again."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct

from forensics.archive.model import RunRecord
from forensics.archive.reading import diagnosis_of
from forensics.archive.store import DIAGNOSIS, Archive
from forensics.collector.announce import Announcer, failed, line_of
from forensics.collector.engine import Engine
from forensics.collector.hold import Hold, name_of
from forensics.collector.judge import Judge
from forensics.collector.metrics import Metrics
from forensics.collector.selection import Selection
from forensics.collector.snapshot import Servers
from forensics.collector.watch import Options, Watch
from forensics.errors import ForensicsError, UsageError

#: Runs that ended without a diagnosis are looked for among the newest.
_NEWEST = 500


class Plan(Struct, frozen=True, kw_only=True):
    """What a person asked for.

    Attributes:
        host: The engine's address; None: as Docker's own command finds it.
        context: Name of a Docker context.
        everything: Take all containers.
        images: Globs over images.
        names: Globs over names.
        labels: `KEY` or `KEY=VALUE`.
        containers: For `collect`: names or ids.
        once: End when everything that is there is collected.
        notify: Apprise addresses.
        command: What to run for each run that has ended.
        metrics: Where numbers can be read.
        diagnose: Diagnose what has ended.
    """

    host: str | None = None
    context: str | None = None
    everything: bool = False
    images: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    containers: tuple[str, ...] | None = None
    once: bool = False
    notify: tuple[str, ...] = ()
    command: str | None = None
    metrics: str | None = None
    diagnose: bool = True


class Session:
    """Watches or collects, once.

    Args:
        plan: What is wanted.
        archive: Where it goes.
        table: `rules/tables/servers.yaml`.
        say: Takes notices for the person at the terminal.
        write: Takes one line for each run that has ended.
    """

    def __init__(
        self,
        plan: Plan,
        archive: Archive,
        table: dict[str, Any],
        say: Callable[[str], None],
        write: Callable[[str], None],
    ) -> None:
        self.plan, self.archive = plan, archive
        self._say, self._write = say, write
        self._selection = Selection(
            Servers(table), plan.everything, plan.images, plan.names, plan.labels, plan.containers
        )
        self.bad = 0
        self._signal: int | None = None
        self._metrics: Metrics | None = None
        self._judge: Judge | None = None
        self._announcer: Announcer | None = None

    def run(self) -> int:
        """Do it; return the exit code.

        Raises:
            ForensicsError: The engine is out of reach, another watcher writes the archive, an
                option cannot be understood.
        """
        plan, archive = self.plan, self.archive
        with ExitStack() as stack:
            self._announcer = Announcer(list(plan.notify), plan.command, archive.folder, self._say)
            stack.callback(self._announcer.close)
            engine = Engine.connect(plan.host, plan.context)
            stack.callback(engine.close)
            if plan.containers is not None:
                _present(engine, plan.containers)
            else:
                stack.enter_context(archive.watch_lock())
                archive.clear()
            if plan.metrics is not None:
                self._metrics = Metrics()
                stack.callback(self._metrics.serve(plan.metrics))
            hold = self._hold(engine, stack)
            self._judge = Judge(archive.folder, self._judged)
            stack.callback(self._judge.close)
            watch = Watch(
                engine,
                archive,
                hold,
                Options(self._selection, plan.once),
                final=self._final,
                say=self._say,
                metrics=self._metrics,
            )
            stack.enter_context(self._signals(watch.stop))
            if plan.containers is None:
                self._leftover()
            watch.run()
            if plan.once and self._signal is None:
                self._still_running(watch)
                self._judge.wait(threading.Event())
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        return int(self.bad > 0) if plan.once else 0

    def _hold(self, engine: Engine, stack: ExitStack) -> Hold | None:
        """Make the hold folder, where the engine's files can be read."""
        root = engine.data_root
        if root is None:
            self._say(
                "the engine's log files cannot be read from here: logs come through its API. "
                "Containers started with --rm may be gone before they are read; "
                "`forensics guard`, root, or the journald log driver keep them"
            )
            return None
        once = self.plan.containers is not None
        name = f"collect-{os.getpid()}" if once else name_of(self.archive.folder)
        try:
            hold = Hold(root, name, str(self.archive.folder.resolve()))
        except UsageError as error:
            self._say(f"{error}; logs come through the engine's API")
            return None
        if once:
            stack.callback(hold.remove)
        stack.callback(hold.close)
        for owner, count in hold.others():
            self._say(
                f"{count} log files are still held for {owner}, which nobody watches: "
                f"`forensics watch --archive {owner}` collects them, or remove them under "
                f"{hold.folder.parent}"
            )
        return hold

    @contextmanager
    def _signals(self, stop: threading.Event) -> Iterator[None]:
        """End in order on SIGTERM and Ctrl-C: what was copied is durable then."""

        def end(number: int, _: FrameType | None) -> None:
            self._signal = number
            stop.set()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, end) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    # --- what has ended ------------------------------------------------------------------------

    def _leftover(self) -> None:
        """Diagnose runs that ended when there was no time for it."""
        if not self.plan.diagnose or self._judge is None:
            return
        for run in self.archive.ids()[-_NEWEST:]:
            if (self.archive.path(run) / DIAGNOSIS).exists():
                continue
            with suppress(ForensicsError):
                record = self.archive.record(run)
                if record.state == "final" and record.log is not None and record.log.bytes:
                    self._judge.add(run)

    def _still_running(self, watch: Watch) -> None:
        """Diagnose what is collected of containers that still run."""
        for subject in watch.subjects.values():
            for run in subject.opens:
                if self.plan.diagnose and self._judge is not None:
                    self._judge.add(run)

    def _final(self, record: RunRecord) -> None:
        if self.plan.diagnose and record.log is not None and self._judge is not None:
            self._judge.add(record.id)
        else:
            self._told(record)

    def _judged(self, run: str) -> None:
        with suppress(ForensicsError):
            self._told(self.archive.record(run))

    def _told(self, record: RunRecord) -> None:
        """Tell of a run: a line, a message, a command, numbers."""
        diagnosis = diagnosis_of(self.archive, record.id)
        bad = failed(diagnosis) or (diagnosis is None and record.exit.code not in {None, 0})
        self.bad += bad
        self._write(line_of(record, diagnosis))
        if record.state != "final":
            return
        if self._metrics is not None:
            root = diagnosis.root_cause if diagnosis is not None else None
            self._metrics.over(
                diagnosis.verdict if diagnosis is not None else "no_log",
                (root.rule or "") if root is not None else "",
                complete=record.completeness == "complete",
                bad=bad,
                gaps=len(record.gaps),
            )
        if self._announcer is not None:
            self._announcer.tell(record, diagnosis)


def _present(engine: Engine, wanted: tuple[str, ...]) -> None:
    """Refuse names that no container has.

    Raises:
        UsageError: One has none.
    """
    for name in wanted:
        if engine.inspect(name) is None:
            raise UsageError(
                f"there is no container {name}", "`docker ps --all` lists those that exist"
            )


def start(
    plan: Plan,
    folder: Path,
    table: dict[str, Any],
    say: Callable[[str], None],
    write: Callable[[str], None],
) -> int:
    """Watch or collect into an archive, made if it is not there; return the exit code.

    Args:
        plan: What is wanted.
        folder: The archive's folder.
        table: `rules/tables/servers.yaml`.
        say: Takes notices.
        write: Takes one line for each run that has ended.

    Raises:
        ForensicsError: It cannot begin.
    """
    return Session(plan, Archive.open(folder, create=True), table, say, write).run()
