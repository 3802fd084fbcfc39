"""The JSON contract: one object a source."""

from __future__ import annotations

import msgspec

from forensics.model import Diagnosis
from forensics.reporters.view import View, escaped


def render(diagnosis: Diagnosis, view: View) -> str:
    """Return the diagnosis as JSON: one line where several follow, else indented."""
    encoded = msgspec.json.encode(diagnosis)
    if not view.several:
        encoded = msgspec.json.format(encoded, indent=2)
    return escaped(encoded.decode()) + "\n"
