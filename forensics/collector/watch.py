"""The watcher: sees which containers start and end, and that each start becomes a run.

One thread decides (`run`); others listen to the engine's events, copy files, make runs final,
diagnose. They talk to it through one queue. Events are a hint: what is true is the list of
containers, asked for every half minute and whenever the engine was away.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from forensics.archive.disk import DiskFull
from forensics.archive.model import Completeness, Gap, LogEnvelope, RunRecord, Tier
from forensics.archive.store import Archive, RunExists, run_id
from forensics.archive.writer import RunWriter
from forensics.collector import records, snapshot
from forensics.collector.catchup import adopt
from forensics.collector.clock import nanoseconds, text_of
from forensics.collector.engine import Engine, EngineError
from forensics.collector.files import Seam
from forensics.collector.hold import Hold
from forensics.collector.metrics import Metrics
from forensics.collector.readers import Readers
from forensics.collector.selection import Selection
from forensics.collector.subjects import Open, Subject
from forensics.collector.workers import Copier, Finisher
from forensics.errors import ForensicsError

_LIST_S = 30.0
_AGAIN_S = 1.0
_GONE_S = 3.0
_ACTIONS = frozenset(
    ("create", "start", "die", "destroy", "kill", "stop", "oom", "rename", "restart", "pause",
     "unpause", "health_status", "died", "remove", "init")
)  # fmt: skip
_SEEN = 2048

Message = tuple[Any, ...]


class Options(Struct, frozen=True):
    """What a watcher is to do.

    Attributes:
        selection: Which containers.
        once: End when everything that is there now has been collected.
    """

    selection: Selection
    once: bool = False


class Watch:
    """Watches one engine into one archive.

    Args:
        engine: The engine.
        archive: The archive.
        hold: Holds the engine's files; None where they cannot be read.
        options: What to do.
        final: Told of each run that is final: its record.
        say: Takes notices for the person at the terminal.
        metrics: Counts.
    """

    def __init__(  # noqa: PLR0913 - its parts, made by `session`
        self,
        engine: Engine,
        archive: Archive,
        hold: Hold | None,
        options: Options,
        *,
        final: Callable[[RunRecord], None],
        say: Callable[[str], None],
        metrics: Metrics | None = None,
    ) -> None:
        self.engine, self.archive, self.hold, self.options = engine, archive, hold, options
        self.say, self.metrics = say, metrics
        self._final = final
        self.subjects: dict[str, Subject] = {}
        self.unwanted: set[str] = set()
        self.inbox: queue.Queue[Message] = queue.Queue()
        self.stop = threading.Event()
        self.kept = options.selection.servers.kept
        self._engine_down = False
        self._listed = 0.0
        self._counted: dict[str, tuple[int, int]] = {}
        self._runs: dict[str, str] = {}
        self.copier = Copier(say, lambda full: self.inbox.put(("full", full)))
        self.finisher = Finisher(lambda run: self.inbox.put(("final", run)), say)
        self.readers = Readers(engine, self.inbox.put)
        self._seen: deque[tuple[Any, ...]] = deque(maxlen=_SEEN)
        self._events: Any = None
        #: Log drivers of which a person was warned.
        self._warned: set[str] = set()

    # --- the loop ------------------------------------------------------------------------------

    def run(self) -> None:
        """Watch until `stop` is set, or (`once`) everything is collected."""
        if self.hold is not None:
            self.hold.start(self._heard)
        engine = self.engine
        doing = "collecting from" if self.options.once else "watching"
        self.say(f"{doing} {engine.kind} {engine.version} at {engine.host}")
        listener = None
        try:
            if self.options.once:
                self.inbox.put(("list",))
            else:
                listener = threading.Thread(target=self._listen, name="events", daemon=True)
                listener.start()
            while not self.stop.is_set():
                self._take()
                if time.monotonic() - self._listed >= _LIST_S and self.inbox.empty():
                    self._list()
                if self.options.once and self._settled():
                    break
        finally:
            self._close(listener)

    def _take(self) -> None:
        """Act on the next message."""
        try:
            message = self.inbox.get(timeout=0.2)
        except queue.Empty:
            self._count()
            return
        try:
            getattr(self, f"_on_{message[0]}")(*message[1:])
        except EngineError:
            self._down()
        except DiskFull:
            # What is held stays held; the same is tried again when there may be room.
            self._later(message)
        except ForensicsError as error:
            self.say(str(error))
        except OSError as error:
            # A file that vanished meanwhile, say: the list comes again, and with it a new try.
            self.say(f"{error.filename or 'the system'}: {error.strerror or error}")

    def _later(self, message: Message, seconds: float = _AGAIN_S) -> None:
        timer = threading.Timer(seconds, lambda: self.inbox.put(message))
        timer.daemon = True
        timer.start()

    def _close(self, listener: threading.Thread | None) -> None:
        self.stop.set()
        if self._events is not None:
            with suppress(OSError):
                self._events.close()
        self.readers.close()
        self.copier.close()
        self.finisher.close()
        if self.hold is not None:
            self.hold.close()
        if listener is not None:
            listener.join(10)
        # What became final on the way is told, too.
        while not self.inbox.empty():
            message = self.inbox.get_nowait()
            if message[0] == "final":
                self._on_final(*message[1:])
        self._count()

    def _settled(self) -> bool:
        """Say whether everything that there was is collected."""
        opens = {run: o for s in self.subjects.values() for run, o in s.opens.items()}
        # What is neither open nor final yet is on its way.
        if not self._listed or not self.inbox.empty() or set(self._runs) - set(opens):
            return False
        waiting = any(one.over for one in opens.values())
        return not waiting and self.copier.quiet >= 3 and self.readers.quiet()  # noqa: PLR2004

    # --- what is heard -------------------------------------------------------------------------

    def _heard(self, word: str) -> None:
        """Pass on what the process that holds files says."""
        verb, _, rest = word.partition(" ")
        if len(word) == 64:  # noqa: PLR2004 - an id
            self.inbox.put(("held", word))
        elif verb == "gone":
            # The engine's own words tell more, if they come.
            self._later(("gone", rest), _GONE_S)
        elif verb in {"unlinkable", "ended", "polling"}:
            self.inbox.put(("hold", verb, rest))

    def _listen(self) -> None:
        """Listen to events, for as long as it takes; list after every beginning."""
        since: str | None = None
        while not self.stop.is_set():
            try:
                self._events = self.engine.events(since)
                self.inbox.put(("up",))
                for event in self._events:
                    ns = event.get("timeNano")
                    if isinstance(ns, int):
                        since = f"{ns // 1_000_000_000}.{ns % 1_000_000_000:09d}"
                    if str(event.get("Action", "")).partition(":")[0] in _ACTIONS:
                        self.inbox.put(("event", event))
            except EngineError:
                pass
            while not self.stop.wait(0.3):
                if self.engine.ping():
                    break
                self.inbox.put(("down",))

    def _on_up(self) -> None:
        if self._engine_down:
            self.say("the engine answers again")
        self._engine_down = False
        if self.metrics is not None:
            self.metrics.engine(up=True)
        self._list()

    def _on_down(self) -> None:
        self._down()

    def _down(self) -> None:
        if not self._engine_down and not self.stop.is_set():
            self.say("the engine does not answer; files are copied on, and it is asked again")
        self._engine_down = True
        if self.metrics is not None:
            self.metrics.engine(up=False)

    def _on_hold(self, verb: str, why: str) -> None:
        if self.stop.is_set():
            return
        if verb == "polling":
            self.say("no inotify here: log files are looked for 20 times a second")
        elif verb == "unlinkable":
            self.say(
                f"log files cannot be linked ({why}): a container that is removed may lose some"
            )
        elif self.hold is not None:
            self.say("the process that holds log files ended; it is started again")
            self.hold.end()
            self.hold.start(self._heard)

    def _on_full(self, full: bool) -> None:  # noqa: FBT001 - a message
        self.say(
            f"the disk of {self.archive.folder} is full; log files are held until there is room"
            if full
            else f"the disk of {self.archive.folder} has room again"
        )
        if self.metrics is not None:
            self.metrics.disk(full=full)

    # --- the truth -----------------------------------------------------------------------------

    def _on_list(self) -> None:
        self._list()

    def _list(self) -> None:
        """Compare the engine's list of containers with what is known."""
        self._listed = time.monotonic()
        there = {str(one.get("Id")) for one in self.engine.containers()}
        for container in sorted(there - self.unwanted):
            self._attempt(container)
        held = set(self.hold.held()) if self.hold is not None else set()
        for container in sorted((set(self.subjects) | held) - there - self.unwanted):
            subject = self.subjects.get(container)
            if subject is None or not subject.gone:
                self._attempt(container)
            else:
                self._ends(subject, gone=True)
        self.unwanted &= there
        self._count()

    def _attempt(self, container: str) -> None:
        """Look at one container; its trouble is not that of the others."""
        try:
            self.look(container)
        except EngineError:
            raise
        except DiskFull:
            self._later(("look", container))
        except (ForensicsError, OSError) as error:
            self.say(f"container {container[:12]}: {error}")

    def _on_look(self, container: str) -> None:
        self.look(container)

    def _on_held(self, container: str) -> None:
        subject = self.subjects.get(container)
        if subject is not None and subject.follower is not None:
            subject.follower.tail.wake()
            self.copier.wake()
            if subject.current is None and self.hold is not None:
                # It could not be started, perhaps: then only its own record says so.
                state = self.hold.state(container)
                if state is not None and records.state_of(state).error:
                    self._reconcile(container, state, gone=False)
        elif container in self.unwanted and self.hold is not None:
            self.hold.ignore(container)
        elif subject is None and self._engine_down:
            self._reconcile(container, None, gone=False)

    def _on_gone(self, container: str) -> None:
        self.unwanted.discard(container)
        self._reconcile(container, None, gone=True)

    def look(self, container: str) -> None:
        """Ask the engine about one container, and act on it."""
        found = self.engine.inspect(container)
        self._reconcile(container, found, gone=found is None)

    def _reconcile(self, container: str, inspect: dict[str, Any] | None, *, gone: bool) -> None:
        """Act on what is known of a container now."""
        if inspect is None and self.hold is not None:
            inspect = self.hold.state(container)
        subject = self.subjects.get(container)
        if subject is None:
            subject = self._new_subject(container, inspect)
            if subject is None:
                return
        if inspect is not None:
            subject.inspect = inspect
        state = subject.state
        if state.started is None:
            if state.error or state.code:
                self._never_started(subject)
        else:
            self._starts(subject, state.started)
        if subject.follower is not None:
            self.copier.add(subject.follower)
        self._ends(subject, gone=gone)

    def _new_subject(self, container: str, inspect: dict[str, Any] | None) -> Subject | None:
        if container in self.unwanted:
            return None
        if inspect is None:
            if self.hold is None or not self.hold.parts(container):
                return None
            inspect = {
                "Id": container,
                "State": {},
            }  # files of a container that nobody can describe
        elif not self.options.selection.wants(inspect):
            self.unwanted.add(container)
            if self.hold is not None:
                self.hold.ignore(container)
            return None
        subject = Subject(container, self._tier(inspect), inspect)
        with suppress(EngineError):
            subject.image = self.engine.image(str(inspect.get("Image") or ""))
        self.subjects[container] = subject
        try:
            adopt(self, subject)
        except BaseException:
            # Nothing half-known stays: the next look begins anew.
            del self.subjects[container]
            raise
        return subject

    def _tier(self, inspect: dict[str, Any]) -> Tier | None:
        """Choose the way in which a container's log comes."""
        host = inspect.get("HostConfig")
        logs = host.get("LogConfig") if isinstance(host, dict) else None
        driver = logs.get("Type") if isinstance(logs, dict) else None
        container = str(inspect.get("Id"))
        held = self.hold is not None and (
            self.hold.exists(container) or bool(self.hold.parts(container))
        )
        if held and driver in {None, "", "json-file"}:
            return "file"
        tier = self.readers.tier(driver)
        if tier == "api" and self.hold is not None and host and host.get("AutoRemove"):
            self._may_be_gone(container, str(driver))
        return tier

    def _may_be_gone(self, container: str, driver: str) -> None:
        """Warn of what goes with its container, once for each log driver."""
        if driver not in self._warned:
            self._warned.add(driver)
            self.say(
                f"container {container[:12]} has --rm and the log driver {driver}: it may be gone "
                "before its log is read (so may others like it); `forensics guard`, or the log "
                "driver json-file or journald, keep it"
            )

    # --- starts --------------------------------------------------------------------------------

    def _starts(self, subject: Subject, started: int) -> None:
        """Begin a run if this start is a new one."""
        # A start whose time was taken from an event seems to be a little later than it was.
        if subject.start is None or started > subject.start:
            self.begin(subject, started)

    def begin(self, subject: Subject, started: int, *, guessed: bool = False) -> None:
        """Begin the run of a start that is new; one that the archive has is left alone."""
        name = run_id(text_of(started), subject.id)
        if self.archive.has(name):
            subject.start = started
            return
        record = self._record(subject, started)
        if guessed:
            record = replace(record, guessed=[*record.guessed, "started_at"])
        envelope: LogEnvelope = "docker-json" if subject.tier == "file" else "cri"
        try:
            writer = self.archive.begin(record, envelope, snapshot.secrets(subject.inspect))
        except RunExists:
            subject.start = started
            return
        before = subject.current
        self.opened(subject, writer, started)
        if subject.start is not None and self.metrics is not None:
            self.metrics.restarted()
        subject.start = started
        if subject.follower is not None:
            at = self._seam(subject, before, started)
            subject.follower.follow(Seam(at, lambda _: writer))
            self.copier.wake()
        elif subject.current is not None:
            if before is not None and not before.over:
                before.over = before.unseen = True
            self.readers.start(subject, subject.current)

    def _record(self, subject: Subject, started: int) -> RunRecord:
        tier, facts = subject.tier or "api", self.engine.facts
        return records.begun(subject.inspect, subject.image, facts, tier, started, self.kept)

    def opened(self, subject: Subject, writer: RunWriter, started: int) -> Open:
        """Note a run that is being recorded."""
        found = Open(writer.record, writer, started)
        found.events.extend(subject.early)
        subject.early.clear()
        subject.opens[writer.id] = found
        self._runs[writer.id] = subject.id
        subject.current = found
        return found

    def _on_opened(self, container: str, writer: RunWriter, started: int) -> None:
        """The copier found lines of starts that nobody saw, and began a run for them."""
        subject = self.subjects.get(container)
        if subject is None:
            writer.close()
            return
        current = subject.current
        opened = self.opened(subject, writer, started)
        if current is not None and current.started > started:
            subject.current, opened.over = current, True
        self._ends(subject, gone=subject.gone)

    @staticmethod
    def _seam(subject: Subject, before: Open | None, started: int) -> int | None:
        """Return from when on lines belong to a start; note how the one before it ended."""
        state = subject.state
        if before is None:
            part = subject.follower.tail.first() if subject.follower is not None else None
            first = state.first or (part is not None and part.first)
            alone = first and subject.start is None
            return 0 if alone else records.boundary(None, state.before, started)
        finished = state.before
        if before.finished is None and finished is not None and before.started < finished < started:
            before.finished = finished
        if not before.over:
            before.over = True
            before.unseen = before.said is None
        return records.boundary(before.said, before.finished or finished, started)

    def _never_started(self, subject: Subject) -> None:
        """Record a container that the engine could not start: there is no log, only the reason."""
        made = nanoseconds(subject.inspect.get("Created"))
        if made is None or self.archive.has(run_id(text_of(made), subject.id)):
            return
        record = self._record(subject, made)
        writer = self.archive.begin(record, "docker-json")
        opened = self.opened(subject, writer, made)
        opened.over, opened.inspect = True, subject.inspect
        opened.record = records.not_started(record)
        self._finish(subject, opened, "complete", ["it never started, so there is no log"])

    # --- ends ----------------------------------------------------------------------------------

    def _ends(self, subject: Subject, *, gone: bool) -> None:
        """End the open run if its container does not run any more."""
        subject.gone |= gone
        current, state = subject.current, subject.state
        if current is not None and current.writer.id in subject.opens:
            own = state.started is None or not self._newer(current, state.started)
            if (gone or not state.running) and own:
                self._over(subject, current, inspect=subject.inspect if state.started else None)
        elif gone and not subject.opens:
            self._forget(subject)

    @staticmethod
    def _newer(current: Open, started: int) -> bool:
        return started > current.started

    def _over(self, subject: Subject, run: Open, *, inspect: dict[str, Any] | None) -> None:
        """Note that a run has ended; its log may not be read to the end yet."""
        run.gone = subject.gone
        if inspect is not None:
            state = records.state_of(inspect)
            if not state.running:
                run.inspect = inspect
                run.finished = state.finished
        if run.over:
            return
        run.over = True
        if subject.follower is not None and subject.current is run:
            subject.follower.end(run.said)
            self.copier.wake()

    def _on_event(self, event: dict[str, Any]) -> None:
        """Act on an event."""
        actor = event.get("Actor")
        actor = actor if isinstance(actor, dict) else {}
        container = str(actor.get("ID") or event.get("id") or "")
        ns, action = event.get("timeNano"), str(event.get("Action")).partition(":")[0]
        if not container or container in self.unwanted or not isinstance(ns, int):
            if action in {"destroy", "remove"}:
                self.unwanted.discard(container)
            return
        key = (container, ns, action)
        if key in self._seen:
            return
        self._seen.append(key)
        if container not in self.subjects and action != "destroy":
            self.look(container)
        subject = self.subjects.get(container)
        if subject is None:
            return
        kept = snapshot.event_kept(event)
        if action == "start":
            self._on_start(subject, ns, kept)
        elif action in {"die", "died"}:
            self._note(subject, kept)
            self._on_die(subject, ns, kept)
        elif action in {"destroy", "remove"}:
            self._note(subject, kept)
            self._reconcile(container, None, gone=True)
        else:
            self._note(subject, kept)
            if action == "rename":
                self.look(container)

    @staticmethod
    def _note(subject: Subject, event: dict[str, Any]) -> None:
        current = subject.current
        if current is not None and current.writer.id in subject.opens:
            current.events.append(event)
        else:
            subject.early.append(event)

    def _on_start(self, subject: Subject, ns: int, event: dict[str, Any]) -> None:
        """A start: its exact time is the engine's, unless there has been another one since."""
        current = subject.current
        if subject.start is None or subject.start < ns:
            found = self.engine.inspect(subject.id)
            if found is not None:
                subject.inspect = found
            started = subject.state.started
            if started is not None and started <= ns:
                self._starts(subject, started)
            elif current is None or current.started < ns:
                self.begin(subject, ns, guessed=True)
        self._note(subject, event)
        self._ends(subject, gone=False)

    def _on_die(self, subject: Subject, ns: int, event: dict[str, Any]) -> None:
        run = subject.current
        if run is None or run.writer.id not in subject.opens or ns < run.started:
            if run is None:
                self.look(subject.id)
            return
        code = str(event["attributes"].get("exitCode", ""))
        run.code = int(code) if code.lstrip("-").isdecimal() else None
        run.said = ns
        found: dict[str, Any] | None = None
        with suppress(EngineError):
            found = self.engine.inspect(subject.id)
        if found is None and self.hold is not None:
            found = self.hold.state(subject.id)
        if found is not None:
            subject.inspect = found
        own = found is not None and not self._newer(run, subject.state.started or 0)
        self._over(subject, run, inspect=found if own else None)

    def _on_left(self, container: str, run: str, gaps: list[Gap]) -> None:
        """A run's log has been read to its end."""
        subject = self.subjects.get(container)
        opened = subject.opens.get(run) if subject is not None else None
        if subject is None or opened is None:
            return
        opened.gaps += gaps
        reasons = [*opened.record.reasons, *(gap.reason for gap in opened.gaps)]
        if subject.doubt and not (subject.follower and subject.follower.passed):
            reasons.append(subject.doubt)
        subject.doubt = None
        if not opened.writer.size and subject.follower and not subject.follower.tail.started:
            reasons.append("no log file of this container was ever seen")
        if reasons:
            self._finish(subject, opened, "possibly_truncated", reasons)
        else:
            why = "read from its beginning to its end, which did not change after the container's"
            self._finish(subject, opened, "complete", [why])

    def _on_end(self, container: str, run: str, end: Any) -> None:  # noqa: ANN401 - `readers.End`
        """A reader of the API tier has come to the end of a run."""
        subject = self.subjects.get(container)
        opened = subject.opens.get(run) if subject is not None else None
        if subject is None or opened is None:
            return
        if opened.inspect is None:
            with suppress(EngineError):
                found = self.engine.inspect(container)
                subject.gone |= found is None
                if found is not None and not self._newer(
                    opened, records.state_of(found).started or 0
                ):
                    subject.inspect = found
                    self._over(subject, opened, inspect=found)
        opened.over, opened.gone = True, subject.gone
        opened.gaps += end.gaps
        self._finish(subject, opened, end.completeness, list(end.reasons))

    def _finish(
        self, subject: Subject, run: Open, completeness: Completeness, reasons: list[str]
    ) -> None:
        """Make a run final."""
        subject.opens.pop(run.writer.id, None)
        if run.unseen:
            reasons = [*reasons, "its end was not seen"]
        record = records.ended(
            replace(run.record, reasons=[]),
            run.ending(),
            completeness,
            reasons,
            run.gaps,
            self.kept,
        )
        self.finisher.add(run.writer, record)

    def _on_final(self, run: str) -> None:
        """A run is final: its links can go."""
        container = self._runs.pop(run, None)
        subject = self.subjects.get(container) if container is not None else None
        if subject is not None and subject.gone and not subject.opens:
            self._forget(subject)
        with suppress(ForensicsError):
            self._final(self.archive.record(run))

    def _forget(self, subject: Subject) -> None:
        """Let a container go that is gone and collected."""
        busy = subject.follower is not None and subject.follower.busy
        if busy or subject.id in self._runs.values():
            return
        self.copier.discard(subject.id)
        if subject.follower is not None:
            subject.follower.close()
        if self.hold is not None:
            self.hold.drop(subject.id)
        self.subjects.pop(subject.id, None)
        self._counted.pop(subject.id, None)

    # --- numbers -------------------------------------------------------------------------------

    def left(self, container: str) -> Callable[[RunWriter, list[Gap]], None]:
        """Return what a follower calls with a run that it has read."""
        return lambda writer, gaps: self.inbox.put(("left", container, writer.id, gaps))

    def _count(self) -> None:
        """Bring the metrics up to date."""
        if self.metrics is None:
            return
        tiers: dict[str, int] = {}
        lag = 0
        for subject in list(self.subjects.values()):
            follower = subject.follower
            if any(not run.over for run in subject.opens.values()):
                tiers[subject.tier or "api"] = tiers.get(subject.tier or "api", 0) + 1
            if follower is not None:
                lag += follower.tail.lag() if follower.busy else 0
                now, was = (follower.copied, follower.lines), self._counted.get(subject.id, (0, 0))
                self.metrics.recorded("file", now[0] - was[0], now[1] - was[1])
                self._counted[subject.id] = now
        for tier, now in self.readers.written().items():
            was = self._counted.get(tier, (0, 0))
            self.metrics.recorded(tier, now[0] - was[0], now[1] - was[1])
            self._counted[tier] = now
        self.metrics.followed(tiers, lag, self.hold.pinned() if self.hold is not None else 0)
