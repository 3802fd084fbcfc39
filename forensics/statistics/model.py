"""The values that statistics hand on. `Stats` is the JSON contract `forensics/stats/1`.

Rates are 0 to 1, throughputs tokens/s, durations seconds. Every interval is one of 95 % unless it
is called a bound; bounds come from rounding alone and always hold.
"""

from __future__ import annotations

from typing import Any, Literal

import polars as pl
from msgspec import Struct

from forensics.model import Finding, Milestone, Run, Source
from forensics.statistics.table import Rows

SCHEMA = "forensics/stats/1"


class Distribution(Struct, frozen=True):
    """Median, 10th and 90th percentile and maximum over windows; None where there is no window."""

    median: float | None = None
    p10: float | None = None
    p90: float | None = None
    max: float | None = None


class Speculative(Struct, frozen=True):
    """Totals over all windows, never means of means.

    Attributes:
        method: As in the launch arguments (`mtp`, `ngram`, …).
        num_speculative_tokens: From the arguments, else the number of positions printed.
        windows: Lines whose numbers are consistent and that had a draft.
        drafts: Sum over windows of the drafts recovered from accepted tokens, mean length and
            per-position rates (see `windows.recovered`).
        draft_tokens: Sum of the drafted tokens as printed.
        accepted_tokens: Sum of the accepted tokens as printed.
        acceptance_rate: accepted_tokens / draft_tokens.
        mean_acceptance_length: 1 + accepted_tokens / drafts (V0: emitted tokens / drafts).
        per_position: Accepted at position i / drafts, from the printed rates weighted by drafts.
        accepted_throughput: Accepted tokens / seconds of the windows; warm-up left out.
        drafted_throughput: Drafted tokens / seconds of the windows; warm-up left out.
        excluded_warmup: Windows left out of the two throughputs, since they reach back into the
            start; they are in all counts.
        first_at: Time of the first window, None where no wrapper gives a full time.
        last_at: Time of the last one.
    """

    method: str | None
    num_speculative_tokens: int | None
    windows: int
    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    per_position: list[float]
    accepted_throughput: float | None
    drafted_throughput: float | None
    excluded_warmup: int
    first_at: str | None
    last_at: str | None


class Throughput(Struct, frozen=True):
    """Over the windows in which tokens were made; the first one after the start is left out."""

    generation_tokens_per_s: Distribution = Distribution()
    prompt_tokens_per_s: Distribution = Distribution()
    running: Distribution = Distribution()
    waiting: Distribution = Distribution()
    kv_cache_usage: Distribution = Distribution()
    prefix_cache_hit_rate: Distribution = Distribution()
    windows: int = 0


class Startup(Struct, frozen=True):
    """The start by phase; seconds count from the first line that has a time.

    Attributes:
        milestones: Phase boundaries reached.
        weights_gib: Memory of the weights.
        kv_cache_tokens: Tokens that the KV cache holds.
        max_concurrency: Requests of full length that fit.
        compile_s: torch.compile in total.
        capture_s: Graph capture.
        total_s: Until the server serves.
    """

    milestones: list[Milestone] = []
    weights_gib: float | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    compile_s: float | None = None
    capture_s: float | None = None
    total_s: float | None = None


class Point(Struct, frozen=True):
    """One value of a series.

    Attributes:
        at: Time (RFC 3339) if a wrapper gave one.
        line: Last line that it comes from; None for totals.
        name: What it is.
        value: The value.
        low: Lower end of its interval.
        high: Upper end.
        scope: `window` (over time, neighbours joined where there are many), `total` or `load`.
        clock: Time as printed.
        seconds: Since the first window.
        running: Requests running (scope `load`: at most so many, and more than half of it).
    """

    at: str | None
    line: int | None
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    scope: Literal["window", "total", "load"] = "window"
    clock: str | None = None
    seconds: float | None = None
    running: int | None = None


class Stats(Struct, frozen=True):
    """The JSON contract."""

    schema: str
    source: Source
    speculative: Speculative | None
    throughput: Throughput
    startup: Startup
    series: list[Point]
    findings: list[Finding]


class Estimate(Struct, frozen=True):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class Position(Struct, frozen=True):
    """One draft position: accepted of all drafts, and of those that got as far as it."""

    rate: Estimate
    conditional: Estimate | None


