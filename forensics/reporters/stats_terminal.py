"""Statistics as a person reads them: figures with their intervals, a small plot, then what to do.

80 columns, readable without colour. Every piece of untrusted text goes through `visible`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from forensics.model import Finding
from forensics.reporters.page import Page
from forensics.reporters.view import View, cut, visible
from forensics.statistics.advice import gain
from forensics.statistics.benchfiles import by_length
from forensics.statistics.model import (
    Bench,
    Counters,
    Diffusion,
    Distribution,
    Estimate,
    Report,
    Speculation,
)

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 4
_LENGTHS_SHOWN = 14
_PLOTTED = (
    ("mean_acceptance_length", "mean acceptance length"),
    ("generation_tokens_per_s", "generation, tokens/s"),
)


def render(report: Report, view: View, *, figures_only: bool = False) -> str:
    """Return the report as text, with terminal styles if the view has colour.

    Args:
        report: What to show.
        view: How.
        figures_only: Leave out plots and advice.
    """
    page = _Page(report, view)
    page.figures()
    if not figures_only:
        page.conclusions()
    return page.written()


class _Page(Page):
    def __init__(self, report: Report, view: View) -> None:
        super().__init__(view)
        self._report = report

    def figures(self) -> None:
        """Print tables."""
        report = self._report
        self._subject()
        if report.speculation is not None:
            self._speculation(report.speculation)
        elif report.diffusion is not None:
            self._diffusion(report.diffusion)
        elif report.stats.throughput.windows:
            self._title("Speculation")
            self._line("  no line of it in this log")
        elif not report.rows.height and report.stats.source.name and report.counters is None:
            self._title("There is no line of statistics in this log")
            self._wrap(
                "Servers print them while they work, every ten seconds or so, unless their "
                "statistics are switched off.",
                2,
            )
        self._throughput()
        self._requests()
        self._counters()
        self._agreement()
        for bench in report.benches:
            self._bench(bench)
        self._startup()

    def conclusions(self) -> None:
        """Print plots, advice and limits."""
        self._plots()
        self._advice()
        self._list("What could not be known", self._report.limits)

    # --- pieces --------------------------------------------------------------------------------

    def _subject(self) -> None:
        run, source = self._report.run, self._report.stats.source
        parts = [f"{run.engine or 'unknown server'} {run.engine_version or ''}".strip()]
        if run.model:
            parts.append(cut(visible(run.model), 44))
        if run.hardware.gpu:
            parts.append(visible(run.hardware.gpu))
        self._line(", ".join(parts), "bold")
        lines = f", {source.lines:,} lines" if source.lines else ""
        if source.name:
            self._line(cut(f"{visible(source.name)}{lines}", self._view.width), "dim")

    def _speculation(self, found: Speculation) -> None:
        totals = found.totals
        tokens = totals.num_speculative_tokens
        what = [
            totals.method or "",
            f"{tokens} token{'s' * (tokens > 1)} a draft" if tokens else "",
        ]
        named = ", ".join(part for part in what if part)
        windows = f"{totals.windows:,} windows" if totals.windows else "exact counters"
        self._title(f"Speculation: {named}, {windows}" if named else f"Speculation: {windows}")
        about = "about " if found.estimated else ""
        if totals.acceptance_rate is not None:
            accepted, drafted = totals.accepted_tokens or 0, totals.draft_tokens or 0
            counts = f"{about}{accepted:,} of {drafted:,} draft tokens"
            rate = f"{totals.acceptance_rate * 100:.1f} %"
            self._row("acceptance rate", _percents(found.rate) if found.rate else rate, counts)
        if found.length is not None:
            drafts = f"{about}{totals.drafts or 0:,} drafts"
            low, high = found.drafts_low, found.drafts_high
            if low is not None and high is not None and low != high:
                drafts += f" ({low:,} to {high:,})"
            self._row("mean length", _numbers(found.length), drafts)
        elif totals.mean_acceptance_length is not None:
            self._row("mean length", f"{totals.mean_acceptance_length:.3f}", "")
        if found.positions:
            self._line(
                f"  {'position':>8}  {'accepted, of all drafts':<26}"
                f"{'of those before':<26}pays below",
                "dim",
            )
        for i, place in enumerate(found.positions, 1):
            share = _percents(place.conditional) if place.conditional else ""
            worth = f"{gain(found.positions, i) * 100:.0f} %"
            self._line(f"  {i:>8}  {_percents(place.rate):<26}{share:<26}{worth:>6}")
        if totals.accepted_throughput is not None:
            accepted_s, drafted_s = totals.accepted_throughput, totals.drafted_throughput or 0.0
            speeds = f"{accepted_s:.1f} accepted, {drafted_s:.1f} drafted tokens/s"
            left = (
                f" ({totals.excluded_warmup} window of the start left out)"
                if totals.excluded_warmup
                else ""
            )
            self._line(f"  {speeds}{left}")

    def _diffusion(self, found: Diffusion) -> None:
        windows = f"{found.windows:,} window{'s' * (found.windows != 1)}"
        self._title(f"Diffusion: {windows}")
        steps = f"{found.committed_tokens:,} tokens in {found.denoising_steps:,} steps"
        if found.tokens_per_step is not None:
            self._row("tokens a step", f"{found.tokens_per_step:.3f}", steps)
        if found.steps_per_canvas is not None:
            evaluated = f"{found.canvas_positions:,} positions evaluated"
            self._row("steps a canvas", f"{found.steps_per_canvas:.3f}", evaluated)
        if found.committed_throughput is not None:
            self._line(f"  {found.committed_throughput:.1f} committed tokens/s")

    def _row(self, name: str, value: str, rest: str) -> None:
        self._line(f"  {name:<16}{value:<26}{rest}")

    def _throughput(self) -> None:
        shown = self._report.stats.throughput
        if not shown.windows:
            return
        warm = ", the first after the start left out" if self._report.warmup else ""
        self._title(f"Throughput: {shown.windows:,} windows with work{warm}")
        self._line(f"  {'':<22}{'median':>10}{'p10':>10}{'p90':>10}{'max':>10}", "dim")
        rows: tuple[tuple[str, Distribution, float, str], ...] = (
            ("generation, tokens/s", shown.generation_tokens_per_s, 1, ".1f"),
            ("prompt, tokens/s", shown.prompt_tokens_per_s, 1, ".1f"),
            ("running", shown.running, 1, ".0f"),
            ("waiting", shown.waiting, 1, ".0f"),
            ("KV cache used, %", shown.kv_cache_usage, 100, ".1f"),
            ("prefix cache hits, %", shown.prefix_cache_hit_rate, 100, ".1f"),
        )
        for name, values, scale, form in rows:
            if values.median is not None:
                cells = (values.median, values.p10, values.p90, values.max)
                self._line(
                    f"  {name:<22}" + "".join(f"{(v or 0) * scale:>10{form}}" for v in cells)
                )
        self._warmup()
        self._loads()

    def _warmup(self) -> None:
        """Show what was left out: the window that reaches back into the start."""
        rows = self._report.rows.having("generation_tokens_per_s").filter(pl.col("warmup"))
        speeds = rows["generation_tokens_per_s"].drop_nulls().to_list()
        if speeds and self._report.warmup:
            shown = ", ".join(f"{speed:.1f}" for speed in speeds[:4])
            self._line(f"  left out: {shown} tokens/s generated in the first window", "dim")

    def _requests(self) -> None:
        """Show how long whole requests took, where the server says it (Ollama)."""
        times = self._report.rows.having("request_s")["request_s"].drop_nulls()
        if times.is_empty():
            return
        first = float(times[0])
        self._title(f"Requests: {len(times):,} that made text")
        values = [times.quantile(q, interpolation="linear") or 0.0 for q in (0.5, 0.1, 0.9, 1.0)]
        self._line(f"  {'':<22}{'median':>10}{'p10':>10}{'p90':>10}{'max':>10}", "dim")
        self._line(f"  {'whole request, s':<22}" + "".join(f"{v:>10.2f}" for v in values))
        self._line(f"  the first one took {first:.2f} s", "dim")

    def _loads(self) -> None:
        if not self._report.loads:
            return
        self._line(
            f"  {'running requests':<22}{'windows':>10}{'tokens/s':>10}"
            f"{'a request':>10}{'length':>10}",
            "dim",
        )
        for load in self._report.loads:
            least = load.running // 2 + 1
            label = f"{least} to {load.running}" if least < load.running else str(load.running)
            cells = ((load.generation, 1), (load.per_request, 1), (load.length, 2))
            shown = "".join("" if v is None else f"{v:>10.{digits}f}" for v, digits in cells)
            self._line(f"  {label:<22}{load.windows:>10,}{shown}")

    def _counters(self) -> None:
        counters = self._report.counters
        if counters is None or self._report.agreement:
            return
        self._title("Counters since the start")
        for name, value in _counted(counters):
            self._line(f"  {name:<26}{value:>16}")

    def _agreement(self) -> None:
        if not self._report.agreement:
            return
        self._title("Log against counters")
        self._line(f"  {'':<26}{'log':>12}{'least':>12}{'most':>12}{'counter':>12}", "dim")
        for one in self._report.agreement:
            cells = "".join(
                f"{v:>12,.0f}" for v in (one.log, one.low, one.high + one.unlogged, one.counter)
            )
            word = "" if one.agrees else "  differs"
            self._line(
                f"  {one.name.replace('_', ' '):<26}{cells}{word}", "" if one.agrees else "bold red"
            )
        self._wrap(
            "most: by rounding, and one more window, since the last is never printed", 2, "dim"
        )

    def _bench(self, bench: Bench) -> None:
        self._title(f"Benchmark: {bench.kind}, {cut(visible(bench.file), 50)}")
        lengths = by_length(bench.rows)
        self._line(
            f"  {'prompt tokens':>13}{'requests':>10}{'first token, s':>16}"
            f"{'prompt tokens/s':>17}{'decode tokens/s':>17}",
            "dim",
        )
        for row in lengths if self._view.verbose else lengths[:_LENGTHS_SHOWN]:
            wait = f"{row.ttft_s:.2f}" if row.ttft_s else ""
            speed = f"{row.prompt_tokens / row.ttft_s:,.0f}" if row.ttft_s else ""
            decode = f"{row.decode_tokens_per_s:.1f}" if row.decode_tokens_per_s else ""
            self._line(
                f"  {row.prompt_tokens:>13,}{row.count:>10}{wait:>16}{speed:>17}{decode:>17}"
            )
        if not self._view.verbose and len(lengths) > _LENGTHS_SHOWN:
            self._line(f"  and {len(lengths) - _LENGTHS_SHOWN} more lengths (-v shows them)", "dim")

    def _startup(self) -> None:
        start = self._report.stats.startup
        if not start.milestones:
            return
        total = f": {start.total_s:.0f} s until it served" if start.total_s is not None else ""
        self._title(f"Start-up{total}")
        last = 0.0
        for one in start.milestones:
            if one.seconds is not None:
                step = one.seconds - last
                last = one.seconds
                self._line(
                    f"  {one.seconds:>8.0f} s  {visible(one.milestone.replace('_', ' ')):<24}"
                    f"{step:>+8.0f} s",
                    "dim",
                )
        facts = (
            ("weights", start.weights_gib, "GiB"),
            ("KV cache", start.kv_cache_tokens, "tokens"),
            ("full-length requests", start.max_concurrency, "at a time"),
            ("compiling", start.compile_s, "s"),
            ("capturing graphs", start.capture_s, "s"),
        )
        known = [
            f"{name} {_plain(value)} {unit}" for name, value, unit in facts if value is not None
        ]
        if known:
            self._wrap(", ".join(known), 2)

    def _plots(self) -> None:
        for name, title in _PLOTTED:
            points = [
                p for p in self._report.stats.series if p.name == name and p.scope == "window"
            ]
            if len(points) >= _ROWS:
                self._title(f"Over time: {title}")
                ends = [p.at or p.clock or "" for p in (points[0], points[-1])]
                for line in plot([p.value for p in points], self._view.width - 12):
                    self._line(f"  {line}")
                if any(ends):
                    self._line(f"  {'':>8}{visible(ends[0])} to {visible(ends[1])}", "dim")

    def _advice(self) -> None:
        findings = self._report.stats.findings
        if not findings:
            return
        self._title("What it says")
        for finding in findings:
            self._finding(finding)

    def _finding(self, finding: Finding) -> None:
        mark = "! " if finding.severity == "warning" else "- "
        self._wrap(finding.title, 4, "bold yellow" if mark == "! " else "bold", f"  {mark}")
        self._wrap(finding.cause, 4, "dim")
        for fix in finding.fixes:
            self._wrap(f"{fix.text} {fix.why[:1].upper()}{fix.why[1:]}.", 6, "green", "    > ")
        lines = ", ".join(str(e.line) for e in finding.evidence)
        if lines:
            self._line(f"    lines {lines}", "dim")


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _percents(value: Estimate) -> str:
    return f"{value.value * 100:.1f} % ({value.low * 100:.1f} to {value.high * 100:.1f})"


def _numbers(value: Estimate) -> str:
    return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"


def _counted(counters: Counters) -> list[tuple[str, str]]:
    def mean(pair: tuple[float, int] | None) -> float | None:
        return pair[0] / pair[1] if pair and pair[1] else None

    hits, queries = counters.prefix_hits, counters.prefix_queries
    rows = (
        ("prompt tokens", counters.prompt_tokens, ",.0f"),
        ("generation tokens", counters.generation_tokens, ",.0f"),
        (
            "prefix cache hits, %",
            100 * hits / queries if hits is not None and queries else None,
            ".1f",
        ),
        ("preemptions", counters.preemptions, ",.0f"),
        ("mean first token, s", mean(counters.ttft), ".3f"),
        ("mean inter-token, s", mean(counters.inter_token), ".4f"),
        ("running now", counters.running, ".0f"),
        ("waiting now", counters.waiting, ".0f"),
        (
            "KV cache used now, %",
            None if counters.kv_cache_usage is None else counters.kv_cache_usage * 100,
            ".1f",
        ),
    )
    return [(name, format(value, form)) for name, value, form in rows if value is not None]


def plot(values: Sequence[float], width: int) -> list[str]:
    """Return a bar chart of a few rows, with its range at the left; neighbours are averaged."""
    step = max(1.0, len(values) / width)
    columns = []
    for i in range(min(width, len(values))):
        part = values[int(i * step) : max(int(i * step) + 1, int((i + 1) * step))]
        columns.append(sum(part) / len(part))
    low, high = min(columns), max(columns)
    span = (high - low) or 1.0
    # The lowest value still shows one eighth, so that it is not taken for a gap.
    eighths = [1 + round((v - low) / span * (_ROWS * 8 - 1)) for v in columns]
    lines = []
    for row in range(_ROWS - 1, -1, -1):
        label = f"{high:7.2f}" if row == _ROWS - 1 else f"{low:7.2f}" if row == 0 else " " * 7
        cells = "".join(_BLOCKS[max(0, min(8, e - row * 8))] for e in eighths)
        lines.append(f"{label} {cells.rstrip()}")
    return lines
