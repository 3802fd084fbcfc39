"""What wrapped the engine's own lines: from raw bytes to clean text and, per line, its time.

In: blocks of raw bytes. Out: `Block`s of clean bytes that keep the physical line structure, and a
way to split one line into time and text. Detection looks at the first lines only; the order of
`ENVELOPES` is the order of detection.
"""

from __future__ import annotations

from forensics.envelopes.docker_timestamps import DOCKER_TIMESTAMPS
from forensics.envelopes.envelope import Envelope
from forensics.envelopes.plain import PLAIN
from forensics.envelopes.text import Block, clean

ENVELOPES: tuple[Envelope, ...] = (DOCKER_TIMESTAMPS, PLAIN)

__all__ = ["ENVELOPES", "PLAIN", "Block", "Envelope", "clean", "detect"]


def detect(head: bytes) -> Envelope:
    """Return the envelope of a source.

    Args:
        head: Its first bytes (some ten kilobytes), raw.
    """
    lines = clean(head, 1).text.decode("utf-8", "replace").split("\n")[:50]
    lines = [line for line in lines if line.strip()]
    return next((e for e in ENVELOPES if lines and e.wraps(lines)), PLAIN)
