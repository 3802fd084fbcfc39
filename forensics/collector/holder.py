"""Holds the log files of an engine's containers: each is linked into a folder of ours at once.

A process of its own, so that nothing else that the collector does can make it late: a container
that was started with `--rm` may be gone, log and all, within 50 ms. It needs the standard library
only and is run by its path: `python holder.py CONTAINERS HOLD`.

A link stands for one file and keeps it when the engine removes or rotates it:
`HOLD/<container id>/<number>-<inode>[-new|-gap]`. Numbers rise in the order in which the engine
wrote the files; `-new` says that nothing was written before this one, `-gap` that at least one file
between the one before and this one was never seen. Beside them stand the engine's own records of
the container (`config.v2.json`, `hostconfig.json`) in their latest version.

On standard output: `ready`, `polling` (no inotify), `late` (events were lost, everything was looked
at again), the id of each container of which something new is held, `gone <id>`, `unlinkable` and
why. On standard input: `ignore <id>`; its end ends this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import struct
import sys
import time
from collections.abc import Iterator

IN_CREATE, IN_DELETE, IN_MOVED_TO = 0x100, 0x200, 0x80
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
IN_ONLYDIR = 0x01000000
_FOLDER = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_ONLYDIR
_CLOEXEC = os.O_CLOEXEC | os.O_NONBLOCK
#: inotify(7), struct inotify_event: watch, mask, cookie, length of the name that follows.
_EVENT = struct.Struct("iIII")
_POLL_S = 0.05
_LOOK_AGAIN_S = 5.0
_ID = re.compile(r"[0-9a-f]{64}")
_LINK = re.compile(r"(\d{8})-(\d+)(?:-new|-gap)?")
RECORDS = ("config.v2.json", "hostconfig.json")
_TRIES = 20


_LIBC = ctypes.CDLL(None, use_errno=True)
#: statx(2): the file itself, its time of birth, and where that stands in the answer.
_AT_EMPTY_PATH, _STATX_BTIME, _STATX_SIZE = 0x1000, 0x800, 256
_MASK, _BIRTH = struct.Struct("I"), struct.Struct("80xqI")


def identity(fd: int) -> tuple[int, int]:
    """Return what tells an open file from every other one: its inode and when that was made.

    File systems give the number of an inode away again as soon as it is free. Where the time of
    birth is not known, it is 0.
    """
    inode = os.fstat(fd).st_ino
    with contextlib.suppress(AttributeError):
        answer = ctypes.create_string_buffer(_STATX_SIZE)
        failed = _LIBC.statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, answer)
        if not failed and _MASK.unpack_from(answer)[0] & _STATX_BTIME:
            seconds, rest = _BIRTH.unpack_from(answer)
            return inode, seconds * 1_000_000_000 + rest
    return inode, 0


class Inotify:
    """The kernel's events for folders; raises OSError where it has none."""

    def __init__(self) -> None:
        self._add = _LIBC.inotify_add_watch
        self.fd = _LIBC.inotify_init1(_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def watch(self, folder: str) -> int:
        """Watch the names in a folder; return the watch's number."""
        number: int = self._add(self.fd, os.fsencode(folder), _FOLDER)
        if number < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), folder)
        return number

    def events(self) -> Iterator[tuple[int, int, str]]:
        """Yield what is there now: watch, mask, name."""
        try:
            data = os.read(self.fd, 1 << 18)
        except BlockingIOError:
            return
        place = 0
        while place < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, place)
            place += _EVENT.size
            name = data[place : place + size].rstrip(b"\0")
            place += size
            yield number, mask, os.fsdecode(name)


class Held:
    """What is known of one container's files.

    Attributes:
        known: Number of each file by identity: those held, and those let go that have a name.
        number: The last number given.
        created: Log files that the kernel said were made, since the first look.
        linked: Those of them that were seen.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.known: dict[tuple[int, int], int] = {}
        self.number = self.created = self.linked = 0
        self.looked = False
        for name, number in self.links():
            with contextlib.suppress(OSError):
                fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                self.known[identity(fd)] = number
                os.close(fd)
            self.number = max(self.number, number)

    def links(self) -> list[tuple[str, int]]:
        """Return name and number of each link."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        found = ((name, _LINK.fullmatch(name)) for name in names)
        return [(name, int(m[1])) for name, m in found if m is not None]


