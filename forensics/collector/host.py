"""What the host says around the end of a run: memory, kernel, GPU, room on disks.

Each probe has a time limit, says why it has nothing, and cannot fail: a collection never depends
on one. What is quoted of the kernel's log is redacted like any text.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Expired
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from forensics import redaction
from forensics.archive.model import Probe
from forensics.collector.clock import now_text

_LIMIT_S = 5.0
_ALL_S = 12.0
_KEPT_LINES, _KEPT_CHARS = 200, 20_000
_KIB = 1024
#: Lines of the kernel that end a process or a GPU.
_KERNEL = re.compile(
    r"out of memory|oom[-_ ]?kill|killed process|NVRM|\bXid\b|segfault|general protection"
    r"|hung_task|blocked for more than|GPU has fallen|nvidia-modeset|amdgpu.*(?:reset|error)",
    re.IGNORECASE,
)
_MEMINFO = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "Shmem")
_GPU_FIELDS = (
    "name", "driver_version", "compute_cap", "memory.used", "memory.total", "utilization.gpu",
    "temperature.gpu", "pstate",
)  # fmt: skip
#: A run's kernel lines are looked for from a little before its start to a little after its end.
_AROUND = timedelta(seconds=30)

Values = tuple[str | None, dict[str, Any]]


class Nothing(Exception):  # noqa: N818 - a probe has nothing to say, and says why
    """Why a probe has nothing."""


_ANSWERS: dict[str, tuple[float, Values | Nothing]] = {}
_RECENT_S = 10.0


def probes(
    started_at: str | None, finished_at: str | None, folder: Path | None = None
) -> list[Probe]:
    """Ask the host everything, at once, within a few seconds.

    Args:
        started_at: When the run began (RFC 3339).
        finished_at: When it ended.
        folder: A folder of the disk that the engine uses.

    Returns:
        One probe a question, in a fixed order; each has an answer or says why not.
    """
    asked: dict[str, Callable[[], Values]] = {
        "memory": memory,
        "pressure": pressure,
        "kernel": lambda: kernel(started_at, finished_at),
        "gpu": _recent(gpu),
        "room": lambda: room(folder),
    }
    pool = ThreadPoolExecutor(len(asked), thread_name_prefix="probe")
    try:
        running = {name: pool.submit(question) for name, question in asked.items()}
        left = datetime.now(UTC) + timedelta(seconds=_ALL_S)
        found = []
        for name, future in running.items():
            rest = max(0.1, (left - datetime.now(UTC)).total_seconds())
            text, problem = None, None
            values: dict[str, Any] = {}
            try:
                text, values = future.result(min(rest, _ALL_S))
            except Nothing as why:
                problem = str(why)
            except (TimeoutError, Expired):
                problem = "no answer in time"
            except Exception as error:  # noqa: BLE001 - a probe cannot fail the collection
                problem = f"{type(error).__name__}: {error}"[:200]
            found.append(Probe(name, now_text(), text, values, problem))
        return found
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _recent(question: Callable[[], Values]) -> Callable[[], Values]:
    """Return a question whose last answer counts for some seconds: many runs may end at once."""

    def ask() -> Values:
        now = time.monotonic()
        known = _ANSWERS.get(question.__name__)
        if known is None or now - known[0] > _RECENT_S:
            try:
                answer: Values | Nothing = question()
            except Nothing as why:
                answer = why
            known = _ANSWERS[question.__name__] = (now, answer)
        if isinstance(known[1], Nothing):
            raise known[1]
        return known[1]

    return ask


def memory() -> Values:
    """Return the host's memory, in bytes (Linux, `/proc/meminfo`)."""
    try:
        text = Path("/proc/meminfo").read_text("ascii", "replace")
    except OSError as error:
        raise Nothing(f"/proc/meminfo: {error.strerror}") from None
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in _MEMINFO:
            values[name] = int(rest.split()[0]) * _KIB
    return None, values


def pressure() -> Values:
    """Return the share of the last ten and sixty seconds in which processes waited for memory."""
    try:
        text = Path("/proc/pressure/memory").read_text("ascii", "replace")
    except OSError as error:
        raise Nothing(f"/proc/pressure/memory: {error.strerror}") from None
    values: dict[str, Any] = {}
    for line in text.splitlines():
        kind, *pairs = line.split()
        for pair in pairs:
            name, _, number = pair.partition("=")
            if name in {"avg10", "avg60"}:
                values[f"{kind}_{name}"] = float(number)
    return None, values


def kernel(started_at: str | None, finished_at: str | None) -> Values:
    """Return the kernel's lines on lost memory, GPUs and crashes in the time of a run."""
    lines = _journal(started_at, finished_at)
    kept = [redaction.text(line) for line in lines if _KERNEL.search(line)][-_KEPT_LINES:]
    values = {
        "oom": sum("killed process" in line.lower() for line in kept),
        "xid": sum("Xid" in line for line in kept),
    }
    return "\n".join(kept)[-_KEPT_CHARS:] or None, values


def _journal(started_at: str | None, finished_at: str | None) -> Iterator[str]:
    command = ["journalctl", "--dmesg", "--no-pager", "--quiet", "--output=short-iso"]
    since, until = _moment(started_at, -_AROUND), _moment(finished_at, _AROUND)
    command += [f"--since={since}"] if since else ["--lines=2000"]
    command += [f"--until={until}"] if until else []
    try:
        yield from _ran(command).splitlines()
    except Nothing as why:
        # No journal (a container, another system): the kernel's own buffer, of any time.
        try:
            yield from _ran(["dmesg", "--time-format", "iso"]).splitlines()
        except Nothing as also:
            raise Nothing(f"{why}; {also}") from None


def _moment(text: str | None, shift: timedelta) -> str | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text) + shift
    except ValueError:
        return None
    return f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def gpu() -> Values:
    """Return what `nvidia-smi` says of the GPUs; `gpu` and `driver` are those of the first."""
    text = _ran(
        ["nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    )
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line]
    if not rows:
        raise Nothing("nvidia-smi lists no GPU")
    first = dict(zip(_GPU_FIELDS, rows[0], strict=False))
    values = {
        "gpu": first.get("name"),
        "driver": first.get("driver_version"),
        "compute_capability": first.get("compute_cap"),
        "count": len(rows),
    }
    return text[:_KEPT_CHARS], {k: v for k, v in values.items() if v}


def room(folder: Path | None) -> Values:
    """Return the free bytes of `/dev/shm` and of the disk that the engine uses."""
    values: dict[str, Any] = {}
    for name, path in (("dev_shm", Path("/dev/shm")), ("disk", folder or Path("/"))):  # noqa: S108 - only its size
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            continue
        values[f"{name}_free"], values[f"{name}_total"] = usage.free, usage.total
    return None, values


def _ran(command: list[str]) -> str:
    """Return what a command prints.

    Raises:
        Nothing: It is not there, fails, or takes too long.
    """
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, no shell
            command, capture_output=True, timeout=_LIMIT_S, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise Nothing(f"{command[0]} is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Nothing(f"{command[0]}: {error}"[:200]) from None
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        raise Nothing(f"{command[0]}: {why or f'status {done.returncode}'}"[:200])
    return done.stdout.decode("utf-8", "replace")
