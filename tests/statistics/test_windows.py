"""Counts → printed lines → counts: the true ones always lie within the bounds."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forensics.statistics import figures, intervals, table, windows
from tests.stat_lines import Window, current, early, log


def recovered(lines: list[str], *, k: int | None = None, bonus: bool | None = None) -> pl.DataFrame:
    rows = table.gathered(table.parse(log(lines)).frames)
    return windows.recovered(rows, k=k, bonus=bonus, started=False, interval=40).whole()


@st.composite
def window(draw: st.DrawFn, k: int) -> Window:
    """Any counts that a server can have: positions fall, a draft has 1 to k tokens."""
    drafts = draw(st.integers(1, 20_000))
    accepted, left = [], drafts
    for _ in range(k):
        left = draw(st.integers(0, left))
        accepted.append(left)
    # A draft of n tokens can have n accepted at most: drafted tokens cover what was accepted.
    drafted = draw(st.integers(max(drafts, sum(accepted)), drafts * k))
    return Window(drafts, drafted, tuple(accepted), draw(st.floats(0.5, 600)))


@st.composite
def run(draw: st.DrawFn) -> list[Window]:
    k = draw(st.integers(1, 7))
    return draw(st.lists(window(k), min_size=1, max_size=6))


@given(run())
@example([Window(850, 1540, (5, 5), 1.0)])
@example([Window(2654, 5054, (63, 58), 1.0)])
@settings(max_examples=120, deadline=None)
def test_the_true_drafts_lie_within_the_bounds(given_windows: list[Window]) -> None:
    frame = recovered([current(w) for w in given_windows])
    assert frame["problem"].null_count() == len(given_windows)
    for row, true in zip(frame.iter_rows(named=True), given_windows, strict=True):
        assert (row["accepted_tokens"], row["draft_tokens"]) == (true.total, true.drafted)
        assert row["drafts_low"] <= true.drafts <= row["drafts_high"]
        assert row["drafts_low"] <= row["drafts"] <= row["drafts_high"]
        # Two decimals of the mean length and three of each rate bound the error.
        if true.total:
            blur = 0.0005 * len(true.accepted) / (true.total / true.drafts)
            # The likeliest number stands in the middle of the bounds. A whole number of full
            # drafts is preferred to it wherever it lies between them: up to their width away.
            full = row["drafts"] * len(true.accepted) == true.drafted
            off = 2 * blur if full else blur
            if blur < 0.5 and off < 1:
                assert abs(row["drafts"] - true.drafts) <= true.drafts * off / (1 - off) + 1


@given(run())
@settings(max_examples=60, deadline=None)
def test_totals_are_sums_and_hold_the_truth(given_windows: list[Window]) -> None:
    found = figures.speculation(recovered([current(w) for w in given_windows]), {}, None)
    assert found is not None
    totals = found.totals
    assert totals.accepted_tokens == sum(w.total for w in given_windows)
    assert totals.draft_tokens == sum(w.drafted for w in given_windows)
    drafts = sum(w.drafts for w in given_windows)
    assert found.drafts_low is not None
    assert found.drafts_high is not None
    assert found.drafts_low <= drafts <= found.drafts_high
    assert found.length is not None
    assert (
        found.length.low - 1e-9
        <= 1 + (totals.accepted_tokens or 0) / drafts
        <= found.length.high + 1e-9
    )


@given(
    st.integers(1, 5).flatmap(lambda k: st.lists(window(k), min_size=3, max_size=6)), st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_earlier_lines_with_and_without_the_bonus_token(
    given_windows: list[Window], bonus: bool
) -> None:
    frame = recovered([early(w, bonus=bonus) for w in given_windows], bonus=bonus)
    assert frame["problem"].null_count() == len(given_windows)
    for row, true in zip(frame.iter_rows(named=True), given_windows, strict=True):
        assert row["drafts_low"] <= true.drafts <= row["drafts_high"]


def test_the_lines_themselves_say_whether_the_bonus_token_counts() -> None:
    true = Window(100, 300, (81, 61, 42))
    for bonus in (True, False):
        frame = recovered([early(true, bonus=bonus)] * 3)
        assert frame["drafts"].to_list() == [100, 100, 100]
        assert frame["problem"].null_count() == 3


def test_lines_without_positions_bound_the_drafts_by_the_drafted_tokens() -> None:
    frame = recovered([early(Window(100, 290, (81, 61, 42)), positions=False)], k=3)
    assert frame.select("drafts_low", "drafts_high").row(0) == (97, 290)


def test_a_mean_length_alone_gives_the_drafts() -> None:
    """llama.cpp prints neither positions nor the tokens of a draft."""
    line = (
        "0.53.371.681 I slot print_timing: id  0 | task 0 | draft acceptance = 0.68343 (  231 accepted "
        "/   338 generated), mean len =  2.37"
    )
    frame = recovered([line])
    assert frame.select("drafts_low", "drafts", "drafts_high").row(0) == (168, 169, 169)


def test_a_window_is_as_long_as_its_throughput_says() -> None:
    """After an idle gap the line still divides by the time since the last one."""
    frame = recovered([current(Window(100, 200, (90, 60), seconds=30.0), second=40)])
    assert frame["span_s"][0] == pytest.approx(30.0, rel=0.002)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("0.900, 0.600", "0.900, 0.700", "the per-position rates do not add up to the mean length"),
        ("rate: 75.0%", "rate: 79.0%", "accepted / drafted is not the printed rate"),
        ("Drafted: 200", "Drafted: 120", "more accepted than drafted"),
    ],
)
def test_a_line_that_contradicts_itself_is_reported_and_not_averaged_in(
    old: str, new: str, problem: str
) -> None:
    good = current(Window(100, 200, (90, 60)))
    bad = good.replace(old, new)
    assert bad != good
    frame = recovered([good, bad, good])
    assert frame["problem"].to_list() == [None, problem, None]
    found = figures.speculation(frame, {}, None)
    assert found is not None
    assert found.totals.windows == 2
    assert found.totals.accepted_tokens == 300
    assert found.broken == ((2, problem),)


def test_counts_since_the_start_become_counts_of_windows() -> None:
    """V0 prints totals; a restart begins at zero again."""
    line = (
        "INFO 08-09 10:11:{:02d} metrics.py:420] Speculative metrics: Draft acceptance rate: 0.600, "
        "System efficiency: 0.500, Number of speculative tokens: 3, Number of accepted tokens: {}, "
        "Number of draft tokens{}: {}, Number of emitted tokens{}: {}."
    )
    lines = [
        line.format(0, 180, "", 300, "", 220),
        line.format(5, 540, "", 900, "", 660),
        line.format(10, 90, " tokens", 150, " tokens", 120),
    ]
    frame = recovered(lines)
    assert frame["draft_tokens"].to_list() == [300, 600, 150]
    assert frame["accepted_tokens"].to_list() == [180, 360, 90]
    assert frame["drafts"].to_list() == [100, 200, 50]
    found = figures.speculation(frame, {}, None)
    assert found is not None
    assert found.totals.acceptance_rate == pytest.approx(630 / 1050)
    # Emitted tokens / drafts: V0's accepted tokens count some that were never emitted.
    assert found.totals.mean_acceptance_length == pytest.approx((220 + 440 + 120) / 350)


def test_new_year_is_no_step_back_of_a_year() -> None:
    line = current(Window(100, 200, (90, 60)))
    lines = [line.replace("05-02 00:00:00", c) for c in ("12-31 23:59:55", "01-01 00:00:05")]
    assert recovered(lines)["seconds"].to_list() == [0.0, 10.0]


@pytest.mark.parametrize("accepted", [(0, 0), (100, 100)])
def test_nothing_or_everything_accepted_is_no_certainty(accepted: tuple[int, int]) -> None:
    lines = [current(Window(100, 200, accepted))] * 3
    found = figures.speculation(recovered(lines), {}, None)
    assert found is not None
    assert found.length is not None
    assert found.rate is not None
    assert found.length.low < found.length.high
    assert found.rate.high - found.rate.low == pytest.approx(3.84 / 303.84, rel=0.01)


def test_intervals_of_wilson_hold_their_share() -> None:
    """Values of the textbook formula for 8 of 10 and for none of 20."""
    some = intervals.wilson(0.8, 10)
    assert (round(some.low, 4), round(some.high, 4)) == (0.4902, 0.9433)
    none = intervals.wilson(0.0, 20)
    assert (round(none.low, 4), round(none.high, 4)) == (0.0, 0.1611)


def test_prefix_hits_of_sglang_are_cached_tokens_of_a_batch() -> None:
    line = (
        "[2026-03-04 05:06:{:02d}] Prefill batch, #new-seq: 1, #new-token: {}, #cached-token: {}, token "
        "usage: 0.00, #running-req: 0, #queue-req: 0, cuda graph: False, input throughput (token/s): 9.0"
    )
    lines = [line.format(i, new, 30) for i, new in enumerate((10, 90, 30))]
    lines.append(line.format(9, 0, 0))
    rows = table.gathered(table.parse(log(lines)).frames)
    found = windows.recovered(rows, k=None, bonus=None, started=False, interval=40)
    assert found.whole()["prefix_cache_hit_rate"].to_list() == [0.75, 0.25, 0.5, None]
    hits = figures.throughput(figures.engine_rows(found)).prefix_cache_hit_rate
    assert (hits.median, hits.max) == (0.5, 0.75)