class Holder:
    """Links what appears under the engine's folder of containers.

    Args:
        containers: `<data root>/containers`.
        hold: Our folder, on the same file system and under the same mount.
        told: Takes each word for the collector.
    """

    def __init__(self, containers: str, hold: str, told: Tell) -> None:
        self.containers, self.hold, self.tell = containers, hold, told
        self.held: dict[str, Held] = {}
        self.ignored: set[str] = set()
        self._watches: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        try:
            self.inotify: Inotify | None = Inotify()
            self._root = self.inotify.watch(containers)
        except OSError:
            self.inotify = None
            self.tell("polling")
        self._times: dict[str, int] = {}
        self._open_files = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def look(self) -> None:
        """Look at every container."""
        names = [name for name in self._names(self.containers) if _ID.fullmatch(name)]
        for name in names:
            self._enter(name, fresh=False)
            self.scan(name)
        for name in set(self.held) - set(names):
            self._gone(name)

    @staticmethod
    def _names(folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError:
            return []

    def _enter(self, container: str, *, fresh: bool) -> None:
        """Begin to watch one container's folder."""
        if container not in self.held:
            self.held[container] = Held(f"{self.hold}/{container}")
            self.held[container].looked = fresh
        if self.inotify is None or container in self._numbers:
            return
        try:
            number = self.inotify.watch(f"{self.containers}/{container}")
        except OSError:
            return  # gone already, or out of watches: the next look sees what is left of it
        self._watches[number] = container
        self._numbers[container] = number

    def _gone(self, container: str) -> None:
        self.held.pop(container, None)
        self.ignored.discard(container)
        self._times.pop(container, None)
        number = self._numbers.pop(container, None)
        if number is not None:
            self._watches.pop(number, None)
        self.tell(f"gone {container}")

    def handle(self) -> bool:
        """Act on the events that are there; return False if some were lost."""
        changed: dict[str, None] = {}
        whole = self._take(changed)
        for container in changed:
            self.scan(container)
        if not whole:
            self.tell("late")
            self.look()
        return whole

    def _take(self, changed: dict[str, None]) -> bool:
        """Note what the events that are there change."""
        whole = True
        if self.inotify is None:
            return whole
        for number, mask, name in self.inotify.events():
            if mask & IN_Q_OVERFLOW:
                whole = False
            elif mask & IN_IGNORED:
                container = self._watches.pop(number, None)
                if container is not None and self._numbers.get(container) == number:
                    del self._numbers[container]
            elif number == self._root:
                if _ID.fullmatch(name):
                    self._root_event(mask, name, changed)
            elif number in self._watches:
                self._event(self._watches[number], mask, name, changed)
        return whole

    def _root_event(self, mask: int, container: str, changed: dict[str, None]) -> None:
        if mask & IN_DELETE:
            changed.pop(container, None)
            self._gone(container)
        else:
            self._enter(container, fresh=True)
            changed[container] = None

    def _event(self, container: str, mask: int, name: str, changed: dict[str, None]) -> None:
        if mask & IN_DELETE:
            return
        if name.startswith(f"{container}-json.log"):
            held = self.held.get(container)
            if held is not None and mask & IN_CREATE and name.endswith("-json.log"):
                held.created += 1
            changed[container] = None
        elif name in RECORDS:
            changed[container] = None

    def scan(self, container: str) -> None:
        """Link what is new of one container."""
        held = self.held.get(container)
        if held is None or container in self.ignored:
            return
        files = self._settled(container)
        try:
            new = self._link(held, files)
        finally:
            for fd, _ in files:
                os.close(fd)
        new |= self._records(container, held)
        if new:
            self.tell(container)

    def _settled(self, container: str) -> list[tuple[int, tuple[int, int]]]:
        """Open the log files of a container, the oldest first: descriptor and identity of each.

        Names move while the engine rotates: what two looks in a row agree on is the order.
        """
        opened: dict[tuple[int, int], int] = {}
        before: list[tuple[int, int]] | None = None
        for _ in range(_TRIES):
            order = []
            for name in self._log_names(container):
                with contextlib.suppress(OSError):
                    fd = os.open(
                        f"{self.containers}/{container}/{name}",
                        os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW,
                    )
                    file = identity(fd)
                    if file in opened:
                        os.close(fd)
                    opened.setdefault(file, fd)
                    order.append(file)
            if order == before:
                break
            before = order
        order = list(dict.fromkeys(before or []))
        # What was opened on the way and has no name by now is older than what has.
        lost = [file for file in opened if file not in order]
        return [(opened[file], file) for file in (*lost, *order)]

    def _log_names(self, container: str) -> list[str]:
        """Return the names of the log files, the oldest first; compressed ones are copies."""
        begin = f"{container}-json.log"
        found = []
        for name in self._names(f"{self.containers}/{container}"):
            if name == begin:
                found.append((0, name))
            elif name.startswith(f"{begin}.") and name[len(begin) + 1 :].isdecimal():
                found.append((-int(name[len(begin) + 1 :]), name))
        return [name for _, name in sorted(found)]

    def _link(self, held: Held, files: list[tuple[int, tuple[int, int]]]) -> bool:
        """Link the files that come after the last known one."""
        new: list[tuple[int, tuple[int, int]]] = []
        last = 0
        for fd, file in files:
            number = held.known.get(file, 0)
            # One that stands behind a higher number cannot be the file that it seems to be.
            if number > last:
                last, new = number, []
            else:
                new.append((fd, file))
        broken = bool(held.known) and not last
        counted = held.looked and self.inotify is not None
        missed = broken and (not counted or held.created > held.linked + len(new))
        fresh = held.looked and not held.known
        for fd, file in new:
            held.number += 1
            flag = "-gap" if missed else "-new" if fresh and held.number == 1 else ""
            missed = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(held.folder, 0o700)
            if self._keep(fd, f"{held.folder}/{held.number:08d}-{file[0]}{flag}"):
                held.known[file] = held.number
        held.linked = held.linked + len(new) if held.looked else held.created
        held.looked = True
        numbers = {number for _, number in held.links()}
        named = {file for _, file in files}
        held.known = {f: n for f, n in held.known.items() if f in named or n in numbers}
        return bool(new)

    def _keep(self, fd: int, name: str) -> bool:
        """Link an open file; one that lost its last name meanwhile is copied: nobody writes it."""
        try:
            # With a folder's descriptor it is linkat(2) that follows the link to the open file.
            os.link(str(fd), name, src_dir_fd=self._open_files)
        except FileNotFoundError:
            with open(name, "xb") as copy, open(fd, "rb", closefd=False) as file:
                while data := file.read(1 << 20):
                    copy.write(data)
        except OSError as error:
            self.tell(f"unlinkable {os.path.basename(self.hold)} {error.strerror}")
            return False
        return True

    def _records(self, container: str, held: Held) -> bool:
        """Keep the latest version of the engine's own records of a container."""
        new = False
        for name in RECORDS:
            source, target = f"{self.containers}/{container}/{name}", f"{held.folder}/{name}"
            with contextlib.suppress(OSError):
                now = os.stat(source).st_ino
                with contextlib.suppress(OSError):
                    if os.stat(target).st_ino == now:
                        continue
                with contextlib.suppress(FileExistsError):
                    os.mkdir(held.folder, 0o700)
                temporary = f"{held.folder}/.{name}"
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                os.link(source, temporary)
                os.rename(temporary, target)
                new = True
        return new

    def poll(self) -> None:
        """Look at what may have changed, where the kernel does not say."""
        names = [name for name in self._names(self.containers) if _ID.fullmatch(name)]
        for name in names:
            with contextlib.suppress(OSError):
                changed = os.stat(f"{self.containers}/{name}").st_mtime_ns
                if self._times.get(name) != changed:
                    self._times[name] = changed
                    self._enter(name, fresh=False)
                    self.scan(name)
        for name in set(self.held) - set(names):
            self._gone(name)


class Tell:
    """Tells the collector, and never waits for it: it looks for itself, too."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)

    def __call__(self, word: str) -> None:
        """Write one line, if there is room for it."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._fd, word.encode() + b"\n")


class Orders:
    """Reads what the collector wants; `ended` once it is gone."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._rest = b""
        self.ended = False

    def read(self, holder: Holder) -> None:
        """Do what it wants."""
        data = os.read(self.fd, 65536)
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            verb, _, container = line.decode("ascii", "replace").partition(" ")
            if verb == "ignore":
                holder.ignored.add(container)


def main(containers: str, hold: str) -> int:
    """Hold until the collector is gone."""
    holder = Holder(containers, hold, Tell(1))
    orders = Orders(0)
    holder.look()
    holder.tell("ready")
    looked = time.monotonic()
    handles = [orders.fd, *([holder.inotify.fd] if holder.inotify else [])]
    wait = _LOOK_AGAIN_S if holder.inotify else _POLL_S
    while not orders.ended:
        readable, _, _ = select.select(handles, [], [], wait)
        if orders.fd in readable:
            orders.read(holder)
        if holder.inotify is None:
            holder.poll()
            continue
        if holder.inotify.fd in readable:
            holder.handle()
        if time.monotonic() - looked > _LOOK_AGAIN_S:
            # Watches may have run out; whatever they did not say is found here.
            looked = time.monotonic()
            holder.look()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
