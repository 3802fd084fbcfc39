"""Rules to findings: templates filled, fixes chosen for this run, lines cited.

Placeholders are filled from captures, look-ups and facts; nothing else is interpreted, so a log
line can only ever be text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from forensics.conditions import Answer, View, dig, evaluate
from forensics.knowledge import Tables, exists, image, lookup
from forensics.model import (
    DEFAULT_SAFETY,
    Citation,
    Evidence,
    ExceptionName,
    Failure,
    Finding,
    FixAdvice,
    NextStep,
    Record,
    Role,
    RootCause,
    Truth,
)
from forensics.rootcause import fingerprint
from forensics.rules_schema import FixSpec, Rule

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.]*(?:[=+*/<>-][\d.]+)*)\}")
#: `argument.NAME=DEFAULT+DELTA<LIMIT`: a number near the one in use (see docs/writing-rules.md).
_COMPUTED = re.compile(
    r"(?P<name>argument\.[\w.]+?)(?:=(?P<default>[\d.]+))?(?P<op>[-+*/])(?P<by>[\d.]+)"
    r"(?:(?P<bound>[<>])(?P<limit>[\d.]+))?$"
)
_MAX_VALUE = 400
_MAX_CITED = 5
MAX_QUOTED = 2000
#: Share of its confidence that a fix keeps when its condition cannot be told.
_UNSURE = 0.8

_WORDS: dict[str, str] = {
    "set_argument": "set {target} {value}",
    "remove_argument": "remove {target}",
    "rename_argument": "write {value} in place of {target}",
    "set_env": "set {target}={value}",
    "unset_env": "remove the environment variable {target}",
    "switch_image": "use the image {value}",
    "pin_digest": "pin the image to {value}",
    "upgrade": "upgrade {target} to {value}",
    "downgrade": "go back to {target} {value}",
    "runtime_option": "start the container with {target} {value}",
    "change_host": "on the host: {target} {value}",
    "wait_for_fix": "wait for a fix of {target}",
    "report_upstream": "report it to {target}",
}


class _Missing(Exception):  # noqa: N818 - control flow within this module
    """A placeholder has no value."""


class Filler:
    """Turns rules into findings over one evidence.

    Args:
        evidence: What is known.
        tables: The rule set's tables.
        index: Pattern to its index in the evidence's hits.
    """

    def __init__(self, evidence: Evidence, tables: Tables, index: Mapping[str, int]) -> None:
        self.evidence = evidence
        self.tables = tables
        self._view = View(evidence, index, lambda _: Truth.UNKNOWN, tables)

    def values(self, rule: Rule, answer: Answer) -> dict[str, str]:
        """Return captures with what look-ups add."""
        found = dict(answer.captures)
        version = self.evidence.run.engine_version
        for wanted in rule.lookups:
            try:
                key = self._fill(wanted.key, found)
            except _Missing:
                continue
            for name, value in lookup(self.tables, wanted.table, key, version).items():
                found.setdefault(name, value)
        return found

    def finding(
        self,
        rule: Rule,
        answer: Answer,
        *,
        role: Role,
        caused_by: str | None,
        also: Iterable[tuple[int, str, str | None]] = (),
    ) -> Finding:
        """Return the finding of a rule that holds.

        Args:
            rule: The rule.
            answer: Its proof.
            role: Its role in this run.
            caused_by: The rule of which it is a symptom.
            also: Lines to cite where the rule itself names none.
        """
        values = self.values(rule, answer)
        cited = [_cite(hit.record) for hit in answer.lines[:_MAX_CITED]]
        cited += [Citation(line, text[:MAX_QUOTED], process) for line, text, process in also]
        return Finding(
            rule=rule.id,
            title=self.text(rule.title, values),
            severity=rule.severity,
            role=role,
            confidence=rule.confidence,
            caused_by=caused_by,
            cause=self.text(rule.cause, values),
            evidence=cited,
            captures=values,
            fixes=self.fixes(rule, values),
            references=list(rule.references),
            count=max(1, answer.count),
        )

    def fixes(self, rule: Rule, values: dict[str, str]) -> list[FixAdvice]:
        """Return the fixes that fit this run, best first."""
        found: list[FixAdvice] = []
        for spec in rule.fixes:
            truth = evaluate(spec.when, self._view).truth if spec.when is not None else Truth.HOLDS
            if truth is Truth.FAILS:
                continue
            try:
                found.append(self._fix(spec, values, sure=truth is Truth.HOLDS))
            except _Missing:
                continue
        return found

    def _fix(self, spec: FixSpec, values: dict[str, str], *, sure: bool) -> FixAdvice:
        target = self._fill(spec.target, values)
        value = self._fill(spec.value, values) if spec.value is not None else None
        if spec.action in {"set_argument", "set_env"} and self._unknown_to_release(target, value):
            raise _Missing
        why = self.text(spec.why, values)
        if value is not None and value.startswith("image:"):
            entry = image(self.tables, value.removeprefix("image:"))
            if entry is None:
                raise _Missing
            value, why = str(entry["ref"]), f"{why}: {entry['summary']}"
        text = self._fill(spec.text, values) if spec.text else None
        if text is None:
            words = _WORDS[spec.action].format(target=target, value=value or "").strip()
            text = words[:1].upper() + words[1:]
        return FixAdvice(
            action=spec.action,
            target=target,
            value=value,
            text=text,
            why=why,
            confidence=round(spec.confidence * (1 if sure else _UNSURE), 3),
            safety=spec.safety or DEFAULT_SAFETY.get(spec.action, "safe"),
            reference=spec.reference,
        )

    def _unknown_to_release(self, target: str, value: str | None) -> bool:
        """Say whether this run's release surely lacks an option or variable."""
        run = self.evidence.run
        if run.engine != "vllm" or run.engine_version is None:
            return False
        return exists(self.tables, target, value, run.engine_version) is False

    def next_steps(self, rule: Rule, answer: Answer) -> tuple[NextStep, ...]:
        """Return the next runs that would tell more."""
        values = self.values(rule, answer)
        return tuple(
            NextStep(
                command=self.text(step.command, values),
                why=self.text(step.why, values),
                tells=self.text(step.tells, values),
            )
            for step in rule.next_steps
            if step.when is None or evaluate(step.when, self._view).truth is not Truth.FAILS
        )

    def text(self, template: str, values: dict[str, str]) -> str:
        """Fill a text; placeholders without a value are left out."""
        filled = _PLACEHOLDER.sub(lambda m: self._value(m[1], values) or "", template)
        plain = re.sub(r"\s+([.,;:])(?!\w)", r"\1", re.sub(r"\s+", " ", filled))
        # A capture that ends in a full stop, and the sentence's own.
        return re.sub(r"(?<!\.)\.\.(?!\.)", ".", plain).strip()

    def _fill(self, template: str, values: dict[str, str]) -> str:
        """Fill a text; raise `_Missing` where a value is not there."""

        def put(found: re.Match[str]) -> str:
            value = self._value(found[1], values)
            if not value:
                raise _Missing
            return value

        # A lone brace pair is JSON (`{"moe_backend":"triton"}`): it is no placeholder.
        return _PLACEHOLDER.sub(put, template).strip()

    def _value(self, name: str, values: dict[str, str]) -> str | None:
        if name in values:
            return values[name][:_MAX_VALUE]
        computed = _COMPUTED.match(name)
        if computed is not None:
            return self._computed(computed, values)
        run = self.evidence.run
        if name.startswith("argument."):
            value = dig(self.evidence.arguments, name.removeprefix("argument."))
            return None if value is None else str(value)[:_MAX_VALUE]
        facts: dict[str, Any] = {
            "engine": run.engine,
            "engine_version": run.engine_version,
            "image": run.image,
            "model": run.model,
            "gpu": run.hardware.gpu,
            "compute_capability": run.hardware.compute_capability,
            "exit_code": run.exit_code,
            "last_milestone": self.evidence.milestones[-1].milestone
            if self.evidence.milestones
            else None,
        }
        value = facts.get(name)
        return None if value is None else str(value)[:_MAX_VALUE]

    def _computed(self, asked: re.Match[str], values: dict[str, str]) -> str | None:
        """Return a number reckoned from an argument, None where that cannot or must not be."""
        text = self._value(asked["name"], values) or asked["default"]
        try:
            number, by = float(text), float(asked["by"])
        except (TypeError, ValueError):
            return None
        if asked["op"] == "/" and by == 0:
            return None
        result = {
            "+": number + by,
            "-": number - by,
            "*": number * by,
            "/": number / by if by else 0.0,
        }[asked["op"]]
        limit = float(asked["limit"]) if asked["limit"] else None
        over = limit is not None and (result >= limit if asked["bound"] == "<" else result <= limit)
        if over or result <= 0:
            return None
        whole = "." not in text and asked["op"] in "+-*" and by.is_integer()
        return str(int(result)) if whole else f"{result:.2f}"


def _cite(record: Record) -> Citation:
    return Citation(record.line, record.text[:MAX_QUOTED], record.process, record.at, record.source)


def root_of_line(record: Record, rule: str | None, last_milestone: str | None) -> RootCause:
    """Return the root cause that one line is."""
    failure = Failure(record.line, record.text, record.process, None, frozenset(), "fatal")
    root = root_of_failure(failure, rule, fingerprint(failure, last_milestone))
    return replace(root, source=record.source)


def root_of_failure(failure: Failure, rule: str | None, key: str) -> RootCause:
    """Return the root cause of a failure found by structure."""
    event = failure.exception
    return RootCause(
        line=failure.line,
        text=failure.text[:MAX_QUOTED],
        process=failure.process,
        exception=ExceptionName(event.type, event.message[:MAX_QUOTED] or None) if event else None,
        rule=rule,
        fingerprint=key,
    )