class Speculation(Struct, frozen=True):
    """What speculation did, with how well it is known.

    Attributes:
        totals: The contract's figures.
        drafts_low: Fewest drafts that the printed numbers allow.
        drafts_high: Most drafts that they allow.
        rate: Acceptance rate.
        length: Mean acceptance length; its interval holds rounding as well as chance.
        positions: By position.
        estimated: Whether the counts are estimates (the server prints none).
        broken: Lines whose numbers contradict each other, and what is wrong with them.
    """

    totals: Speculative
    drafts_low: int | None = None
    drafts_high: int | None = None
    rate: Estimate | None = None
    length: Estimate | None = None
    positions: tuple[Position, ...] = ()
    estimated: bool = False
    broken: tuple[tuple[int, str], ...] = ()


class Diffusion(Struct, frozen=True):
    """What a diffusion model did: each denoising step evaluates a canvas, and fixes some of it.

    Attributes:
        windows: Lines whose numbers are consistent and that had a step.
        committed_tokens: Tokens that became final.
        denoising_steps: Steps of all requests.
        canvas_positions: Positions evaluated in them.
        tokens_per_step: committed_tokens / denoising_steps.
        steps_per_canvas: canvas_positions / committed_tokens: how often a position was evaluated
            until it was final, on average.
        committed_throughput: Committed tokens / seconds of the windows; the first one, which
            reaches back into the start, left out.
        broken: Lines whose numbers contradict each other, and what is wrong with them.
    """

    windows: int
    committed_tokens: int
    denoising_steps: int
    canvas_positions: int
    tokens_per_step: float | None
    steps_per_canvas: float | None
    committed_throughput: float | None
    broken: tuple[tuple[int, str], ...] = ()


class Load(Struct, frozen=True):
    """Windows with about the same number of running requests.

    Attributes:
        running: The most of them (a power of two); more than half of it were running.
        windows: How many windows.
        generation: Median generation throughput of the whole server.
        per_request: Median of throughput / running requests.
        length: Mean acceptance length there.
    """

    running: int
    windows: int
    generation: float | None
    per_request: float | None
    length: float | None


class BenchRow(Struct, frozen=True):
    """One request, or one group of equal ones, of a benchmark.

    Attributes:
        prompt_tokens: Tokens of the prompt, with what is before it in the context.
        output_tokens: Tokens made.
        ttft_s: Seconds to the first token.
        decode_tokens_per_s: Tokens/s after the first one, of one request.
        order: Place in the run, from 0; None for groups.
        count: Requests in it.
        concurrency: Requests at a time, if known.
        start_s: When it was sent, if known.
    """

    prompt_tokens: int
    output_tokens: int | None = None
    ttft_s: float | None = None
    decode_tokens_per_s: float | None = None
    order: int | None = None
    count: int = 1
    concurrency: int | None = None
    start_s: float | None = None


class Bench(Struct, frozen=True):
    """One benchmark file: its rows and the totals that it states by itself."""

    file: str
    kind: str
    rows: tuple[BenchRow, ...]
    totals: dict[str, float] = {}


class Counters(Struct, frozen=True):
    """What a metrics endpoint counted; missing counters are None."""

    engine: str
    model: str | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    per_position: tuple[int, ...] = ()
    emitted_tokens: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    prefix_hits: int | None = None
    prefix_queries: int | None = None
    preemptions: int | None = None
    ttft: tuple[float, int] | None = None
    inter_token: tuple[float, int] | None = None
    acceptance_length: float | None = None
    generation_tokens_per_s: float | None = None
    started_at: float | None = None


class Agreement(Struct, frozen=True):
    """One count in the log and in the counters.

    Attributes:
        name: Which.
        log: From the log; `low` and `high` are what its printed numbers allow.
        low: Least.
        high: Most.
        counter: From the endpoint.
        unlogged: Most that the part after the last line may hold: it is never printed.
        agrees: Whether low <= counter <= high + unlogged.
    """

    name: str
    log: float
    low: float
    high: float
    counter: float
    unlogged: float
    agrees: bool


class Report(Struct, frozen=True):
    """All that a reporter may show of one source; `stats` is the part that is a contract."""

    stats: Stats
    run: Run
    rows: Rows
    speculation: Speculation | None
    loads: tuple[Load, ...]
    benches: tuple[Bench, ...] = ()
    agreement: tuple[Agreement, ...] = ()
    counters: Counters | None = None
    arguments: dict[str, Any] = {}
    warmup: int = 0
    diffusion: Diffusion | None = None
    limits: tuple[str, ...] = ()

    @property
    def frame(self) -> pl.DataFrame:
        """The tidy table: all rows with all columns, made anew each time."""
        return self.rows.whole()
