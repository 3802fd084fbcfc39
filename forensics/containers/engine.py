"""Questions to an engine, and its streams."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from forensics.containers.reach import (
    OLDEST,
    TIMEOUT_S,
    EngineError,
    Gone,
    LogsUnreadable,
    connected,
    told,
)
from forensics.containers.streams import Chunks, Events

_GONE = frozenset({404, 409})
_NOT_FOUND, _NO_LOGS = 404, 501
_ERROR = 400


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
        self.api_version = str(about.get("ApiVersion") or OLDEST)
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
        client, wanted = connected(host, context)
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
        found = self._get(path, options, timeout=None if follow else TIMEOUT_S, stream=True)
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
        timeout: float | None = TIMEOUT_S,
        stream: bool = False,
    ) -> Any:  # noqa: ANN401 - a response of requests, which has no types here
        return self._sent("GET", path, options or {}, timeout=timeout, stream=stream)

    def _sent(
        self,
        method: str,
        path: str,
        options: dict[str, str],
        *,
        timeout: float | None = TIMEOUT_S,
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
                method, url, params=options, timeout=(TIMEOUT_S, timeout), stream=stream
            )
        except (DockerException, RequestException, HTTPError, OSError, ValueError) as error:
            raise told(error, self.host) from None

    @staticmethod
    def _check(found: Any, what: str) -> None:  # noqa: ANN401 - as above
        if found.status_code >= _ERROR:
            raise EngineError(f"the engine refuses {what}", _why(found))


def _why(found: Any) -> str:  # noqa: ANN401 - a response of requests
    try:
        return " ".join(str(found.json()["message"]).split())[:300]
    except (ValueError, KeyError, TypeError, RequestException, HTTPError):
        return f"status {found.status_code}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
