"""The report a person reads after a crash: verdict, proof, fix, then what merely followed.

Plain sentences at 80 columns, readable without colour; styles only mark what the words already
say. Every piece of untrusted text goes through `visible`.
"""

from __future__ import annotations

import io
import shlex

from rich.console import Console
from rich.text import Text

from forensics.model import Citation, Diagnosis, Finding, FixAdvice, Record, RootCause
from forensics.records import understand
from forensics.reporters import launch
from forensics.reporters.view import View, cut, visible, wrap

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
_MILESTONES = {
    "launched": "launched",
    "devices_found": "GPUs looked for",
    "arguments_parsed": "arguments parsed",
    "model_resolved": "model resolved",
    "engine_started": "engine started",
    "loading_weights": "loading weights",
    "loading_drafter": "loading the drafter",
    "weights_loaded": "weights loaded",
    "compiling": "compiling",
    "bytecode_transformed": "bytecode transformed",
    "compiled": "compiled",
    "cache_allocated": "cache allocated",
    "profiled": "memory profiled",
    "capturing_graphs": "capturing graphs",
    "graphs_captured": "graphs captured",
    "warming_up": "warming up",
    "engine_ready": "engine ready",
    "server_starting": "server starting",
    "serving": "serving",
}
_SAFETY = {"safe": "", "review": "review", "lossy": "costs quality or speed"}
_SYMPTOMS_SHOWN = 6
_ROOT_LINES = 6


def render(diagnosis: Diagnosis, view: View) -> str:
    """Return the report as text, with terminal styles if the view has colour."""
    out = io.StringIO()
    console = Console(
        file=out,
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
    page = _Page(console, diagnosis, view)
    page.all()
    return out.getvalue()


def _record(text: str) -> Record:
    """Return a quoted line, understood: its prefix apart from its message."""
    return understand(text.encode("utf-8", "surrogateescape"), 0)


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


class _Page:
    def __init__(self, console: Console, diagnosis: Diagnosis, view: View) -> None:
        self._console = console
        self._diagnosis = diagnosis
        self._view = view
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
        self._limits()
        self._explain()
        if self._view.several:
            self._line("")

    # --- pieces --------------------------------------------------------------------------------

    def _line(self, text: str | Text, style: str = "") -> None:
        self._console.print(Text(text, style=style) if isinstance(text, str) else text)

    def _wrap(self, text: str, indent: int = 2, style: str = "", first: str | None = None) -> None:
        lead = " " * indent
        lines = wrap(text, self._width, first if first is not None else lead, lead)
        for line in lines:
            self._line(line, style)

    def _title(self, text: str) -> None:
        self._line("")
        self._line(text, "bold")

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
            last = _MILESTONES.get(diagnosis.last_milestone, diagnosis.last_milestone)
            ended += f" (last reached: {last})"
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
            self._line("")
            self._wrap(root.cause)
            if root.count > 1:
                self._wrap(f"Printed {root.count} times.", style="dim")
            for other in root.evidence:
                if other.line != cause.line:
                    self._cite(other)
        elif cause.exception is not None and cause.exception.message:
            self._line("")
            self._wrap(f"Fingerprint {cause.fingerprint}, for searching other runs.", style="dim")

    def _quote(self, cause: RootCause) -> None:
        """Quote the root line between its neighbours; the prefixes are said once, above."""
        excerpt = self._view.excerpts.get(cause.line)
        root = _record(cause.text)
        said = [f"line {cause.line}"]
        if cause.process:
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
        lead = f"  line {citation.line}: "
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
        self._line("")
        view = self._view
        for line in launch.lines(suggested, self._width, color=view.color, verbose=view.verbose):
            self._line(Text.assemble(*line) if line else Text(""))

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
            line = f"line {finding.evidence[0].line}: " if finding.evidence else ""
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
            name = _MILESTONES.get(milestone.milestone, milestone.milestone)
            when = f"{milestone.seconds:9.0f} s" if milestone.seconds is not None else " " * 11
            self._line(f"{when}  {name:<24} line {milestone.line}", "dim")

    def _limits(self) -> None:
        limits = self._diagnosis.limits
        if not limits:
            return
        self._title("What could not be known")
        for text in limits:
            self._wrap(text, indent=4, first="  - ", style="dim")

    def _explain(self) -> None:
        considered = self._view.considered
        if considered is None:
            return
        self._title("Rules considered")
        if not considered:
            self._line("  no rule had a line in this log", "dim")
        for one in considered:
            self._wrap(f"{one.rule}: {one.result}. {one.why}", indent=4, first="  - ", style="dim")
