"""The JSON contract of statistics: one object a source, as lines where there are several."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.reporters.view import as_json
from forensics.statistics.model import Report


def render(reports: Sequence[Report]) -> str:
    """Return the statistics as JSON."""
    return "".join(as_json(report.stats, one_line=len(reports) > 1) for report in reports)
