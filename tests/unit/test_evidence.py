"""Blocks to evidence: first and last occurrences, lines around, thinned numbers, times, endings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forensics.envelopes import Block
from forensics.evidence import (
    KEEP_FIRST,
    KEEP_LAST,
    MAX_EXCEPTIONS,
    MAX_SERIES,
    _Series,
    index_of,
    seconds_between,
    wanted,
)
from forensics.model import Context, Evidence, Hit, Record
from tests.support import (
    CAUSE,
    ENGINE_DEAD,
    evidence,
    failed_start,
    loaded,
    logged,
    raw,
    serving,
    started,
    stopped,
    text,
    traceback,
)


def hits(log: str, pattern: str) -> tuple[list[Hit], int]:
    """Lines on which a rule's pattern holds, and how many there are."""
    index = index_of(wanted([pattern]))[pattern]
    found = evidence(log, patterns=[pattern])
    return found.hits.get(index, []), found.counts.get(index, 0)


# -------------------------------------------------------------------------------------------- hits


def test_pattern_sees_the_message_not_the_prefix() -> None:
    log = text(logged("EngineCore", "EngineCore is up"), logged("EngineCore", "hello"))

    found, count = hits(log, r"EngineCore (?P<state>\w+)")

    assert [(hit.record.line, hit.groups) for hit in found] == [(1, {"state": "is"})]
    assert count == 1


def test_first_and_last_lines_are_kept_and_all_are_counted() -> None:
    log = text([f"needle {i}" for i in range(1, 101)])

    found, count = hits(log, "needle")

    assert count == 100
    assert [hit.record.line for hit in found] == [
        *range(1, KEEP_FIRST + 1),
        *range(101 - KEEP_LAST, 101),
    ]


def test_requests_do_not_crowd_out_what_the_server_says() -> None:
    """Thousands of prompts may quote an error before the server prints it once."""
    prompt = "Received request cmpl-1: prompt: 'needle'"
    log = text(
        *(logged("APIServer", prompt, origin="logger.py:39") for _ in range(500)),
        logged("EngineCore", "needle", "ERROR"),
        *(logged("APIServer", prompt, origin="logger.py:39") for _ in range(500)),
    )

    found, _ = hits(log, "needle")

    assert [hit.record.line for hit in found if hit.record.kind == "log"] == [501]


def test_each_line_counts_once_however_often_it_matches() -> None:
    assert hits("needle needle needle\n", "needle")[1] == 1


@pytest.mark.parametrize("size", [1, 30, 4_000])
def test_excerpts_are_the_two_lines_on_either_side(size: int) -> None:
    log = text(f"line {i}" if i != 5 else "needle" for i in range(1, 11))

    excerpt = evidence(log, patterns=["needle"], size=max(size, 4_000)).excerpts[5]

    assert excerpt.before == ((3, "line 3"), (4, "line 4"))
    assert excerpt.after == ((6, "line 6"), (7, "line 7"))


@pytest.mark.parametrize(
    ("lines", "before", "after"),
    [
        (["needle"], (), ()),
        (["a", "needle"], ((1, "a"),), ()),
        (["needle", "b"], (), ((2, "b"),)),
    ],
)
def test_excerpts_end_where_the_log_ends(
    lines: list[str], before: tuple[tuple[int, str], ...], after: tuple[tuple[int, str], ...]
) -> None:
    excerpt = evidence(text(lines), patterns=["needle"]).excerpts[len(before) + 1]

    assert (excerpt.before, excerpt.after) == (before, after)


def test_line_of_megabytes_is_cut() -> None:
    found = evidence("x" * 3_000_000 + "\nneedle\n", patterns=["needle"])

    assert found.source.lines == 2
    assert len(found.excerpts[2].before[0][1]) <= 4_096


def test_progress_bar_states_share_their_line_number() -> None:
    log = "a\nload: 1%\rload: 2%\rneedle\nb\n"

    (hit,), _ = hits(log, "needle")

    assert hit.record.line == 2


# ------------------------------------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("log", "lines", "last"),
    [
        ("a\nb\n", 2, 2),
        ("a\nb", 2, 2),
        ("a\n\n\n", 3, 1),
        ("a\n\x00\x00\n", 2, 1),
        ("a\r\nb\r\n", 2, 2),
        ("a\rb\rc\n", 1, 1),
        ("\n", 1, None),
    ],
)
def test_lines_are_counted_as_they_stand_in_the_file(
    log: str, lines: int, last: int | None
) -> None:
    found = evidence(log)

    assert found.source.lines == lines
    assert (found.last.line if found.last else None) == last


