"""`forensics watch --check`: which tier there is, and what would be lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines import engine_of

pytestmark = pytest.mark.docker


def checked(environment: dict[str, str], archive: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "forensics", "watch", "--check", "--archive", str(archive)],
        env=environment, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr == b"" or done.returncode == 2
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_the_tier_is_named_and_what_endangers_a_log(tmp_path: Path) -> None:
    with engine_of() as dockerd:
        code, said = checked(dockerd.environment, tmp_path / "a")
        assert (code, said.splitlines()[0]) == (0, "tier: file")
        assert not (tmp_path / "a").exists(), "nothing is changed by asking"
        dockerd.run("sleep 600", "--rm", "--log-driver", "local", "--name", "fleeting")
        dockerd.run("sleep 600", "--log-driver", "none", "--name", "silent")
        code, said = checked(dockerd.environment, tmp_path / "a")
        assert code == 1
        assert "NOTE fleeting: started with --rm: its log may go with it" in said
        assert "NOTE silent: its log driver is none: no log" in said
    code, said = checked(dockerd.environment, tmp_path / "a")
    assert (code, said.count("\n")) == (2, 1)
