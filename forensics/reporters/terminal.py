"""The report a person reads after a crash: verdict, proof, fix, then what merely followed.

Plain sentences at 80 columns, readable without colour; styles only mark what the words already
say. Every piece of untrusted text goes through `visible`.
"""

from __future__ import annotations

import shlex

from rich.text import Text

from forensics.model import Citation, Diagnosis, Finding, FixAdvice, Record, RootCause
from forensics.records import understand
from forensics.reporters.page import Page
from forensics.reporters.view import View, cut, place, visible, wrap

_VERDICTS = {
    "diagnosed": ("DIAGNOSED", "bold red"),
    "suspected": ("SUSPECTED", "bold yellow"),
    "inconclusive": ("INCONCLUSIVE", "bold yellow"),
    "healthy": ("HEALTHY", "bold green"),
    "no_evidence": ("NO EVIDENCE", "bold"),
}
_OUTCOMES = {
    "served": "was serving when the log ends",
    "failed_startup": "failed to start",
    "crashed": "crashed while serving",
    "killed": "was killed",
    "stopped": "stopped in order",
    "starting": "was starting when the log ends",
    "unknown": "how it ended is not known",
}
#: Milestones whose name says too little; the others are shown as they are called.
_MILESTONES = {
    "devices_found": "GPUs looked for",
    "loading_drafter": "loading the drafter",
    "profiled": "memory profiled",
}
_SAFETY = {"safe": "", "review": "review", "lossy": "costs quality or speed"}
_SYMPTOMS_SHOWN = 6
_ROOT_LINES = 6


def render(diagnosis: Diagnosis, view: View) -> str:
    """Return the report as text, with terminal styles if the view has colour."""
    page = _Page(diagnosis, view)
    page.all()
    return page.written()


def _record(text: str) -> Record:
    """Return a quoted line, understood: its prefix apart from its message."""
    return understand(text.encode("utf-8", "surrogateescape"), 0)


def _phase(milestone: str) -> str:
    return _MILESTONES.get(milestone, milestone.replace("_", " "))


def _exact(fix: FixAdvice) -> str | None:
    """Return the words to type for a fix, None where there are no exact ones."""
    value = fix.value or ""
    if "<" in value or "\u2026" in value or " " in fix.target:
        return None
    if value.startswith("~/"):
        value = f"~/{shlex.quote(value[2:])}"  # a quoted tilde is no home folder
    elif value:
        value = shlex.quote(value)
    if fix.action == "set_env" and value:
        return f"{fix.target}={value}"
    if fix.action in {"set_argument", "runtime_option"} and fix.target.startswith("-"):
        return f"{fix.target} {value}".strip()
    return None


