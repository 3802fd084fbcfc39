"""Statistics as one page that needs nothing else: figures, charts, advice; no script, no address.

Charts are drawn as SVG from the series of the JSON contract. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from forensics.reporters import stats_terminal
from forensics.reporters.view import View, visible
from forensics.statistics.model import Point, Report

_WIDTH, _HEIGHT = 720, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --line: #2563a8; --band: #2563a833; --grid: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
pre { font: 12.5px/1.35 ui-monospace, monospace; overflow-x: auto; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.grid { stroke: var(--grid); } .line { fill: none; stroke: var(--line); stroke-width: 1.5; }
.band { fill: var(--band); stroke: none; } .bar { fill: var(--line); }
dt { font-weight: 600; margin-top: 1rem; } .warning::before { content: "Warning: "; }
"""
_CHARTS = (
    ("acceptance_rate", "Acceptance rate over time, with 95 % intervals", 1.0),
    ("mean_acceptance_length", "Mean acceptance length over time", None),
    ("generation_tokens_per_s", "Generation throughput over time, tokens/s", None),
    ("prompt_tokens_per_s", "Prompt throughput over time, tokens/s", None),
    ("kv_cache_usage", "KV cache used over time", 1.0),
)


def render(reports: Sequence[Report]) -> str:
    """Return the page."""
    body = "".join(_report(report) for report in reports)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Statistics</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _report(report: Report) -> str:
    run, source = report.run, report.stats.source
    name = " ".join(part for part in (run.engine, run.engine_version, run.model) if part)
    parts = [f"<h1>{_text(name or 'Statistics')}</h1><p>{_text(source.name)}</p>"]
    for key, title, top in _CHARTS:
        points = [p for p in report.stats.series if p.name == key and p.scope == "window"]
        if len(points) > 1:
            parts.append(f"<h2>{escape(title)}</h2>{_line_chart(points, title, top)}")
    loads = [
        p for p in report.stats.series if p.scope == "load" and p.name == "generation_tokens_per_s"
    ]
    if loads:
        title = "Generation throughput by running requests, tokens/s"
        parts.append(f"<h2>{title}</h2>{_bar_chart(loads, title)}")
    if report.stats.findings:
        parts.append("<h2>What it says</h2><dl>")
        for finding in report.stats.findings:
            fixes = "".join(
                f"<dd><b>{_text(f.text)}</b> {_text(f.why)}</dd>" for f in finding.fixes
            )
            parts.append(
                f'<dt class="{escape(finding.severity)}">{_text(finding.title)}</dt>'
                f"<dd>{_text(finding.cause)}</dd>{fixes}"
            )
        parts.append("</dl>")
    parts.append(f"<h2>All figures</h2><pre>{escape(_figures(report))}</pre>")
    return "".join(parts)


def _figures(report: Report) -> str:
    """Return the figures as the terminal shows them, without what the page shows better."""
    return stats_terminal.render(report, View(), figures_only=True)


def _text(text: str) -> str:
    return escape(visible(text))


def _frame(label: str, low: float, high: float, below: str) -> str:
    """Return the axes of a chart: three lines with their values, and what stands below."""
    lines = []
    for i in range(3):
        value = low + (high - low) * i / 2
        y = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * i / 2
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'{"".join(lines)}<text x="{_LEFT}" y="{_HEIGHT - 8}">{escape(below)}</text>'
    )


def _line_chart(points: list[Point], label: str, top: float | None) -> str:
    times = [p.seconds if p.seconds is not None else float(i) for i, p in enumerate(points)]
    low = 0.0 if top else min(p.value for p in points)
    high = top or max(p.value for p in points)
    high = high if high > low else low + 1
    span = (times[-1] - times[0]) or 1.0

    def place(time: float, value: float) -> str:
        x = _LEFT + (time - times[0]) / span * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    path = " ".join(place(t, p.value) for t, p in zip(times, points, strict=True))
    band = ""
    if all(p.low is not None and p.high is not None for p in points):
        upper = [place(t, p.high or 0.0) for t, p in zip(times, points, strict=True)]
        lower = [place(t, p.low or 0.0) for t, p in zip(times, points, strict=True)]
        band = f'<polygon class="band" points="{" ".join([*upper, *reversed(lower)])}"/>'
    ends = [visible(p.at or p.clock or "") for p in (points[0], points[-1])]
    below = f"{ends[0]} to {ends[1]}" if any(ends) else f"{span:.0f} s"
    return f'{_frame(label, low, high, below)}{band}<polyline class="line" points="{path}"/></svg>'


def _bar_chart(points: list[Point], label: str) -> str:
    high = max(p.value for p in points) or 1.0
    width = (_WIDTH - _LEFT - _RIGHT) / len(points)
    bars = []
    for i, point in enumerate(points):
        height = point.value / high * (_HEIGHT - _TOP - _BOTTOM)
        x, y = _LEFT + i * width, _HEIGHT - _BOTTOM - height
        bars.append(
            f'<rect class="bar" x="{x + width * 0.15:.1f}" y="{y:.1f}" '
            f'width="{width * 0.7:.1f}" height="{height:.1f}"/>'
            f'<text x="{x + width / 2:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">'
            f"{point.running}</text>"
        )
    return f"{_frame(label, 0.0, high, '')}{''.join(bars)}</svg>"
