"""The JSON contract: one object a source."""

from __future__ import annotations

from forensics.model import Diagnosis
from forensics.reporters.view import View, as_json


def render(diagnosis: Diagnosis, view: View) -> str:
    """Return the diagnosis as JSON: one line where several follow, else indented."""
    return as_json(diagnosis, one_line=view.several)