class _Page(Page):
    def __init__(self, diagnosis: Diagnosis, view: View) -> None:
        super().__init__(view)
        self._diagnosis = diagnosis
        self._width = view.width

    def all(self) -> None:
        found = self._diagnosis.findings
        root = next((f for f in found if f.role == "root_cause"), None)
        self._verdict(root)
        self._proof(root)
        if root is not None:
            self._fixes(root)
        self._launch()
        self._next_steps()
        for role, title in (("contributing", "Also seen before it"), ("advice", "Advice")):
            self._others([f for f in found if f.role == role], title)
        self._symptoms([f for f in found if f.role == "symptom"])
        self._timeline()
        self._list("What could not be known", self._diagnosis.limits)
        self._explain()
        if self._view.several:
            self._line()

    # --- pieces --------------------------------------------------------------------------------

    def _verdict(self, root: Finding | None) -> None:
        diagnosis = self._diagnosis
        word, style = _VERDICTS[diagnosis.verdict]
        said = root.title if root else self._unknown()
        head = Text(f"{word}  ", style=style)
        lines = wrap(said, self._width - len(word) - 2)
        head.append(lines[0] if lines else "", style="bold")
        self._line(head)
        for line in lines[1:]:
            self._line(" " * (len(word) + 2) + line, "bold")
        self._wrap(self._subject(), style="dim")

    def _unknown(self) -> str:
        diagnosis = self._diagnosis
        cause = diagnosis.root_cause
        if diagnosis.verdict == "healthy":
            return "nothing wrong found"
        if cause is None:
            return "nothing here says that a server failed"
        if cause.exception is not None:
            return f"{cause.exception.type.rpartition('.')[2]}, known to no rule yet"
        if diagnosis.verdict == "inconclusive":
            return "the log ends here: killed or cut"
        return "a fatal line, known to no rule yet"

    def _subject(self) -> str:
        run, diagnosis = self._diagnosis.run, self._diagnosis
        parts = [f"{run.engine or 'unknown server'} {run.engine_version or ''}".strip()]
        if run.model:
            parts.append(cut(run.model, 50))
        if run.hardware.gpu:
            parts.append(run.hardware.gpu)
        ended = _OUTCOMES[diagnosis.outcome]
        if diagnosis.last_milestone and diagnosis.outcome in {
            "failed_startup",
            "starting",
            "killed",
        }:
            ended += f" (last reached: {_phase(diagnosis.last_milestone)})"
        if run.exit_code is not None:
            ended += f", exit code {run.exit_code}"
        return f"{', '.join(parts)}: {ended}"

    def _proof(self, root: Finding | None) -> None:
        cause = self._diagnosis.root_cause
        if cause is None:
            return
        self._title("Root cause")
        self._quote(cause)
        if root is not None:
            self._line()
            self._wrap(root.cause)
            if root.count > 1:
                self._wrap(f"Printed {root.count} times.", style="dim")
            for other in root.evidence:
                if (other.source, other.line) != (cause.source, cause.line):
                    self._cite(other)
        elif cause.exception is not None and cause.exception.message:
            self._line()
            self._wrap(f"Fingerprint {cause.fingerprint}, for searching other runs.", style="dim")

    def _quote(self, cause: RootCause) -> None:
        """Quote the root line between its neighbours; the prefixes are said once, above."""
        excerpt = self._view.excerpts.get(cause.line) if cause.source == self._view.home else None
        root = _record(cause.text)
        said = [place(cause.source, cause.line)]
        if cause.process and cause.source != self._view.home:
            said.append(f"about {cause.process}")
        elif cause.process:
            said.append(f"printed by {cause.process}" + (f" (pid {root.pid})" if root.pid else ""))
        if root.clock:
            said.append(f"at {root.clock}")
        self._wrap(", ".join(said), style="dim")
        before = excerpt.before if excerpt else ()
        after = excerpt.after if excerpt else ()
        digits = len(str(cause.line + len(after)))
        room = self._width - digits - 5
        for number, text in before:
            self._line(f"  {number:>{digits}} | {self._near(text, root, room)}", "dim")
        self._root_line(root, cause.line, digits, room)
        for number, text in after:
            self._line(f"  {number:>{digits}} | {self._near(text, root, room)}", "dim")

    @staticmethod
    def _near(text: str, root: Record, room: int) -> str:
        record = _record(text)
        other = record.process not in {None, root.process}
        return cut(visible(f"({record.process}) " if other else "") + visible(record.message), room)

    def _root_line(self, root: Record, line: int, digits: int, room: int) -> None:
        lines = wrap(root.message, room) or [""]
        if len(lines) > _ROOT_LINES:
            lines = [*lines[: _ROOT_LINES - 1], "…"]
        for i, text in enumerate(lines):
            mark = f"> {line:>{digits}} | " if i == 0 else f"  {'':>{digits}} | "
            self._line(mark + text, "bold red" if i == 0 else "red")

    def _cite(self, citation: Citation) -> None:
        lead = f"  {place(citation.source, citation.line)}: "
        text = _record(citation.text).message
        self._line(lead + cut(visible(text), self._width - len(lead)), "dim")

    def _fixes(self, root: Finding) -> None:
        if not root.fixes:
            return
        self._title("Fix" if len(root.fixes) == 1 else "Fix, best first")
        for number, fix in enumerate(root.fixes, 1):
            self._fix(number, fix)
        if root.references:
            self._wrap("See " + ", ".join(root.references), style="dim")

    def _fix(self, number: int, fix: FixAdvice) -> None:
        notes = [f"{fix.confidence:.0%} sure"]
        if _SAFETY[fix.safety]:
            notes.insert(0, _SAFETY[fix.safety])
        self._wrap(fix.text, indent=5, first=f"  {number}. ", style="bold green")
        exact = _exact(fix)
        if exact is not None and exact not in fix.text:
            self._line("     " + visible(exact), "green")
        self._wrap(f"{fix.why} ({', '.join(notes)})", indent=5)

    def _launch(self) -> None:
        suggested = self._diagnosis.suggested_launch
        if suggested is None or (suggested.kind == "log" and not self._view.verbose):
            return
        self._corrected(suggested)

    def _next_steps(self) -> None:
        steps = self._diagnosis.next_steps
        if not steps:
            return
        self._title("What would tell more, one change at a time")
        for number, step in enumerate(steps, 1):
            self._wrap(step.command, indent=5, first=f"  {number}. ", style="bold")
            self._wrap(step.why, indent=5)
            self._wrap(step.tells, indent=5, style="dim")

    def _others(self, findings: list[Finding], title: str) -> None:
        if not findings:
            return
        self._title(title)
        # After a failure advice is beside the point: a line each, unless asked.
        brief = self._diagnosis.root_cause is not None and not self._view.verbose
        for finding in findings:
            self._wrap(f"{finding.title} [{finding.severity}]", indent=4, first="  - ")
            if not brief:
                self._wrap(finding.cause, indent=4, style="dim")
            for fix in finding.fixes[: 1 if brief else 2]:
                self._wrap(
                    f"{fix.text.rstrip('.')}: {fix.why}", indent=4, style="dim" if brief else ""
                )

    def _symptoms(self, findings: list[Finding]) -> None:
        if not findings:
            return
        self._title("What only followed from it")
        shown = findings if self._view.verbose else findings[:_SYMPTOMS_SHOWN]
        for finding in shown:
            first = finding.evidence[0] if finding.evidence else None
            line = f"{place(first.source, first.line)}: " if first is not None else ""
            times = f" (x{finding.count})" if finding.count > 1 else ""
            self._line(cut(f"  {line}{visible(finding.title)}{times}", self._width), "dim")
        if len(shown) < len(findings):
            self._line(f"  and {len(findings) - len(shown)} more (-v shows them)", "dim")

    def _timeline(self) -> None:
        timeline = self._diagnosis.timeline
        if not timeline:
            return
        self._title("Timeline")
        for milestone in timeline:
            when = f"{round(milestone.seconds):9} s" if milestone.seconds is not None else " " * 11
            where = place(milestone.source, milestone.line)
            self._line(f"{when}  {_phase(milestone.milestone):<24} {where}", "dim")

    def _explain(self) -> None:
        considered = self._view.considered
        if considered is None:
            return
        if not considered:
            self._title("Rules considered")
            self._line("  no rule had a line in this log", "dim")
        self._list("Rules considered", (f"{c.rule}: {c.result}. {c.why}" for c in considered))
