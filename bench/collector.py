"""Measures the collector on a real engine: `python -m bench.collector [--size 200MB] [--json]`.

Needs root, dockerd and busybox. A container writes as fast as it can; what is measured is the
watcher's time on the processor, its memory, and for the API tier how long it takes until the last
line is durable, against `docker logs -f > file` on the same engine. Exit code 1 if a line is lost.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench import machine
from bench.generate import size_of
from forensics.archive.listing import log_lines
from forensics.archive.reading import open_run
from forensics.archive.store import Archive
from tests.engines import Dockerd, engine_of, wait_for

#: One line of a server's log, about as long as they are.
LINE: Final = (
    "INFO 12-01 02:03:04 [loggers.py:127] Engine 000: Avg prompt throughput: 12.3 tokens/s, n="
)
_PEAK: Final = re.compile(r"VmHWM:\s+(\d+)")
TICKS: Final = os.sysconf("SC_CLK_TCK")
GOAL_FILE: Final = 100.0  # MB a second of processor time
GOAL_API: Final = 0.8  # of the speed of `docker logs -f`
GOAL_MEMORY: Final = 150_000_000


class Watched:
    """A `forensics watch`, with the time and memory of its processes.

    Args:
        engine: What it watches.
        folder: Its archive.
    """

    def __init__(self, engine: Dockerd, folder: Path) -> None:
        self.errors = folder.with_suffix(".err")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forensics", "watch", "--all", "--archive", str(folder)],
                env=engine.environment, stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
        wait_for(lambda: b"watching" in self.errors.read_bytes())
        self.peak = 0

    def _tree(self) -> Iterator[int]:
        """Yield the ids of its processes that copy (the one that diagnoses comes afterwards)."""
        yield self.process.pid
        tasks = Path(f"/proc/{self.process.pid}/task")
        own = Path(f"/proc/{self.process.pid}/cmdline").read_bytes()
        for task in tasks.iterdir():
            children: list[str] = []
            with suppress(OSError):  # a thread that has ended meanwhile
                children = (task / "children").read_text().split()
            for child in children:
                with suppress(OSError):
                    command = Path(f"/proc/{child}/cmdline").read_bytes()
                    # A child that is still a copy of its parent has that one's memory, not its own.
                    if b"judge" not in command and command != own:
                        yield int(child)

    def cpu(self) -> float:
        """Return the seconds of processor time so far; also looks at the memory."""
        ticks = memory = 0
        for pid in self._tree():
            with suppress(OSError):  # it may have ended just now
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
                found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
                memory += int(found[1]) * 1024 if found else 0
        self.peak = max(self.peak, memory)
        return ticks / TICKS

    def end(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(60)


def flood(engine: Dockerd, lines: int, *options: str) -> str:
    """Start a container that writes so many lines at once; return its id."""
    script = f"awk 'BEGIN {{ for (i = 1; i <= {lines}; i++) print \"{LINE}\" i }}'"
    return engine.run(script, *options)


@contextmanager
def _watched(engine: Dockerd) -> Iterator[tuple[Watched, Archive]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        watcher = Watched(engine, Path(folder) / "archive")
        try:
            yield watcher, Archive.open(Path(folder) / "archive")
        finally:
            watcher.end()


def _final(archive: Archive) -> bool:
    ids = archive.ids()
    return bool(ids) and archive.record(ids[-1]).state == "final"


def _missing(archive: Archive, lines: int) -> int:
    """Return how many lines are missing or wrong in the newest run."""
    run = archive.ids()[-1]
    log = archive.record(run).log
    opened, _ = open_run(archive, run)
    expected, bad, number = LINE.encode(), 0, 0
    for piece in log_lines(opened, log.envelope if log else "raw"):
        for line in piece.splitlines():
            number += 1
            bad += line != expected + b"%d" % number
    opened.file.close()
    return bad + abs(lines - number)


def measured(size: int) -> dict[str, Any]:
    """Measure both tiers; return plain data, times in seconds, memory and sizes in bytes."""
    lines = size // (len(LINE) + 7)
    report: dict[str, Any] = {"schema": "forensics-bench-collector/1", "lines": lines}
    with engine_of() as engine:
        report["engine"] = (
            engine.docker("version", "--format", "{{.Server.Version}}").stdout.decode().strip()
        )
        with _watched(engine) as (watcher, archive):
            before = watcher.cpu()
            begun = time.monotonic()
            flood(engine, lines)
            wait_for(lambda: watcher.cpu() and _final(archive), seconds=1200)
            wall, cpu = time.monotonic() - begun, watcher.cpu() - before
            log = archive.record(archive.ids()[-1]).log
            raw = log.bytes if log else 0
            report["file"] = {
                "tier": archive.record(archive.ids()[-1]).tier, "raw_bytes": raw, "wall_s": wall,
                "cpu_s": cpu, "mb_per_cpu_s": raw / 1e6 / cpu, "peak_bytes": watcher.peak,
                "missing": _missing(archive, lines),
            }  # fmt: skip
        engine.empty()  # a new watcher would collect the others' logs, too, while it is measured
        # The driver `local` has no file that is read, and no rotation below its own 100 MB.
        options = ("--log-driver", "local", "--log-opt", "max-size=10g")
        with tempfile.NamedTemporaryFile(prefix="bench-") as out:
            begun = time.monotonic()
            name = flood(engine, lines, *options)
            used = os.times()
            subprocess.run(
                ["docker", "logs", "-f", name], env=engine.environment, stdout=out, check=True
            )
            peer = time.monotonic() - begun
            spent = os.times()
            peer_cpu = (
                spent.children_user
                + spent.children_system
                - used.children_user
                - used.children_system
            )
        engine.empty()
        with _watched(engine) as (watcher, archive):
            before = watcher.cpu()
            began = time.time()
            flood(engine, lines, *options)
            wait_for(lambda: watcher.cpu() and _final(archive), seconds=1200)
            cpu = watcher.cpu() - before
            # When its last byte was written, as for `docker logs`: what comes then is checking.
            wall = (archive.path(archive.ids()[-1]) / "log.zst").stat().st_mtime - began
            record = archive.record(archive.ids()[-1])
            report["api"] = {
                "tier": record.tier, "completeness": record.completeness, "wall_s": wall,
                "cpu_s": cpu, "docker_logs_wall_s": peer, "docker_logs_cpu_s": peer_cpu,
                "of_docker_logs": peer / wall, "peak_bytes": watcher.peak,
                "missing": _missing(archive, lines),
            }  # fmt: skip
    return report


def main(arguments: list[str] | None = None) -> int:
    """Measure, print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.collector", description=__doc__)
    parser.add_argument("--size", type=size_of, default=size_of("200MB"), help="text of the log")
    parser.add_argument("--json", action="store_true", help="print figures instead of a table")
    given = parser.parse_args(arguments)
    report = measured(given.size) | {"machine": machine.facts({})}
    file, api = report["file"], report["api"]
    if given.json:
        print(json.dumps(report, indent=1))
    else:
        print(f"{report['lines']:,} lines, docker {report['engine']}")
        print(
            f"file tier: {file['mb_per_cpu_s']:.0f} MB a CPU second (goal {GOAL_FILE:.0f}), "
            f"{file['wall_s']:.1f} s, {file['peak_bytes'] / 1e6:.0f} MB of memory (goal "
            f"{GOAL_MEMORY / 1e6:.0f}), {file['missing']} lines missing"
        )
        print(
            f"API tier: {api['of_docker_logs']:.2f} of `docker logs -f > file` (goal {GOAL_API}), "
            f"{api['wall_s']:.1f} s against {api['docker_logs_wall_s']:.1f} s, "
            f"CPU {api['cpu_s']:.1f} s against {api['docker_logs_cpu_s']:.1f} s, "
            f"{api['peak_bytes'] / 1e6:.0f} MB, {api['missing']} lines missing"
        )
    return int(bool(file["missing"] or api["missing"]))


if __name__ == "__main__":
    sys.exit(main())
