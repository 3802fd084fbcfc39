"""The folder of runs: begin one, write it durably, take it up again, find it by name.

Every run is one directory. It appears by a rename, so that it is never seen half-made; its
`run.json` is replaced by a rename, so that it is never seen half-written; its writer holds a lock
on the directory, so that a run without a lock holder is one whose writer died. Readers need no
lock. Folders are made for their owner alone (0700, files 0600).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from forensics import __version__
from forensics.archive.disk import is_full, locked, replace_file, sync_folder, told
from forensics.archive.model import RUN_SCHEMA, LogEnvelope, LogFile, RunRecord
from forensics.archive.writer import RUN, RunWriter, encoded
from forensics.errors import ForensicsError, SourceError, UsageError

DIAGNOSIS, SAMPLES = "diagnosis.json", "samples.parquet"
RESERVE_BYTES = 8 * 1024 * 1024

_ID = re.compile(r"\d{8}T\d{6}\.\d{9}Z-[0-9a-f]{12}")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|z|[+-]\d\d:?\d\d)?$"
)
_NEW = ".new-"
_MAX_RECORD = 64 * 1024 * 1024


class RunExists(ForensicsError):  # noqa: N818 - it says what is the case, as FileExistsError does
    """The archive has this run already."""


class ArchiveError(SourceError):
    """A run in the archive cannot be read."""


def run_id(started_at: str, container: str) -> str:
    """Return the name of a run: it sorts by time, and one start has only one.

    Args:
        started_at: When the start began (RFC 3339; nanoseconds are kept).
        container: The container's full id (at least twelve hexadecimal digits), or what else
            tells runs of the same moment apart, in the same form.

    Raises:
        ValueError: One of them is not of that form.
    """
    found = _TIME.match(started_at.strip())
    if found is None:
        raise ValueError(f"{started_at!r} is no RFC 3339 time")
    if not re.fullmatch(r"[0-9a-f]{12,128}", container):
        raise ValueError(f"{container!r} is no id of a container")
    day, clock, fraction, zone = found.groups()
    zone = "+00:00" if zone in {None, "Z", "z"} else zone
    moment = datetime.fromisoformat(f"{day}T{clock}{zone}").astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{(fraction or '').ljust(9, '0')}Z-{container[:12]}"


def is_run_name(name: str) -> bool:
    """Say whether a folder's name is that of a run."""
    return _ID.fullmatch(name) is not None


