"""A real dockerd of a test's own, in a folder of its own, without a network.

`engine_of` gives one and takes it away again. Its only image, `IMAGE`, holds a static busybox.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

IMAGE = "box:1"
#: `docker run` needs these here: an engine without a bridge has no other network.
RUN = ("run", "--network", "none")
_TOOLS = ("sh", "sleep", "test", "echo", "cat", "awk", "printf", "seq", "yes", "head", "tail", "dd", "kill", "true", "false", "usleep", "ls", "date", "sed", "od")  # fmt: skip
_PATIENCE_S = 120.0

Done = subprocess.CompletedProcess[bytes]


def wait_for(
    what: Callable[[], object], *, seconds: float = _PATIENCE_S, every: float = 0.05
) -> object:
    """Return what a question answers once the answer is truthy.

    Raises:
        TimeoutError: It never was.
    """
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(every)
    return found


class Dockerd:
    """One engine: start, stop, kill, and talk to it with the docker command.

    Args:
        folder: Where all of it lives.
        options: Further words for dockerd (`--live-restore`).
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/s"
        self.data = folder / "data"
        self.options = options
        self.environment = os.environ | {"DOCKER_HOST": self.host, "DOCKER_CONFIG": str(folder)}
        self.environment.pop("DOCKER_CONTEXT", None)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = ["dockerd", "--data-root", str(self.data), "--exec-root", f"{self.folder}/exec"]
        command += ["-H", self.host, "--pidfile", f"{self.folder}/pid", "--bridge", "none"]
        command += ["--iptables=false", "--ip6tables=false", *self.options]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def ready(self) -> None:
        """Wait until it answers."""
        try:
            wait_for(lambda: self.docker("version", check=False).returncode == 0)
        except TimeoutError:
            said = (self.folder / "log").read_text(errors="replace")[-2000:]
            raise TimeoutError(said) from None

    def docker(self, *words: str, check: bool = True, data: bytes = b"") -> Done:
        """Run the docker command against this engine."""
        done = subprocess.run(
            ["docker", *words], env=self.environment, capture_output=True, timeout=300,
            input=data, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(done.stderr.decode(errors="replace"))
        return done

    def run(self, script: str, *options: str, detach: bool = True) -> str:
        """Start a container that runs a shell script; return its full id (or what it printed)."""
        mode = ("-d",) if detach else ()
        done = self.docker(*RUN, *mode, *options, IMAGE, "sh", "-c", script)
        return done.stdout.decode(errors="replace").strip() if detach else done.stdout.decode()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the engine, with its containers or (SIGKILL) without."""
        self.process.send_signal(how)
        self.process.wait(120)
        if how is signal.SIGKILL:
            # Whoever is pid 1 here may leave the dead unreaped: their ids would count as alive.
            (self.folder / "pid").unlink(missing_ok=True)
            (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def start(self) -> None:
        """Start it again on what it left."""
        self.process = self._start()
        self.ready()

    def empty(self) -> None:
        """Remove all containers: a watcher would collect them."""
        if ids := self.docker("ps", "--all", "--quiet").stdout.decode().split():
            self.docker("rm", "--force", *ids)

    def end(self) -> None:
        """Take everything away."""
        with contextlib.suppress(Exception):
            if self.process.poll() is not None:
                self.start()
            self.empty()
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()
        self.process.wait(60)
        for path in sorted(self.folder.rglob("*"), key=lambda p: -len(str(p))):
            if path.is_mount():
                subprocess.run(["umount", "-l", str(path)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def engine_of(*options: str) -> Iterator[Dockerd]:
    """Give an engine with the image in it; it is gone afterwards."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("needs dockerd and root")
    # A short path: the name of a socket has 107 bytes.
    engine = Dockerd(Path(tempfile.mkdtemp(prefix="eng-", dir="/tmp")), *options)
    try:
        engine.ready()
        root = engine.folder / "rootfs/bin"
        root.mkdir(parents=True)
        shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "busybox")
        for name in _TOOLS:
            (root / name).symlink_to("busybox")
        tar = subprocess.run(
            ["tar", "-C", str(root.parent), "-c", "."], capture_output=True, check=True
        )
        engine.docker("import", "-", IMAGE, data=tar.stdout)
        yield engine
    finally:
        engine.end()
