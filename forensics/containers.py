"""The container engine, Docker or Podman: the only module that talks to it.

Connections are those of Docker's own SDK (unix, tcp with TLS, ssh, contexts). Streams are read
here: the SDK takes five times as long over them, gives no way to end them from another thread, and
rounds the time from which on a log is wanted. API: Docker Engine 1.24 and later.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import docker
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, TLSParameterError
from docker.transport.unixconn import (
    UnixHTTPAdapter,
    UnixHTTPConnection,
    UnixHTTPConnectionPool,
)
from docker.utils.utils import kwargs_from_env
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from forensics.errors import ForensicsError

_TIMEOUT_S = 60
#: Of the API; older ones the SDK does not speak.
_OLDEST = "1.24"
_PIECE = 1 << 20
_HEAD = 8
_SIZE = struct.Struct(">I")
_STREAMS = {0: "stdout", 1: "stdout", 2: "stderr"}
_GONE = frozenset({404, 409})
#: The line end behind the bytes of a chunk.
_CHUNK_END = 2
_NOT_FOUND, _NO_LOGS = 404, 501
_ERROR = 400


class EngineError(ForensicsError):
    """The engine cannot be reached, or refuses."""


class LogsUnreadable(EngineError):  # noqa: N818 - a property of the container's log driver
    """The container's log driver keeps nothing that could be read back."""


class Gone(EngineError):  # noqa: N818 - a state, not a mistake
    """The container is not there any more, or is being removed."""


