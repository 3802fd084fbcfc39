"""Totals of real logs against the counters of the same runs.

The bound: what is printed exactly (accepted and drafted tokens) must be equal, apart from the part
after the last line, which is never printed and holds one window at most; drafts and tokens by
position lie within what the rounding of the printed numbers allows, plus that window. Tokens of the
engine's lines are printed as tokens/s with one decimal, of windows known to the second.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.analysis import context_beside
from forensics.sources import open_source
from forensics.statistics import counted, counters, summary
from forensics.statistics.model import Agreement, Report
from tests.support import ROOT

CASES = sorted(path.parent for path in (ROOT / "samples").rglob("metrics.prom"))


def report(path: Path) -> Report:
    opened = open_source(str(path))
    try:
        return summary.gather(opened, context_beside(str(path))).report({})
    finally:
        opened.file.close()


def agreement(case: Path) -> dict[str, Agreement]:
    read = counters.read((case / "metrics.prom").read_bytes(), "metrics.prom")
    compared = summary.with_counters(report(case / "log.txt"), read, {})
    return {one.name: one for one in compared.agreement}


def test_there_are_real_logs_with_counters() -> None:
    assert len(CASES) >= 6


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_totals_agree_with_the_counters(case: Path) -> None:
    found = agreement(case)
    assert found
    for one in found.values():
        assert one.low <= one.counter <= one.high + one.unlogged, one
        assert one.agrees
    for name in ("accepted_tokens", "draft_tokens"):
        if name in found:
            # No rounding here: only the window that was never printed may be missing.
            assert 0 <= found[name].counter - found[name].log <= found[name].unlogged


def test_a_run_that_idled_before_its_end_is_complete() -> None:
    """Nothing was left unprinted: the exact counts are equal, the recovered ones within 1 %."""
    found = agreement(ROOT / "samples/vllm/v032-happy-spec-long")
    assert found["accepted_tokens"].log == found["accepted_tokens"].counter == 32_438
    assert found["draft_tokens"].log == found["draft_tokens"].counter == 116_167
    assert found["drafts"].low <= 30_886 <= found["drafts"].high
    assert found["drafts"].log == pytest.approx(30_886, rel=0.005)
    for position, true in enumerate((11_596, 8_577, 6_884, 5_381), 1):
        assert found[f"accepted_tokens_position_{position}"].log == pytest.approx(true, abs=3)
    assert found["generation_tokens"].log == pytest.approx(128_090, rel=0.01)


def test_counters_of_another_run_do_not_agree() -> None:
    ours = report(ROOT / "samples/vllm/v032-happy-spec-long/log.txt")
    path = ROOT / "samples/vllm/v032-spec-draft-self/metrics.prom"
    compared = summary.with_counters(ours, counters.read(path.read_bytes(), "other"), {})
    assert not any(a.agrees for a in compared.agreement if a.name in {"draft_tokens", "drafts"})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_real_line_adds_up(case: Path) -> None:
    found = report(case / "log.txt")
    assert found.frame["problem"].null_count() == found.frame.height


def test_counters_alone_give_the_same_figures_exactly() -> None:
    path = ROOT / "samples/vllm/v032-happy-spec-long/metrics.prom"
    read = counters.read(path.read_bytes(), "metrics.prom")
    stats = counted.report_on_counters(read, "metrics.prom", 1, {}).stats
    assert stats.speculative is not None
    assert stats.speculative.drafts == 30_886
    assert stats.speculative.acceptance_rate == 32_438 / 116_167
    assert stats.speculative.mean_acceptance_length == 1 + 32_438 / 30_886
    assert stats.speculative.per_position == [
        round(n / 30_886, 6) for n in (11_596, 8_577, 6_884, 5_381)
    ]
