"""What a guard needs of an engine, by its API or by its command-line client.

The API tells standard output from standard error. The client reaches whatever the guarded command
reaches: another context, a host behind ssh, Podman without a service, an engine that only root may
use. It runs with the very words that the command began with.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from forensics.archive.model import EngineFacts
from forensics.collector.clock import text_of
from forensics.collector.engine import Engine, EngineError, Gone, LogsUnreadable
from forensics.containers.cri import Cri

_SECOND = 1_000_000_000
_LIMIT_S = 120
_SERVICE_S = 10.0
_PIECE = 1 << 20
_RUNNING = frozenset({"running", "paused", "restarting"})


class Client(Protocol):
    """An engine, however it is reached."""

    @property
    def facts(self) -> EngineFacts:
        """What a record says of it."""

    @property
    def driver(self) -> str | None:
        """Its log driver, None where that is not known."""

    def marked(self, label: str) -> list[str]:
        """Return the ids of containers with a label (`name` or `name=value`), running or not."""

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return inspect data, None if the container is gone."""

    def image(self, image: str) -> dict[str, Any] | None:
        """Return inspect data of an image, None if it is gone."""

    def wait(self, container: str) -> None:
        """Wait until a container has ended."""

    def log(self, container: str, *, tty: bool, since: int) -> Iterator[bytes]:
        """Yield the log of a container that has ended, as CRI lines.

        Args:
            container: Its id.
            tty: Whether it has a terminal.
            since: From when on, in nanoseconds since 1970.

        Raises:
            EngineError: It cannot be read to the end.
        """

    def events(self, label: str) -> Iterator[dict[str, Any]]:
        """Yield events of containers with a label (of all, if it is empty), until `close`."""

    def remove(self, container: str) -> bool:
        """Remove a container and its anonymous volumes; say whether it is gone."""

    def close(self) -> None:
        """Let go of everything."""


