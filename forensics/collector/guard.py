"""The surest tier: the command is run by us, its container is removed by us, and only afterwards.

A container that the engine removes by itself takes its log along before anybody can read it. So
`--rm` is taken out and done here once the log is durable; nothing races. Where this process is
killed the container stays, marked, and the next guard (or `watch`, or `collect`) takes it up.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from forensics.archive.model import Gap, RunRecord
from forensics.archive.store import Archive, ArchiveError, RunExists, run_id
from forensics.archive.writer import RunWriter
from forensics.collector import records, snapshot
from forensics.collector.client import Client, is_running
from forensics.collector.clock import nanoseconds, text_of
from forensics.collector.engine import EngineError
from forensics.collector.guarding import LABEL, REMOVE, Guarded
from forensics.collector.host import probes
from forensics.collector.rotation import rotation_of

Say = Callable[[str], None]
_PASSED = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGINT")
_SIGNALLED = 128
_OTHER_WRITER_S = 120.0
_SETTLE_S = 2.0
#: A container that was made so long before its start has probably been started before.
_FIRST_NS = 30_000_000_000


class Kept(Struct, frozen=True):
    """One container whose evidence was kept.

    Attributes:
        run: Its run in the archive; None where it could not be kept.
        code: Its exit code.
        lines: Lines of its log.
        complete: Whether its log is whole.
        removed: Whether it was removed, as was asked.
    """

    run: str | None
    code: int | None = None
    lines: int = 0
    complete: bool = False
    removed: bool = False


def run(words: Sequence[str]) -> int:
    """Run a command as the shell would: terminal, signals and exit code pass through.

    Args:
        words: The command.

    Returns:
        Its exit code; 128 and the signal where one ended it; 127 where it cannot be run.
    """
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C on a terminal reaches the whole group: the command has it already.
        typed = number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()
        if process is not None and not typed:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    before = {}
    for name in _PASSED:
        number = getattr(signal, name)
        before[number] = signal.signal(number, forward)
    try:
        try:
            process = subprocess.Popen(words)  # noqa: S603 - the user's own command, no shell
        except OSError as error:
            sys.stderr.write(f"forensics: {words[0]} cannot be run: {error.strerror}\n")
            return 127
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return _SIGNALLED - code if code < 0 else code


class Recorder:
    """Takes down the events of marked containers while they run.

    Args:
        client: The engine.
        label: What marks them.
    """

    def __init__(self, client: Client, label: str) -> None:
        self._client, self._label = client, label
        self._seen: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        for event in self._client.events(self._label):
            self._seen.append({"id": _id_of(event), **snapshot.event_kept(event)})

    def of(self, container: str) -> list[dict[str, Any]]:
        """Return the events of one container, its end among them if it comes soon."""
        end = time.monotonic() + _SETTLE_S
        while time.monotonic() < end:
            if any(e["id"] == container and e["action"] in {"die", "died"} for e in self._seen):
                break
            time.sleep(0.02)
        mine = [event for event in list(self._seen) if event["id"] == container]
        return [{k: v for k, v in event.items() if k != "id"} for event in mine]


def _id_of(event: dict[str, Any]) -> str:
    actor = event.get("Actor")
    found = actor.get("ID") if isinstance(actor, dict) else None
    return str(found or event.get("id") or event.get("ID") or "")


class Guard:
    """Keeps the evidence of containers that have ended.

    Args:
        client: The engine.
        archive: Where to.
        kept: Globs of variables whose values may be kept.
        say: Takes notices.
    """

    def __init__(self, client: Client, archive: Archive, kept: tuple[str, ...], say: Say) -> None:
        self._client, self._archive, self._kept, self._say = client, archive, kept, say

    def keep(self, container: str, events: list[dict[str, Any]]) -> Kept:
        """Wait for the end of a container, and keep its log and what is known of it.

        Args:
            container: Its id.
            events: What the engine said of it.

        Raises:
            EngineError: The engine went out of reach; the container is as it was.
            DiskFull: There is no room in the archive; the container is as it was.
        """
        inspect = self._client.inspect(container)
        if inspect is not None and is_running(inspect):
            self._say(f"container {container[:12]} still runs: waiting for its end")
            self._client.wait(container)
            inspect = self._client.inspect(container)
        if inspect is None:
            self._say(f"container {container[:12]} was removed before its log could be read")
            return Kept(None)
        record = self._begun(container, inspect)
        hidden = snapshot.secrets(inspect)
        try:
            writer = self._archive.begin(record, "cri", hidden)
        except RunExists:
            found = self._archive.resume(record.id, hidden)
            if found is None:
                return self._others(record.id, inspect)
            writer = found
            writer.take_back(lambda _: True)  # it is read from its beginning
        try:
            done = self._copy(writer, container, inspect, events)
        except BaseException:
            writer.close()
            raise
        return self._removed(done, container, inspect)

    def _begun(self, container: str, inspect: dict[str, Any]) -> RunRecord:
        state = records.state_of(inspect)
        started = state.started
        if started is None:
            started = nanoseconds(inspect.get("Created")) or time.time_ns()
        image = self._client.image(str(inspect.get("Image") or ""))
        inspect = {**inspect, "Id": str(inspect.get("Id") or container)}
        record = records.begun(inspect, image, self._client.facts, "guard", started, self._kept)
        return record if state.started is not None else replace(record, started_at=None)

    def _copy(
        self,
        writer: RunWriter,
        container: str,
        inspect: dict[str, Any],
        events: list[dict[str, Any]],
    ) -> Kept:
        config = inspect.get("Config")
        tty = isinstance(config, dict) and config.get("Tty") is True
        reasons, gaps, count = [], [], 0
        try:
            since = self._since(container, inspect)
            for data in self._client.log(container, tty=tty, since=since):
                if data:
                    count += len(data)
                    writer.append(data, {"read": count})
        except EngineError as error:
            reasons.append(str(error))
            gaps.append(Gap(str(error)))
        rotation = rotation_of(inspect)
        if rotation is not None and rotation.lost(count):
            reasons.append(
                f"its log is rotated ({rotation.files} files): its beginning may be gone"
            )
        complete = not reasons
        if complete:
            reasons = ["the container had ended, and its log was read afterwards, to its end"]
        state = records.state_of(inspect)
        ending = records.Ending(inspect=inspect, finished=state.finished, events=events)
        record = records.ended(
            writer.record,
            ending,
            "complete" if complete else "possibly_truncated",
            reasons,
            gaps,
            self._kept,
        )
        begun, finished = writer.record.started_at, record.finished_at
        record = replace(record, host=probes(begun, finished))
        writer.finish(record)
        lines = writer.record.log.lines if writer.record.log else 0
        return Kept(writer.id, record.exit.code, lines, complete)

    def _since(self, container: str, inspect: dict[str, Any]) -> int:
        """Return from when on lines are of the latest start: a container may have begun before."""
        started = records.state_of(inspect).started
        made = nanoseconds(inspect.get("Created"))
        if started is None:
            return 0
        ends = [
            nanoseconds(run.finished_at)
            for run in self._archive.starts_of(container)
            if (nanoseconds(run.started_at) or started) < started
        ]
        before = max((end for end in ends if end is not None), default=None)
        if before is not None:
            return records.boundary(None, before, started) or 0
        first = made is not None and started - made < _FIRST_NS and not inspect.get("RestartCount")
        return 0 if first else max(0, started - records.BEFORE_START)

    def _others(self, run: str, inspect: dict[str, Any]) -> Kept:
        """Wait for the process that collects the same run, or take a run that is there."""
        end = time.monotonic() + _OTHER_WRITER_S
        while time.monotonic() < end:
            record = self._archive.record(run)
            if record.state == "final":
                lines = record.log.lines if record.log else 0
                done = Kept(run, record.exit.code, lines, record.completeness == "complete")
                return self._removed(done, str(inspect.get("Id")), inspect)
            time.sleep(0.2)
        self._say(f"run {run} is being collected by another process")
        return Kept(run)

    def _removed(self, done: Kept, container: str, inspect: dict[str, Any]) -> Kept:
        """Do what `--rm` asked for, now that nothing can be lost."""
        if _labels(inspect).get(REMOVE) != "true":
            return done
        if self._client.remove(container):
            return replace(done, removed=True)
        self._say(f"container {container[:12]} cannot be removed: do it with `docker rm`")
        return done

    def leftovers(self) -> Iterator[Kept]:
        """Take up what guards left that were killed: containers with our mark, and no guard."""
        for container in self._client.marked(LABEL):
            inspect = self._client.inspect(container)
            if inspect is None or is_running(inspect):
                continue
            token = _labels(inspect).get(LABEL, "")
            if not _is_token(token) or guarded_now(self._archive, token):
                continue
            if self._has(container, inspect):
                if _labels(inspect).get(REMOVE) == "true":
                    self._client.remove(container)
                continue
            yield self.keep(container, [])

    def _has(self, container: str, inspect: dict[str, Any]) -> bool:
        state = records.state_of(inspect)
        started = state.started or nanoseconds(inspect.get("Created"))
        if started is None:
            return False
        try:
            return self._archive.record(run_id(text_of(started), container)).state == "final"
        except ArchiveError:
            return False


def of_compose(client: Client, folder: str, since: int) -> list[str]:
    """Return the containers that `docker compose up` started.

    Args:
        client: The engine.
        folder: Where it was run.
        since: When, in nanoseconds since 1970.
    """
    found = []
    for container in client.marked("com.docker.compose.project"):
        inspect = client.inspect(container)
        if inspect is None:
            continue
        place = _labels(inspect).get("com.docker.compose.project.working_dir", folder)
        started = records.state_of(inspect).started
        if started is not None and started >= since and Path(place) == Path(folder):
            found.append(container)
    return found


def _labels(inspect: dict[str, Any]) -> dict[str, str]:
    config = inspect.get("Config")
    labels = config.get("Labels") if isinstance(config, dict) else None
    return {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {}


def _is_token(text: str) -> bool:
    return bool(text) and len(text) <= 64 and all(c in "0123456789abcdef" for c in text)  # noqa: PLR2004 - hexadecimal


@contextmanager
def claim(archive: Archive, token: str) -> Iterator[None]:
    """Say, for as long as this process lives, that a guard is at work."""
    path = archive.folder / f".guard-{token}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def guarded_now(archive: Archive, token: str) -> bool:
    """Say whether a living guard has that token."""
    try:
        handle = os.open(archive.folder / f".guard-{token}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def behind(command: Guarded, token: str, archive: Archive, containers: Sequence[str]) -> None:
    """Go on in the background: wait for detached containers, and keep their evidence."""
    words = [sys.executable, "-P", "-m", "forensics", "guard", "--archive", str(archive.folder)]
    words += ["--finish", ",".join((token, *containers)), "--", *command.prefix]
    subprocess.Popen(  # noqa: S603 - our own program, no shell
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
