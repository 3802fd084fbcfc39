"""What wrapped the engine's own lines: from raw bytes to clean text with line numbers and times.

In: runs of raw bytes. Out: clean `Block`s that know the physical line and the time of each line,
by service. Detection looks at the first bytes only; the order of `ENVELOPES` is the order of
detection, and envelopes within envelopes are taken off in turn.
"""

from __future__ import annotations

from forensics.envelopes.batch import Batch, Envelope, Layer
from forensics.envelopes.binary import BINARY
from forensics.envelopes.jsonlines import JSON_LINES
from forensics.envelopes.pasted import PASTED
from forensics.envelopes.pipeline import Pipeline, detect_all
from forensics.envelopes.prefixes import PREFIXES
from forensics.envelopes.quiet import Quiet
from forensics.envelopes.text import Block, clean

ENVELOPES: tuple[Envelope, ...] = (*BINARY, *JSON_LINES, *PREFIXES, PASTED)

__all__ = ["ENVELOPES", "Batch", "Block", "Envelope", "Layer", "Pipeline", "clean", "detect"]
__all__ += ["Quiet", "pipeline"]


def detect(head: bytes) -> tuple[Envelope, ...]:
    """Return the envelopes of a source, the outermost first.

    Args:
        head: Its first bytes (some ten kilobytes), raw.
    """
    return detect_all(head, ENVELOPES)


def pipeline(head: bytes) -> Pipeline:
    """Return what takes the envelopes of a source off.

    Args:
        head: Its first bytes (some ten kilobytes), raw.
    """
    return Pipeline(detect(head), head)
