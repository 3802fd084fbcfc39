"""No wrapper: the program's own lines."""

from __future__ import annotations

from forensics.envelopes.envelope import Envelope


def _split(line: str) -> tuple[str | None, str]:
    return None, line


PLAIN = Envelope(name=None, wraps=lambda _: True, split=_split)
