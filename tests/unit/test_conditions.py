"""Conditions have three values: they hold, they fail, or the evidence cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forensics.conditions import Answer, View, dig, evaluate
from forensics.evidence import index_of, wanted
from forensics.model import Context, Hardware, Milestone, Run, Truth
from forensics.rules_schema import All, AnyOf, Condition, NoneOf, RuleLeaf, Sequence
from forensics.ruleset import patterns_of, walk
from tests.support import (
    CAUSE,
    evidence,
    failed_start,
    loaded,
    logged,
    raw,
    rule,
    serving,
    started,
    stopped,
    text,
    traceback,
)

H, F, U = Truth.HOLDS, Truth.FAILS, Truth.UNKNOWN
WHOLE = Context(whole=True)


def ask(match: object, log: str = "", *, context: Context | None = None, **facts: object) -> Answer:
    """Evaluate a condition as a rule writes it over a log (a whole one, unless said)."""
    condition = rule("a.b", match).match
    patterns = [p for c in walk(condition) for p in patterns_of(c)]
    found = evidence(log or "nothing\n", patterns=patterns, context=context or WHOLE)
    view = View(replace(found, **facts), index_of(wanted(patterns)), lambda _: U)
    return evaluate(condition, view)


def truth(match: object, log: str = "", **more: Context) -> Truth:
    return ask(match, log, **more).truth


# -------------------------------------------------------------------------------------- the tables


def tree(kind: Callable[..., Condition], *values: Truth) -> Truth:
    leaves = tuple(RuleLeaf(str(i)) for i in range(len(values)))
    return told(kind(leaves), values)


def told(condition: Condition, values: tuple[Truth, ...] | list[Truth]) -> Truth:
    empty = evidence("")
    return evaluate(condition, View(empty, {}, lambda i: values[int(i)])).truth


@pytest.mark.parametrize(
    ("a", "b", "both", "either", "neither"),
    [
        (H, H, H, H, F),
        (H, F, F, H, F),
        (H, U, U, H, F),
        (F, F, F, F, H),
        (F, U, F, U, U),
        (U, U, U, U, U),
    ],
)
def test_truth_tables(a: Truth, b: Truth, both: Truth, either: Truth, neither: Truth) -> None:
    """What is false decides `all`, what is true decides `any` and `none`; the rest is unknown."""
    for x, y in ((a, b), (b, a)):
        assert tree(All, x, y) is both
        assert tree(Sequence, x, y) is both
        assert tree(AnyOf, x, y) is either
        assert tree(NoneOf, x, y) is neither


TRUTHS = st.lists(st.sampled_from(list(Truth)), min_size=1, max_size=5)
NOT = {H: F, F: H, U: U}


@given(TRUTHS)
def test_none_is_not_any(values: list[Truth]) -> None:
    assert tree(NoneOf, *values) is NOT[tree(AnyOf, *values)]


@given(TRUTHS)
def test_de_morgan(values: list[Truth]) -> None:
    """Not all of them hold: some one of them does not."""
    leaves = tuple(RuleLeaf(str(i)) for i in range(len(values)))
    denied = AnyOf(tuple(NoneOf((leaf,)) for leaf in leaves))

    assert told(NoneOf((All(leaves),)), values) is told(denied, values)


@given(TRUTHS)
def test_double_denial_changes_nothing(values: list[Truth]) -> None:
    leaves = tuple(RuleLeaf(str(i)) for i in range(len(values)))

    assert told(NoneOf((NoneOf((AnyOf(leaves),)),)), values) is told(AnyOf(leaves), values)


@given(TRUTHS, st.data())
def test_learning_more_never_overturns_what_was_certain(
    values: list[Truth], data: st.DataObject
) -> None:
    """An unknown leaf may make a verdict unknown; it never turns yes into no."""
    hidden = [data.draw(st.sampled_from([v, U])) for v in values]

    for kind in (All, AnyOf, NoneOf):
        before, after = tree(kind, *hidden), tree(kind, *values)
        assert before in {U, after}


@given(TRUTHS, st.randoms(use_true_random=False))
def test_order_does_not_matter(values: list[Truth], random: Random) -> None:
    mixed = list(values)
    random.shuffle(mixed)

    for kind in (All, AnyOf, NoneOf):
        assert tree(kind, *values) is tree(kind, *mixed)


# ------------------------------------------------------------------------------------------- lines


def test_line_holds_where_a_message_has_it() -> None:
    log = text(logged("EngineCore", "x"), logged("EngineCore", "needs 3 GiB", "ERROR"))

    answer = ask({"line": r"^needs (?P<gib>\d+) GiB"}, log)

    assert answer.truth is H
    assert answer.captures == {"gib": "3"}
    assert [hit.record.line for hit in answer.lines] == [2]


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ([failed_start()], F),
        ([started(), serving(), stopped()], F),
        ([started()], U),
        ([loaded(), failed_start()[4:]], U),
    ],
    ids=["whole and failed", "whole and stopped", "the end is missing", "the start is missing"],
)
def test_absence_counts_only_where_the_log_is_complete(
    parts: list[list[str]], value: Truth
) -> None:
    leaf = {"line": "nobody prints this"}

    assert truth(leaf, text(*parts), context=Context()) is value
    assert truth({"none": [leaf]}, text(*parts), context=Context()) is NOT[value]


@pytest.mark.parametrize(
    ("where", "holds"),
    [("message", 2), ("access", 1), ("request", 1), ("dump", 1), ("any", 5)],
)
def test_where_a_line_is_looked_for(where: str, holds: int) -> None:
    """What users wrote, and what the engine dumps, is not seen unless a rule asks."""
    log = text(
        ["needle, raw"],
        logged("E", "needle, logged"),
        logged("A", "Received request a: needle", origin="logger.py:39"),
        logged("E", "needle, dumped", "ERROR", origin="dump_input.py:7"),
        ['INFO:     192.0.2.9:1 - "GET /needle HTTP/1.1" 200 OK'],
    )

    assert len(ask({"line": {"pattern": "needle", "where": where}}, log).lines) == holds


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        ({"level": "ERROR"}, H),
        ({"level": ["WARNING", "ERROR"]}, H),
        ({"level": "WARNING"}, F),
        ({"level": "raw"}, F),
        ({"process": "Worker"}, H),
        ({"process": "Worker_TP1"}, H),
        ({"process": "EngineCore"}, F),
        ({"min_count": 2}, H),
        ({"min_count": 3}, F),
        ({"level": "ERROR", "min_count": 2}, F),
    ],
)
def test_line_with_level_process_and_count(leaf: dict[str, Any], value: Truth) -> None:
    log = text(logged("Worker_TP1", "needle", "ERROR"), logged("Worker_TP0", "needle", "INFO"))

    assert truth({"line": {"pattern": "needle", **leaf}}, log) is value


def test_count_of_a_frequent_line_is_that_of_all_its_lines() -> None:
    assert ask({"line": "needle"}, "needle\n" * 500).count == 500


# -------------------------------------------------------------------------------------- exceptions

CHAIN = text(
    raw("EngineCore", traceback("KeyError: 'k'", [("torch/_inductor/graph.py", "compile")])
        + CAUSE + traceback("vllm.errors.BadError: needs 3 GiB\n  of memory"))
)  # fmt: skip


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        ({"type": "BadError"}, H),
        ({"type": "vllm.errors.BadError"}, H),
        ({"type": ["OSError", "KeyError"]}, H),
        ({"type": "errors.BadError"}, F),
        ({"type": "Error"}, F),
        ({"message": r"needs (?P<gib>\d) GiB"}, H),
        ({"message": r"GiB[\s\S]*memory"}, H),
        ({"message": "needs 4 GiB"}, F),
        ({"frame": "torch/_inductor/"}, H),
        ({"frame": ["torch/_inductor/", "graph.py:compile"]}, H),
        ({"frame": ["torch/_inductor/", "core.py:run"]}, F),
        ({"type": "BadError", "frame": "torch/_inductor/"}, F),
        ({"process": "Engine"}, H),
        ({"process": "Worker"}, F),
        ({"type": "KeyError", "chained": False}, F),
        ({"type": "BadError", "chained": False}, H),
    ],
)
def test_one_exception_has_all_of_it(leaf: dict[str, Any], value: Truth) -> None:
    assert truth({"exception": leaf}, CHAIN) is value


def test_exception_of_a_cut_log_cannot_be_excluded() -> None:
    assert truth({"exception": {"type": "OSError"}}, text(started()), context=Context()) is U


# -------------------------------------------------------------------------------------------- facts

ARGUMENTS = {
    "max_model_len": 512,
    "enforce_eager": True,
    "model": "/models/Tiny",
    "speculative_config": '{"method": "mtp", "num_speculative_tokens": 3}',
    "limit": {"image": {"count": 2}},
    "names": ["a", "b"],
}


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        ({"name": "max_model_len"}, H),
        ({"name": "swap_space"}, F),
        ({"name": "swap_space", "op": "absent"}, H),
        ({"name": "max_model_len", "op": "absent"}, F),
        ({"name": "max_model_len", "op": "eq", "value": 512}, H),
        ({"name": "max_model_len", "op": "eq", "value": "512"}, H),
        ({"name": "max_model_len", "op": "ne", "value": 512}, F),
        ({"name": "max_model_len", "op": "gt", "value": 511}, H),
        ({"name": "max_model_len", "op": "ge", "value": 512}, H),
        ({"name": "max_model_len", "op": "lt", "value": 512}, F),
        ({"name": "max_model_len", "op": "le", "value": 512}, H),
        ({"name": "max_model_len", "op": "in", "value": [1, 512]}, H),
        ({"name": "max_model_len", "op": "not_in", "value": [1, 512]}, F),
        ({"name": "max_model_len", "op": "in", "value": 512}, U),
        ({"name": "enforce_eager", "op": "eq", "value": True}, H),
        ({"name": "model", "op": "eq", "value": "/models/tiny"}, H),
        ({"name": "model", "op": "contains", "value": "Tiny"}, H),
        ({"name": "model", "op": "matches", "value": "^/models/T"}, H),
        ({"name": "model", "op": "matches", "value": "^models"}, F),
        ({"name": "model", "op": "gt", "value": 1}, U),
        ({"name": "names", "op": "contains", "value": "b"}, H),
        ({"name": "names", "op": "contains", "value": "c"}, F),
        ({"name": "speculative_config.method", "op": "eq", "value": "mtp"}, H),
        ({"name": "speculative_config.num_speculative_tokens", "op": "gt", "value": 2}, H),
        ({"name": "speculative_config.model"}, F),
        ({"name": "limit.image.count", "op": "eq", "value": 2}, H),
        ({"name": "max_model_len.deeper"}, F),
        ({"name": "swap_space", "op": "gt", "value": 1}, F),
    ],
)
def test_argument(leaf: dict[str, Any], value: Truth) -> None:
    assert truth({"argument": leaf}, context=Context(arguments=ARGUMENTS, whole=True)) is value


@pytest.mark.parametrize("op", ["exists", "absent", "eq"])
def test_argument_of_a_log_that_never_printed_any_is_unknown(op: str) -> None:
    assert truth({"argument": {"name": "x", "op": op, "value": 1}}) is U


def test_digging_into_broken_json_finds_nothing() -> None:
    assert dig({"a": '{"b": '}, "a.b") is None
    assert dig({"a": "[1]"}, "a.b") is None
    assert dig(None, "a") is None


@pytest.mark.parametrize(
    ("leaf", "context", "value"),
    [
        ({"environment": {"name": "A"}}, Context(environment={"A": "1"}), H),
        ({"environment": {"name": "B"}}, Context(environment={"A": "1"}), F),
        ({"environment": {"name": "B", "op": "absent"}}, Context(environment={"A": "1"}), H),
        ({"environment": {"name": "A", "op": "eq", "value": 1}}, Context(environment={"A": "1"}), H),
        ({"environment": {"name": "A"}}, Context(), U),
        ({"image": {"name": "vllm/*"}}, Context(image="vllm/vllm-openai:v1"), H),
        ({"image": {"name": "sglang/*"}}, Context(image="vllm/vllm-openai:v1"), F),
        ({"image": {"tag": "v1*"}}, Context(image="vllm/vllm-openai:v1.2"), H),
        ({"image": {"tag": "latest"}}, Context(image="vllm/vllm-openai"), H),
        ({"image": {"digest": "sha256:1"}}, Context(image="a@sha256:1"), H),
        ({"image": {"digest": "sha256:1"}}, Context(image="a", digest="sha256:2"), F),
        ({"image": {"digest": "sha256:1"}}, Context(image="a"), U),
        ({"image": {"moving": True}}, Context(image="a:nightly"), H),
        ({"image": {"moving": True}}, Context(image="a:v1"), F),
        ({"image": {"moving": True}}, Context(), U),
        ({"image": {"name": "a"}}, Context(digest="sha256:1"), U),
        ({"hardware": {"gpu": "gb10"}}, Context(hardware=Hardware(gpu="NVIDIA GB10")), H),
        ({"hardware": {"gpu": "H100"}}, Context(hardware=Hardware(gpu="NVIDIA GB10")), F),
        ({"hardware": {"gpu": "H100"}}, Context(), U),
        ({"hardware": {"compute_capability": ">=12.0,<13"}}, Context(hardware=Hardware(compute_capability="12.1")), H),
        ({"hardware": {"compute_capability": "12.1"}}, Context(hardware=Hardware(compute_capability="9.0")), F),
        ({"hardware": {"arch": "aarch64"}}, Context(hardware=Hardware(arch="x86_64")), F),
        ({"hardware": {"gpu": "GB10", "arch": "aarch64"}}, Context(hardware=Hardware(arch="x86_64")), F),
        ({"hardware": {"gpu": "GB10", "arch": "aarch64"}}, Context(hardware=Hardware(arch="aarch64")), U),
        ({"version": {"vllm": ">=0.18,<0.21"}}, Context(versions={"vllm": "0.20.0"}), H),
        ({"version": {"vllm": ">=0.18,<0.21"}}, Context(versions={"vllm": "0.21.0"}), F),
        ({"version": {"vllm": ">=0.18"}}, Context(versions={"torch": "2.9"}), U),
        ({"version": {"vllm": ">=0.18", "torch": "<2"}}, Context(versions={"torch": "2.9"}), F),
        ({"exit": {"code": 137}}, Context(exit_code=137), H),
        ({"exit": {"code": [1, 2]}}, Context(exit_code=137), F),
        ({"exit": {"code": 137}}, Context(), U),
        ({"exit": {"oom_killed": True}}, Context(oom_killed=False), F),
        ({"exit": {"oom_killed": True}}, Context(), U),
        ({"exit": {"code": 137, "oom_killed": True}}, Context(exit_code=1), F),
        ({"launch": {"auto_remove": True}}, Context(auto_remove=True), H),
        ({"launch": {"auto_remove": True}}, Context(launch=("docker", "run", "--rm")), H),
        ({"launch": {"auto_remove": True}}, Context(launch=("docker", "run")), F),
        ({"launch": {"auto_remove": True}}, Context(), U),
        ({"launch": {"word": "--privileged"}}, Context(launch=("docker", "run")), F),
        ({"launch": {"word": "run"}}, Context(launch=("docker", "run")), H),
        ({"launch": {"word": "run"}}, Context(), U),
        ({"rule": "other.one"}, Context(), U),
    ],
)  # fmt: skip
def test_fact_that_was_never_seen_is_unknown(
    leaf: dict[str, Any], context: Context, value: Truth
) -> None:
    assert truth(leaf, context=replace(context, whole=True)) is value


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        ({"name": "/models/t*"}, H),
        ({"name": "/MODELS/TINY"}, H),
        ({"name": "other*"}, F),
        ({"architecture": "llama*"}, H),
        ({"architecture": "Nemotron*"}, F),
        ({"name": "/models/t*", "architecture": "Nemotron*"}, F),
    ],
)
def test_model(leaf: dict[str, str], value: Truth) -> None:
    assert truth({"model": leaf}, text(started())) is value
    assert truth({"model": leaf}) is U


@pytest.mark.parametrize(
    ("ending", "parts"),
    [
        ("orderly", [started(), serving(), stopped()]),
        ("failure", [failed_start()]),
        ("cut", [started()]),
    ],
)
def test_how_the_log_ends(ending: str, parts: list[list[str]]) -> None:
    others = [e for e in ("orderly", "failure", "cut", "running") if e != ending]

    assert truth({"exit": {"ending": ending}}, text(*parts), context=Context()) is H
    assert truth({"exit": {"ending": others}}, text(*parts), context=Context()) is F


# ----------------------------------------------------------------------------- milestones and figures


@pytest.mark.parametrize(
    ("leaf", "log", "value"),
    [
        ({"reached": "engine_started"}, started(), H),
        ({"reached": "serving"}, started(), F),
        ({"reached": "engine_started"}, started()[3:], H),
        ({"reached": "serving"}, started()[3:], U),
        ({"not_reached": "serving"}, started(), H),
        ({"not_reached": "engine_started"}, started(), F),
        ({"not_reached": "serving"}, started()[3:], U),
        ({"last": "engine_started"}, started(), H),
        ({"last": ["serving", "engine_started"]}, started(), H),
        ({"last": "serving"}, started(), F),
        ({"reached": "launched", "not_reached": "serving"}, started(), H),
    ],
)
def test_milestone(leaf: dict[str, Any], log: list[str], value: Truth) -> None:
    """What came before the log's first line may have been reached."""
    assert truth({"milestone": leaf}, text(log), context=Context()) is value


