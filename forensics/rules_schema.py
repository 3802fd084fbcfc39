"""The shape of a rule file: what `rules/<family>/<name>.yaml` may hold.

A rule's `match` is a tree of `all`, `any`, `none` and `sequence` over leaves. Each leaf asks one
question of the evidence and answers with three values (see `forensics.conditions`). Everything
here is strict: unknown keys and wrong types are errors.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from forensics.model import Action, Phase, Role, Safety, Severity

Operator = Literal[
    "exists",
    "absent",
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
    "in",
    "not_in",
    "contains",
    "matches",
]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything that is read from YAML."""


class _Node(_Strict, frozen=True, tag_field="is"):
    """Base of what may stand in a `match` tree; the tag tells them apart in a cache file."""


class LineLeaf(_Node, frozen=True, tag="line"):
    """A line whose message (the text after the engine's prefix) holds `pattern`.

    Args:
        pattern: Regular expression, searched; named groups become captures.
        where: `message` sees log lines and raw output; `access` HTTP access lines; `request`
            logged requests; `dump` engine state printed on failure; `any` all of them.
        level: Only lines of these levels (`raw` for output outside the logger).
        process: Only lines of processes whose name begins with this.
        min_count: How many such lines there must be.
        root: This line is the root of the failure even where an exception follows it (what a
            library or a device printed before the exception that only reports it).
    """

    pattern: str
    where: Literal["message", "access", "request", "dump", "any"] = "message"
    level: tuple[str, ...] = ()
    process: str | None = None
    min_count: int = 1
    root: bool = False


class ExceptionLeaf(_Node, frozen=True, tag="exception"):
    """An exception with all the given properties.

    Args:
        type: Type name or list of them: the last component, or the dotted name.
        message: Regular expression searched in the message (continuation lines included).
        frame: Text that must stand in one frame as `file:function`, or a list: all of them.
        process: The printing process's name begins with this.
        chained: Also look at exceptions that others were raised from (default); False: only
            the last of a chain.
    """

    type: tuple[str, ...] = ()
    message: str | None = None
    frame: tuple[str, ...] = ()
    process: str | None = None
    chained: bool = True


class ArgumentLeaf(_Node, frozen=True, tag="argument"):
    """A server argument, by name with underscores; dots reach into JSON values."""

    name: str
    op: Operator = "exists"
    value: Any = None


class EnvironmentLeaf(_Node, frozen=True, tag="environment"):
    """An environment variable of the container."""

    name: str
    op: Operator = "exists"
    value: Any = None


class ImageLeaf(_Node, frozen=True, tag="image"):
    """The image it runs: `name` and `tag` are globs, `digest` exact, `moving` a moving tag."""

    name: str | None = None
    tag: str | None = None
    digest: str | None = None
    moving: bool | None = None


class VersionLeaf(_Node, frozen=True, tag="version"):
    """Versions by component (`vllm`, `torch`, `flashinfer`, `cuda` …), as PEP 440 ranges."""

    ranges: dict[str, str]


class HardwareLeaf(_Node, frozen=True, tag="hardware"):
    """The machine: `gpu` is text in its name; `compute_capability` a value or a range."""

    gpu: str | None = None
    compute_capability: str | None = None
    arch: str | None = None


class ModelLeaf(_Node, frozen=True, tag="model"):
    """The model: globs, without regard to case, over its name and architectures."""

    name: str | None = None
    architecture: str | None = None


class ExitLeaf(_Node, frozen=True, tag="exit"):
    """How it ended: exit codes, the engine's OOM flag, the way the log ends."""

    code: tuple[int, ...] = ()
    oom_killed: bool | None = None
    ending: tuple[Literal["orderly", "failure", "cut", "running"], ...] = ()


class MilestoneLeaf(_Node, frozen=True, tag="milestone"):
    """How far the start came."""

    reached: str | None = None
    not_reached: str | None = None
    last: tuple[str, ...] = ()


class MetricLeaf(_Node, frozen=True, tag="metric"):
    """The median of a printed number over at least `min_windows` windows."""

    name: str
    op: Operator
    value: float
    min_windows: int = 1


class LaunchLeaf(_Node, frozen=True, tag="launch"):
    """How the container was started: `auto_remove` is `--rm`; `word` a word of the command."""

    auto_remove: bool | None = None
    word: str | None = None


class EngineLeaf(_Node, frozen=True, tag="engine"):
    """The program that printed the log: one of these names."""

    name: tuple[str, ...]


class RuleLeaf(_Node, frozen=True, tag="rule"):
    """Another rule holds."""

    id: str


