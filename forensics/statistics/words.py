"""Numbers as advice says them."""

from __future__ import annotations

#: What a finding is filled with.
Captures = dict[str, str]
_SMALL = 0.1


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as advice prints it."""
    return "unknown" if value is None else f"{value:,.{digits}f}"


def percent(value: float) -> str:
    """Return a share in percent."""
    return f"{value * 100:.1f} %" if value < _SMALL else f"{value * 100:.0f} %"