class Engine:
    """A connection to an engine; may be used by several threads.

    Attributes:
        host: Where it is (`unix:///var/run/docker.sock`).
        kind: `docker` or `podman`.
        version: Its version.
        api_version: The version of the API that is spoken.
    """

    def __init__(self, client: docker.APIClient, host: str) -> None:
        self._client, self.host, self.api_version = client, host, ""
        about = self._asked("/version")
        self.api_version = str(about.get("ApiVersion") or _OLDEST)
        parts = [p for p in about.get("Components") or [] if isinstance(p, dict)]
        podman = any("podman" in str(p.get("Name", "")).lower() for p in parts)
        self.kind = "podman" if podman else "docker"
        self.version = str(about.get("Version", ""))
        self._info = self._asked("/info")

    @classmethod
    def connect(cls, host: str | None = None, context: str | None = None) -> Self:
        """Connect to an engine.

        Args:
            host: Its address, as in `DOCKER_HOST`.
            context: Name of a Docker context. With neither: `DOCKER_HOST`, else the current
                context, else a socket at one of the usual places.

        Raises:
            EngineError: It is out of reach; the message says why and what to do.
        """
        wanted = "the current context"
        try:
            options = _options(host, context)
            wanted = str(options.get("base_url") or "unix:///var/run/docker.sock")
            _try(wanted)
            # With a version given it asks nothing yet: what is said here is asked by us.
            client = docker.APIClient(timeout=_TIMEOUT_S, version=_OLDEST, **options)
        except (DockerException, RequestException, OSError, ValueError, TypeError) as error:
            raise told(error, wanted) from None
        if "tls" in options:
            # A certificate store named in the environment would take the place of the engine's.
            client.trust_env = False
        if wanted.startswith("unix://"):
            client.mount("http+docker://", _Adapter(f"http+{wanted}", _TIMEOUT_S))
            streams = _Adapter(f"http+{wanted}", _TIMEOUT_S)
            streams.streams = True
            client.mount("http+docker+stream://", streams)
        try:
            return cls(client, wanted)
        except BaseException:
            client.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    @property
    def info(self) -> dict[str, Any]:
        """Return what the engine said of itself when the connection was made (SystemInfo)."""
        return self._info

    @property
    def data_root(self) -> Path | None:
        """Return the engine's data root if it is on this machine and can be read, else None.

        Found by looking: a remote engine may name a folder that exists here, too. Ours has the
        engine's id in it or, where nothing is there to compare, belongs to a local socket.
        """
        root = _text(self._info.get("DockerRootDir"))
        if self.kind != "docker" or root is None or not self.host.startswith("unix://"):
            return None
        folder = Path(root)
        try:
            os.listdir(folder / "containers")  # noqa: PTH208 - only whether it may be read
            if not os.access(folder / "containers", os.R_OK | os.X_OK):
                return None
        except OSError:
            return None
        known = {one["Id"] for one in self.containers()}
        here = {entry.name for entry in (folder / "containers").iterdir()}
        return folder if not known or known & here else None

    # --- questions -----------------------------------------------------------------------------

    def ping(self) -> bool:
        """Say whether the engine answers."""
        try:
            return int(self._get("/_ping", timeout=5).status_code) < _ERROR
        except EngineError:
            return False

    def containers(self) -> list[dict[str, Any]]:
        """Return all containers, running or not (the API's container summaries).

        Raises:
            EngineError: The engine is out of reach.
        """
        found = self._get("/containers/json", {"all": "1"})
        self._check(found, "containers")
        return [one for one in found.json() if isinstance(one, dict)]

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return the inspect data of a container, None if it is gone.

        Raises:
            EngineError: The engine is out of reach.
        """
        return self._object(f"/containers/{_quoted(container)}/json", container)

    def image(self, image: str) -> dict[str, Any] | None:
        """Return the inspect data of an image, None if it is gone.

        Raises:
            EngineError: The engine is out of reach.
        """
        return self._object(f"/images/{_quoted(image)}/json", image)

    def remove(self, container: str, *, volumes: bool = False) -> bool:
        """Remove a container that has ended.

        Args:
            container: Its id.
            volumes: Also its anonymous volumes, as `--rm` does.

        Returns:
            Whether it is gone (also if it was before).

        Raises:
            EngineError: The engine is out of reach.
        """
        found = self._sent("DELETE", f"/containers/{_quoted(container)}", {"v": str(int(volumes))})
        code = int(found.status_code)
        return code < _ERROR or code == _NOT_FOUND

    def wait(self, container: str) -> int | None:
        """Wait until a container ends; return its exit code, None if it cannot be told.

        Raises:
            EngineError: The engine went away meanwhile.
        """
        found = self._sent("POST", f"/containers/{_quoted(container)}/wait", {}, timeout=None)
        if found.status_code >= _ERROR:
            return None
        code = found.json().get("StatusCode")
        return code if isinstance(code, int) else None

    def _object(self, path: str, name: str) -> dict[str, Any] | None:
        found = self._get(path)
        if found.status_code in _GONE:
            return None
        self._check(found, name)
        data = found.json()
        return data if isinstance(data, dict) else None

    def _asked(self, path: str) -> dict[str, Any]:
        found = self._get(path)
        self._check(found, path)
        data = found.json()
        return data if isinstance(data, dict) else {}

    # --- streams -------------------------------------------------------------------------------

    def events(self, since: str | None = None) -> Events:
        """Return the engine's events as they come.

        Args:
            since: From when on, as `seconds.nanoseconds`; only new ones if None.

        Raises:
            EngineError: The engine is out of reach.
        """
        options = {"filters": json.dumps({"type": ["container"]})}
        if since is not None:
            options["since"] = since
        found = self._get("/events", options, timeout=None, stream=True)
        self._check(found, "events")
        return Events(found)

    def logs(
        self,
        container: str,
        *,
        tty: bool,
        follow: bool,
        since: str | None = None,
        timestamps: bool = True,
    ) -> Chunks:
        """Return the log of a container as it is told by the engine.

        Args:
            container: Its id.
            tty: Whether it has a terminal (then there are no frames, and one stream only).
            follow: Wait for more. The end of the stream says nothing of the container.
            since: From when on, inclusive, as `seconds.nanoseconds`.
            timestamps: Put the time before each piece.

        Raises:
            Gone: There is no such container any more.
            LogsUnreadable: Its log cannot be read back.
            EngineError: The engine is out of reach.
        """
        options = {"stdout": "1", "stderr": "1", "follow": str(int(follow))}
        options |= {"timestamps": str(int(timestamps)), "tail": "all"}
        if since is not None:
            options["since"] = since
        path = f"/containers/{_quoted(container)}/logs"
        found = self._get(path, options, timeout=None if follow else _TIMEOUT_S, stream=True)
        if found.status_code >= _ERROR:
            why = _why(found)
            found.close()
            if found.status_code in _GONE:
                raise Gone(f"container {container[:12]} is gone", why)
            if found.status_code == _NO_LOGS or "does not support reading" in why:
                raise LogsUnreadable(f"the log of container {container[:12]} cannot be read", why)
            raise EngineError(f"the log of container {container[:12]} cannot be read", why)
        return Chunks(found, tty=tty)

    # --- requests ------------------------------------------------------------------------------

    def _get(
        self,
        path: str,
        options: dict[str, str] | None = None,
        *,
        timeout: float | None = _TIMEOUT_S,
        stream: bool = False,
    ) -> Any:  # noqa: ANN401 - a response of requests, which has no types here
        return self._sent("GET", path, options or {}, timeout=timeout, stream=stream)

    def _sent(
        self,
        method: str,
        path: str,
        options: dict[str, str],
        *,
        timeout: float | None = _TIMEOUT_S,
        stream: bool = False,
    ) -> Any:  # noqa: ANN401 - as above
        version = f"/v{self.api_version}" if self.api_version else ""
        base = self._client.base_url
        if stream and base.startswith("http+docker://localhost"):
            base = base.replace("http+docker://", "http+docker+stream://", 1)
        url = f"{base}{version}{path}"
        try:
            # Connecting always has a limit; a stream may be silent for as long as it likes.
            return self._client.request(
                method, url, params=options, timeout=(_TIMEOUT_S, timeout), stream=stream
            )
        except (DockerException, RequestException, HTTPError, OSError, ValueError) as error:
            raise told(error, self.host) from None

    @staticmethod
    def _check(found: Any, what: str) -> None:  # noqa: ANN401 - as above
        if found.status_code >= _ERROR:
            raise EngineError(f"the engine refuses {what}", _why(found))


class _Connection(UnixHTTPConnection):
    """A connection to a socket that leaves nothing open where it fails."""

    def connect(self) -> None:
        self.sock = _socket(self.unix_socket, self.timeout)


class _Plain(_Connection):
    """A connection for one stream: in HTTP/1.0 it comes as it is, in no chunks."""

    _http_vsn, _http_vsn_str = 10, "HTTP/1.0"


class _Pool(UnixHTTPConnectionPool):
    streams = False

    def _new_conn(self) -> _Connection:  # type: ignore[override]
        return (_Plain if self.streams else _Connection)(
            self.base_url, self.socket_path, _TIMEOUT_S
        )


class _Adapter(UnixHTTPAdapter):
    """The SDK's own adapter, with our connections.

    Attributes:
        streams: Whether each connection is for one stream.
    """

    streams = False

    def get_connection(self, url: str | bytes, proxies: Any = None) -> _Pool:  # noqa: ANN401 - SDK's
        del proxies  # a socket has none
        with self.pools.lock:
            pool: _Pool | None = self.pools.get(url)
            if pool is None:
                pool = _Pool(str(url), self.socket_path, self.timeout, maxsize=self.max_pool_size)
                pool.streams = self.streams
                self.pools[url] = pool
        return pool


def _socket(path: str, timeout: float | None) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(timeout)
        found.connect(path)
    except BaseException:
        found.close()
        raise
    return found


def _try(host: str) -> None:
    """Fail early, and with the plain reason, where there is no socket that can be opened."""
    if host.startswith("unix://"):
        _socket(host.removeprefix("unix://"), _TIMEOUT_S).close()


class _Stream:
    """A response that is read piece by piece, and that another thread may close."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - a response of requests
        self._response = response
        found = response.raw._fp  # noqa: SLF001 - http.client's, the only one with read1
        # Each line of a log is a chunk of its own: http.client would read them one by one.
        self._chunks = _Chunked() if found.chunked else None
        self._file = found.fp if found.chunked else found
        # The connection itself has let go of its socket where the answer is all that it is for.
        own = getattr(getattr(found.fp, "raw", None), "_sock", None)
        self._socket = own or getattr(getattr(response.raw, "_connection", None), "sock", None)
        self.closed = False
        if self._socket is not None:
            self._socket.settimeout(None)  # a container may be silent for days

    def _read(self) -> bytes:
        """Return the next bytes; none at the end, however it came."""
        try:
            while not self.closed and not (self._chunks is not None and self._chunks.ended):
                data: bytes = self._file.read1(_PIECE)
                if self._chunks is None or not data:
                    return data
                data = self._chunks.feed(data)
                if data or self._chunks.ended:
                    return data
        except (HTTPError, OSError, ValueError, AttributeError):
            pass  # it was closed, or the engine went away
        except Exception as error:  # http.client's own have no public base but this
            if type(error).__module__ != "http.client":
                raise
        return b""

    def close(self) -> None:
        """End the stream; whoever waits for it goes on at once."""
        self.closed = True
        if isinstance(self._socket, socket.socket):
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(HTTPError, OSError, ValueError):
            self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Chunked:
    """Takes the chunks of a body apart (RFC 9112, 7.1: size, line end, bytes, line end)."""

    def __init__(self) -> None:
        self._rest = b""
        self._left = 0
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """Take what came, cut anywhere; return what it holds of the body.

        Raises:
            ValueError: It is no chunked body.
        """
        data = self._rest + data
        out, place, size, left = [], 0, len(data), self._left
        while place < size:
            if left > _CHUNK_END:  # in the middle of a chunk and the line end behind it
                piece = data[place : place + left - _CHUNK_END]
                out.append(piece)
                place += len(piece)
                left -= len(piece)
                if left > _CHUNK_END:
                    break
            if left:
                skip = min(left, size - place)
                place += skip
                left -= skip
                continue
            end = data.find(b"\r\n", place)
            if end < 0:
                break
            count = int(data[place:end].partition(b";")[0], 16)
            place = end + 2
            if count == 0:
                self.ended = True
                break
            left = count + _CHUNK_END
        self._rest, self._left = data[place:], left
        return b"".join(out)