def test_many_different_exceptions_are_bounded_and_that_is_said() -> None:
    log = text(*(raw(None, f"ValueError: number {i} of many") for i in range(MAX_EXCEPTIONS + 44)))

    found = evidence(log)

    assert len(found.exceptions) == MAX_EXCEPTIONS
    assert any(limit.startswith("44 more different exceptions") for limit in found.limits)


def test_exceptions_stand_in_the_order_of_their_lines() -> None:
    """The inner process may finish its traceback after the outer one."""
    outer = logged("APIServer", traceback("OSError: outer"), "ERROR", pid=7)
    inner = raw("EngineCore", traceback("KeyError: 'k'") + CAUSE + traceback("ValueError: inner"))
    log = text(inner[:4], outer, inner[4:])

    found = evidence(log).exceptions

    assert [e.line for e in found] == sorted(e.line for e in found)
    (chained,) = (e for e in found if e.cause is not None)
    assert chained.cause is not None
    assert (chained.type, found[chained.cause].type) == ("ValueError", "KeyError")


# --------------------------------------------------------------------------------------- first seen

REASON = "the model /models/tiny has no weights"
RETRY = raw("EngineCore", f"Retrying: {REASON}")


def first_seen(*parts: list[str], size: int = 4_000_000) -> int | None:
    return evidence(text(*parts), size=size).exceptions[0].first_seen


def test_message_that_was_printed_before_the_traceback_is_traced_back() -> None:
    """A library that retries prints the reason first: that line is the earlier witness."""
    assert first_seen(RETRY, raw("EngineCore", traceback(f"OSError: {REASON}"))) == 1


@pytest.mark.parametrize("size", [1, 200])
def test_earlier_witness_is_found_across_blocks(size: int) -> None:
    """Where a source happens to be cut into blocks makes no difference."""
    filler = logged("EngineCore", "loading")
    exception = raw("EngineCore", traceback(f"OSError: {REASON}"))

    assert first_seen(filler, RETRY, filler * 5, exception, size=size) == 2


@pytest.mark.parametrize(
    "earlier",
    [
        logged("EngineCore", f"Trying: {REASON}"),
        raw("APIServer", f"Retrying: {REASON}", pid=7),
        logged("APIServer", f"Received request x: {REASON}", origin="logger.py:1"),
    ],
    ids=["logger", "another process", "a prompt"],
)
def test_other_lines_are_no_witness(earlier: list[str]) -> None:
    assert first_seen(earlier, raw("EngineCore", traceback(f"OSError: {REASON}"))) is None


