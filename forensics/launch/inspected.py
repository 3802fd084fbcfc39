"""`docker inspect` JSON to the `docker run` that makes the same container.

Format: Docker Engine API, ContainerInspect (Name, Path, Args, Config, HostConfig, Mounts,
NetworkSettings) and ImageInspect (Config). What equals the image's own configuration is left out
where that is known; where it is not, the container's is written in full.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from forensics.errors import SourceError
from forensics.launch import quoting

_DEFAULT_SHM = 64 * 1024 * 1024
Pairs = Iterator[tuple[str, str | None]]


def looks_like(text: str) -> bool:
    """Say whether a text is JSON (a unit begins with a bracket, too)."""
    return re.match(r"\s*(?:\{|\[\s*[{\]])", text) is not None


def container_of(text: str, name: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the container of inspect output, and its image's configuration where it is there.

    Raises:
        SourceError: It is no inspect output of a container.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise SourceError(f"{name} is not JSON", "give what `docker inspect NAME` prints") from None
    parts = data if isinstance(data, list) else [data]
    container = next((p for p in parts if isinstance(p, dict) and "HostConfig" in p), None)
    if container is None:
        raise SourceError(
            f"{name} is not the inspect output of a container",
            "give what `docker inspect NAME` prints",
        )
    images = [p for p in parts if isinstance(p, dict) and "RootFS" in p]
    image = next((p for p in images if p.get("Id") == container.get("Image")), None)
    image = image if image is not None else container.get("ImageConfig")
    config = image.get("Config") if isinstance(image, dict) and "Config" in image else image
    return container, config if isinstance(config, dict) else None


def to_script(container: dict[str, Any], image: dict[str, Any] | None = None) -> str:
    """Return a shell command that makes the same container.

    Args:
        container: The container's inspect data.
        image: Its image's `Config`, None where it is not known.
    """
    config = _dict(container, "Config")
    lines = ["docker run -d"]
    pairs = [
        *_identity(container, image),
        *_resources(container),
        *_network(container, image),
        *_storage(container, image),
    ]
    pairs += [*_process(container, image), *_health(config, image)]
    for name, value in pairs:
        lines.append(f"  {name}" if value is None else f"  {name} {quoting.shell(value)}")
    entrypoint, command = _command(config, image)
    if entrypoint is not None:
        lines.append(f"  --entrypoint {quoting.shell(entrypoint)}")
    reference = str(config.get("Image") or container.get("Image") or "IMAGE")
    lines.append(f"  {quoting.shell(reference)}")
    lines += [f"  {' '.join(quoting.shell(w) for w in group)}" for group in grouped(command)]
    return " \\\n".join(lines) + "\n"


def grouped(words: list[str]) -> Iterator[list[str]]:
    """Yield options with their values: one group a line."""
    group: list[str] = []
    for word in words:
        if group and (word.startswith("--") or (len(group) > 1 and group[0].startswith("--"))):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _dict(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _identity(container: dict[str, Any], image: dict[str, Any] | None) -> Pairs:
    config, host = _dict(container, "Config"), _dict(container, "HostConfig")
    name = str(container.get("Name") or "").lstrip("/")
    if name:
        yield "--name", name
    if host.get("AutoRemove") is True:
        yield "--rm", None
    short = str(container.get("Id") or "")[:12]
    if config.get("Hostname") and config["Hostname"] != short and not _shares_host(host):
        yield "--hostname", str(config["Hostname"])
    if config.get("Domainname"):
        yield "--domainname", str(config["Domainname"])
    for key, value in _dict(config, "Labels").items():
        if _dict(image or {}, "Labels").get(key) != value:
            yield "--label", f"{key}={value}"
    for key, value in _dict(host, "Annotations").items():
        yield "--annotation", f"{key}={value}"
    policy = _dict(host, "RestartPolicy")
    if policy.get("Name") not in {None, "", "no"}:
        tries = policy.get("MaximumRetryCount") or 0
        yield "--restart", f"{policy['Name']}:{tries}" if tries else str(policy["Name"])
    platform = str(container.get("Platform") or "")
    if "/" in platform:
        yield "--platform", platform
    log = _dict(host, "LogConfig")
    options = _dict(log, "Config")
    if log.get("Type") and (log["Type"] != "json-file" or options):
        yield "--log-driver", str(log["Type"])
        for key, value in options.items():
            yield "--log-opt", f"{key}={value}"


def _shares_host(host: dict[str, Any]) -> bool:
    return host.get("NetworkMode") == "host" or host.get("UTSMode") == "host"


_BYTES = {
    "Memory": "--memory",
    "MemorySwap": "--memory-swap",
    "MemoryReservation": "--memory-reservation",
    "KernelMemory": "--kernel-memory",
}
_NUMBERS = {
    "CpuShares": "--cpu-shares",
    "CpuPeriod": "--cpu-period",
    "CpuQuota": "--cpu-quota",
    "BlkioWeight": "--blkio-weight",
    "PidsLimit": "--pids-limit",
    "OomScoreAdj": "--oom-score-adj",
}


def _resources(container: dict[str, Any]) -> Pairs:
    host = _dict(container, "HostConfig")
    for request in _list(host, "DeviceRequests"):
        if isinstance(request, dict):
            yield from _devices(request)
    for device in _list(host, "Devices"):
        if isinstance(device, dict):
            yield "--device", _device(device)
    for rule in _list(host, "DeviceCgroupRules"):
        yield "--device-cgroup-rule", str(rule)
    if host.get("Runtime") not in {None, "", "runc", "io.containerd.runc.v2"}:
        yield "--runtime", str(host["Runtime"])
    if host.get("ShmSize") not in {None, 0, _DEFAULT_SHM} and host.get("IpcMode") != "host":
        yield "--shm-size", f"{host['ShmSize']}b"
    memory = host.get("Memory") or 0
    for key, option in _BYTES.items():
        value = host.get(key)
        default = key == "MemorySwap" and memory and value == 2 * memory
        if value and not default:
            yield option, f"{value}b" if isinstance(value, int) and value > 0 else str(value)
    if host.get("NanoCpus"):
        yield "--cpus", f"{host['NanoCpus'] / 1e9:g}"
    for key, option in _NUMBERS.items():
        if host.get(key):
            yield option, str(host[key])
    swappiness = host.get("MemorySwappiness")
    if isinstance(swappiness, int) and swappiness >= 0:
        yield "--memory-swappiness", str(swappiness)
    for key, option in (("CpusetCpus", "--cpuset-cpus"), ("CpusetMems", "--cpuset-mems")):
        if host.get(key):
            yield option, str(host[key])
    if host.get("OomKillDisable") is True:
        yield "--oom-kill-disable", None
    for limit in _list(host, "Ulimits"):
        if isinstance(limit, dict):
            yield "--ulimit", f"{limit.get('Name')}={limit.get('Soft')}:{limit.get('Hard')}"


def _devices(request: dict[str, Any]) -> Pairs:
    """Write a device request: GPUs by count or id, or CDI names."""
    ids = [str(one) for one in request.get("DeviceIDs") or []]
    if request.get("Driver") == "cdi":
        yield from (("--device", one) for one in ids)
        return
    wanted = [[str(c) for c in group] for group in request.get("Capabilities") or []]
    parts = []
    if request.get("Driver"):
        parts.append(f"driver={request['Driver']}")
    if ids:
        parts.append(_csv(f"device={','.join(ids)}"))
    elif request.get("Count") not in {None, 0, -1}:
        parts.append(f"count={request['Count']}")
    others = [c for c in (wanted[0] if wanted else []) if c != "gpu"]
    if others:
        parts.append(_csv(f"capabilities={','.join(others)}"))
    options = request.get("Options") or {}
    parts += [_csv(f"options={k}={v}") for k, v in options.items()]
    yield "--gpus", ",".join(parts) if parts else "all"


def _csv(field: str) -> str:
    return '"' + field.replace('"', '""') + '"' if "," in field or '"' in field else field


def _device(device: dict[str, Any]) -> str:
    outside, inside = device.get("PathOnHost"), device.get("PathInContainer")
    rights = device.get("CgroupPermissions") or "rwm"
    return f"{outside}:{inside}" + (f":{rights}" if rights != "rwm" else "")


def _network(container: dict[str, Any], image: dict[str, Any] | None) -> Pairs:
    host, config = _dict(container, "HostConfig"), _dict(container, "Config")
    mode = str(host.get("NetworkMode") or "default")
    if mode not in {"default", "bridge"}:
        yield "--network", mode
    short = str(container.get("Id") or "")[:12]
    ends = _dict(_dict(container, "NetworkSettings"), "Networks")
    for network, end in ends.items():
        if not isinstance(end, dict):
            continue
        own = end.get("IPAMConfig") or {}
        if network == mode and isinstance(own, dict):
            if own.get("IPv4Address"):
                yield "--ip", str(own["IPv4Address"])
            if own.get("IPv6Address"):
                yield "--ip6", str(own["IPv6Address"])
        aliases = [a for a in end.get("Aliases") or [] if a != short]
        if network == mode and mode not in {"default", "bridge", "host", "none"}:
            yield from (("--network-alias", str(a)) for a in aliases)
    bindings = _dict(host, "PortBindings")
    for port, places in bindings.items():
        for place in places or [{}]:
            yield "--publish", _port(str(port), place if isinstance(place, dict) else {})
    if host.get("PublishAllPorts") is True:
        yield "--publish-all", None
    for port in _dict(config, "ExposedPorts"):
        if port not in bindings and port not in _dict(image or {}, "ExposedPorts"):
            yield "--expose", str(port)
    for key, option in (
        ("Dns", "--dns"),
        ("DnsOptions", "--dns-option"),
        ("DnsSearch", "--dns-search"),
        ("ExtraHosts", "--add-host"),
        ("Links", "--link"),
    ):
        for value in _list(host, key):
            text = str(value)
            if key == "Links":
                source, _, alias = text.partition(":")
                text = f"{source.lstrip('/')}:{alias.rpartition('/')[2]}"
            yield option, text


def _port(port: str, place: dict[str, Any]) -> str:
    inside = port.removesuffix("/tcp")
    outside, address = str(place.get("HostPort") or ""), str(place.get("HostIp") or "")
    if ":" in address:
        address = f"[{address}]"
    if address:
        return f"{address}:{outside}:{inside}"
    return f"{outside}:{inside}" if outside else inside


def _storage(container: dict[str, Any], image: dict[str, Any] | None) -> Pairs:
    host = _dict(container, "HostConfig")
    for bind in _list(host, "Binds"):
        yield "--volume", str(bind)
    for mount in _list(host, "Mounts"):
        if isinstance(mount, dict):
            yield "--mount", _mount(mount)
    base = _dict(image or {}, "Volumes")
    for path in _dict(_dict(container, "Config"), "Volumes"):
        if path not in base:
            yield "--volume", str(path)
    for path, options in _dict(host, "Tmpfs").items():
        yield "--tmpfs", f"{path}:{options}" if options else str(path)
    named = {str(b).split(":")[1] for b in _list(host, "Binds") if ":" in str(b)}
    named |= {str(m.get("Target")) for m in _list(host, "Mounts") if isinstance(m, dict)}
    for mount in _list(container, "Mounts"):
        if not isinstance(mount, dict) or mount.get("Type") != "volume":
            continue
        anonymous = len(str(mount.get("Name") or "")) == 64  # noqa: PLR2004 - a generated name
        if str(mount.get("Destination")) not in named and not anonymous:
            yield "--volume", f"{mount.get('Name')}:{mount.get('Destination')}"
    for source in _list(host, "VolumesFrom"):
        yield "--volumes-from", str(source)
    if host.get("VolumeDriver"):
        yield "--volume-driver", str(host["VolumeDriver"])
    for key, value in _dict(host, "StorageOpt").items():
        yield "--storage-opt", f"{key}={value}"


def _mount(mount: dict[str, Any]) -> str:
    parts = [f"type={mount.get('Type')}"]
    if mount.get("Source"):
        parts.append(_csv(f"source={mount['Source']}"))
    parts.append(_csv(f"target={mount.get('Target')}"))
    if mount.get("ReadOnly") is True:
        parts.append("readonly")
    if _dict(mount, "BindOptions").get("Propagation"):
        parts.append(f"bind-propagation={mount['BindOptions']['Propagation']}")
    size = _dict(mount, "TmpfsOptions").get("SizeBytes")
    if size:
        parts.append(f"tmpfs-size={size}")
    mode = _dict(mount, "TmpfsOptions").get("Mode")
    if mode:
        parts.append(f"tmpfs-mode={mode:o}")
    if _dict(mount, "VolumeOptions").get("NoCopy") is True:
        parts.append("volume-nocopy")
    return ",".join(parts)


_MODES = {
    "IpcMode": ("--ipc", {"", "private"}),
    "PidMode": ("--pid", {""}),
    "UTSMode": ("--uts", {""}),
    "UsernsMode": ("--userns", {""}),
    "CgroupnsMode": ("--cgroupns", {"", "private"}),
    "CgroupParent": ("--cgroup-parent", {""}),
    "Isolation": ("--isolation", {"", "default"}),
}


def _process(container: dict[str, Any], image: dict[str, Any] | None) -> Pairs:
    host, config, base = _dict(container, "HostConfig"), _dict(container, "Config"), image or {}
    for key, (option, defaults) in _MODES.items():
        value = str(host.get(key) or "")
        if value not in defaults:
            yield option, value
    for key, option in (
        ("CapAdd", "--cap-add"),
        ("CapDrop", "--cap-drop"),
        ("GroupAdd", "--group-add"),
    ):
        for value in _list(host, key):
            yield option, str(value).removeprefix("CAP_")
    for value in _list(host, "SecurityOpt"):
        implied = value == "label=disable" and (
            host.get("IpcMode") == "host" or host.get("Privileged")
        )
        if not implied:
            yield "--security-opt", str(value)
    if host.get("MaskedPaths") == [] and not host.get("Privileged"):
        yield "--security-opt", "systempaths=unconfined"
    for key, value in _dict(host, "Sysctls").items():
        yield "--sysctl", f"{key}={value}"
    for key, option in (
        ("Privileged", "--privileged"),
        ("ReadonlyRootfs", "--read-only"),
        ("Init", "--init"),
    ):
        if host.get(key) is True:
            yield option, None
    for key, option in (("Tty", "--tty"), ("OpenStdin", "--interactive")):
        if config.get(key) is True:
            yield option, None
    for key, option in (
        ("User", "--user"),
        ("WorkingDir", "--workdir"),
        ("StopSignal", "--stop-signal"),
        ("StopTimeout", "--stop-timeout"),
    ):
        if config.get(key) and config[key] != base.get(key):
            yield option, str(config[key])
    given = set(_list(base, "Env"))
    for variable in _list(config, "Env"):
        if variable not in given and "=" in str(variable):
            yield "--env", str(variable)


def _health(config: dict[str, Any], image: dict[str, Any] | None) -> Pairs:
    check = _dict(config, "Healthcheck")
    if not check or check == _dict(image or {}, "Healthcheck"):
        return
    test = [str(t) for t in _list(check, "Test")]
    if test == ["NONE"]:
        yield "--no-healthcheck", None
        return
    if test[:1] == ["CMD-SHELL"]:
        yield "--health-cmd", test[1]
    elif test[:1] == ["CMD"]:
        yield "--health-cmd", " ".join(quoting.shell(word) for word in test[1:])
    for key, option in (
        ("Interval", "--health-interval"),
        ("Timeout", "--health-timeout"),
        ("StartPeriod", "--health-start-period"),
        ("StartInterval", "--health-start-interval"),
    ):
        if check.get(key):
            yield option, f"{int(check[key])}ns"
    if check.get("Retries"):
        yield "--health-retries", str(check["Retries"])


def _command(config: dict[str, Any], image: dict[str, Any] | None) -> tuple[str | None, list[str]]:
    """Return what `--entrypoint` has to be (None: the image's), and the words after the image.

    `--entrypoint` takes one word: the others go before the command, which the engine joins anyway.
    """
    entrypoint = [str(w) for w in _list(config, "Entrypoint")]
    command = [str(w) for w in _list(config, "Cmd")]
    if image is None:
        # The words after the image were its arguments all the same: docker run sets only Cmd.
        return None, command
    default = [str(w) for w in _list(image, "Entrypoint")]
    if entrypoint == default:
        usual = [str(w) for w in _list(image, "Cmd")]
        return None, [] if command == usual else command
    if not entrypoint:
        return "", command
    return entrypoint[0], [*entrypoint[1:], *command]