def measured(values: list[float], served: bool) -> dict[str, Any]:
    milestones = (Milestone("serving", 1),) if served else ()
    return {"metrics": {"m": list(enumerate(values))}, "milestones": milestones, "run": Run()}


@pytest.mark.parametrize(
    ("values", "leaf", "value"),
    [
        ([1.0, 9.0, 2.0], {"op": "lt", "value": 3}, H),
        ([1.0, 9.0, 2.0], {"op": "eq", "value": 2}, H),
        ([1.0, 9.0, 2.0], {"op": "gt", "value": 3}, F),
        ([1.0], {"op": "lt", "value": 3, "min_windows": 2}, U),
        ([], {"op": "lt", "value": 3}, U),
    ],
)
def test_metric_is_the_median_of_its_windows(
    values: list[float], leaf: dict[str, Any], value: Truth
) -> None:
    """One odd window proves nothing; too few windows cannot tell."""
    assert truth({"metric": {"name": "m", **leaf}}, **measured(values, served=True)) is value


def test_metric_of_a_run_that_never_served_fails() -> None:
    leaf = {"metric": {"name": "m", "op": "lt", "value": 3}}

    assert truth(leaf, **measured([], served=False)) is F


def test_metric_gives_its_median_to_texts() -> None:
    leaf = {"metric": {"name": "m", "op": "gt", "value": 0}}

    assert ask(leaf, **measured([1, 2, 4], served=True)).captures == {"m": "2", "m_windows": "3"}


