"""Any counts, printed as older vLLM, llama.cpp and the engine's own lines print them, come back."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.model import Context, Source
from forensics.statistics import agreement, figures, table, windows
from forensics.statistics.model import Counters
from forensics.statistics.summary import Gatherer
from tests.stat_lines import engine, log, start
from tests.statistics.test_windows import recovered

#: Drafts, and of each the share that was accepted, in thousandths.
WINDOWS = st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 1_000)), min_size=1, max_size=8)


@given(WINDOWS, st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_totals_since_the_start_become_windows(
    given_windows: list[tuple[int, int]], k: int
) -> None:
    """V0 of vLLM prints sums since the start; drafts are whole, since it always drafts k tokens."""
    drafts = [count for count, _ in given_windows]
    accepted = [count * k * share // 1_000 for count, share in given_windows]
    emitted = [a + d for a, d in zip(accepted, drafts, strict=True)]
    lines = [
        f"INFO 08-09 10:11:12 metrics.py:420] Speculative metrics: Draft acceptance rate: "
        f"{a / (d * k):.3f}, System efficiency: {e / (d * (k + 1)):.3f}, Number of speculative "
        f"tokens: {k}, Number of accepted tokens: {a}, Number of draft tokens: {d * k}, Number of "
        f"emitted tokens: {e}."
        for a, d, e in zip(
            accumulate(accepted), accumulate(drafts), accumulate(emitted), strict=True
        )
    ]
    frame = recovered(lines)
    assert frame["problem"].null_count() == len(lines)
    assert frame["drafts"].to_list() == drafts
    assert frame["accepted_tokens"].to_list() == accepted
    found = figures.speculation(frame, {}, None)
    assert found is not None
    assert found.totals.mean_acceptance_length == sum(emitted) / sum(drafts)


@given(WINDOWS, st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_a_request_of_llama_cpp(given_windows: list[tuple[int, int]], k: int) -> None:
    """Accepted and drafted tokens are exact, drafts as exact as two decimals of the mean."""
    lines = []
    for count, share in given_windows:
        accepted = count * k * share // 1_000
        lines.append(
            f"0.53.371.681 I slot print_timing: id  0 | task 0 | draft acceptance = "
            f"{accepted / (count * k):.5f} ({accepted:5d} accepted / {count * k:5d} generated), "
            f"mean len = {1 + accepted / count:5.2f}"
        )
    frame = recovered(lines, k=k)
    assert frame["problem"].null_count() == len(lines)
    assert frame["draft_tokens"].to_list() == [count * k for count, _ in given_windows]
    for row, (count, _) in zip(frame.iter_rows(named=True), given_windows, strict=True):
        assert row["drafts_low"] <= count <= row["drafts_high"]
    # All drafts are whole here: then they are known exactly.
    assert frame["drafts"].to_list() == [count for count, _ in given_windows]


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.floats(10.0, 10.08), st.integers(0, 40)),
        min_size=3,
        max_size=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_generated_tokens_lie_within_their_bound(made: list[tuple[int, float, int]]) -> None:
    """Tokens/s with one decimal, of windows whose ends are printed in whole seconds."""
    lines, now = start(0), 20.0
    for tokens, seconds, running in made:
        now += seconds
        lines.append(engine(tokens / seconds, running, int(now)))
    raw = log(lines)
    gatherer = Gatherer(Source(kind="text", name="log"), raw, Context())
    gatherer.feed(raw)
    total = sum(tokens for tokens, _, _ in made)
    counters = Counters(engine="vllm", generation_tokens=total)
    for one in agreement.compare(gatherer.report({}), counters):
        assert one.low <= total <= one.high + one.unlogged, one


@given(st.integers(1, 8), st.integers(2, 6), st.integers(0, 59))
@settings(max_examples=40, deadline=None)
def test_engines_of_one_server_are_added_up(engines: int, moments: int, second: int) -> None:
    """Data parallel: each engine prints its own line, all of them within a second."""
    lines = []
    for moment in range(moments):
        for rank in range(engines):
            line = engine(10.0 + rank, 1, second + 10 * moment)
            lines.append(line.replace("Engine 000", f"Engine {rank:03d}"))
    rows = table.gathered(table.parse(log(lines)).frames)
    found = figures.engine_rows(
        windows.recovered(rows, k=None, bonus=None, started=False, interval=40)
    )
    assert (
        found["generation_tokens_per_s"].to_list()
        == [sum(10.0 + rank for rank in range(engines))] * moments
    )
    assert found["running"].to_list() == [engines] * moments
    assert found["seconds"].to_list() == [10.0 * moment for moment in range(moments)]
