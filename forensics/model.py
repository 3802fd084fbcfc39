"""The frozen values that flow between the stages; nothing here computes.

`Diagnosis` and what hangs below it is the product's JSON contract (`forensics/diagnosis/1`):
field names and order are what programs read. The other types travel between stages only.
Times are ISO 8601 text or None (never a guessed year); durations are seconds; lines are 1-based
physical lines of the source as given.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from msgspec import Struct

DIAGNOSIS_SCHEMA = "forensics/diagnosis/1"

Severity = Literal["fatal", "error", "warning", "info"]
Role = Literal["root_cause", "symptom", "contributing", "advice"]
Verdict = Literal["diagnosed", "suspected", "inconclusive", "healthy", "no_evidence"]
#: Verdicts of a run that failed, whether it is known why or not.
FAILED: frozenset[str] = frozenset({"diagnosed", "suspected", "inconclusive"})
Outcome = Literal["served", "failed_startup", "crashed", "killed", "stopped", "starting", "unknown"]
Safety = Literal["safe", "review", "lossy"]
Action = Literal[
    "set_argument",
    "remove_argument",
    "rename_argument",
    "set_env",
    "unset_env",
    "switch_image",
    "pin_digest",
    "upgrade",
    "downgrade",
    "runtime_option",
    "change_host",
    "wait_for_fix",
    "report_upstream",
]
Phase = Literal["launch", "arguments", "load", "compile", "capture", "serve", "shutdown"]

#: What an action risks when nothing else is said: see `Fix.safety`.
DEFAULT_SAFETY: dict[str, Safety] = {
    "switch_image": "review",
    "pin_digest": "safe",
    "upgrade": "review",
    "downgrade": "review",
    "change_host": "review",
}


class Truth(Enum):
    """Three-valued truth of a condition; `UNKNOWN` means that the evidence cannot tell."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"


# --- lines and records -------------------------------------------------------------------------


class Record(Struct, frozen=True):
    """One physical line, understood by a dialect.

    Attributes:
        line: 1-based physical line number.
        text: The whole line, without terminal codes and without a trailing carriage return.
        message: What is left after the engine's prefix (indentation kept).
        level: DEBUG, INFO, WARNING, ERROR or CRITICAL; None for output outside a logger.
        process: Name of the printing process as the program says it (`Worker_TP0`).
        pid: Its process id.
        clock: `MM-DD HH:MM:SS` as printed, else None.
        origin: `file.py:123` of the logging call, else None.
        kind: `log`, `raw` (no logger prefix), `access` (HTTP access line), `request` (a logged
            request, which quotes what users wrote) or `dump` (engine state printed on failure).
        at: Time from the envelope (RFC 3339), else None.
        spills: Whether further lines of the same message stand below it without any prefix.
        source: The file beside the log in which it stands, None for the log itself.
    """

    line: int
    text: str
    message: str
    level: str | None = None
    process: str | None = None
    pid: int | None = None
    clock: str | None = None
    origin: str | None = None
    kind: Literal["log", "raw", "access", "request", "dump"] = "raw"
    at: str | None = None
    spills: bool = False
    source: str | None = None


class Frame(Struct, frozen=True):
    """One frame of a Python traceback."""

    file: str
    line: int
    function: str


class ExceptionEvent(Struct, frozen=True):
    """One exception as printed, usually the end of a traceback.

    Attributes:
        type: Dotted type name as printed.
        message: Message with its continuation lines, joined by newlines.
        line: Line of the `Type: message` text.
        text: That line as printed.
        telling_line: The line that says what is wrong; differs from `line` where the type line
            is only a header (pydantic's `N validation errors for X`).
        telling_text: That line as printed.
        header: Line of `Traceback (most recent call last):`; None for a bare exception line.
        process: Printing process, or the one its frames give away.
        depth: How far inside the program: 3 worker, 2 engine core, 1 server, 0 unknown.
        pid: Process id, if printed.
        level: Logger level of the exception line; None when printed raw.
        relation: How it follows the exception before it: `cause` ("direct cause of"), `context`
            ("During handling of"), or None.
        cause: Index (in the list of exceptions) of the exception it follows, if any.
        frames: The traceback's frames, outermost first.
        first_seen: Earlier line of the same process that already printed this message, or None.
        first_seen_text: That line as printed.
        count: How often the same exception was printed in all.
        last_line: Line of the last repetition.
        clock: Time as printed on the exception line, if any.
        end_line: Last line of its message.
        in_group: Whether it stands inside an exception group.
        at: Time of the exception line from the envelope, if any.
    """

    type: str
    message: str
    line: int
    text: str
    telling_line: int
    telling_text: str
    header: int | None = None
    process: str | None = None
    depth: int = 0
    pid: int | None = None
    level: str | None = None
    relation: Literal["cause", "context"] | None = None
    cause: int | None = None
    frames: tuple[Frame, ...] = ()
    first_seen: int | None = None
    first_seen_text: str | None = None
    count: int = 1
    last_line: int = 0
    clock: str | None = None
    end_line: int = 0
    in_group: bool = False
    at: str | None = None