# ---------------------------------------------------------------------------------- what comes out


def test_sequence_wants_each_line_after_the_one_before() -> None:
    log = "second\nfirst\nsecond again\n"
    first, second = {"line": "first"}, {"line": "second"}

    forward = ask({"sequence": [first, second]}, log)

    assert forward.truth is H
    assert [hit.record.line for hit in forward.lines] == [2, 3]
    assert truth({"sequence": [first, second]}, "second\nfirst\n") is F
    assert truth({"sequence": [first, first]}, "first\n") is F


def test_sequence_captures_from_the_lines_it_chose() -> None:
    log = "size 1\nfailed\nsize 2\n"

    answer = ask({"sequence": [{"line": "failed"}, {"line": r"size (?P<n>\d)"}]}, log)

    assert answer.captures == {"n": "2"}


def test_first_capture_of_a_name_wins() -> None:
    match = {"all": [{"line": r"^a (?P<n>\d)"}, {"line": r"^b (?P<n>\d)"}]}

    assert ask(match, "a 1\nb 2\n").captures == {"n": "1"}


def test_any_gives_the_lines_of_all_that_hold() -> None:
    match = {"any": [{"line": "one"}, {"line": "two"}, {"line": "three"}]}

    assert [hit.record.line for hit in ask(match, "two\nx\none\n").lines] == [1, 3]


@pytest.mark.parametrize(
    ("match", "why"),
    [
        ({"line": "zzz"}, "no line holds 'zzz'"),
        ({"all": [{"line": "a"}, {"line": "zzz"}]}, "no line holds 'zzz'"),
        ({"none": [{"line": "a"}]}, "excluded by line 1"),
        ({"argument": {"name": "x"}}, "the argument x is not known"),
        ({"exception": {"type": "X"}}, "no such exception"),
    ],
)
def test_what_does_not_hold_says_why(match: object, why: str) -> None:
    answer = ask(match, "a\n")

    assert answer.truth is not H
    assert answer.why == why


def test_several_keys_mean_all_of_them() -> None:
    assert truth({"line": "a", "milestone": {"reached": "serving"}}, "a\n") is F


def test_excluded_lines_prove_nothing() -> None:
    """The lines of a condition under `none` are no evidence for the rule."""
    answer = ask({"all": [{"line": "a"}, {"none": [{"line": "b"}]}]}, "a\n")

    assert [hit.record.text for hit in answer.lines] == ["a"]
