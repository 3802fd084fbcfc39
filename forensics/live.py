"""Logs read where they are kept: a container's from its engine, a unit's from the journal.

In: `docker:NAME` or `journal:UNIT`. Out: an open source, and what the engine knows of the
container. Nothing is changed on either side.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import IO, Any, cast

from forensics import inspection
from forensics.errors import SourceError
from forensics.model import Context
from forensics.sources import LIVE, Opened, opened_stream
from forensics.unpacking import DEFAULT, Limits, Lines

DOCKER, JOURNAL = LIVE
_TIMEOUT_S = 60


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


class _Chunks:
    """What an iterator gives, as a stream."""

    def __init__(self, chunks: Iterator[bytes], *owners: Any) -> None:  # noqa: ANN401 - they close
        self._chunks, self._owners = chunks, owners

    def read(self, size: int) -> bytes:
        del size  # an engine's pieces are small
        try:
            return next((chunk for chunk in self._chunks if chunk), b"")
        except Exception as error:  # noqa: BLE001 - the engine's client has many
            raise OSError(str(error)) from None

    def close(self) -> None:
        for owner in self._owners:
            owner.close()


def _container(name: str, wanted: str, *, follow: bool = False) -> tuple[IO[bytes], Context]:
    import docker
    from docker.errors import APIError, DockerException, NotFound
    from requests.exceptions import RequestException

    try:
        client = docker.from_env(timeout=_TIMEOUT_S)
    except DockerException as error:
        raise SourceError("the container engine cannot be reached", _why(error)) from None
    try:
        container = client.containers.get(wanted)
        context = inspection.read(json.dumps(container.attrs).encode(), name)
        if follow:
            # A server without work is silent for hours.
            client.api.timeout = None  # type: ignore[assignment]
        chunks = container.logs(stream=True, follow=follow, timestamps=True)
        return cast("IO[bytes]", Lines(_Chunks(iter(chunks), chunks, client))), context
    except NotFound:
        client.close()
        raise SourceError(
            f"there is no container {wanted}", "`docker ps --all` lists those that exist"
        ) from None
    except APIError as error:
        client.close()
        raise SourceError(f"{name} cannot be read", _why(error)) from None
    except (DockerException, RequestException) as error:
        client.close()
        raise SourceError("the container engine cannot be reached", _why(error)) from None
    except BaseException:
        client.close()
        raise


def _why(error: Exception) -> str:
    text = getattr(error, "explanation", None) or str(error)
    return str(text).strip().split("\n", 1)[0][:300]


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
