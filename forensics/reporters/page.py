"""A page of text for people: lines of so many columns, with styles where the view has colour."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from forensics.model import SuggestedLaunch
from forensics.reporters import launch
from forensics.reporters.view import View, wrap


class Page:
    """What the reporters for people write on.

    Args:
        view: Columns, and whether styles may be used.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=view.width,
            force_terminal=view.color,
            color_system="standard" if view.color else None,
            no_color=not view.color,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
            legacy_windows=False,
        )

    def written(self) -> str:
        """Return all that was printed, terminal styles included."""
        return self._out.getvalue()

    def _line(self, text: str | Text = "", style: str = "") -> None:
        """Print one line; untrusted text in it has been made visible."""
        self._console.print(Text(text, style=style) if isinstance(text, str) else text)

    def _wrap(self, text: str, indent: int = 2, style: str = "", first: str | None = None) -> None:
        """Print untrusted text over as many lines as it takes.

        Args:
            text: The text.
            indent: Blanks before each line.
            style: Its style.
            first: What the first line begins with instead.
        """
        lead = " " * indent
        for line in wrap(text, self._view.width, lead if first is None else first, lead):
            self._line(line, style)

    def _title(self, text: str) -> None:
        self._line()
        self._wrap(text, 0, "bold")

    def _list(self, title: str, texts: Iterable[str]) -> None:
        """Print untrusted texts below a title, or nothing where there are none."""
        for number, text in enumerate(texts):
            if number == 0:
                self._title(title)
            self._wrap(text, 4, "dim", "  - ")

    def _corrected(self, suggested: SuggestedLaunch) -> None:
        """Print the section on a corrected launch."""
        self._line()
        view = self._view
        for line in launch.lines(suggested, view.width, color=view.color, verbose=view.verbose):
            self._line(Text.assemble(*line))
