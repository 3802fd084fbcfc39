"""Where a container engine is, how it is reached, and why it is not."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

from forensics.errors import ForensicsError

TIMEOUT_S = 60
#: Of the API; older ones the SDK does not speak.
OLDEST = "1.24"


class EngineError(ForensicsError):
    """The engine cannot be reached, or refuses."""


class LogsUnreadable(EngineError):  # noqa: N818 - a property of the container's log driver
    """The container's log driver keeps nothing that could be read back."""


class Gone(EngineError):  # noqa: N818 - a state, not a mistake
    """The container is not there any more, or is being removed."""


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
        return (_Plain if self.streams else _Connection)(self.base_url, self.socket_path, TIMEOUT_S)


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


def connected(host: str | None, context: str | None) -> tuple[docker.APIClient, str]:
    """Return a client of an engine, and the engine's address.

    Args:
        host: Its address, as in `DOCKER_HOST`.
        context: Name of a Docker context. With neither: `DOCKER_HOST`, else the current context,
            else a socket at one of the usual places.

    Raises:
        EngineError: It is out of reach; the message says why and what to do.
    """
    wanted = "the current context"
    try:
        options = _options(host, context)
        wanted = str(options.get("base_url") or "unix:///var/run/docker.sock")
        if wanted.startswith("unix://"):
            # Fail early, and with the plain reason, where there is no socket that can be opened.
            _socket(wanted.removeprefix("unix://"), TIMEOUT_S).close()
        # With a version given it asks nothing yet: what is said here is asked by us.
        client = docker.APIClient(timeout=TIMEOUT_S, version=OLDEST, **options)
    except (DockerException, RequestException, OSError, ValueError, TypeError) as error:
        raise told(error, wanted) from None
    if "tls" in options:
        # A certificate store named in the environment would take the place of the engine's.
        client.trust_env = False
    if wanted.startswith("unix://"):
        client.mount("http+docker://", _Adapter(f"http+{wanted}", TIMEOUT_S))
        streams = _Adapter(f"http+{wanted}", TIMEOUT_S)
        streams.streams = True
        client.mount("http+docker+stream://", streams)
    return client, wanted


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