def test_long_cascade_is_counted_forwards_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line numbers are not counted anew from the start of a block for each of its lines."""
    counted: list[int] = []

    def line_of(_: Block, offset: int) -> int:
        counted.append(offset)
        return 1

    monkeypatch.setattr("forensics.evidence._line_of", line_of)

    evidence(text(logged("APIServer", ENGINE_DEAD, "ERROR") * 2_000))

    assert len(counted) < 50


def test_short_message_is_not_traced_back() -> None:
    """`KeyError: 'a'` stands in too many lines."""
    assert first_seen(["'a'"], traceback("KeyError: 'a'").split("\n")) is None


# ------------------------------------------------------------------------------------------ numbers


@given(st.integers(1, 20_000))
def test_series_is_thinned_evenly(count: int) -> None:
    series = _Series([])
    for i in range(count):
        series.add(i, float(i))

    lines = [line for line, _ in series.values]
    steps = {b - a for a, b in pairwise(lines)}
    assert len(lines) <= MAX_SERIES
    assert len(lines) > MAX_SERIES // 2 or len(lines) == count
    assert lines[0] == 0
    assert steps <= {series.stride}
    assert series.seen == count


def test_number_that_is_not_finite_is_no_number() -> None:
    line = "GPU KV cache size: 1,234,560 tokens"

    assert evidence(text(logged("E", line))).metrics == {"kv_cache_tokens": [(1, 1_234_560.0)]}
    assert evidence(text(logged("E", "KV cache size: ,, tokens"))).metrics == {}


# -------------------------------------------------------------------------------------------- times


def clock(value: str | None, at: str | None = None) -> Record:
    return Record(1, "", "", clock=value, at=at)


@pytest.mark.parametrize(
    ("first", "then", "seconds"),
    [
        ("12-01 02:00:00", "12-01 02:00:05", 5.0),
        ("11-30 23:59:59", "12-01 00:00:00", 1.0),
        ("12-31 23:59:50", "01-01 00:00:10", 20.0),
        ("02-28 23:59:59", "03-01 00:00:00", 1.0),
        ("12-01 02:00:05", "12-01 02:00:00", -5.0),
        (None, "12-01 02:00:00", None),
        ("12-01 02:00:00", None, None),
    ],
)
def test_seconds_between_clocks_without_a_year(
    first: str | None, then: str | None, seconds: float | None
) -> None:
    """New Year is taken as a roll-over, not as a step of a year back."""
    assert seconds_between(clock(first), clock(then)) == seconds


def test_time_of_the_envelope_is_better_than_the_clock() -> None:
    first = clock("12-01 02:00:00", "2026-12-31T23:59:59.500000000Z")
    then = clock("12-01 02:00:09", "2027-01-01T00:00:01.000000000Z")

    assert seconds_between(first, then) == 1.5


def test_zone_of_the_envelope_is_honoured() -> None:
    first = clock(None, "2026-12-01T02:00:00.000000000+01:00")
    then = clock(None, "2026-12-01T01:00:05.000000000Z")

    assert seconds_between(first, then) == 5.0


def test_timeline_counts_from_the_first_time_in_the_log() -> None:
    log = text(
        ["a line without time"],
        logged("E", "x", clock="12-31 23:59:50"),
        logged("E", "Loading weights took 3 seconds", clock="01-01 00:00:10"),
    )

    (milestone,) = evidence(text(started()[:1]) + log).milestones[1:]

    assert (milestone.milestone, milestone.line) == ("weights_loaded", 4)
    (alone,) = evidence(text(logged("E", "vLLM API server version 0.9.0", clock="12-31 23:59:50"),
                             ["x"])).milestones  # fmt: skip
    assert alone.seconds == 0.0


@given(st.from_regex(r"[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"), st.text(max_size=20))
@example("99-99 99:99:99", "00-00 00:00:00")
def test_odd_times_never_raise(a: str, b: str) -> None:
    seconds_between(clock(a), clock(b))


# ------------------------------------------------------------------------------------- milestones


def test_first_occurrence_of_a_milestone_counts() -> None:
    """The drafter prints its compile lines a second time, other ranks theirs too."""
    line = "Dynamo bytecode transform time: 5.86 s"
    log = text(started(), logged("EngineCore", line), logged("EngineCore", line))

    found = [m for m in evidence(log).milestones if m.milestone == "bytecode_transformed"]

    assert [m.line for m in found] == [5]


def test_milestones_that_a_prompt_quotes_are_none() -> None:
    prompt = "Received request a: vLLM API server version 9.9.9"
    log = text(logged("APIServer", prompt, origin="logger.py:39"))

    assert evidence(log).milestones == ()
    assert evidence(log).run.engine is None


# ----------------------------------------------------------------------------------- heads and tails


def ends(*parts: list[str], running: bool | None = None) -> Evidence:
    return evidence(text(*parts), context=Context(running=running))


@pytest.mark.parametrize(
    ("parts", "ending"),
    [
        ([started(), serving(), stopped()], "orderly"),
        ([failed_start()], "failure"),
        ([started()], "cut"),
        ([started(), serving()], "cut"),
        ([["vllm: error: unrecognized arguments: --x"]], "failure"),
        (
            [started(), logged("EngineCore", "Worker proc VllmWorker-0 died unexpectedly")],
            "failure",
        ),
        ([started(), logged("EngineCore", "EngineCore failed to start.", "ERROR")], "failure"),
        ([started(), logged("EngineCore", traceback("ValueError: x"), "WARNING")], "cut"),
        ([traceback("ValueError: x").split("\n"), ["INFO:     noise"] * 41], "cut"),
        ([traceback("ValueError: x").split("\n"), ["INFO:     noise"] * 40], "failure"),
    ],
)
def test_log_says_by_itself_how_it_ends(parts: list[list[str]], ending: str) -> None:
    assert ends(*parts).ending == ending


def test_server_known_to_run_has_no_end_yet() -> None:
    found = ends(started(), serving(), running=True)

    assert (found.ending, found.tail_complete) == ("running", True)
    assert "tail" not in found.source.truncated


def test_cut_log_says_what_is_missing() -> None:
    assert ends(started()).source.truncated == ["tail"]
    assert ends(loaded()).source.truncated == ["head", "tail"]
    assert ends(failed_start()).source.truncated == []


def test_whole_excerpt_misses_nothing() -> None:
    found = evidence(text(loaded()), context=Context(whole=True))

    assert (found.head_complete, found.tail_complete) == (True, True)


def test_engine_dead_errors_alone_are_read() -> None:
    (one,) = evidence(text(logged("APIServer", ENGINE_DEAD, "ERROR"))).exceptions

    assert one.type == "vllm.v1.engine.exceptions.EngineDeadError"