class Hit(Struct, frozen=True):
    """One line on which one pattern holds.

    `groups` are its named captures; `root` says that a rule takes this line for the root.
    """

    record: Record
    groups: dict[str, str]
    root: bool = False


class SignalEvent(Struct, frozen=True):
    """A line in which a dialect recognised something it knows (a milestone, a fact, a stop …).

    `dialect` names the dialect; for the rest see `forensics.engines.dialect.Signal`.
    """

    kind: str
    name: str
    record: Record
    groups: dict[str, str]
    dialect: str
    gives_up: str = "never"


class Milestone(Struct, frozen=True):
    """A phase boundary that the start-up reached, or what a file beside the log tells."""

    milestone: str
    line: int
    at: str | None = None
    seconds: float | None = None
    source: str | None = None


# --- facts and evidence ------------------------------------------------------------------------


class Hardware(Struct, frozen=True):
    """What the log or the inspect data says of the machine."""

    gpu: str | None = None
    compute_capability: str | None = None
    arch: str | None = None


class Run(Struct, frozen=True):
    """Facts of one run; unknown is None, and `arguments` is None when they were never seen."""

    id: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    image: str | None = None
    digest: str | None = None
    container: str | None = None
    launch: list[str] = []
    arguments: dict[str, Any] = {}
    model: str | None = None
    hardware: Hardware = Hardware()
    exit_code: int | None = None
    oom_killed: bool | None = None
    started_at: str | None = None
    finished_at: str | None = None


class Source(Struct, frozen=True):
    """Where the bytes came from."""

    kind: str
    name: str
    bytes: int = 0
    lines: int = 0
    envelope: str | None = None
    truncated: list[str] = []


class Context(Struct, frozen=True):
    """What is known beside the log: inspect data, launch, or what the user stated.

    None means unknown, never "no". `running` is True for a container known to be alive; `whole`
    declares that nothing is missing from the log (excerpts in tests of rules). `holes` are lines
    before which some are missing. `facts` has what only a launch command can tell. `pid` is the
    main process as the host numbers it.
    """

    exit_code: int | None = None
    oom_killed: bool | None = None
    running: bool | None = None
    image: str | None = None
    digest: str | None = None
    container: str | None = None
    launch: tuple[str, ...] | None = None
    arguments: dict[str, Any] | None = None
    environment: dict[str, str] | None = None
    auto_remove: bool | None = None
    hardware: Hardware = Hardware()
    versions: dict[str, str] = {}
    started_at: str | None = None
    finished_at: str | None = None
    whole: bool = False
    holes: tuple[int, ...] = ()
    facts: LaunchFacts | None = None
    container_id: str | None = None
    pid: int | None = None


class LaunchFacts(Struct, frozen=True):
    """What a launch command says of itself, as rules may ask.

    Attributes:
        before_start: Whether it is looked at before anything was started.
        runtime: `docker`, `podman`, `nerdctl`, `compose`, `kubernetes`; None without a container.
        options: Values of the runtime's options by long name (`--publish`); "" for a switch.
        problems: Kinds of things that are written otherwise than meant, with their text.
        places: What rules ask for to the line of the launch that says it (`argument:max_model_len`,
            `option:--rm`, `environment:X`, `problem:…`, `image`, `model`, `command`).
        lines: The launch's lines.
        model_config: The model's `config.json`, None where it could not be read.
        host: What the machine says (`port_in_use`, `gpu_visible` …); None: not asked.
    """

    before_start: bool = False
    runtime: str | None = None
    options: dict[str, list[str]] = {}
    problems: dict[str, str] = {}
    places: dict[str, int] = {}
    lines: tuple[str, ...] = ()
    model_config: dict[str, Any] | None = None
    host: dict[str, str] | None = None


class Excerpt(Struct, frozen=True):
    """A line with its neighbours, as printed."""

    before: tuple[tuple[int, str], ...]
    after: tuple[tuple[int, str], ...]


