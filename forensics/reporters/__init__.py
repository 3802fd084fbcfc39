"""How a diagnosis looks: one module an output, each a function from a value to text."""

from __future__ import annotations

from collections.abc import Callable

from forensics.model import Diagnosis
from forensics.reporters.view import View

Render = Callable[[Diagnosis, View], str]


def _terminal(diagnosis: Diagnosis, view: View) -> str:
    from forensics.reporters.terminal import render

    return render(diagnosis, view)


def _json(diagnosis: Diagnosis, view: View) -> str:
    from forensics.reporters.json_ import render

    return render(diagnosis, view)


def _markdown(diagnosis: Diagnosis, view: View) -> str:
    from forensics.reporters.markdown import render

    return render(diagnosis, view)


def _sarif(diagnosis: Diagnosis, view: View) -> str:
    from forensics.reporters.sarif import render

    return render(diagnosis, view)


#: Name of a format to its function; imports happen on first use.
REPORTERS: dict[str, Render] = {
    "terminal": _terminal,
    "text": _terminal,
    "json": _json,
    "markdown": _markdown,
    "sarif": _sarif,
}

__all__ = ["REPORTERS", "Render", "View"]
