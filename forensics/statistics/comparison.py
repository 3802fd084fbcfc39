"""Logs of the same server with different numbers of speculative tokens, side by side.

One log tells what a position adds; only two tell what it costs. In: reports. Out: for each log
with more positions, a finding against the one with the next fewer, at every load that both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from forensics.model import Finding
from forensics.statistics.advice import filled
from forensics.statistics.model import Load, Report
from forensics.statistics.words import Captures, number

_SAME = 0.03
#: Advice from one log alone: a second one that measures it knows better.
_ESTIMATES = frozenset(
    f"statistics.{name}" for name in ("fewer-positions", "more-positions", "positions-worth")
)
_MIN_WINDOWS = 3


def compared(reports: Sequence[Report], tables: Mapping[str, Any]) -> list[Report]:
    """Return the reports, those with more positions with what the comparison says added.

    Args:
        reports: In any order.
        tables: Tables of the rule packs.
    """
    entry = ((tables.get("statistics") or {}).get("advice") or {}).get("compared-positions")
    if entry is None:
        return list(reports)
    done = list(reports)
    for i, report in enumerate(reports):
        other = _fewer(report, reports)
        captures = _captures(other, report) if other is not None else None
        if captures is not None:
            finding = filled("compared-positions", entry, captures, [])
            done[i] = _with(done[i], [finding])
            j = next(j for j, one in enumerate(reports) if one is other)
            done[j] = _with(done[j], [])
    return done


def _with(report: Report, findings: list[Finding]) -> Report:
    """Return a report with what was measured first, and without what was only estimated."""
    kept = [f for f in report.stats.findings if f.rule not in _ESTIMATES]
    return replace(report, stats=replace(report.stats, findings=[*findings, *kept]))


def _positions(report: Report) -> int:
    found = report.speculation
    return (found.totals.num_speculative_tokens or 0) if found is not None else 0


def _fewer(report: Report, reports: Sequence[Report]) -> Report | None:
    """Return the log of the same model with the most positions below this one's."""
    mine = _positions(report)
    alike = [r for r in reports if r.run.model == report.run.model and _positions(r) < mine]
    return max(alike, key=_positions, default=None)


def _length(report: Report) -> float:
    found = report.speculation
    return found.length.value if found is not None and found.length is not None else 1.0


def _shared(few: Report, many: Report) -> Iterator[tuple[Load, Load]]:
    by_running = {load.running: load for load in few.loads}
    for load in many.loads:
        other = by_running.get(load.running)
        enough = other is not None and min(load.windows, other.windows) >= _MIN_WINDOWS
        if enough and other is not None and other.generation and load.generation:
            yield other, load


def _captures(few: Report, many: Report) -> Captures | None:
    pairs = list(_shared(few, many))
    if not pairs:
        return None
    k_few, k_many = _positions(few), _positions(many)
    single, loaded = pairs[0], pairs[-1]
    added = (single[1].length or _length(many)) - (single[0].length or _length(few))
    before, after = loaded[0].generation or 0.0, loaded[1].generation or 0.0
    worse = after < before * (1 - _SAME)
    better = after > before * (1 + _SAME)
    best = k_many if better else k_few
    change = "fell" if worse else "rose" if better else "hardly moved"
    what = f"position {k_many}" if k_many == k_few + 1 else f"positions {k_few + 1} to {k_many}"
    verb = "adds" if k_many == k_few + 1 else "add"
    decision = "stay at" if best == k_few else "use"
    link = "but" if worse else "and"
    where = _running(loaded[1])
    verdict = (
        f"{what[0].upper()}{what[1:]} {verb} {number(added)} tokens per step at "
        f"{_running(single[1])}, {link} "
        f"throughput at {where} {change} from {number(before, 1)} to {number(after, 1)}: "
        + (f"{decision} {best}" if best else "run without speculation")
    )
    loads = " ".join(
        f"At {_running(b)}: {number(a.generation, 1)} against {number(b.generation, 1)} tokens/s, "
        f"{number((b.generation or 0.0) / (a.generation or 1.0))} times the speed; a step takes "
        f"{number(_step(a, b))} times as long."
        for a, b in pairs
    )
    return {
        "verdict": verdict,
        "few": str(k_few),
        "many": str(k_many),
        "best": str(best),
        "plain": "yes" if best == 0 else "no",
        "added": number(added),
        "lengths": f"mean length {number(_length(few))} against {number(_length(many))}",
        "loads": loads,
        "other": few.stats.source.name,
    }


def _running(load: Load) -> str:
    return "single stream" if load.running == 1 else f"{load.running} concurrent"


def _step(few: Load, many: Load) -> float:
    """Return how much longer a step takes: steps a second are throughput / tokens of a step."""
    steps = [(load.generation or 1.0) / (load.length or 1.0) for load in (few, many)]
    return steps[0] / steps[1]
