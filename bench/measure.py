"""Runs child processes and measures them: wall time, processor time, memory."""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# getrusage counts memory in bytes on macOS and in KiB elsewhere.
_MAXRSS_UNIT: Final = 1 if os.uname().sysname == "Darwin" else 1024
# Bytes of its output that are kept of a run.
_ANSWER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Command:
    """One command to be measured.

    Attributes:
        name: how the tables call it.
        argv: program and arguments.
        accepted: exit codes that count as having run.
        environment: variables set on top of the present ones.
        fresh: called before each run, for variables that must be new each time.
        discard: send the output to the null device instead of a file.
    """

    name: str
    argv: Sequence[str]
    accepted: frozenset[int] = frozenset({0})
    environment: Mapping[str, str] = field(default_factory=dict)
    fresh: Callable[[], Mapping[str, str]] | None = None
    discard: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """What one run cost: seconds, and bytes of the largest resident memory."""

    wall: float
    cpu: float
    peak: int


@dataclass(frozen=True, slots=True)
class Result:
    """The runs of one command.

    Attributes:
        name: as in the command.
        runs: what each cost, in the order in which they ran; empty if it did not run.
        output: what the last run wrote on standard output.
        problem: why it did not run, or None.
    """

    name: str
    runs: tuple[Run, ...]
    output: bytes
    problem: str | None

    @property
    def best(self) -> float:
        """Shortest wall time in seconds."""
        return min(run.wall for run in self.runs)

    @property
    def median(self) -> float:
        """Median wall time in seconds."""
        return statistics.median(run.wall for run in self.runs)

    @property
    def cpu(self) -> float:
        """Median of user and system time together, in seconds."""
        return statistics.median(run.cpu for run in self.runs)

    @property
    def peak(self) -> int:
        """Largest resident memory of any run, in bytes."""
        return max(run.peak for run in self.runs)


def warm(path: Path) -> None:
    """Read a file once, so that the page cache holds it."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def measure(commands: Sequence[Command], rounds: int) -> list[Result]:
    """Run commands in turns, so that a slow minute of the machine hits all of them.

    Every other round goes backwards. A command that fails is not run again.

    Args:
        commands: what to run.
        rounds: how often each.

    Returns:
        One result a command, in the order of the commands.
    """
    runs: dict[int, list[Run]] = {place: [] for place in range(len(commands))}
    output: dict[int, bytes] = {}
    problems: dict[int, str] = {}
    for turn in range(rounds):
        order = range(len(commands)) if turn % 2 == 0 else range(len(commands) - 1, -1, -1)
        for place in order:
            if place in problems:
                continue
            run, output[place], problem = _once(commands[place])
            if problem is None:
                runs[place].append(run)
            else:
                problems[place] = problem
                runs[place].clear()
    return [
        Result(command.name, tuple(runs[place]), output.get(place, b""), problems.get(place))
        for place, command in enumerate(commands)
    ]


def _once(command: Command) -> tuple[Run, bytes, str | None]:
    """Run one command once; the third value says why it failed."""
    environment = {**os.environ, **command.environment}
    if command.fresh is not None:
        environment |= command.fresh()
    nothing = Run(0.0, 0.0, 0)
    # A file, not the null device: GNU grep stops at the first match when it writes to the latter.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        target = subprocess.DEVNULL if command.discard else out
        start = time.perf_counter()
        try:
            child = subprocess.Popen(  # no `with`: os.wait4 below is what waits for it
                list(command.argv),
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=errors,
                env=environment,
            )
        except OSError as error:
            return nothing, b"", f"{command.argv[0]}: {error.strerror}"
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        # Answers are short. What this process holds would count as the next child's peak.
        written = out.read(_ANSWER)
        if child.returncode not in command.accepted:
            said = errors.read().decode(errors="replace").strip().splitlines()
            text = f"exit code {child.returncode}" + (f": {said[-1]}" if said else "")
            return nothing, written, text
    run = Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _MAXRSS_UNIT)
    return run, written, None
