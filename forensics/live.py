"""Logs read where they are kept: a container's from its engine, a unit's from the journal.

In: `docker:NAME` or `journal:UNIT`. Out: an open source, and what the engine knows of the
container. Nothing is changed on either side.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, cast

from forensics import inspection
from forensics.containers.cri import Cri
from forensics.errors import SourceError
from forensics.model import Context
from forensics.sources import LIVE, Opened, opened_stream
from forensics.unpacking import DEFAULT, Limits, Lines

if TYPE_CHECKING:
    from forensics.containers.engine import Engine
    from forensics.containers.streams import Chunks

DOCKER, JOURNAL = LIVE


def is_live(name: str) -> bool:
    """Say whether a name means a container or a unit."""
    return name.startswith(LIVE)


def open_live(name: str, limits: Limits = DEFAULT) -> tuple[Opened, Context | None]:
    """Open the log of a container or a unit.

    Args:
        name: `docker:NAME` (or an id) or `journal:UNIT`.
        limits: What may be read.

    Returns:
        The log, and what is known of the container (None for a unit).

    Raises:
        SourceError: It does not exist, has no log, or the engine or journal is out of reach.
    """
    if name.startswith(DOCKER):
        stream, context = _container(name, name.removeprefix(DOCKER))
        return _opened("docker", name, stream, limits), context
    unit = cast("IO[bytes]", Lines(_journal(name.removeprefix(JOURNAL))))
    return _opened("journal", name, unit, limits), None


def _opened(kind: str, name: str, stream: IO[bytes], limits: Limits) -> Opened:
    """Begin to read a stream; it is closed where that fails."""
    try:
        return opened_stream(kind, name, stream, limits)
    except BaseException:
        stream.close()
        raise


def follow_live(name: str) -> tuple[IO[bytes], Context]:
    """Follow the log of a container or a unit: from its beginning, and on while it is written.

    Args:
        name: `docker:NAME` (or an id) or `journal:UNIT`.

    Returns:
        A stream whose reads wait for more until the container stops (a unit's never ends; closing
        it ends a read that waits), and what is known of the container.

    Raises:
        SourceError: It does not exist, has no log, or the engine or journal is out of reach.
    """
    if name.startswith(DOCKER):
        return _container(name, name.removeprefix(DOCKER), follow=True)
    stream = _journal(name.removeprefix(JOURNAL), "--no-tail", "--follow")
    return cast("IO[bytes]", stream), Context(running=True)


class _Told:
    """A container's log as CRI lines, as a stream.

    Args:
        engine: Closed with the stream.
        chunks: What the engine tells.
        tty: Whether the container has a terminal.
    """

    def __init__(self, engine: Engine, chunks: Chunks, *, tty: bool) -> None:
        self._engine, self._chunks = engine, chunks
        self._lines = self._read(Cri(tty=tty))
        self._data, self._place, self._closed = b"", 0, False

    def read(self, size: int) -> bytes:
        if self._place == len(self._data):
            self._data, self._place = next(self._lines, b""), 0
        data = self._data[self._place : self._place + size]
        self._place += len(data)
        return data

    def _read(self, cri: Cri) -> Iterator[bytes]:
        for data in self._chunks.blocks():
            if lines := cri.feed(data):
                yield lines
        if rest := cri.rest():
            yield rest
        # A log that ends with its engine ends like any other: only asking tells them apart.
        if not self._closed and not self._engine.ping():
            raise OSError("the container engine went away before the log's end")

    def close(self) -> None:
        self._closed = True
        self._chunks.close()
        self._engine.close()


def _container(name: str, wanted: str, *, follow: bool = False) -> tuple[IO[bytes], Context]:
    from forensics.containers.engine import Engine
    from forensics.containers.reach import EngineError, Gone

    try:
        engine = Engine.connect()
    except EngineError as error:
        raise SourceError(error.message, error.hint) from None
    try:
        return _log_of(engine, name, wanted, follow=follow)
    except Gone:
        engine.close()
        raise SourceError(
            f"there is no container {wanted}", "`docker ps --all` lists those that exist"
        ) from None
    except EngineError as error:
        engine.close()
        raise SourceError(f"{name} cannot be read", error.hint or error.message) from None
    except BaseException:
        engine.close()
        raise


def _log_of(engine: Engine, name: str, wanted: str, *, follow: bool) -> tuple[IO[bytes], Context]:
    from forensics.containers.reach import Gone

    state = engine.inspect(wanted) if wanted else None
    if state is None:
        raise Gone(f"container {wanted} is gone")
    context = inspection.read(json.dumps(state).encode(), name)
    config = state.get("Config")
    tty = isinstance(config, dict) and config.get("Tty") is True
    chunks = engine.logs(str(state.get("Id") or wanted), tty=tty, follow=follow)
    return cast("IO[bytes]", Lines(_Told(engine, chunks, tty=tty))), context


class _Journal:
    """The output of journalctl, as a stream; its complaints become an error."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def read(self, size: int) -> bytes:
        pipe, errors = self._process.stdout, self._process.stderr
        data = pipe.read1(size) if pipe is not None else b""  # type: ignore[attr-defined]
        if not data and self._process.wait() != 0:
            said = errors.read() if errors is not None else b""
            raise OSError(said.decode("utf-8", "replace").strip() or "journalctl failed")
        return bytes(data)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _journal(unit: str, *options: str) -> _Journal:
    # JSON keeps every byte of a message, also of those that the short forms do not show.
    command = ["journalctl", f"--unit={unit}", "--output=json", "--all", "--no-pager", "--quiet"]
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell; the unit is one word of it
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise SourceError("journalctl cannot be run", error.strerror or str(error)) from None
    return _Journal(process)
