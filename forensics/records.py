"""Lines to records: the first dialect that knows a line's prefix understands it."""

from __future__ import annotations

from forensics.engines import ENGINES
from forensics.engines.generic import parse as parse_generic
from forensics.model import Record


def understand(raw: bytes, line: int, at: str | None = None) -> Record:
    """Return the record of one clean line.

    Args:
        raw: The line without its newline; bytes that are no UTF-8 become U+FFFD.
        line: Its physical number.
        at: Its time, as its envelope says it.
    """
    text = raw.decode("utf-8", "replace")
    for engine in ENGINES:
        record = engine.parse(text, line, at)
        if record is not None:
            return record
    return parse_generic(text, line, at)
