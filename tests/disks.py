"""A disk that is small enough to fill."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of 24 MiB, or of the size that the test's parameter says."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    folder = Path(tempfile.mkdtemp(prefix="disk-"))
    size = getattr(request, "param", "24m")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)