class Evidence(Struct, frozen=True):
    """All that rules may look at.

    Attributes:
        source: Where it came from, with counts.
        run: Facts of the run.
        context: What was known beside the log.
        hits: For each rule pattern (by index in the rule set) the lines on which it holds, first
            and last ones kept; `counts` has how many there were.
        counts: Pattern index to the number of lines.
        exceptions: Exceptions in the order in which their lines were printed, repeats folded.
        signals: What the dialect recognised, by kind, in order.
        milestones: Milestones reached, first occurrence each, in order of lines.
        last_ready: Line at which the server last said that it is ready, None if never.
        metrics: Numbers by name, one list entry a window: (line, value).
        arguments: Server arguments, None when unknown.
        architecture: Model architectures seen, target first.
        ending: How the log ends: `orderly`, `failure`, `cut` (no end at all) or `running`.
        head_complete: Whether the start of the run is in the log.
        tail_complete: Whether the log reaches the end of the run (or the present, if running).
        last: The last line that has text.
        answered: Lines near the end on which a request was answered with success.
        timed: The last line that has a time.
        excerpts: Neighbours of lines that may be quoted.
        limits: What could not be known.
    """

    source: Source
    run: Run
    context: Context
    hits: dict[int, list[Hit]]
    counts: dict[int, int]
    exceptions: tuple[ExceptionEvent, ...]
    signals: tuple[SignalEvent, ...]
    milestones: tuple[Milestone, ...]
    last_ready: int | None
    metrics: dict[str, list[tuple[int, float]]]
    arguments: dict[str, Any] | None
    architecture: tuple[str, ...]
    versions: dict[str, str]
    ending: Literal["orderly", "failure", "cut", "running"]
    head_complete: bool
    tail_complete: bool
    last: Record | None
    excerpts: dict[int, Excerpt]
    limits: tuple[str, ...]
    answered: tuple[int, ...] = ()
    timed: Record | None = None


class Failure(Struct, frozen=True):
    """The root of a failure, found without any rule.

    `lines` are all lines that belong to the same failing chain (used to tell which findings
    speak of it); `after` is the line from which on everything is a consequence.
    """

    line: int
    text: str
    process: str | None
    exception: ExceptionEvent | None
    lines: frozenset[int]
    kind: Literal["exception", "death", "fatal", "cut"]


# --- the diagnosis -----------------------------------------------------------------------------


class Tool(Struct, frozen=True):
    """Which program and rules made a document."""

    version: str
    rules: RuleStamp


class RuleStamp(Struct, frozen=True):
    """Identity of a rule set: the digest covers content, not file order."""

    count: int
    digest: str


class ExceptionName(Struct, frozen=True):
    """Type and message of an exception."""

    type: str
    message: str | None


class RootCause(Struct, frozen=True):
    """The line that names the cause; `rule` is None when no rule knows it.

    `source` is the file in which the line stands, None for the log that was diagnosed.
    """

    line: int
    text: str
    process: str | None
    exception: ExceptionName | None
    rule: str | None
    fingerprint: str
    source: str | None = None


class Citation(Struct, frozen=True):
    """A quoted line of the log, or of another file (`source`) that was read beside it."""

    line: int
    text: str
    process: str | None = None
    at: str | None = None
    source: str | None = None


class FixAdvice(Struct, frozen=True):
    """One thing to change, best first; templates are filled in."""

    action: Action
    target: str
    value: str | None
    text: str
    why: str
    confidence: float
    safety: Safety
    reference: str | None


class Finding(Struct, frozen=True):
    """One signature that holds, with the lines that prove it."""

    rule: str
    title: str
    severity: Severity
    role: Role
    confidence: float
    caused_by: str | None
    cause: str
    evidence: list[Citation]
    captures: dict[str, str]
    fixes: list[FixAdvice]
    references: list[str]
    count: int = 1


class LaunchChange(Struct, frozen=True):
    """One change of a launch; `problem` says why it was not made, None where it was."""

    action: Action
    target: str
    value: str | None
    text: str
    why: str
    safety: Safety
    rule: str
    problem: str | None = None


class LaunchAlternative(Struct, frozen=True):
    """The launch with other changes instead: its whole text and the difference."""

    text: str
    diff: str
    changes: list[LaunchChange]


class SuggestedLaunch(Struct, frozen=True):
    """A corrected launch command.

    Attributes:
        kind: `script`, `compose`, `systemd`, `kubernetes`, `inspect` (rebuilt from inspect data)
            or `log` (rebuilt from the arguments that the log printed).
        text: The whole launch with the changes made; secrets are masked.
        diff: A unified diff to it.
        changes: What was changed, in order.
        not_changed: Fixes that are advice only, or that this launch has no place for.
        alternatives: What else would do, each by itself.
    """

    kind: str
    text: str
    diff: str
    changes: list[LaunchChange] = []
    not_changed: list[LaunchChange] = []
    alternatives: list[LaunchAlternative] = []


class NextStep(Struct, frozen=True):
    """The cheapest next run that would tell more: one change at a time."""

    command: str
    why: str
    tells: str


class Diagnosis(Struct, frozen=True):
    """The verdict on one source: the JSON contract."""

    schema: str
    tool: Tool
    source: Source
    run: Run
    verdict: Verdict
    outcome: Outcome
    timeline: list[Milestone]
    last_milestone: str | None
    root_cause: RootCause | None
    findings: list[Finding]
    suggested_launch: SuggestedLaunch | None
    next_steps: list[NextStep]
    limits: list[str]
