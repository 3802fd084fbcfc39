"""A run against what is known of its model and GPU (`rules/tables/baselines.yaml`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from forensics.statistics.model import Load, Report, Speculation
from forensics.statistics.words import Captures, number

#: Fewer windows decide nothing.
MIN_WINDOWS = 3
#: A figure is below its baseline if it is more than a tenth below the lowest reported one.
_BELOW = 0.9


def enough(found: Speculation | None) -> bool:
    """Say whether there are windows, or exact counters, enough to judge."""
    return found is not None and (found.totals.windows >= MIN_WINDOWS or found.totals.windows == 0)


def found(report: Report, tables: Mapping[str, Any]) -> Iterator[tuple[str, Captures]]:
    """Yield how a run compares with each figure that is known for its model, GPU and arguments.

    Args:
        report: The figures.
        tables: With the table `baselines`.
    """
    model, gpu = (report.run.model or "").lower(), report.run.hardware.gpu or ""
    for entry in (tables.get("baselines") or {}).get("baselines") or []:
        hardware = entry.get("hardware") or {}
        globs = entry.get("models") or []
        if entry.get("engine") not in {None, report.run.engine} or not model:
            continue
        if not any(fnmatchcase(model, str(glob).lower()) for glob in globs):
            continue
        if not gpu or str(hardware.get("gpu") or "") not in gpu:
            continue
        yield from _against(entry, report)


def _against(entry: Mapping[str, Any], report: Report) -> Iterator[tuple[str, Captures]]:
    for figure in entry.get("figures") or []:
        measured = _measured(figure, report)
        low, high = figure.get("low"), figure.get("high")
        if measured is None or low is None or high is None:
            continue
        if not _configured(figure.get("arguments") or {}, report.arguments):
            continue
        captures = {
            "metric": str(figure["metric"]).replace("_per_s", "/s").replace("_", " "),
            "measured": number(measured),
            "low": number(low),
            "high": number(high),
            "configuration": str(figure.get("configuration")),
            "id": f"{entry['id']}.{figure['id']}",
            "confidence": str(figure.get("confidence")),
        }
        below = measured < low * _BELOW
        yield ("below-baseline" if below else "within-baseline"), captures


def _measured(figure: Mapping[str, Any], report: Report) -> float | None:
    speculation = report.speculation
    if figure.get("metric") == "mean_acceptance_length":
        known = speculation and speculation.length and enough(speculation)
        return speculation.length.value if known and speculation and speculation.length else None
    if figure.get("metric") == "generation_tokens_per_s" and figure.get("concurrency") in {1, None}:
        single: Load | None = next((load for load in report.loads if load.running == 1), None)
        return single.generation if single and single.windows >= MIN_WINDOWS else None
    return None


def _configured(wanted: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Say whether the server's arguments are those of a baseline, as far as it names them."""
    if not wanted:
        return False
    for name, value in wanted.items():
        found: Any = arguments
        for part in str(name).split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if value is None and found:
            return False
        if value is not None and str(found).lower() != str(value).lower():
            return False
    return True