class Events(_Stream):
    """Events of containers, as the API tells them; ends silently when the engine goes away."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rest = b""
        with self:
            while data := self._read():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    with suppress(ValueError, RecursionError):
                        event = json.loads(line)
                        if isinstance(event, dict):
                            yield event


class Chunks(_Stream):
    """Pieces of a log: (stream, bytes). A piece is a whole entry of the log, except of a terminal.

    Args:
        response: The engine's answer.
        tty: Whether the container has a terminal.
    """

    def __init__(self, response: Any, *, tty: bool) -> None:  # noqa: ANN401 - as above
        super().__init__(response)
        self._tty = tty

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[tuple[str, bytes]]]:
        """Yield what came at once: for whoever follows a flood."""
        rest = b""
        with self:
            while data := self._read():
                if self._tty:
                    yield [("stdout", data)]
                    continue
                found, rest = _frames(rest + data)
                if found:
                    yield found


def _frames(data: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    """Cut bytes into frames (stream, three zeros, size in four bytes, text); return the rest."""
    found: list[tuple[str, bytes]] = []
    add, size_of, name_of = found.append, _SIZE.unpack_from, _STREAMS.get
    place, size = 0, len(data)
    while place + _HEAD <= size:
        end = place + _HEAD + size_of(data, place + 4)[0]
        if end > size:
            break
        add((name_of(data[place], "stdout"), data[place + _HEAD : end]))
        place = end
    return found, data[place:]


# --- where it is, and why it is not ----------------------------------------------------------


def _options(host: str | None, context: str | None) -> dict[str, Any]:
    """Return what the SDK needs to connect."""
    if host is not None:
        return {**kwargs_from_env(), "base_url": host, **_ssh(host)}
    if context is not None:
        return _of_context(context)
    found: dict[str, Any] = {**kwargs_from_env()}
    if "base_url" in found:
        return found | _ssh(found["base_url"])
    current = ContextAPI.get_current_context()
    if current.name != "default":
        return _of_context(current.name)
    sockets = [Path("/var/run/docker.sock"), *_user_sockets()]
    there = next((path for path in sockets if path.is_socket()), sockets[0])
    return found | {"base_url": f"unix://{there}"}


def _of_context(name: str) -> dict[str, Any]:
    found = ContextAPI.get_context(name)
    if found is None:
        raise EngineError(f"there is no Docker context {name!r}", "`docker context ls` has them")
    address = found.Host or "unix:///var/run/docker.sock"
    options: dict[str, Any] = {"base_url": address, **_ssh(address)}
    if found.TLSConfig is not None:
        options["tls"] = found.TLSConfig
    return options


def _ssh(address: str) -> dict[str, Any]:
    return {"use_ssh_client": True} if address.startswith("ssh://") else {}


def _user_sockets() -> list[Path]:
    """Return where rootless engines, Docker Desktop and Podman have their sockets."""
    home = Path.home()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    return [
        runtime / "docker.sock",
        home / ".docker/run/docker.sock",
        home / ".docker/desktop/docker.sock",
        Path("/run/podman/podman.sock"),
        runtime / "podman/podman.sock",
    ]


def told(error: BaseException, host: str) -> EngineError:
    """Return why an engine is out of reach as one line that says what to do.

    Args:
        error: What the SDK raised; the reason is at the bottom of its chain.
        host: Where the engine was looked for.
    """
    if isinstance(error, EngineError):
        return error
    chain = list(_chain(error))
    root = next((e for e in reversed(chain) if isinstance(e, OSError) and e.errno), chain[-1])
    path = host.removeprefix("unix://").removeprefix("http+docker://")
    text = _short(next((e for e in chain if str(e)), error))
    message, hint = f"the container engine at {host} cannot be reached", text
    if isinstance(root, FileNotFoundError):
        message = f"there is no container engine at {path}"
        hint = "is it installed and running? DOCKER_HOST or a Docker context says where it is"
    elif isinstance(root, ConnectionRefusedError):
        message = f"the container engine at {path} does not answer"
        hint = "it has crashed, or is not running"
    elif isinstance(root, PermissionError):
        message = f"{_user()} may not open {path}"
        hint = "use sudo, or join the docker group (whoever is in it is as good as root)"
    elif any(isinstance(e, TLSParameterError) for e in chain) or "CERTIFICATE" in text.upper():
        folder = os.environ.get("DOCKER_CERT_PATH") or str(Path.home() / ".docker")
        message = f"no TLS connection to {host}"
        hint = f"{text}; certificates are looked for in {folder}"
    elif "paramiko" in text:
        message = f"{host} needs an ssh client"
        hint = "pip install 'docker[ssh]', or forward the socket: ssh -L"
    elif isinstance(error, APIError):
        message = f"the container engine at {path} refuses"
    return EngineError(message, hint)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        one = queue.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        # requests and urllib3 carry the reason among the arguments, too.
        queue += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _why(found: Any) -> str:  # noqa: ANN401 - a response of requests
    try:
        return " ".join(str(found.json()["message"]).split())[:300]
    except (ValueError, KeyError, TypeError, RequestException, HTTPError):
        return f"status {found.status_code}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
