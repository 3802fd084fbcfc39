"""Findings and a launch to the corrected launch of the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from forensics.errors import SourceError
from forensics.launch import fixes
from forensics.launch.common import Beside, nothing_beside
from forensics.launch.forms import Form
from forensics.launch.model import Applied
from forensics.launch.reading import from_inspect, read_all
from forensics.launch.script import read
from forensics.model import (
    Finding,
    FixAdvice,
    LaunchAlternative,
    LaunchChange,
    SuggestedLaunch,
)

_WORTH = {"fatal", "error", "warning"}


class Correction(Struct, frozen=True):
    """A corrected launch as it is, secrets and all: only for writing where the user asks."""

    text: str
    shown: SuggestedLaunch

    @property
    def offers(self) -> bool:
        """Say whether there is anything that could be changed."""
        return bool(self.shown.changes or self.shown.alternatives)


def again(form: Form, beside: Beside = nothing_beside) -> fixes.Read:
    """Return what reads a changed text and finds the same launch in it."""
    launch = form.launch
    if launch.kind in {"inspect", "log"}:

        def plain(text: str) -> Form:
            found = read(text, launch.name, beside)
            if not found:
                raise SourceError(f"{launch.name} starts nothing any more")
            one = found[0]
            one.launch = replace(one.launch, kind=launch.kind)
            return one

        return plain
    place = _place(form, read_all(launch.text, launch.name, beside))

    def same(text: str) -> Form:
        found = read_all(text, launch.name, beside)
        named = [f for f in found if f.launch.service == launch.service]
        if launch.service is not None and len(named) == 1:
            return named[0]
        if place >= len(found):
            raise SourceError(f"{launch.name} has one launch less")
        return found[place]

    return same


def _place(form: Form, forms: Sequence[Form]) -> int:
    line = form.launch.positions.get("command")
    return next((i for i, f in enumerate(forms) if f.launch.positions.get("command") == line), 0)


def correct(
    form: Form,
    findings: Sequence[Finding],
    beside: Beside = nothing_beside,
    *,
    before_start: bool = False,
) -> Correction | None:
    """Return the launch with what the findings advise, None where they advise nothing.

    The best fix that fits is taken of the root cause and of every other finding that warns (there
    only if it is safe, before a start in any case); what would change the same thing otherwise is
    an alternative. The order of findings decides where two exclude each other.
    """
    once_more = again(form, beside)
    main = [f for f in findings if f.role == "root_cause" or f.severity in _WORTH]
    main = [f for f in main if f.role != "symptom"]
    chosen = fixes.first_of_each(main if before_start else _safe(main), form, once_more)
    done = fixes.suggest(form, chosen, once_more)
    if not done.applied and not done.refused:
        return None
    others = fixes.alternatives(main, form, once_more, [fix for _, fix in chosen])
    name = form.launch.name.rpartition("/")[2] or "launch"
    name = f"{name}.sh" if form.launch.kind in {"inspect", "log"} else name
    old = form.launch.text
    return Correction(
        done.text,
        SuggestedLaunch(
            kind=form.launch.kind,
            text=done.text,
            diff=fixes.diff(old, done.text, name),
            changes=_changes(done.applied),
            not_changed=_changes(done.refused),
            alternatives=[
                LaunchAlternative(o.text, fixes.diff(old, o.text, name), _changes(o.applied))
                for o in others
            ],
        ),
    )


def _safe(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out fixes of mere advice that risk something: they are offered beside."""
    found = []
    for one in findings:
        kept: list[FixAdvice] = one.fixes
        if one.role not in {"root_cause", "contributing"}:
            kept = [f for f in one.fixes if f.safety == "safe"]
        if kept:
            found.append(replace(one, fixes=kept))
    return found


def _changes(applied: Iterable[Applied]) -> list[LaunchChange]:
    return [LaunchChange(**asdict(one)) for one in applied]


__all__ = ["Correction", "again", "correct", "from_inspect"]
