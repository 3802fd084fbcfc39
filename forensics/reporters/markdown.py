"""A diagnosis for a pull request or an issue: Markdown that no log line can break out of."""

from __future__ import annotations

import re

from forensics.model import Diagnosis, Finding
from forensics.reporters.view import View, place, visible

#: What means something anywhere in a line, and what does only at its beginning.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&])")
_AT_START = re.compile(r"^(\s*\d{0,9})([-+#=.)])(?=\s|$|[-#=])")


def escape(text: str) -> str:
    """Return untrusted text so that Markdown shows it as it is; an `@` calls nobody."""
    shown = _AT_START.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", visible(text).strip()))
    return shown.replace("@", "@<!-- -->")


def code(text: str) -> str:
    """Return a code span that the text cannot end."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def fenced(text: str) -> str:
    """Return a code block that the text cannot end."""
    lines = [visible(line) for line in text.split("\n")]
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}text", *lines, fence))


def render(diagnosis: Diagnosis, view: View) -> str:
    """Return the report as Markdown."""
    root = next((f for f in diagnosis.findings if f.role == "root_cause"), None)
    run, cause = diagnosis.run, diagnosis.root_cause
    title = escape(root.title) if root else diagnosis.verdict.replace("_", " ")
    out = [f"### {diagnosis.verdict.replace('_', ' ').capitalize()}: {title}", ""]
    started = diagnosis.source.kind != "launch"
    if not started:
        count = len(diagnosis.findings)
        said = title if root else f"{count} finding{'s' * (count != 1)}, none that stops the start"
        out = [f"### Before the start: {said}", ""]
    facts = [f"{run.engine or 'unknown server'} {run.engine_version or ''}".strip()]
    facts += [f"model {run.model}"] if run.model else []
    facts += [diagnosis.outcome.replace("_", " ")] if started else []
    facts += [f"last milestone {diagnosis.last_milestone}"] if diagnosis.last_milestone else []
    out += [escape(", ".join(facts)), ""]
    if cause is not None:
        excerpt = view.excerpts.get(cause.line) if cause.source == view.home else None
        lines = [(cause.line, cause.text)]
        if cause.source is not None:
            out += [escape(f"In {cause.source}:"), ""]
        if excerpt is not None:
            lines = [*excerpt.before, *lines, *excerpt.after]
        out += [fenced("\n".join(f"{n}: {text[:300]}" for n, text in lines)), ""]
    if root is not None:
        out += [escape(root.cause), ""]
        for number, fix in enumerate(root.fixes, 1):
            out.append(f"{number}. {code(fix.text)} {escape(fix.why)} ({fix.confidence:.0%} sure)")
        out += [""] if root.fixes else []
    out += _launch(diagnosis)
    out += _steps(diagnosis)
    out += _list("Advice", [f for f in diagnosis.findings if f.role == "advice"])
    out += _list("What only followed", [f for f in diagnosis.findings if f.role == "symptom"])
    out += [f"*{escape(limit)}*" for limit in diagnosis.limits]
    return "\n".join(out).rstrip() + "\n"


def _launch(diagnosis: Diagnosis) -> list[str]:
    suggested = diagnosis.suggested_launch
    if suggested is None or not suggested.changes:
        return []
    made = [f"- {code(c.text)} {escape(c.why)} ({c.safety})" for c in suggested.changes]
    return ["Corrected launch:", "", *made, "", fenced(suggested.diff.rstrip("\n")), ""]


def _steps(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.next_steps:
        return []
    out = ["What would tell more:", ""]
    for number, step in enumerate(diagnosis.next_steps, 1):
        out.append(f"{number}. {code(step.command)}: {escape(step.why)} {escape(step.tells)}")
    return [*out, ""]


def _list(title: str, findings: list[Finding]) -> list[str]:
    if not findings:
        return []
    lines = [
        f"- {escape(f.title)}" + (f" ({escape(_where(f))})" if f.evidence else "") for f in findings
    ]
    return [f"{title}:", "", *lines, ""]


def _where(finding: Finding) -> str:
    return place(finding.evidence[0].source, finding.evidence[0].line)
