"""`forensics watch` on a real engine, files read from its disk: nothing is lost, nothing is doubled.

What a container wrote is known (numbers, by `seq`); what the archive has is compared with it whole.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collectors import numbers, watching
from tests.engines import Dockerd, engine_of, wait_for

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def engine() -> Iterator[Dockerd]:
    with engine_of() as found:
        yield found


def rm_containers(engine: Dockerd, count: int, lines: int, *, at_once: int = 8) -> list[str]:
    """Run containers that are gone as soon as they have printed their lines; return their ids."""
    script = f"seq 1 {lines}"
    waiting: list[subprocess.Popen[bytes]] = []
    ids = []
    for _ in range(count):
        if len(waiting) >= at_once:
            ids.append(finished(waiting.pop(0)))
        waiting.append(
            subprocess.Popen(
                ["docker", "run", "-d", "--rm", "--network", "none", "box:1", "sh", "-c", script],
                env=engine.environment, stdout=subprocess.PIPE,
            )
        )  # fmt: skip
    return ids + [finished(one) for one in waiting]


def finished(process: subprocess.Popen[bytes]) -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return out.decode().strip()


@pytest.mark.parametrize(
    ("count", "lines"),
    [
        (12, 1),
        (8, 1000),
        pytest.param(3, 100_000, marks=pytest.mark.slow),
        pytest.param(200, 1, marks=[pytest.mark.slow, pytest.mark.full]),
        pytest.param(200, 1000, marks=[pytest.mark.slow, pytest.mark.full]),
        pytest.param(200, 100_000, marks=[pytest.mark.slow, pytest.mark.full]),
    ],
)
def test_containers_that_remove_themselves_at_once_are_whole(
    engine: Dockerd, tmp_path: Path, count: int, lines: int
) -> None:
    with watching(engine, tmp_path / "a") as watcher:
        ids = rm_containers(engine, count, lines)
        runs = watcher.final(count)
        assert sorted(run.container.id for run in runs if run.container) == sorted(ids)
        for run in runs:
            assert run.completeness == "complete", run.reasons
            assert run.tier == "file"
            assert run.exit.code == 0
            assert watcher.text(run) == numbers(lines)
        wait_for(lambda: not held(engine), every=0.2)
        watcher.stop()


def held(engine: Dockerd) -> list[Path]:
    return list((engine.data / "forensics-hold").glob("*/*/0*"))
