"""`run.json`: what is known of one start of a container (schema `forensics/run/1`).

The document is written in whole, by rename; `state` says whether its run is still being recorded.
Times are RFC 3339 with the engine's own precision; null is unknown, never "no". Everything in it
has been redacted before it gets here: the store writes what it is given.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

RUN_SCHEMA = "forensics/run/1"

#: Which way the log came: see `docs/collector.md` for what each can promise.
Tier = Literal["guard", "file", "api", "journal", "import"]
Completeness = Literal["complete", "possibly_truncated"]
#: How the bytes of `log.zst` are wrapped: as in the engine's json-file, or as CRI lines
#: (`<RFC 3339 nanoseconds> stdout|stderr F|P <text>`); `raw` for an imported log as it was.
LogEnvelope = Literal["docker-json", "cri", "raw"]


class Gap(Struct, frozen=True):
    """Something that could not be had.

    Attributes:
        reason: Why, in words for a person.
        since: From when on, if known.
        until: Up to when, if known.
        lines: How many lines, if that can be told.
        bytes: How many bytes, if that can be told.
    """

    reason: str
    since: str | None = None
    until: str | None = None
    lines: int | None = None
    bytes: int | None = None


class LogFile(Struct, frozen=True):
    """What `log.zst` holds.

    Attributes:
        envelope: How its bytes are wrapped.
        bytes: Their number, unpacked.
        lines: Physical lines, unpacked (a last line without an end counts).
        packed: Size of the file.
        sha256: Of the unpacked bytes; null while the run is recorded.
        first_at: Time of the first line, as its envelope says.
        last_at: Time of the last one.
        damaged: Lines that are no whole record of the envelope.
    """

    envelope: LogEnvelope
    bytes: int = 0
    lines: int = 0
    packed: int = 0
    sha256: str | None = None
    first_at: str | None = None
    last_at: str | None = None
    damaged: int = 0


class EngineFacts(Struct, frozen=True):
    """The container engine: `docker` or `podman`, its version and API, its host."""

    name: str | None = None
    version: str | None = None
    api_version: str | None = None
    host: str | None = None
    operating_system: str | None = None
    kernel: str | None = None
    arch: str | None = None
    storage: str | None = None


class ContainerFacts(Struct, frozen=True):
    """The container: full id, name without slash, names it had before, what it was started with.

    `arguments` are the words after the entrypoint, `environment` holds only values that are safe
    to keep (others are masked), `log_driver` and `auto_remove` are as inspect says.
    """

    id: str
    name: str | None = None
    former_names: list[str] = []
    labels: dict[str, str] = {}
    entrypoint: list[str] = []
    arguments: list[str] = []
    environment: dict[str, str] = {}
    tty: bool = False
    auto_remove: bool = False
    log_driver: str | None = None
    restart_policy: str | None = None


class ImageFacts(Struct, frozen=True):
    """The image as it was when the container started (its digest cannot be told later).

    `reference` is what the user typed, `id` the engine's id, `digest` the registry's
    (`sha256:…`, null if never pulled or pushed), `architecture` as in the image's config.
    """

    reference: str | None = None
    id: str | None = None
    digest: str | None = None
    repo_digests: list[str] = []
    repo_tags: list[str] = []
    architecture: str | None = None
    created: str | None = None
    labels: dict[str, str] = {}


class ExitFacts(Struct, frozen=True):
    """How it ended; all null while it runs, or where the end was not seen.

    Attributes:
        code: Exit code as the engine says.
        oom_killed: Whether the engine says that memory ran out inside the container.
        error: The engine's words where it could not start the container.
        status: `exited`, `dead`, `created` (never started), `removed` (gone before it was asked).
        signals: Signals that were sent through the engine (kill events), in order.
        reading: What the numbers mean, in words (`killed from outside the engine` …).
        restart_count: Restarts by policy so far.
        health: Last health state and what its probes printed, redacted.
    """

    code: int | None = None
    oom_killed: bool | None = None
    error: str | None = None
    status: str | None = None
    signals: list[int] = []
    reading: str | None = None
    restart_count: int | None = None
    health: dict[str, Any] | None = None


class Probe(Struct, frozen=True):
    """One look at the host: what was asked, what came, or why nothing did (`problem`)."""

    name: str
    at: str
    text: str | None = None
    values: dict[str, Any] = {}
    problem: str | None = None


class RunRecord(Struct, frozen=True, kw_only=True):
    """One start of one container.

    Attributes:
        schema: `forensics/run/1`.
        id: Sorts by time and is unique per start: see `forensics.archive.store.run_id`.
        state: `partial` while it is recorded, `final` afterwards.
        tier: Which way the log came.
        completeness: `complete` only after the check that proves it.
        reasons: Why it may be truncated, or what proves that it is whole.
        gaps: What could not be had, counted and dated.
        created_at: When the container was made.
        started_at: When this start began.
        finished_at: When it ended.
        exit: How it ended.
        engine: The container engine.
        container: The container.
        image: Its image.
        log: What `log.zst` holds; null without a log (log driver `none`, never started).
        events: The engine's events of this start, redacted, in order.
        inspect: The container's inspect data at its end (else its start), redacted.
        image_inspect: The image's, redacted.
        host: What the host said.
        guessed: Names of facts that were inferred from log, file name or time.
        collector: Version of this program, and the host it ran on.
        source: Where an imported log came from.
        notes: Further things a person should know.
    """

    id: str
    schema: str = RUN_SCHEMA
    state: Literal["partial", "final"] = "partial"
    tier: Tier
    completeness: Completeness = "possibly_truncated"
    reasons: list[str] = []
    gaps: list[Gap] = []
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    exit: ExitFacts = ExitFacts()
    engine: EngineFacts = EngineFacts()
    container: ContainerFacts | None = None
    image: ImageFacts | None = None
    log: LogFile | None = None
    events: list[dict[str, Any]] = []
    inspect: dict[str, Any] | None = None
    image_inspect: dict[str, Any] | None = None
    host: list[Probe] = []
    guessed: list[str] = []
    collector: dict[str, str] = {}
    source: str | None = None
    notes: list[str] = []
