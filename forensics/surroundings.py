"""What a launch can be checked against on this machine: files beside it, the model, the engine.

The only part of this package that looks outside of the text. Everything is optional: what cannot
be read is not known, and nothing is changed or started.
"""

from __future__ import annotations

import json
import platform
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forensics.errors import SourceError, UsageError
from forensics.inspection import ARCHES
from forensics.launch.common import Beside
from forensics.launch.model import Launch
from forensics.launch.reading import MAX_CHARS
from forensics.model import Hardware

_SMALL = 1_000_000
_MOST_NAMES = 200
_GPU_FOLDER = Path("/proc/driver/nvidia/gpus")


def read_text(path: Path) -> str:
    """Return the text of a launch file.

    Raises:
        SourceError: It cannot be read, is too large, or is no text.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read", error.strerror or str(error)) from None
    if len(raw) > MAX_CHARS:
        raise SourceError(f"{path} is too large for a launch file")
    try:
        return raw.decode("utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8")
    except UnicodeDecodeError:
        raise SourceError(f"{path} is no UTF-8 text", "give a launch file") from None


def beside(path: Path | None) -> Beside:
    """Return what reads files that a launch names, relative to its folder and never above it."""

    def read(name: str) -> str | None:
        if path is None or "\0" in name:
            return None
        folder = path.parent.resolve()
        try:
            target = (folder / name).resolve()
            if name.endswith("/") and target.is_relative_to(folder) and target.is_dir():
                names = sorted(one.name for one in target.iterdir() if one.is_file())
                return "\n".join(names[:_MOST_NAMES])
            inside = target.is_relative_to(folder) and target.is_file()
            if not inside or target.stat().st_size > _SMALL:
                return None
            return target.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    return read


def inspect_text(name: str) -> str:
    """Return the inspect data of a container and of its image, as JSON.

    Raises:
        UsageError: The engine is out of reach or has no such container.
    """
    import docker  # noqa: PLC0415 - only where an engine is asked
    from docker.errors import APIError, DockerException, NotFound  # noqa: PLC0415

    try:
        client = docker.from_env(timeout=10)
        try:
            container = client.api.inspect_container(name)
            try:
                image: Any = client.images.get(container["Image"]).attrs
            except (APIError, KeyError):
                image = None
        finally:
            client.close()
    except NotFound:
        raise UsageError(f"no container {name}", "docker ps -a lists them") from None
    except DockerException as error:
        raise UsageError("the container engine is out of reach", str(error)[:200]) from None
    return json.dumps([container, image] if image else [container])


# --- the model ---------------------------------------------------------------------------------


def model_config(launch: Launch, given: Path | None = None) -> dict[str, Any] | None:
    """Return the model's `config.json`, None where it is not on this machine.

    Args:
        launch: The launch, whose model is a path (of the host, or below a mount) or a name in the
            Hugging Face cache.
        given: The file itself, or the model's folder.

    Raises:
        SourceError: The file that was given is no such configuration.
    """
    if given is not None:
        path = given / "config.json" if given.is_dir() else given
        data = _json(path)
        if data is None:
            raise SourceError(f"{path} is no model configuration", "give the model's config.json")
        return data
    return next((d for d in map(_json, _places(launch)) if d is not None), None)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > _SMALL:
            return None
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _places(launch: Launch) -> Iterator[Path]:
    model = launch.model
    if not model or "\0" in model:
        return
    if model.startswith("/"):
        for option in launch.options:
            parts = (option.value or "").split(":")
            if option.name == "--volume" and len(parts) > 1 and _below(model, parts[1]):
                rest = model[len(parts[1].rstrip("/")) :].lstrip("/")
                yield Path(parts[0]).expanduser() / rest / "config.json"
        if launch.runtime is None:
            yield Path(model) / "config.json"
        return
    if re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        hub = Path("~/.cache/huggingface/hub").expanduser()
        folder = hub / f"models--{model.replace('/', '--')}" / "snapshots"
        try:
            yield from sorted(folder.glob("*/config.json"))
        except OSError:
            return


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# --- the machine -------------------------------------------------------------------------------


def hardware() -> Hardware:
    """Return what this machine says of itself without a tool: architecture and first GPU."""
    gpu = None
    try:
        for folder in sorted(_GPU_FOLDER.iterdir()):
            found = re.search(
                r"^Model:\s*(.+)$", (folder / "information").read_text(), re.MULTILINE
            )
            if found:
                gpu = found[1].strip()
                break
    except OSError:
        pass
    machine = platform.machine()
    return Hardware(gpu=gpu, arch=ARCHES.get(machine.lower(), machine))


def host_facts(launch: Launch) -> dict[str, str] | None:
    """Ask the container engine of this machine; None where there is none.

    Returns:
        `port_in_use` and `name_in_use` ("" if not), `gpu_visible` (`yes` or `no`), `image_arch`
        (what the image that the engine has is built for, "" if that is what the engine runs on).
    """
    import docker  # noqa: PLC0415 - only where an engine is asked
    from docker.errors import DockerException  # noqa: PLC0415

    if launch.runtime not in {"docker", "compose"}:
        return None
    try:
        client = docker.from_env(timeout=5)
        try:
            info = client.api.info()
            containers = client.api.containers(all=True)
            other = _other_arch(client, launch.image, str(info.get("Architecture") or ""))
        finally:
            client.close()
    except (DockerException, OSError, ValueError):
        return None
    names = {name.lstrip("/") for c in containers for name in c.get("Names") or []}
    wanted = next((o.value for o in launch.options if o.name == "--name" and o.value), "")
    own = _own_ports(launch, containers)
    busy = [port for port in _ports(launch) if port not in own and _taken(port)]
    return {
        "port_in_use": busy[0] if busy else "",
        "name_in_use": wanted if wanted and wanted in names and launch.runtime == "docker" else "",
        "gpu_visible": "yes" if _gpu(info) else "no",
        "image_arch": other,
    }


def _other_arch(client: Any, image: str | None, machine: str) -> str:  # noqa: ANN401 - docker's
    """Return the architecture of an image that the engine has, "" unless it is another one."""
    from docker.errors import DockerException  # noqa: PLC0415

    if not image or "$" in image or not machine:
        return ""
    try:
        built = str(client.api.inspect_image(image).get("Architecture") or "")
    except DockerException:
        return ""  # it is not there yet: the engine will pull what fits, if there is such a one
    return built if built and ARCHES.get(built, built) != ARCHES.get(machine, machine) else ""


def _own_ports(launch: Launch, containers: list[dict[str, Any]]) -> set[str]:
    """Return the ports that the same compose service holds now: it will be replaced."""
    if launch.runtime != "compose":
        return set()
    return {
        str(port.get("PublicPort"))
        for c in containers
        if (c.get("Labels") or {}).get("com.docker.compose.service") == launch.service
        for port in c.get("Ports") or []
    }


def _ports(launch: Launch) -> Iterator[str]:
    for option in launch.options:
        parts = (option.value or "").split("/")[0].split(":")
        if option.name == "--publish" and len(parts) > 1 and parts[-2].isdecimal():
            yield parts[-2]


def _taken(port: str) -> bool:
    number = int(port)
    if not 0 < number < 65536:  # noqa: PLR2004 - the range of ports
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", number)) == 0


def _gpu(info: dict[str, Any]) -> bool:
    runtimes = info.get("Runtimes") or {}
    discovered = info.get("DiscoveredDevices") or []
    devices = any(Path("/dev").glob("nvidia[0-9]*"))
    return "nvidia" in runtimes or bool(discovered) or devices
