"""The JSON contract of statistics: one object a source, as lines where there are several."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forensics.statistics.model import Report


def render(reports: Sequence[Report]) -> str:
    """Return the statistics as JSON."""
    encoded = [msgspec.json.encode(report.stats) for report in reports]
    if len(encoded) == 1:
        encoded = [msgspec.json.format(encoded[0], indent=2)]
    return "".join(f"{one.decode()}\n" for one in encoded)
