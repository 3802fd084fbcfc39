"""The type of an envelope that puts something before each line."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Envelope(Struct, frozen=True):
    """A line-wise wrapper.

    Args:
        name: As shown in `source.envelope`; None for no wrapper.
        wraps: Whether these first lines (text, not blank) are wrapped in it.
        split: One line to its time (RFC 3339 or None) and the text inside.
    """

    name: str | None
    wraps: Callable[[list[str]], bool]
    split: Callable[[str], tuple[str | None, str]]
