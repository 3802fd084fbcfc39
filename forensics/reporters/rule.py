"""One rule for a person."""

from __future__ import annotations

import re

from forensics.reporters.view import visible, wrap
from forensics.rules_schema import Rule
from forensics.ruleset import patterns_of, walk


def placeholders_as_words(text: str) -> str:
    """Return a rule's text with `{capture}` written as `<capture>`: no value is known yet."""
    return re.sub(r"\{([A-Za-z_][\w.]*)\}", r"<\1>", text)


def render(rule: Rule, file: str, width: int) -> str:
    """Return a rule as text.

    Args:
        rule: The rule.
        file: Where it stands.
        width: Columns.
    """

    def block(text: str, indent: str = "  ") -> list[str]:
        words = placeholders_as_words(re.sub(r"\s*\n\s*", " ", text).strip())
        return wrap(words, width, indent, indent)

    out = [rule.id, *block(rule.title), f"  {rule.severity}, {rule.role}, in {visible(file)}", ""]
    out += ["Looks for"]
    for condition in walk(rule.match):
        for pattern in patterns_of(condition):
            out += block(pattern)
    out += ["", "Cause", *block(rule.cause), ""]
    if rule.fixes:
        out.append("Fixes")
        for fix in rule.fixes:
            words = f"{fix.action} {fix.target} {fix.value or ''}".strip()
            out += block(f"{words}: {fix.text or fix.why} ({fix.confidence:.0%})")
        out.append("")
    for title, text in (("Versions", rule.versions), ("When it is wrong", rule.false_positives)):
        if text:
            out += [title, *block(text), ""]
    if rule.references:
        out += ["References", *(f"  {visible(address)}" for address in rule.references), ""]
    return "\n".join(out)
