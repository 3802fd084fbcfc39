"""Whole logs with their known truth: `samples/<engine>/<case>/{log…, inspect.json, expect.yaml}`.

In: a folder of samples. Out: for each what is expected and what came out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from forensics import yamlio
from forensics.errors import RuleError
from forensics.model import Diagnosis, Outcome, Verdict


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """`expect.yaml`: where a sample comes from and what must be found.

    Attributes:
        source: Address, or "real run".
        made: How the log came to be; never hidden.
        redacted: Always yes: nothing private is in it.
        verdict: Expected verdict.
        outcome: Expected outcome.
        last_milestone: Expected last milestone.
        line: Expected root line, None for none.
        rule: Expected rule of the root, None where no rule knows it (or nothing failed).
        captures: Captures of the root finding.
        first_fix: Text of the first fix.
        findings: Ids of all other findings, sorted.
        log: Name of the log file in the folder.
        exit_code: Exit code stated beside the log (as `--exit-code` would).
        note: What this case is here to show.
    """

    source: str
    made: Literal["real", "reconstructed", "synthetic"]
    redacted: Literal[True]
    verdict: Verdict
    outcome: Outcome
    last_milestone: str | None
    line: int | None
    rule: str | None
    captures: dict[str, str] = {}
    first_fix: str | None = None
    findings: list[str] = []
    log: str = "log.txt"
    exit_code: int | None = None
    note: str | None = None


def find(folder: Path) -> list[Path]:
    """Return the folders of all samples, sorted."""
    return sorted(path.parent for path in folder.rglob("expect.yaml"))


def expected(case: Path) -> Expected:
    """Read a sample's `expect.yaml`.

    Raises:
        RuleError: It breaks the schema.
    """
    path = case / "expect.yaml"
    data, places = yamlio.load(path.read_text(), str(path))
    try:
        return msgspec.convert(data, Expected, strict=True)
    except msgspec.ValidationError as error:
        raise RuleError(str(error), str(path), places.get("$")) from None


def observed(diagnosis: Diagnosis, base: Expected) -> Expected:
    """Return what came out, with the provenance of what was expected."""
    root = diagnosis.root_cause
    first = next((f for f in diagnosis.findings if f.role == "root_cause"), None)
    return msgspec.structs.replace(
        base,
        verdict=diagnosis.verdict,
        outcome=diagnosis.outcome,
        last_milestone=diagnosis.last_milestone,
        line=root.line if root else None,
        rule=root.rule if root else None,
        captures=first.captures if first else {},
        first_fix=first.fixes[0].text if first and first.fixes else None,
        findings=sorted(f.rule for f in diagnosis.findings if f.role != "root_cause"),
    )


def differences(want: Expected, got: Expected) -> list[str]:
    """Say in words where what came out differs from what is expected."""
    a: dict[str, Any] = msgspec.to_builtins(want)
    b: dict[str, Any] = msgspec.to_builtins(got)
    return [f"{key}: expected {a[key]!r}, got {b[key]!r}" for key in a if a[key] != b[key]]