class All(_Node, frozen=True, tag="all"):
    """Every condition holds."""

    items: tuple[Condition, ...]


class AnyOf(_Node, frozen=True, tag="any"):
    """At least one condition holds."""

    items: tuple[Condition, ...]


class NoneOf(_Node, frozen=True, tag="none"):
    """No condition holds."""

    items: tuple[Condition, ...]


class Sequence(_Node, frozen=True, tag="sequence"):
    """Every condition holds, each on a later line than the one before."""

    items: tuple[Condition, ...]


Leaf = (
    LineLeaf
    | ExceptionLeaf
    | ArgumentLeaf
    | EnvironmentLeaf
    | ImageLeaf
    | VersionLeaf
    | HardwareLeaf
    | ModelLeaf
    | ExitLeaf
    | MilestoneLeaf
    | MetricLeaf
    | LaunchLeaf
    | EngineLeaf
    | RuleLeaf
)
Condition = All | AnyOf | NoneOf | Sequence | Leaf


class FixSpec(_Strict, frozen=True):
    """A fix as written in a rule; texts may hold `{placeholders}`."""

    action: Action
    target: str
    why: str
    confidence: float
    value: str | None = None
    text: str | None = None
    safety: Safety | None = None
    reference: str | None = None
    when: Condition | None = None


class Lookup(_Strict, frozen=True):
    """A table under `rules/tables/` that turns captures into more captures."""

    table: Literal["flags", "images", "baselines", "speculative_keys", "xids"]
    key: str


class NextStepSpec(_Strict, frozen=True):
    """The cheapest next run that would tell more, as written in a rule."""

    command: str
    why: str
    tells: str
    when: Condition | None = None


class TestFacts(_Strict, frozen=True):
    """What a test of a rule states beside the log."""

    exit_code: int | None = None
    oom_killed: bool | None = None
    running: bool | None = None
    image: str | None = None
    digest: str | None = None
    auto_remove: bool | None = None
    arguments: dict[str, Any] | None = None
    environment: dict[str, str] | None = None
    launch: tuple[str, ...] | None = None
    versions: dict[str, str] = {}
    gpu: str | None = None
    compute_capability: str | None = None
    arch: str | None = None


class RuleTest(_Strict, frozen=True):
    """A log excerpt that a rule must (or must not) recognise.

    Args:
        log: The lines.
        captures: Captures that must come out, all of them equal.
        facts: What is known beside the log.
        note: Why this case is here.
        known_as: For a near miss that is a failure of another kind: the rules that know it. For
            a match: more specific rules that may win there.
    """

    log: str = ""
    captures: dict[str, str] = {}
    facts: TestFacts = TestFacts()
    note: str | None = None
    known_as: tuple[str, ...] = ()


class RuleTests(_Strict, frozen=True):
    """Both kinds are mandatory (lint refuses a rule without a near miss)."""

    match: tuple[RuleTest, ...]
    no_match: tuple[RuleTest, ...]


class Rule(_Strict, frozen=True):
    """One signature of a failure or of something worth knowing.

    `priority` (0 to 100) decides between rules that name the same line: the more specific one
    carries the higher number. `confidence` says how sure the rule is that its cause is the
    cause: at least 0.7 makes a verdict `diagnosed`, at least 0.4 `suspected`, below that
    `inconclusive`.
    """

    id: str
    title: str
    severity: Severity
    role: Role
    match: Condition
    cause: str
    tests: RuleTests = RuleTests((), ())
    phase: Phase | None = None
    engines: tuple[str, ...] = ()
    priority: int = 50
    confidence: float = 0.9
    explains: tuple[str, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    fixes: tuple[FixSpec, ...] = ()
    next_steps: tuple[NextStepSpec, ...] = ()
    references: tuple[str, ...] = ()
    versions: str | None = None
    false_positives: str | None = None


COMPOSITES: dict[str, type[All | AnyOf | NoneOf | Sequence]] = {
    "all": All,
    "any": AnyOf,
    "none": NoneOf,
    "sequence": Sequence,
}
LEAVES: dict[str, type] = {
    "line": LineLeaf,
    "exception": ExceptionLeaf,
    "argument": ArgumentLeaf,
    "environment": EnvironmentLeaf,
    "image": ImageLeaf,
    "version": VersionLeaf,
    "hardware": HardwareLeaf,
    "model": ModelLeaf,
    "exit": ExitLeaf,
    "milestone": MilestoneLeaf,
    "metric": MetricLeaf,
    "launch": LaunchLeaf,
    "engine": EngineLeaf,
    "rule": RuleLeaf,
}
