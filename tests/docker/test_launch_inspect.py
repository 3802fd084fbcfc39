"""`docker inspect` to `docker run` on a real engine: the copy's inspect data are the original's."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forensics.launch.reading import read_one

pytestmark = pytest.mark.docker

IMAGE = "launch-test:1"
PLAIN = "launch-plain:1"

Done = subprocess.CompletedProcess[bytes]
#: What is different for every container although nothing of it was asked for.
VOLATILE = {
    "Id", "Created", "State", "Name", "ResolvConfPath", "HostnamePath", "HostsPath", "LogPath",
    "GraphDriver", "NetworkSettings", "RestartCount", "ExecIDs", "ProcessLabel", "MountLabel",
    "Storage",
}  # fmt: skip

#: Options of the first container, which runs.
OPTIONS = [
    "--hostname", "worker", "--domainname", "example.test", "--label", "owner=it's me",
    "--label", "plain=1", "--env", "HF_HOME=/data/hub", "--env", 'JSON={"a": "b c"}',
    "--user", "1000:1000", "--workdir", "/work", "--entrypoint", "/bin/sleep",
    "--memory", "256m", "--memory-swap", "512m", "--memory-reservation", "64m", "--cpus", "0.5",
    "--cpu-shares", "512", "--pids-limit", "100", "--ulimit", "memlock=65536:65536",
    "--ulimit", "nofile=1024:2048", "--shm-size", "128m", "--ipc", "shareable",
    "--restart", "on-failure:3", "--log-driver", "json-file", "--log-opt", "max-size=10m",
    "--log-opt", "max-file=2", "--health-cmd", "test -e '/tmp/a b' || exit 1",
    "--health-interval", "30s", "--health-timeout", "5s", "--health-retries", "4",
    "--health-start-period", "90s", "--cap-add", "SYS_PTRACE", "--cap-drop", "NET_RAW",
    "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/work:size=16m",
    "--volume", "cache:/cache", "--mount", "type=tmpfs,target=/scratch,tmpfs-size=1048576",
    "--add-host", "hub:10.0.0.1", "--dns", "10.0.0.2", "--dns-search", "example.test",
    "--stop-signal", "SIGINT", "--stop-timeout", "42", "--init", "--tty", "--interactive",
    "--group-add", "44", "--sysctl", "kernel.msgmax=65536", "--oom-score-adj", "100",
    "--network", "none", "--device", "/dev/null:/dev/zzz:rw",
]  # fmt: skip


class Engine:
    """One dockerd in its own folder, without a network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {
            "DOCKER_HOST": f"unix://{folder}/s",
            "DOCKER_CONFIG": str(folder),
        }
        command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
        command += ["-H", f"unix://{folder}/s", "--pidfile", f"{folder}/pid", "--bridge", "none"]
        command += ["--iptables=false", "--ip6tables=false"]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 60
        while self.docker("version", check=False).returncode:
            if time.monotonic() > end:
                raise TimeoutError((folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.1)

    def docker(self, *words: str, check: bool = True, data: bytes = b"") -> Done:
        done = subprocess.run(
            ["docker", *words], env=self.environment, capture_output=True, timeout=120,
            input=data, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(done.stderr.decode())
        return done

    def shell(self, script: str) -> Done:
        done = subprocess.run(
            ["bash", "-c", script], env=self.environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done

    def inspect(self, name: str) -> list[dict[str, Any]]:
        container = json.loads(self.docker("inspect", name).stdout)[0]
        image = json.loads(self.docker("image", "inspect", container["Image"]).stdout)[0]
        return [container, image]

    def end(self) -> None:
        with contextlib.suppress(Exception):
            names = self.docker("ps", "-aq").stdout.decode().split()
            if names:
                self.docker("rm", "-f", *names)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        for path in sorted(self.folder.rglob("*"), key=lambda p: -len(str(p))):
            if path.is_mount():
                subprocess.run(["umount", "-l", str(path)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("needs dockerd and root")
    found = Engine(Path(tempfile.mkdtemp(prefix="launch-", dir="/tmp")))
    try:
        root = found.folder / "rootfs/bin"
        root.mkdir(parents=True)
        shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "busybox")
        for name in ("sh", "sleep", "test", "echo"):
            (root / name).symlink_to("busybox")
        tar = subprocess.run(
            ["tar", "-C", str(root.parent), "-c", "."], capture_output=True, check=True
        )
        found.docker("import", "-", PLAIN, data=tar.stdout)
        changes = ['ENTRYPOINT ["/bin/sleep"]', 'CMD ["600"]', "ENV FROM_IMAGE=1", "WORKDIR /bin"]
        changes += ["EXPOSE 8000", "LABEL vendor=test", "HEALTHCHECK CMD echo ok"]
        options = [word for change in changes for word in ("-c", change)]
        found.docker("import", *options, "-", IMAGE, data=tar.stdout)
        yield found
    finally:
        found.end()


def settings(container: dict[str, Any]) -> dict[str, Any]:
    """Return what of a container was asked for, in an order of its own."""
    found = {k: v for k, v in container.items() if k not in VOLATILE}
    found["Config"] = dict(found["Config"])
    found["Config"]["Env"] = sorted(found["Config"]["Env"] or [])
    if found["Config"]["Hostname"] == container["Id"][:12]:
        found["Config"]["Hostname"] = "(its id)"
    for mount in found["Mounts"]:
        if len(mount.get("Name") or "") == 64:
            mount["Name"] = mount["Source"] = "(anonymous)"
    found["Mounts"] = sorted(found["Mounts"], key=lambda m: m["Destination"])
    return found


def copy(engine: Engine, name: str, *, started: bool) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Rebuild a container from its inspect data; return the script and both settings."""
    data = engine.inspect(name)
    script = read_one(json.dumps(data), "inspect.json").launch.text
    engine.docker("rm", "-f", name)
    made = script if started else script.replace("docker run -d", "docker create", 1)
    engine.shell(made)
    again = engine.inspect(name)
    return script, settings(data[0]), settings(again[0])


def test_a_container_with_many_options_comes_back_the_same(engine: Engine) -> None:
    engine.docker("run", "-d", "--name", "first", *OPTIONS, PLAIN, "600")

    script, before, after = copy(engine, "first", started=True)

    assert len({word for word in OPTIONS if word.startswith("--")}) >= 30
    assert after == before
    assert script.count("\n") > 40
    engine.docker("rm", "-f", "first")


def test_what_equals_the_image_is_left_out(engine: Engine) -> None:
    engine.docker("run", "-d", "--name", "plain", "--network", "none", IMAGE)

    script, before, after = copy(engine, "plain", started=True)

    assert after == before
    # Which cgroup namespace is the default depends on the machine, so it is always said.
    lines = [line.strip(" \\") for line in script.splitlines() if "--cgroupns" not in line]
    assert lines == ["docker run -d", "--name plain", "--network none", IMAGE]
    engine.docker("rm", "-f", "plain")


@pytest.mark.parametrize(
    "options",
    [
        ["--gpus", "all"],
        ["--gpus", '"device=0,1"'],
        ["--gpus", "2"],
        ["--gpus", 'device=GPU-3a23c669,"capabilities=compute,utility"'],
        ["--ipc", "host", "--network", "host", "--pid", "host", "--privileged", "--rm"],
        ["-p", "127.0.0.1:8000:8000", "-p", "9000:9000/udp", "--restart", "unless-stopped"],
        ["-v", "/srv/models:/models:ro", "-v", "/anonymous", "--no-healthcheck"],
        ["--entrypoint", "", "-P", "--expose", "9000", "--shm-size", "16g"],
        ["--device", "nvidia.com/gpu=all", "--cpuset-cpus", "0", "--memory-swappiness", "10"],
        ["--mount", "type=bind,source=/tmp,target=/a b,readonly", "--userns", "host"],
        ["--cgroupns", "host", "--uts", "host", "--security-opt", "seccomp=unconfined"],
    ],
)
def test_options_that_this_engine_could_not_start(engine: Engine, options: list[str]) -> None:
    engine.docker("rm", "-f", "made", check=False)
    engine.docker("create", "--name", "made", *options, IMAGE, "--model", "org/it's", "$HOME", "")

    script, before, after = copy(engine, "made", started=False)

    assert after == before, script
    engine.docker("rm", "-f", "made")


def preflight(engine: Engine, *words: str, data: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forensics", "preflight", *words], env=engine.environment,
        capture_output=True, text=True, input=data, check=False, timeout=60,
    )  # fmt: skip


def test_a_container_is_checked_by_its_name(engine: Engine) -> None:
    engine.docker(
        "create", "--name", "served", "--rm", "--network", "host", "--entrypoint", "vllm",
        IMAGE, "serve", "org/m", "--speculative-config", '{"method":"ngram"}',
    )  # fmt: skip

    done = preflight(engine, "docker:served", "--format", "json")

    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["run"]["engine"] == "vllm"
    assert document["root_cause"]["rule"] == "preflight.speculative-tokens-missing"
    assert document["suggested_launch"]["kind"] == "inspect"
    assert "--rm" not in document["suggested_launch"]["text"]
    engine.docker("rm", "-f", "served")
    gone = preflight(engine, "docker:served")
    assert (gone.returncode, gone.stdout) == (2, "")
    assert "no container served" in gone.stderr


def test_a_name_that_is_taken_is_said_unless_offline(engine: Engine) -> None:
    engine.docker("create", "--name", "taken", "--network", "none", IMAGE)
    script = "docker run --name taken --gpus all vllm/vllm-openai:v0.20.0 --model org/m\n"

    asked = json.loads(preflight(engine, "-", "-f", "json", data=script).stdout)
    unasked = json.loads(preflight(engine, "-", "-f", "json", "--offline", data=script).stdout)

    assert "preflight.name-in-use" in [f["rule"] for f in asked["findings"]]
    assert "preflight.name-in-use" not in [f["rule"] for f in unasked["findings"]]
    engine.docker("rm", "-f", "taken")


def test_a_port_in_use_and_a_missing_gpu_are_said_unless_offline(engine: Engine) -> None:
    with socket.socket() as busy, socket.socket() as other:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        other.bind(("127.0.0.1", 0))  # nobody listens there
        taken, free = busy.getsockname()[1], other.getsockname()[1]
        image = "vllm/vllm-openai:v0.20.0 --model org/m"

        def found(*words: str, port: int) -> set[str]:
            script = f"docker run --gpus all -p {port}:8000 {image}\n"
            done = preflight(engine, "-", "-f", "json", *words, data=script)
            return {f["rule"] for f in json.loads(done.stdout)["findings"]}

        assert "preflight.port-in-use" in found(port=taken)
        assert "preflight.port-in-use" not in found(port=free)
        offline = found("--offline", port=taken)
    assert not offline & {"preflight.port-in-use", "preflight.gpu-not-visible"}
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        assert "preflight.gpu-not-visible" in found(port=free)


def test_an_engine_out_of_reach_is_no_error_of_the_launch(engine: Engine) -> None:
    engine.environment = engine.environment | {"DOCKER_HOST": f"unix://{engine.folder}/nowhere"}
    try:
        script = "docker run --name x --gpus all vllm/vllm-openai:v0.20.0 --model org/m\n"
        assert preflight(engine, "-", data=script).stderr == ""
        assert "out of reach" in preflight(engine, "docker:x").stderr
    finally:
        engine.environment = engine.environment | {"DOCKER_HOST": f"unix://{engine.folder}/s"}


def test_an_image_of_another_architecture_is_said(engine: Engine, tmp_path: Path) -> None:
    saved = tmp_path / "image.tar"
    engine.docker("save", IMAGE, "-o", str(saved))
    folder = tmp_path / "image"
    with tarfile.open(saved) as tar:
        tar.extractall(folder, filter="data")
    manifest = json.loads((folder / "manifest.json").read_text())
    config = folder / manifest[0]["Config"]
    data = json.loads(config.read_text())
    other = "arm64" if data["architecture"] != "arm64" else "amd64"
    config.write_text(json.dumps(data | {"architecture": other}))
    manifest[0]["RepoTags"] = ["vllm/vllm-openai:v0.20.0"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "repositories").unlink(missing_ok=True)
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(folder, ".")
    engine.docker("load", "-i", str(tmp_path / "other.tar"))
    rule = "preflight.image-built-for-other-machines"

    def found(*words: str, image: str) -> list[dict[str, Any]]:
        script = f"docker run --gpus all -p 8000:8000 {image} --model org/m\n"
        done = preflight(engine, "-", "-f", "json", *words, data=script)
        return [f for f in json.loads(done.stdout)["findings"] if f["rule"] == rule]

    (one,) = found(image="vllm/vllm-openai:v0.20.0")
    assert one["captures"]["image_arch"] == other
    assert not found("--offline", image="vllm/vllm-openai:v0.20.0")
    assert not found(image="vllm/vllm-openai:v0.20.1")
    engine.docker("rmi", "vllm/vllm-openai:v0.20.0")
