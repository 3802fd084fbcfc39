"""The proof of a rule pack: every rule on its own tests, on all samples, on others' near misses.

In: a rule set and a folder of samples. Out: a list of problems, empty if the pack is sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from forensics import samples
from forensics.analysis import Engine, examine, examine_bytes
from forensics.errors import ForensicsError
from forensics.inspection import arguments_of
from forensics.model import Context, Hardware
from forensics.rules_schema import Rule, RuleTest, TestFacts
from forensics.triage import Triage


class Problem(Struct, frozen=True):
    """One thing that is not as a rule or sample says."""

    rule: str
    case: str
    what: str


class Count(Struct):
    """How much was checked."""

    rules: int = 0
    positives: int = 0
    near_misses: int = 0
    samples: int = 0
    cells: int = 0


def run(
    engine: Engine, sample_folder: Path | None, only: Iterable[str] = ()
) -> tuple[list[Problem], Count]:
    """Test a rule set.

    Args:
        engine: The rules, made ready.
        sample_folder: Where the samples are; None to leave them out.
        only: Ids of rules to test; all if empty.

    Returns:
        What is wrong, and how much was looked at (`cells`: rule and text pairs).
    """
    wanted = set(only)
    chosen = [r for r in engine.rules.rules if not wanted or r.id in wanted]
    problems: list[Problem] = []
    count = Count(rules=len(chosen))
    total = len(engine.rules.rules)
    for rule in engine.rules.rules:
        mine = not wanted or rule.id in wanted
        if mine:
            for number, case in enumerate(rule.tests.match, 1):
                count.positives += 1
                problems += _positive(engine, rule, case, f"match[{number}]")
        for number, case in enumerate(rule.tests.no_match, 1):
            count.near_misses += 1
            count.cells += total
            found = _near_miss(engine, rule, case, f"no_match[{number}]")
            problems += [p for p in found if mine or p.rule in wanted]
    if sample_folder is not None:
        for case_folder in samples.find(sample_folder):
            count.samples += 1
            count.cells += total
            problems += [p for p in _sample(engine, case_folder) if not wanted or p.rule in wanted]
    return problems, count


def context_of(facts: TestFacts) -> Context:
    """Return the context that a test's facts describe; the excerpt counts as a whole log."""
    arguments = facts.arguments
    if arguments is None and facts.launch is not None:
        arguments = arguments_of(list(facts.launch))
    return Context(
        exit_code=facts.exit_code,
        oom_killed=facts.oom_killed,
        running=facts.running,
        image=facts.image,
        digest=facts.digest,
        launch=facts.launch,
        arguments=arguments,
        environment=facts.environment,
        auto_remove=facts.auto_remove,
        hardware=Hardware(facts.gpu, facts.compute_capability, facts.arch),
        versions=facts.versions,
        whole=True,
    )


def _triage(engine: Engine, case: RuleTest) -> Triage:
    return examine_bytes(case.log.encode(), engine, context_of(case.facts))[1]


def _positive(engine: Engine, rule: Rule, case: RuleTest, name: str) -> Iterator[Problem]:
    triage = _triage(engine, case)
    captures = triage.held.get(rule.id)
    if captures is None:
        why = next((c.why for c in triage.considered if c.rule == rule.id), "no line of it matches")
        yield Problem(rule.id, name, f"it does not hold: {why}")
        return
    for key, value in case.captures.items():
        if captures.get(key) != value:
            yield Problem(rule.id, name, f"{key} is {captures.get(key)!r}, expected {value!r}")
    if rule.role == "root_cause":
        root = triage.root_cause
        if root is None or root.rule not in {rule.id, *case.known_as}:
            named = root.rule or f"line {root.line} without a rule" if root else "nothing"
            yield Problem(rule.id, name, f"it holds, but the root cause is {named}")


def _near_miss(engine: Engine, rule: Rule, case: RuleTest, name: str) -> Iterator[Problem]:
    triage = _triage(engine, case)
    if rule.id in triage.held:
        yield Problem(rule.id, name, "it holds on its own near miss")
    by_id = {r.id: r for r in engine.rules.rules}
    for other in triage.held:
        if other == rule.id or other in case.known_as or by_id[other].role != "root_cause":
            continue
        root = triage.root_cause
        if root is not None and root.rule == other:
            where = f"near miss {name} of {rule.id}"
            yield Problem(other, where, "it is named as the root there (known_as does not say so)")


def _sample(engine: Engine, case: Path) -> Iterator[Problem]:
    name = f"{case.parent.name}/{case.name}"
    try:
        want = samples.expected(case)
        context = Context(exit_code=want.exit_code) if want.exit_code is not None else None
        diagnosis = examine(str(case / want.log), engine, context)[0]
    except ForensicsError as error:
        yield Problem("", name, str(error))
        return
    for text in samples.differences(want, samples.observed(diagnosis, want)):
        yield Problem(want.rule or "", name, text)
