"""How well a rate is known: intervals of 95 % from counts, widened by what rounding leaves open.

Tokens accepted per draft: from the spread that the per-position rates imply, since the tokens of
one draft are not independent. Single positions: by Wilson.
"""

from __future__ import annotations

from math import sqrt

from forensics.statistics.model import Estimate, Position, Speculative

Z = 1.959964
#: Half of the last digit of a printed rate (three decimals).
RATE_ERROR = 0.0005


def _spread(gained: float, rates: list[float]) -> float:
    """Return the standard deviation of the accepted tokens of one draft.

    The rate of position i is the share of drafts with at least i accepted, hence the mean is their
    sum and the mean of the square is the sum of (2 i - 1) times them.
    """
    if not rates:
        return sqrt(max(0.0, gained * max(0.0, 1 - gained))) if gained < 1 else sqrt(gained)
    mean = sum(rates)
    square = sum((2 * i + 1) * rate for i, rate in enumerate(rates))
    return sqrt(max(0.0, square - mean * mean))


def _error(gained: float, drafts: float, rates: list[float]) -> float:
    """Return half of the interval of the accepted tokens of a draft.

    Where all drafts came to the same (nothing or everything was accepted) nothing spreads, and
    the interval is that of Wilson for none of so many, at each position.
    """
    error = Z * _spread(gained, rates) / sqrt(drafts)
    return error or (len(rates) or 1) * Z * Z / (drafts + Z * Z)


def length(
    gained: float, drafts: float, bounds: tuple[float, float], rates: list[float]
) -> Estimate:
    """Return the mean acceptance length: by chance, widened by the bounds of the drafts.

    Args:
        gained: Tokens a draft without the bonus token.
        drafts: How many drafts.
        bounds: Fewest and most that the printed numbers allow.
        rates: By position.
    """
    error = _error(gained, drafts, rates)
    low = gained * drafts / bounds[1] if bounds[1] else gained
    high = gained * drafts / bounds[0] if bounds[0] else gained
    most = 1 + len(rates) if rates else 1 + high + error
    return Estimate(1 + gained, max(1.0, 1 + low - error), min(most, 1 + high + error))


def rate(totals: Speculative, drafts: float, rates: list[float]) -> Estimate | None:
    """Return the acceptance rate with its interval, None where counts are missing."""
    if totals.acceptance_rate is None or not totals.draft_tokens or totals.accepted_tokens is None:
        return None
    per_draft = totals.draft_tokens / drafts
    error = _error(totals.accepted_tokens / drafts, drafts, rates) / per_draft
    share = totals.acceptance_rate
    return Estimate(share, max(0.0, share - error), min(1.0, share + error))


def wilson(rate: float, count: float) -> Estimate:
    """Return the interval of Wilson for a share of so many."""
    if count <= 0:
        return Estimate(rate, 0.0, 1.0)
    square = Z * Z / count
    middle = (rate + square / 2) / (1 + square)
    half = Z * sqrt(max(0.0, rate * (1 - rate) / count + square / (4 * count))) / (1 + square)
    return Estimate(rate, min(rate, max(0.0, middle - half)), max(rate, min(1.0, middle + half)))


def positions(
    rates: list[float], drafts: float, bounds: tuple[float, float]
) -> tuple[Position, ...]:
    """Return each position's rate, and the rate among drafts that got as far as the one before."""
    found = []
    rounding = RATE_ERROR if bounds[0] != bounds[1] else 0.0
    for i, rate in enumerate(rates):
        own = wilson(rate, drafts)
        own = Estimate(rate, max(0.0, own.low - rounding), min(1.0, own.high + rounding))
        before = rates[i - 1] if i else 1.0
        share = wilson(min(1.0, rate / before), before * drafts) if before > 0 else None
        found.append(Position(own, share))
    return tuple(found)
