"""A real Podman of a test's own, with its storage in a folder, and its service on a socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines import wait_for

_CONF = """
[containers]
default_ulimits = []
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Podman:
    """Podman with everything of its own.

    Args:
        folder: Where all of it lives.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/s"
        self.words = ["podman", "--root", f"{folder}/root", "--runroot", f"{folder}/run"]
        self.words += ["--storage-driver", "vfs"]
        (folder / "containers.conf").write_text(_CONF)
        (folder / "config.json").write_text("{}")
        self.environment = os.environ | {
            "CONTAINERS_CONF": f"{folder}/containers.conf",
            "DOCKER_HOST": self.host,
            "DOCKER_CONFIG": str(folder),
        }
        self.service = subprocess.Popen(
            [*self.words, "system", "service", "--time=0", self.host],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def podman(self, *words: str, check: bool = True, data: bytes = b"") -> bytes:
        """Run a podman command; return what it prints."""
        done = subprocess.run(
            [*self.words, *words], env=self.environment, capture_output=True, timeout=300,
            input=data, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(done.stderr.decode(errors="replace"))
        return done.stdout

    def run(self, script: str, *options: str) -> str:
        """Start a container that runs a shell script; return its full id."""
        words = ["run", "-d", "--network", "none", *options, "box:1", "sh", "-c", script]
        return self.podman(*words).decode().strip()

    def end(self) -> None:
        """Take everything away."""
        with contextlib.suppress(Exception):
            self.podman("rm", "--all", "--force", "--time", "0", check=False)
        self.service.terminate()
        self.service.wait(60)
        for path in sorted(self.folder.rglob("*"), key=lambda p: -len(str(p))):
            if path.is_mount():
                subprocess.run(["umount", "-l", str(path)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def podman_of() -> Iterator[Podman]:
    """Give a Podman with the image `box:1` in it; it is gone afterwards."""
    if shutil.which("podman") is None or os.geteuid() != 0:
        pytest.skip("needs podman and root")
    found = Podman(Path(tempfile.mkdtemp(prefix="pod-", dir="/tmp")))
    try:
        wait_for((found.folder / "s").is_socket)
        root = found.folder / "rootfs/bin"
        root.mkdir(parents=True)
        shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "busybox")
        for name in ("sh", "sleep", "seq", "echo", "usleep", "true", "printf"):
            (root / name).symlink_to("busybox")
        tar = subprocess.run(
            ["tar", "-C", str(root.parent), "-c", "."], capture_output=True, check=True
        )
        found.podman("import", "-", "box:1", data=tar.stdout)
        yield found
    finally:
        found.end()
