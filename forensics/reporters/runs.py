"""Several runs of one log in a few lines: how many starts, which failed how, which one served.

Said before the reports; runs that failed alike are told once.
"""

from __future__ import annotations

from collections.abc import Sequence

from forensics.model import FAILED, Diagnosis
from forensics.reporters.view import place as where_is
from forensics.reporters.view import visible

_LISTED, _FIRST = 12, 4
_WORDS = {
    "served": "served",
    "stopped": "stopped in order",
    "failed_startup": "failed to start",
    "crashed": "crashed while serving",
    "killed": "was killed",
    "starting": "was still starting",
    "unknown": "ended in a way that is not known",
}


def failed(diagnosis: Diagnosis) -> bool:
    """Say whether a run failed."""
    return diagnosis.verdict in FAILED


def service(diagnosis: Diagnosis) -> str:
    """Return the part of a source's name that is common to the runs of one service."""
    head, mark, number = diagnosis.source.name.rpartition("#")
    return head if mark and number.isdecimal() else diagnosis.source.name


def kinds(diagnoses: Sequence[Diagnosis]) -> list[int]:
    """Return the places of the runs to report: of those that failed alike only the last one."""
    seen: dict[tuple[str, str | None, str | None], int] = {}
    for place, one in enumerate(diagnoses):
        seen[_key(one)] = place
    return sorted(seen.values())


def _key(one: Diagnosis) -> tuple[str, str | None, str | None]:
    root = one.root_cause
    # The rule says more than the line: line numbers in texts differ from start to start.
    cause = None if root is None else root.rule or root.fingerprint
    return service(one), one.outcome, cause


def summary(diagnoses: Sequence[Diagnosis]) -> str:
    """Return the summary of the runs of one log; empty where there is only one.

    Args:
        diagnoses: All runs, by service in order.
    """
    if len(diagnoses) <= 1:
        return ""
    lines: list[str] = []
    for name in dict.fromkeys(service(one) for one in diagnoses):
        mine = [one for one in diagnoses if service(one) == name]
        lines += _of_service(name, mine)
    return "".join(f"{visible(line)}\n" for line in lines)


def _of_service(name: str, mine: Sequence[Diagnosis]) -> list[str]:
    if len(mine) == 1:
        return [f"{name}: {_said(mine[0])}"]
    alike = all(failed(one) for one in mine) and len({_key(one)[2] for one in mine}) == 1
    if alike:
        roots = [one.root_cause.line for one in mine if one.root_cause is not None]
        where = f" (lines {roots[0]} to {roots[-1]})" if roots else ""
        return [f"{name}: restart loop: {len(mine)} starts, all the same cause{where}"]
    lines = [f"{name}: {len(mine)} starts"]
    shown = list(mine)
    if len(shown) > _LISTED:
        shown = [*shown[:_FIRST], *shown[-(_LISTED - _FIRST) :]]
    for place, one in enumerate(shown):
        if place == _FIRST and len(shown) < len(mine):
            lines.append(f"  … {len(mine) - len(shown)} more")
        lines.append(f"  #{one.source.name.rpartition('#')[2]} {_said(one)}")
    served = [one for one in mine if one.outcome in {"served", "stopped", "crashed"}]
    last = f"#{served[-1].source.name.rpartition('#')[2]}" if served else None
    lines.append(f"  {last} is the last that served" if last else "  none of them served")
    return lines


def _said(one: Diagnosis) -> str:
    root = one.root_cause
    if root is None:
        return _WORDS[one.outcome]
    title = next((f.title for f in one.findings if f.rule == root.rule), None)
    where = where_is(root.source, root.line)
    return f"{_WORDS[one.outcome]}: {title or root.text[:120]} ({where})"