class ApiClient:
    """An engine by its API.

    Args:
        engine: The connection; closed with this.
        then: Called afterwards.
    """

    def __init__(self, engine: Engine, then: Callable[[], None] = lambda: None) -> None:
        self._engine, self._then = engine, then
        self.facts = engine.facts
        driver = engine.info.get("LoggingDriver")
        self.driver = driver if isinstance(driver, str) else None
        self._stream: Any = None

    def marked(self, label: str) -> list[str]:
        """Return the ids of containers with a label."""
        name, equals, value = label.partition("=")
        found = []
        for one in self._engine.containers():
            labels = one.get("Labels") or {}
            if name in labels and (not equals or labels[name] == value):
                found.append(str(one["Id"]))
        return found

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return inspect data, None if the container is gone."""
        return self._engine.inspect(container)

    def image(self, image: str) -> dict[str, Any] | None:
        """Return inspect data of an image, None if it is gone."""
        return self._engine.image(image)

    def wait(self, container: str) -> None:
        """Wait until a container has ended."""
        self._engine.wait(container)

    def log(self, container: str, *, tty: bool, since: int) -> Iterator[bytes]:
        """Yield the log of a container that has ended, as CRI lines."""
        cri = Cri(tty=tty)
        moment = f"{since // _SECOND}.{since % _SECOND:09d}" if since else None
        with self._engine.logs(container, tty=tty, follow=False, since=moment) as chunks:
            for data in chunks.blocks():
                yield cri.feed(data)
        yield cri.rest()

    def events(self, label: str) -> Iterator[dict[str, Any]]:
        """Yield events of containers with a label (of all, if it is empty), until `close`."""
        name, _, value = label.partition("=")
        with suppress(EngineError):
            self._stream = self._engine.events()
            for event in self._stream:
                attributes = (event.get("Actor") or {}).get("Attributes") or {}
                if not name or attributes.get(name) == value:
                    yield event

    def remove(self, container: str) -> bool:
        """Remove a container and its anonymous volumes; say whether it is gone."""
        return self._engine.remove(container, volumes=True)

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()
        self._engine.close()
        self._then()


class CommandClient:
    """An engine by the command-line client that the guarded command uses.

    Args:
        prefix: The words before its command (`sudo docker --context x`).
        runtime: `docker`, `podman` or `nerdctl`.
    """

    def __init__(self, prefix: Sequence[str], runtime: str) -> None:
        self._prefix = [*prefix]
        said = self._asked("version", "--format", "{{json .}}")
        server = said.get("Server") if isinstance(said, dict) else None
        own = said.get("Client") if isinstance(said, dict) else None
        about = server if isinstance(server, dict) else own if isinstance(own, dict) else {}
        version = about.get("Version")
        self.facts = EngineFacts(
            name=runtime, version=version if isinstance(version, str) else None
        )
        self.driver: str | None = None
        self._events: subprocess.Popen[bytes] | None = None

    def _ran(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(  # noqa: S603 - the client that the user named, no shell
                [*self._prefix, *words], capture_output=True, timeout=_LIMIT_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"{self._prefix[0]} cannot be run", str(error)[:300]) from None

    def _asked(self, *words: str) -> Any:  # noqa: ANN401 - JSON data
        done = self._ran(*words)
        if done.returncode:
            return None
        try:
            return json.loads(done.stdout)
        except (ValueError, RecursionError):
            return None

    def marked(self, label: str) -> list[str]:
        """Return the ids of containers with a label."""
        done = self._ran("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}")
        return done.stdout.decode("ascii", "replace").split() if not done.returncode else []

    def _first(self, *words: str) -> dict[str, Any] | None:
        found = self._asked(*words)
        first = found[0] if isinstance(found, list) and found else found
        return first if isinstance(first, dict) else None

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return inspect data, None if the container is gone."""
        return self._first("container", "inspect", container)

    def image(self, image: str) -> dict[str, Any] | None:
        """Return inspect data of an image, None if it is gone."""
        return self._first("image", "inspect", image)

    def wait(self, container: str) -> None:
        """Wait until a container has ended."""
        subprocess.run(  # noqa: S603 - as above
            [*self._prefix, "wait", container], capture_output=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def log(self, container: str, *, tty: bool, since: int) -> Iterator[bytes]:
        """Yield the log of a container that has ended, as CRI lines of one stream."""
        del tty  # both streams through one pipe keep their order, but not their names
        cri = Cri(tty=True)
        only = [f"--since={text_of(since)}"] if since else []
        with subprocess.Popen(  # noqa: S603 - as above
            [*self._prefix, "logs", "--timestamps", *only, container],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            last = b""
            while process.stdout is not None and (data := process.stdout.read1(_PIECE)):  # type: ignore[attr-defined]
                last = data
                yield cri.feed(data)
            yield cri.rest()
            if process.wait():
                why = last.decode("utf-8", "replace").strip().split("\n")[-1][:300]
                kind = LogsUnreadable if "does not support reading" in why else EngineError
                raise kind(f"the log of container {container[:12]} cannot be read", why)

    def events(self, label: str) -> Iterator[dict[str, Any]]:
        """Yield events of containers with a label (of all, if it is empty), until `close`."""
        only = ["--filter", f"label={label}"] if label else []
        with suppress(OSError):
            self._events = subprocess.Popen(  # noqa: S603 - as above
                [*self._prefix, "events", *only, "--format", "{{json .}}"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        if self._events is None or self._events.stdout is None:
            return
        for line in self._events.stdout:
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def remove(self, container: str) -> bool:
        """Remove a container and its anonymous volumes; say whether it is gone."""
        return not self._ran("rm", "--volumes", container).returncode

    def close(self) -> None:
        """End the client that tells events."""
        if self._events is not None:
            self._events.terminate()
            self._events.wait()
            if self._events.stdout is not None:
                self._events.stdout.close()


def is_running(inspect: dict[str, Any]) -> bool:
    """Say whether inspect data are of a container that runs."""
    state = inspect.get("State")
    return isinstance(state, dict) and str(state.get("Status", "")).lower() in _RUNNING


def client_of(prefix: Sequence[str], runtime: str) -> Client:
    """Return the best way to the engine that a command uses.

    Args:
        prefix: The command's words before `run`.
        runtime: `docker`, `podman` or `nerdctl`.

    Raises:
        EngineError: It cannot be reached at all.
    """
    # The client will say why where it cannot either.
    with suppress(EngineError):
        if runtime == "docker" and prefix[0].rpartition("/")[2] == "docker":
            host, context = _address(prefix)
            return ApiClient(Engine.connect(host, context))
        if runtime == "podman":
            return _service(prefix)
    return CommandClient(prefix, runtime)


def _service(prefix: Sequence[str]) -> ApiClient:
    """Return Podman's API, served for us alone: its command cannot tell long lines apart.

    Raises:
        EngineError: There is none (it belongs to root, say).
    """
    folder = Path(tempfile.mkdtemp(prefix="forensics-"))
    host = f"unix://{folder}/s"
    process: subprocess.Popen[bytes] | None = None
    try:
        process = subprocess.Popen(  # noqa: S603 - the client that the user named, no shell
            [*prefix, "system", "service", "--time=0", host], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        end = time.monotonic() + _SERVICE_S
        while True:
            try:
                return ApiClient(Engine.connect(host), lambda: _end(process, folder))
            except EngineError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
            time.sleep(0.05)
    except BaseException as error:
        _end(process, folder)
        if isinstance(error, OSError):
            raise EngineError(f"{prefix[0]} cannot be run", str(error)) from None
        raise


def _end(process: subprocess.Popen[bytes] | None, folder: Path) -> None:
    if process is not None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SERVICE_S)
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _address(prefix: Sequence[str]) -> tuple[str | None, str | None]:
    host = context = None
    for place, word in enumerate(prefix[1:], 1):
        name, equals, value = word.partition("=")
        value = value if equals else prefix[place + 1] if place + 1 < len(prefix) else ""
        if name in {"-H", "--host"}:
            host = value
        elif name in {"-c", "--context"}:
            context = value
    return host, context


__all__ = ["ApiClient", "Client", "CommandClient", "Gone", "client_of", "is_running"]
