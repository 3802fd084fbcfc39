"""What is wrong with a rule although it loads: the habits that make rules lie or cost too much.

In: a rule set. Out: all problems of all rules at once, each with file and rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.hyperscan_finder import unsupported
from forensics.knowledge import option
from forensics.patterns import required_literal
from forensics.rules_schema import ExceptionLeaf, FixSpec, LineLeaf, Rule, RuleLeaf, VersionLeaf
from forensics.ruleset import RuleSet, captures_of, conditions_of, patterns_of, placeholders, walk
from forensics.versions import satisfies

_FACTS = {
    "engine",
    "engine_version",
    "image",
    "model",
    "gpu",
    "compute_capability",
    "exit_code",
    "last_milestone",
}
_LOOKUP_GIVES = {
    "flags": {"flag", "did_you_mean", "flag_history", "successor"},
    "speculative_keys": {"key", "did_you_mean", "key_history"},
    "xids": {"xid_name", "xid_severity", "xid_meaning", "xid_action"},
    "images": {"image_facts"},
    "baselines": {"baseline"},
}
_NEEDS_VALUE = {"set_env", "rename_argument"}
_LEAST_LITERAL = 4
_OTHER_SERVERS = ("sglang.", "tensorrt-llm.", "llama-cpp.", "ollama.", "tgi.")
_MARKUP = re.compile(r"\*\*|\]\(|^#|!\s|!$", re.MULTILINE)


def lint(rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield (rule id, problem) for everything that should not ship."""
    ids = {rule.id for rule in rules.rules}
    same: dict[tuple[str, int], list[str]] = {}
    for rule in rules.rules:
        for problem in _rule(rule, ids):
            yield rule.id, problem
        if rule.role == "root_cause" and isinstance(rule.match, LineLeaf):
            same.setdefault((rule.match.pattern, rule.priority), []).append(rule.id)
    yield from _names(rules)
    for (pattern, _), names in same.items():
        if len(names) > 1:
            yield names[0], f"the same pattern and priority as {', '.join(names[1:])}: {pattern!r}"
    every = sorted({p for rule in rules.rules for c in conditions_of(rule) for p in patterns_of(c)})
    for pattern in unsupported(every):
        users = [r.id for r in rules.rules if any(pattern in patterns_of(c) for c in walk(r.match))]
        yield (
            users[0] if users else "",
            f"not linear-time: {pattern!r} does not compile in Hyperscan",
        )


def _names(rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield fixes that name an option or variable of vLLM that no release on record has."""
    variables = (rules.tables.get("environment") or {}).get("environment") or {}
    for rule in rules.rules:
        if set(rule.engines) - {"vllm"} or rule.id.startswith(_OTHER_SERVERS):
            continue
        for i, fix in enumerate(rule.fixes):
            target = fix.target
            known = True
            if fix.action == "set_argument" and target.startswith("--"):
                known = option(rules.tables.get("flags") or {}, target) is not None
            elif fix.action == "set_env" and target.startswith("VLLM_"):
                known = target in variables
            if not known:
                yield rule.id, f"fixes[{i}]: no release of vLLM on record has {target}"


def _rule(rule: Rule, ids: set[str]) -> Iterator[str]:
    if not rule.tests.match:
        yield "tests.match is empty: a rule proves that it works"
    if not rule.tests.no_match:
        yield "tests.no_match is empty: a rule shows what it must not match"
    yield from (f"explains {name}, which is no rule" for name in rule.explains if name not in ids)
    if rule.id in rule.explains:
        yield "explains itself"
    yield from _conditions(rule, ids)
    yield from _placeholders(rule)
    for i, fix in enumerate(rule.fixes):
        yield from (f"fixes[{i}]: {problem}" for problem in _fix(fix))
    yield from _prose(rule)


def _conditions(rule: Rule, ids: set[str]) -> Iterator[str]:
    for condition in conditions_of(rule):
        if isinstance(condition, RuleLeaf) and condition.id not in ids - {rule.id}:
            yield f"match names {condition.id}, which is no other rule"
        if isinstance(condition, VersionLeaf):
            for name, ranges in condition.ranges.items():
                if satisfies("1.0", ranges) is None:
                    yield f"version: {name}: {ranges!r} is no range"
        if isinstance(condition, LineLeaf | ExceptionLeaf):
            for pattern in patterns_of(condition):
                yield from _pattern(pattern, line=isinstance(condition, LineLeaf))


def _prose(rule: Rule) -> Iterator[str]:
    for address in rule.references:
        if not address.startswith("https://"):
            yield f"references: {address} is no https address"
    if not rule.fixes and rule.role == "root_cause" and not rule.next_steps:
        yield "a root cause with neither fixes nor next_steps helps nobody"
    if _MARKUP.search(rule.cause) or _MARKUP.search(rule.title):
        yield "title and cause are plain sentences: no Markdown, no exclamation"


def _placeholders(rule: Rule) -> Iterator[str]:
    known = captures_of(rule) | _FACTS
    for wanted in rule.lookups:
        known |= _LOOKUP_GIVES[wanted.table]
    for name, key in placeholders(rule).items():
        metric = name in _metrics(rule) or name.removesuffix("_windows") in _metrics(rule)
        if name not in known and not name.startswith("argument.") and not metric:
            yield f"{key}: {{{name}}} is neither a capture nor a fact"


def _metrics(rule: Rule) -> set[str]:
    return {getattr(c, "name", "") for c in walk(rule.match) if type(c).__name__ == "MetricLeaf"}


def _fix(fix: FixSpec) -> Iterator[str]:
    if not fix.target.strip():
        yield "target is empty"
    if fix.action in _NEEDS_VALUE and not fix.value:
        yield f"{fix.action} needs a value"
    if fix.action in {"switch_image", "pin_digest"} and not (fix.value or fix.text):
        yield f"{fix.action} needs a value, or a text that says which image will do"
    if not 0 < fix.confidence <= 1:
        yield "confidence must lie between 0 and 1"


def _pattern(pattern: str, *, line: bool) -> Iterator[str]:
    inner = re.sub(r"\\.|\[\^", "", pattern)
    if "^" in inner.removeprefix("(?i)")[1:]:
        yield f"^ may stand only at the very beginning: {pattern!r}"
    if line and (r"\n" in pattern.replace(r"[^\n", "") or r"[\s\S]" in pattern):
        yield f"a line pattern sees one line: {pattern!r}"
    if re.search(r"(?:\.|\\S|\\w)[*+]\)?$", pattern):
        yield f"an open repeat at the end needs $ after it: {pattern!r}"
    if "|" not in pattern and len(required_literal(pattern)) < _LEAST_LITERAL:
        yield f"no literal of {_LEAST_LITERAL} characters to look for: {pattern!r}"
