"""What a person reads before a start: what will go wrong, the line that says so, what to write."""

from __future__ import annotations

from rich.text import Text

from forensics.model import Diagnosis, Finding
from forensics.reporters.page import Page
from forensics.reporters.view import View, visible

_HEADS = {
    "fatal": ("WILL FAIL", "bold red"),
    "error": ("LIKELY TO FAIL", "bold red"),
    "warning": ("CHECK", "bold yellow"),
    "info": ("READY", "bold green"),
}
_MARKS = {"fatal": "bold red", "error": "bold red", "warning": "bold yellow", "info": "dim"}


def render(diagnosis: Diagnosis, view: View) -> str:
    """Return the report as text, with terminal styles if the view has colour."""
    page = _Page(diagnosis, view)
    page.all()
    return page.written()


class _Page(Page):
    def __init__(self, diagnosis: Diagnosis, view: View) -> None:
        super().__init__(view)
        self._diagnosis = diagnosis

    def all(self) -> None:
        findings = self._diagnosis.findings
        worst = min((f.severity for f in findings), key=list(_HEADS).index, default="info")
        word, style = _HEADS[worst]
        if self._diagnosis.run.engine is None and worst == "info":
            word, style = "INCOMPLETE", "bold yellow"
        head = Text(f"{word}  ", style=style)
        head.append(visible(self._counted()), style="bold")
        self._line(head)
        self._wrap(self._subject(), style="dim")
        for finding in findings:
            if finding.severity != "info" or self._view.verbose:
                self._finding(finding)
        self._hints([f for f in findings if f.severity == "info"])
        suggested = self._diagnosis.suggested_launch
        if suggested is not None:
            self._corrected(suggested)
        self._list("What could not be checked", self._diagnosis.limits)
        if self._view.considered is not None:
            said = [f"{one.rule}: {one.result}. {one.why}" for one in self._view.considered]
            self._list("Rules considered", said)
        if self._view.several:
            self._line()

    def _counted(self) -> str:
        counts: dict[str, int] = {}
        for finding in self._diagnosis.findings:
            counts[finding.severity] = counts.get(finding.severity, 0) + 1
        names = {"fatal": "fatal", "error": "error", "warning": "warning", "info": "remark"}
        parts = []
        for severity, name in names.items():
            number = counts.get(severity, 0)
            if number:
                plural = "s" if number > 1 and name != "fatal" else ""
                parts.append(f"{number} {name}{plural}")
        return ", ".join(parts) or "nothing wrong found"

    def _subject(self) -> str:
        run = self._diagnosis.run
        parts = [f"{run.engine or 'no known server'} {run.engine_version or ''}".strip()]
        parts += [run.model] if run.model else []
        parts += [f"image {run.image}"] if run.image else []
        parts += [run.hardware.gpu] if run.hardware.gpu else []
        return ", ".join(parts)

    def _finding(self, finding: Finding) -> None:
        self._line()
        self._wrap(
            f"{finding.title} [{finding.severity}]", indent=0, style=_MARKS[finding.severity]
        )
        for citation in finding.evidence:
            self._line(f"  {citation.line:>4} | {visible(citation.text)}", "dim")
        self._wrap(finding.cause)
        for fix in finding.fixes[: None if self._view.verbose else 2]:
            self._wrap(f"{fix.text.rstrip('.')}: {fix.why}", indent=4, first="  > ")

    def _hints(self, findings: list[Finding]) -> None:
        if self._view.verbose:
            return
        self._list("Remarks (-v tells more)", [f.title for f in findings])
