"""What is measured: the groups of commands, and the targets that they are held to.

A row is added here: a `Command` in one of the groups, and where there is a goal, a `Target`.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.generate import Kind
from bench.measure import Command, Result

DIAGNOSE: Final = "forensics diagnose"
RIPGREP: Final = "rg -c -F -f LITERALS"
EXTRACTION: Final = "rg -o, the same lines"
STATS: Final = "forensics stats"
STATISTICS: Final = "statistics log"
SMALL_WARM: Final = "diagnose 2,000 lines, warm"
SMALL_COLD: Final = "diagnose 2,000 lines, cold"
STARTUP: Final = "forensics --version"
JSON_FILE: Final = "Docker json-file"
PLAIN: Final = "the same lines, plain"
#: The logs that are made.
KINDS: Final = (Kind.HEALTHY, Kind.FAILED_END, Kind.SMALL, Kind.DOCKER_JSON)
_DIAGNOSED: Final = frozenset({0, 1})  # 1: a failure was found
_SEARCHED: Final = frozenset({0, 1})  # 1: no line matched


@dataclass(frozen=True, slots=True)
class Tools:
    """How the programs are called.

    Attributes:
        forensics: the command under test, with its first arguments.
        python: the interpreter.
        ripgrep: path or name of ripgrep.
        grep: path or name of GNU grep.
    """

    forensics: list[str]
    python: str
    ripgrep: str
    grep: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """The files that the commands read.

    Attributes:
        logs: one log a kind.
        cut: the first part of the healthy log, for what is too slow for all of it.
        literals: one fixed string a line.
        patterns: the rules' patterns, separated by NUL.
        caches: a folder for compiled databases.
    """

    logs: Mapping[Kind, Path]
    cut: Path
    literals: Path
    patterns: Path
    caches: Path


@dataclass(frozen=True, slots=True)
class Group:
    """Commands that are run in turns and compared with each other.

    Attributes:
        title: heading of the table.
        kind: the log that they read; None if they read none.
        rounds: how often each is run.
        base: name of the command whose median time is 1.00 in the last column.
        commands: what is run.
        scaled: names of commands that read the cut only: their times are multiplied.
    """

    title: str
    kind: Kind | None
    rounds: int
    base: str
    commands: tuple[Command, ...]
    scaled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """A goal of the project and what it is held against.

    Attributes:
        text: the goal in words, with its unit.
        limit: largest value that meets it.
        value: computes the measured value from the results of one group by name; None where
            something did not run.
        group: title of that group.
    """

    text: str
    limit: float
    value: Callable[[Mapping[str, Result]], float | None]
    group: str


def groups(tools: Tools, inputs: Inputs, rounds: int, short_rounds: int) -> list[Group]:
    """List everything that is measured.

    Args:
        tools: how the programs are called.
        inputs: the files that they read.
        rounds: how often a command on a large log is run.
        short_rounds: how often one is run that takes under a second: noise is larger there.
    """
    warm = {"FORENSICS_CACHE": str(inputs.caches / "warm")}
    small = str(inputs.logs[Kind.SMALL])
    diagnose = [*tools.forensics, "diagnose", "--format", "json"]
    empty = (inputs.caches / f"cold-{number}" for number in itertools.count())
    return [
        _scan(tools, inputs, Kind.HEALTHY, short_rounds, warm),
        _scan(tools, inputs, Kind.FAILED_END, short_rounds, warm),
        _statistics(tools, inputs, rounds, warm),
        Group(
            "plain Python",
            Kind.HEALTHY,
            1,
            DIAGNOSE,
            (
                Command(DIAGNOSE, [*diagnose, str(inputs.logs[Kind.HEALTHY])], _DIAGNOSED, warm),
                Command(
                    "Python `re`, line by line",
                    [tools.python, "-m", "bench.naive", str(inputs.cut), str(inputs.patterns)],
                ),
            ),
            frozenset({"Python `re`, line by line"}),
        ),
        Group(
            JSON_FILE,
            None,
            rounds,
            PLAIN,
            (
                Command(PLAIN, [*diagnose, str(inputs.logs[Kind.HEALTHY])], _DIAGNOSED, warm),
                Command(
                    JSON_FILE, [*diagnose, str(inputs.logs[Kind.DOCKER_JSON])], _DIAGNOSED, warm
                ),
            ),
        ),
        Group(
            "short runs",
            None,
            short_rounds,
            "python -c pass",
            (
                Command("python -c pass", [tools.python, "-c", "pass"]),
                Command(STARTUP, [*tools.forensics, "--version"]),
                Command(SMALL_WARM, [*diagnose, small], _DIAGNOSED, warm),
                Command(
                    SMALL_COLD,
                    [*diagnose, small],
                    _DIAGNOSED,
                    fresh=lambda: {"FORENSICS_CACHE": str(next(empty))},
                ),
            ),
        ),
    ]


def targets() -> list[Target]:
    """List the goals of the project, in the order in which they are printed."""
    found = []
    for kind in (Kind.HEALTHY, Kind.FAILED_END):
        found += [
            Target(f"diagnose at most 1.00 x ripgrep, {kind}", 1.0, _against_ripgrep, title(kind)),
            Target(f"diagnose below 400 MB of memory, {kind}", 400.0, _peak(DIAGNOSE), title(kind)),
        ]
    return [
        *found,
        Target("json-file at most 2.5 x the time of plain lines", 2.5, _against_plain, JSON_FILE),
        Target("json-file below 500 MB of memory", 500.0, _peak(JSON_FILE), JSON_FILE),
        Target("stats no slower than ripgrep's extraction", 1.0, _against_extraction, STATISTICS),
        Target("stats below 800 MB of memory", 800.0, _peak(STATS), STATISTICS),
        Target("2,000 lines diagnosed in under 0.4 s", 0.4, _median(SMALL_WARM), "short runs"),
        Target("start-up under 0.12 s", 0.12, _median(STARTUP), "short runs"),
    ]


def title(kind: Kind) -> str:
    """Return the heading of the group that scans a kind of log."""
    return f"{kind} log"


def _scan(
    tools: Tools, inputs: Inputs, kind: Kind, rounds: int, environment: Mapping[str, str]
) -> Group:
    """Build the group that reads one large log with each tool."""
    log = str(inputs.logs[kind])
    literals = str(inputs.literals)
    # In the C locale grep need not check for valid characters: its fastest way.
    plain = {"LC_ALL": "C"}
    return Group(
        title(kind),
        kind,
        rounds,
        RIPGREP,
        (
            Command(
                DIAGNOSE,
                [*tools.forensics, "diagnose", "--format", "json", log],
                _DIAGNOSED,
                environment,
            ),
            Command(RIPGREP, [tools.ripgrep, "-c", "-F", "-f", literals, log], _SEARCHED),
            Command(
                "grep -c -F -f LITERALS",
                [tools.grep, "-c", "-F", "-f", literals, log],
                _SEARCHED,
                plain,
            ),
            Command("cat > /dev/null", ["cat", log], discard=True),
        ),
    )


def _statistics(tools: Tools, inputs: Inputs, rounds: int, environment: Mapping[str, str]) -> Group:
    """Build the group that reads a log of which half is statistics."""
    log = str(inputs.logs[Kind.STATISTICS])
    return Group(
        STATISTICS,
        Kind.STATISTICS,
        rounds,
        EXTRACTION,
        (
            Command(
                STATS,
                [*tools.forensics, "stats", "--format", "json", log],
                environment=environment,
            ),
            Command(
                EXTRACTION,
                [
                    tools.ripgrep,
                    "-o",
                    "-N",
                    r"(?:SpecDecoding metrics|Engine [0-9]{3}): .*",
                    log,
                ],
                _SEARCHED,
            ),
        ),
    )


def _against_ripgrep(results: Mapping[str, Result]) -> float | None:
    """Return the median of the command over that of ripgrep."""
    ours, theirs = results[DIAGNOSE], results[RIPGREP]
    return ours.median / theirs.median if ours.runs and theirs.runs else None


def _against_extraction(results: Mapping[str, Result]) -> float | None:
    """Return the median of the statistics over that of ripgrep printing the same lines."""
    ours, theirs = results[STATS], results[EXTRACTION]
    return ours.median / theirs.median if ours.runs and theirs.runs else None


def _against_plain(results: Mapping[str, Result]) -> float | None:
    """Return the median for the wrapped log over that for the same lines as they are."""
    wrapped, plain = results[JSON_FILE], results[PLAIN]
    return wrapped.median / plain.median if wrapped.runs and plain.runs else None


def _median(name: str) -> Callable[[Mapping[str, Result]], float | None]:
    """Make a function that returns a command's median time in seconds."""
    return lambda results: results[name].median if results[name].runs else None


def _peak(name: str) -> Callable[[Mapping[str, Result]], float | None]:
    """Make a function that returns a command's peak memory in megabytes (10**6)."""
    return lambda results: results[name].peak / 1e6 if results[name].runs else None
