"""SARIF 2.1.0, for code scanning: each finding a result at its line.

Format: OASIS Static Analysis Results Interchange Format 2.1.0. Levels: fatal and error are
`error`, warning is `warning`, info is `note`.
"""

from __future__ import annotations

import json
from typing import Any

from forensics.model import Diagnosis, Finding
from forensics.reporters.view import View, escaped, visible

_LEVELS = {"fatal": "error", "error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(diagnosis: Diagnosis, view: View) -> str:
    """Return a SARIF log with one run; on one line where several follow."""
    return dump([diagnosis], compact=view.several)


def dump(diagnoses: list[Diagnosis], *, compact: bool = False) -> str:
    """Return one SARIF log for several sources.

    Args:
        diagnoses: What was found in each.
        compact: Whether to write it on one line.
    """
    rules: dict[str, dict[str, Any]] = {}
    results = [
        _result(diagnosis, finding, rules)
        for diagnosis in diagnoses
        for finding in diagnosis.findings
    ]
    version = diagnoses[0].tool.version if diagnoses else "0"
    driver = {
        "name": "llm-forensics",
        "semanticVersion": version,
        "rules": [rules[key] for key in sorted(rules)],
    }
    places = {key: i for i, key in enumerate(sorted(rules))}
    for result in results:
        result["ruleIndex"] = places[result["ruleId"]]
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        ],
    }
    text = json.dumps(log, ensure_ascii=False, indent=None if compact else 2)
    return escaped(text) + "\n"


def _result(
    diagnosis: Diagnosis, finding: Finding, rules: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    rules.setdefault(
        finding.rule,
        {
            "id": finding.rule,
            "shortDescription": {"text": finding.rule},
            "defaultConfiguration": {"level": _LEVELS[finding.severity]},
            **({"helpUri": finding.references[0]} if finding.references else {}),
        },
    )
    advice = "".join(f"\n{fix.text.rstrip('.')}: {fix.why}." for fix in finding.fixes[:3])
    message = f"{finding.title}. {finding.cause}{advice}"
    uri = diagnosis.source.name.replace("\\", "/")
    locations = [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": (citation.source or uri).replace("\\", "/")},
                "region": {"startLine": citation.line, "snippet": {"text": visible(citation.text)}},
            }
        }
        for citation in finding.evidence[:1]
    ]
    return {
        "ruleId": finding.rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": "\n".join(visible(line) for line in message.split("\n"))},
        "locations": locations or [{"physicalLocation": {"artifactLocation": {"uri": uri}}}],
        "properties": {"severity": finding.severity, "confidence": finding.confidence},
    }
