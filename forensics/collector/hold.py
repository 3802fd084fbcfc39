"""The hold folder seen from the collector: the process that fills it, and what is in it.

`<data root>/forensics-hold/<name>/<container id>/`: one folder a collector, under a lock, so that
two of them never drop each other's links. See `holder` for the names in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from forensics.archive.disk import locked
from forensics.errors import UsageError

FOLDER = "forensics-hold"
OWNER = "archive"
_HOLDER = Path(__file__).with_name("holder.py")
_LINK = re.compile(r"(\d{8})-(\d+)(?:-(new|gap))?")
_ID = re.compile(r"[0-9a-f]{64}")
_MAX_RECORD = 16 * 1024 * 1024
_NEVER = "0001-01-01T00:00:00Z"


class Part(Struct, frozen=True):
    """One file that a log is made of.

    Attributes:
        number: Rises in the order in which the engine wrote the files.
        name: Of the link.
        first: Nothing was written before this file.
        gap: Between this file and the one before, at least one was never seen.
    """

    number: int
    name: str
    first: bool
    gap: bool


class Hold:
    """The hold folder of one collector.

    Args:
        data_root: The engine's data root, on this machine.
        name: Tells collectors apart; see `name_of`.
        owner: What the folder says of its owner, for whoever finds it later.

    Raises:
        UsageError: The folder cannot be made, or another process uses it.
    """

    def __init__(self, data_root: Path, name: str, owner: str = "") -> None:
        self.containers = data_root / "containers"
        self.folder = data_root / FOLDER / name
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / OWNER).write_text(f"{owner}\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{self.folder} cannot be made", error.strerror or str(error)
            ) from None
        lock = locked(self.folder)
        if lock is None:
            raise UsageError(f"another collector uses {self.folder}")
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None

    # --- the process -------------------------------------------------------------------------

    def start(self, told: Callable[[str], None], *, patience_s: float = 60.0) -> None:
        """Start the process that links; it ends with this one.

        Args:
            told: Takes what it says, in a thread of its own: see `holder`.
            patience_s: How long it may take until everything that is there is held.

        Raises:
            UsageError: It does not start.
        """
        ready = threading.Event()
        process = subprocess.Popen(  # noqa: S603 - our own program, no shell
            [
                sys.executable,
                "-P",
                "-S",
                "-E",
                str(_HOLDER),
                str(self.containers),
                str(self.folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C on a terminal is for the collector: this one ends when that has done its work.
            start_new_session=True,
        )

        def listen() -> None:
            for line in process.stdout or ():
                word = line.decode("utf-8", "replace").strip()
                if word == "ready":
                    ready.set()
                told(word)
            ready.set()
            told("ended")

        self._process = process
        self._listener = threading.Thread(target=listen, name="hold", daemon=True)
        self._listener.start()
        if not ready.wait(patience_s) or not self.alive():
            raise UsageError(
                f"the process that holds the files of {self.containers} does not start"
            )

    def alive(self) -> bool:
        """Say whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def ignore(self, container: str) -> None:
        """Hold nothing more of a container, and let go what is held."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(f"ignore {container}\n".encode())
                self._process.stdin.flush()
        self.drop(container)

    def end(self) -> None:
        """End the process; what is held stays held."""
        if self._process is not None and self._listener is not None:
            if self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._listener.join(10)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def close(self) -> None:
        """End the process and let go of the folder, not of what is in it."""
        self.end()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """Let everything go."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what is held --------------------------------------------------------------------------

    def held(self) -> list[str]:
        """Return the ids of the containers of which something is held."""
        with suppress(OSError):
            return sorted(p.name for p in self.folder.iterdir() if _ID.fullmatch(p.name))
        return []

    def exists(self, container: str) -> bool:
        """Say whether the engine still has the container's folder."""
        return (self.containers / container).is_dir()

    def path(self, container: str) -> Path:
        """Return the folder with the links of one container."""
        return self.folder / container

    def parts(self, container: str) -> list[Part]:
        """Return the files of a container that are held, in the order of writing."""
        return parts_in(self.path(container))

    def state(self, container: str) -> dict[str, Any] | None:
        """Return what the engine's own records say of a container, as inspect says it.

        They are the engine's files; a container that was removed before it could be asked for is
        described by nothing else. None where there are none that can be read.
        """
        found = state_in(self.path(container), container)
        return found or state_in(self.containers / container, container)

    def drop(self, container: str) -> None:
        """Let go what is held of a container."""
        shutil.rmtree(self.path(container), ignore_errors=True)

    def pinned(self) -> int:
        """Return how many bytes only our links keep on the disk: those without another name."""
        total = 0
        for container in self.held():
            with suppress(OSError), os.scandir(self.path(container)) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if found.st_nlink == 1 and _LINK.fullmatch(entry.name):
                        total += found.st_blocks * 512
        return total

    def others(self) -> list[tuple[str, int]]:
        """Return who else left links behind and does not run now, and how many files of each."""
        found = []
        with suppress(OSError):
            for folder in sorted(self.folder.parent.iterdir()):
                if folder == self.folder or not folder.is_dir():
                    continue
                lock = locked(folder)
                if lock is None:
                    continue
                os.close(lock)
                count = sum(1 for p in folder.glob("*/*") if _LINK.fullmatch(p.name))
                with suppress(OSError):
                    owner = (folder / OWNER).read_text(encoding="utf-8", errors="replace").strip()
                    found.append((owner or folder.name, count))
        return [(owner, count) for owner, count in found if count]


def name_of(archive: Path) -> str:
    """Return the name of the hold folder that belongs to an archive."""
    return hashlib.sha256(os.fsencode(archive.resolve())).hexdigest()[:16]


def parts_in(folder: Path) -> list[Part]:
    """Return the links in a folder, in the order of their numbers."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
    found = ((name, _LINK.fullmatch(name)) for name in names)
    return [Part(int(m[1]), name, m[3] == "new", m[3] == "gap") for name, m in found if m]


def state_in(folder: Path, container: str) -> dict[str, Any] | None:
    """Return what the engine's own records in a folder say of a container, as inspect says it.

    Args:
        folder: Where `config.v2.json` and `hostconfig.json` may stand.
        container: Its full id.
    """
    found = _json(folder / "config.v2.json")
    if found is None or found.get("ID") != container:
        return None
    return _inspected(found, _json(folder / "hostconfig.json") or {})


def _json(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MAX_RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _inspected(config: dict[str, Any], host: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's own records in the form of inspect data (their keys are nearly alike)."""
    kept = {
        name: config.get(name)
        for name in (
            "Created",
            "Path",
            "Args",
            "Image",
            "LogPath",
            "Name",
            "RestartCount",
            "Driver",
        )
    }
    state = config.get("State")
    state = dict(state) if isinstance(state, dict) else {}
    state.setdefault("Status", _status(state))
    settings = config.get("Config")
    return {
        "Id": config["ID"],
        **kept,
        "State": state,
        "Config": settings if isinstance(settings, dict) else {},
        "HostConfig": host,
    }


def _status(state: dict[str, Any]) -> str:
    """Return the word that the engine has for a state (moby, container/state.go, StateString)."""
    for key in ("Paused", "Restarting"):
        if state.get("Running") and state.get(key):
            return key.lower()
    if state.get("Running"):
        return "running"
    if state.get("RemovalInProgress"):
        return "removing"
    if state.get("Dead"):
        return "dead"
    return "created" if state.get("StartedAt", _NEVER) == _NEVER else "exited"