class Archive:
    """A folder of runs.

    Args:
        folder: The archive's folder; see `open`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    @classmethod
    def open(cls, folder: Path, *, create: bool = False) -> Archive:
        """Open an archive.

        Args:
            folder: Its folder.
            create: Make it if it is not there, with room kept for when the disk is full.

        Raises:
            UsageError: It is not there, or cannot be read or made.
        """
        found = cls(folder)
        try:
            if create:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                found.runs.mkdir(mode=0o700, exist_ok=True)
            if found.runs.is_symlink() or not found.runs.is_dir():
                raise UsageError(
                    f"{folder} is no archive of runs",
                    "give --archive DIR; `forensics watch`, `collect` or `guard` fill one",
                )
            next(found.runs.iterdir(), None)
        except OSError as error:
            raise UsageError(
                f"the archive {folder} cannot be used", error.strerror or str(error)
            ) from None
        if create:
            found.keep_reserve()
        return found

    # --- reading ---------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """Return the names of all runs, by time."""
        try:
            with os.scandir(self.runs) as entries:
                return sorted(e.name for e in entries if _ID.fullmatch(e.name))
        except OSError as error:
            raise UsageError(
                f"the archive {self.folder} cannot be read", error.strerror or str(error)
            ) from None

    def has(self, run: str) -> bool:
        """Say whether a run is there."""
        return _ID.fullmatch(run) is not None and (self.runs / run / RUN).is_file()

    def path(self, run: str) -> Path:
        """Return the folder of a run."""
        if not _ID.fullmatch(run):
            raise ArchiveError(f"{run!r} is no name of a run", "`forensics runs list` has them")
        return self.runs / run

    def record(self, run: str) -> RunRecord:
        """Return what is known of a run.

        Raises:
            ArchiveError: It is not there, or damaged.
        """
        return read_record(self.path(run))

    def partial(self) -> list[str]:
        """Return the runs that are not final, by time."""
        found = []
        for name in self.ids():
            with suppress(ArchiveError):
                if self.record(name).state == "partial":
                    found.append(name)
        return found

    def starts_of(self, container: str) -> list[RunRecord]:
        """Return the runs of one container, by time.

        Args:
            container: Its full id.
        """
        found = []
        for name in self.ids():
            if name.endswith(f"-{container[:12]}"):
                with suppress(ArchiveError):
                    record = self.record(name)
                    if record.container is not None and record.container.id == container:
                        found.append(record)
        return found

    # --- writing ---------------------------------------------------------------------------

    def begin(
        self, record: RunRecord, envelope: LogEnvelope, secrets: Collection[str] = ()
    ) -> RunWriter:
        """Begin a run: its folder is there, and locked, when this returns.

        Args:
            record: What is known of it by now, redacted.
            envelope: How the bytes of its log will be wrapped.
            secrets: Values that are secret in it, whatever they look like; they are masked.

        Raises:
            RunExists: The archive has it.
            DiskFull: There is no room for it.
        """
        final = self.path(record.id)
        if final.exists():
            raise RunExists(f"run {record.id} is in the archive already")
        new = self.runs / f"{_NEW}{record.id}-{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        try:
            new.mkdir(mode=0o700)
            lock = locked(new)
            record = replace(record, state="partial", log=LogFile(envelope))
            self._write(new / RUN, encoded(record))
            new.rename(final)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            if final.exists():
                raise RunExists(f"run {record.id} is in the archive already") from None
            raise told(error, final) from None
        sync_folder(self.runs)
        if lock is None:  # nobody else knows the name of a folder that is new
            raise RunExists(f"run {record.id} is being written by another process")
        return self._writer(record, lock, secrets)

    def resume(self, run: str, secrets: Collection[str] = ()) -> RunWriter | None:
        """Take up a partial run whose writer is gone; what is torn at its end is cut.

        Args:
            run: Its name.
            secrets: As for `begin`.

        Returns:
            Its writer; None if another process writes it, or it is final.

        Raises:
            ArchiveError: It is damaged.
        """
        lock = locked(self.path(run))
        if lock is None:
            return None
        try:
            record = self.record(run)
            if record.state != "partial":
                os.close(lock)
                return None
            return self._writer(record, lock, secrets)
        except BaseException:
            with suppress(OSError):
                os.close(lock)
            raise

    def _writer(self, record: RunRecord, lock: int, secrets: Collection[str]) -> RunWriter:
        return RunWriter(self.path(record.id), record, lock, self._write, secrets)

    def remove(self, run: str) -> None:
        """Remove a run, whole and at once.

        Args:
            run: Its id.

        Raises:
            ArchiveError: It is not there.
            UsageError: It is being written, or cannot be removed.
        """
        path = self.path(run)
        if not path.is_dir() or path.is_symlink():
            raise ArchiveError(f"there is no run {run}", "`forensics runs list` has them")
        lock = locked(path)
        if lock is None:
            raise UsageError(f"run {run} is being written", "stop what writes it first")
        try:
            # Out of sight first, so that nobody sees half of it; `clear` finds what is left.
            gone = self.runs / f"{_NEW}{run}-gone"
            path.rename(gone)
            shutil.rmtree(gone)
        except OSError as error:
            raise UsageError(f"run {run} cannot be removed", error.strerror or str(error)) from None
        finally:
            os.close(lock)

    def clear(self) -> None:
        """Remove what runs left behind whose writer died before they had a name."""
        for path in self.runs.glob(f"{_NEW}*"):
            lock = locked(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)

    @contextmanager
    def watch_lock(self) -> Iterator[None]:
        """Hold the right to watch an engine into this archive.

        Raises:
            UsageError: Another process holds it.
        """
        path = self.folder / ".watch.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                with suppress(ValueError):
                    who = json.loads(os.read(handle, 4096))
                    raise UsageError(
                        f"another `forensics watch` (pid {who['pid']}, since {who['since']}) "
                        f"writes {self.folder}",
                        "stop it, or give this one its own --archive",
                    ) from None
                raise UsageError(f"another `forensics watch` writes {self.folder}") from None
            os.ftruncate(handle, 0)
            since = datetime.now(UTC).isoformat(timespec="seconds")
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
            yield
        finally:
            os.close(handle)

    # --- room for the end ----------------------------------------------------------------------

    def keep_reserve(self) -> None:
        """Keep room on the disk for the records of runs, if there is any to keep."""
        path = self.folder / ".reserve"
        with suppress(OSError):
            if path.exists() and path.stat().st_size >= RESERVE_BYTES:
                return
            disk = os.statvfs(self.folder)
            if disk.f_bavail * disk.f_frsize < 2 * RESERVE_BYTES:
                return
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, RESERVE_BYTES)
            except OSError:
                path.unlink()
            finally:
                os.close(handle)

    def _write(self, path: Path, data: bytes) -> None:
        """Replace a file in one step; where the disk is full, in the room that was kept.

        Raises:
            DiskFull: There is no room there either.
            UsageError: It cannot be written for another reason.
        """
        reserve = self.folder / ".reserve"
        try:
            try:
                replace_file(path, data)
            except OSError as error:
                if not is_full(error) or not reserve.exists():
                    raise
                reserve.unlink(missing_ok=True)
                replace_file(path, data)
        except OSError as error:
            raise told(error, path) from None
        self.keep_reserve()

    def write_derived(self, run: str, name: str, data: bytes) -> None:
        """Write a derived file of a run (diagnosis, samples) in one step.

        Args:
            run: The run.
            name: The file's name.
            data: All of its bytes.

        Raises:
            DiskFull: There is no room.
            UsageError: It cannot be written for another reason.
        """
        self._write(self.path(run) / name, data)

    def write_table(self, name: str, data: bytes) -> None:
        """Write a derived file of the whole archive in one step.

        Args:
            name: The file's name.
            data: All of its bytes.

        Raises:
            DiskFull: There is no room.
            UsageError: It cannot be written for another reason.
        """
        self._write(self.folder / name, data)


def read_record(folder: Path) -> RunRecord:
    """Read the record of a run.

    Args:
        folder: The run's folder.

    Raises:
        ArchiveError: It is not there, damaged, or of a schema that is not known.
    """
    path = folder / RUN
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_RECORD)
        found = msgspec.json.decode(data, type=RunRecord)
    except FileNotFoundError:
        raise ArchiveError(
            f"there is no run {folder.name}", "`forensics runs list` has them"
        ) from None
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read", error.strerror or str(error)) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{path} is damaged", str(error)) from None
    if found.schema != RUN_SCHEMA:
        raise ArchiveError(
            f"{path} has the schema {found.schema!r}",
            f"this version {__version__} reads {RUN_SCHEMA}",
        )
    if found.id != folder.name:
        raise ArchiveError(f"{path} is damaged", f"it says that it is run {found.id!r}")
    return found
