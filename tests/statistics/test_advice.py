"""What is advised, from logs made of known counts."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from forensics.analysis import load_rules
from forensics.model import Context, Finding, Hardware, Source
from forensics.statistics import comparison
from forensics.statistics.model import Report
from forensics.statistics.summary import Gatherer
from tests.stat_lines import Window, current, engine, log, served, start
from tests.support import ROOT

GB10 = Context(hardware=Hardware(gpu="NVIDIA GB10", compute_capability="12.1"))


@cache
def tables() -> dict[str, Any]:
    return load_rules().tables


def report(lines: list[str], context: Context = GB10) -> Report:
    raw = log(lines)
    gatherer = Gatherer(Source(kind="text", name="log"), raw, context)
    gatherer.feed(raw)
    return gatherer.report(tables())


def named(found: Report) -> dict[str, Finding]:
    return {finding.rule.removeprefix("statistics."): finding for finding in found.stats.findings}


# One and two MTP tokens on one GB10, in the ranges reported for such runs.
ONE = [*start(1), *served(1, [(0.87, 0.98)], {1: 23.0, 8: 14.7})]
TWO = [*start(2), *served(2, [(0.87, 0.98), (0.70, 0.95)], {1: 25.0, 8: 10.5})]


def test_the_logs_of_the_page_are_these() -> None:
    folder = ROOT / "tests/statistics/data"
    assert (folder / "one-token.log").read_bytes() == log(ONE)
    assert (folder / "two-tokens.log").read_bytes() == log(TWO)


def test_one_token_on_one_gb10() -> None:
    found = report(ONE)
    totals = found.stats.speculative
    assert totals is not None
    assert (totals.method, totals.num_speculative_tokens) == ("mtp", 1)
    rates = [
        p.value for p in found.stats.series if p.name == "acceptance_rate" and p.scope == "window"
    ]
    assert min(rates) >= 0.86
    assert max(rates) <= 0.99
    assert totals.mean_acceptance_length is not None
    assert 1.88 <= totals.mean_acceptance_length <= 1.95
    assert totals.drafts == totals.draft_tokens


def test_two_tokens_on_one_gb10() -> None:
    found = report(TWO)
    assert found.speculation is not None
    second = found.frame["per_position"].drop_nulls().list.get(1)
    assert 0.58 <= float(str(second.min())) <= 0.75
    assert 0.80 <= float(str(second.max())) <= 0.94
    assert 0.63 <= found.speculation.positions[1].rate.value <= 0.91


def test_two_logs_say_what_the_second_token_costs() -> None:
    one, two = comparison.compared([report(ONE), report(TWO)], tables())
    estimates = {"fewer-positions", "more-positions", "positions-worth"}
    assert not (estimates | {"compared-positions"}) & set(named(one))
    assert not estimates & set(named(two))
    finding = named(two)["compared-positions"]
    assert finding.title.startswith("Position 2 adds 0.")
    assert (
        "tokens per step at single stream, but throughput at 8 concurrent fell from 14."
        in finding.title
    )
    assert finding.title.endswith(": stay at 1")
    assert [fix.text for fix in finding.fixes] == ["Use num_speculative_tokens 1."]


def test_two_logs_may_also_say_that_more_is_better() -> None:
    fast = [*start(2), *served(2, [(0.9, 0.95), (0.8, 0.9)], {1: 30.0, 8: 22.0})]
    _, two = comparison.compared([report(ONE), report(fast)], tables())
    assert named(two)["compared-positions"].title.endswith(": use 2")


def test_against_no_speculation_the_advice_may_be_to_stop() -> None:
    plain = [*start(0), *served(0, [], {1: 15.0, 8: 60.0})]
    slow = [*start(1), *served(1, [(0.3, 0.4)], {1: 14.0, 8: 40.0})]
    _, one = comparison.compared([report(plain), report(slow)], tables())
    finding = named(one)["compared-positions"]
    assert finding.title.endswith(": run without speculation")
    assert [fix.action for fix in finding.fixes] == ["remove_argument"]


@pytest.mark.parametrize(
    ("rates", "name", "text"),
    [
        ([(0.90, 0.95), (0.05, 0.08)], "fewer-positions", "Set num_speculative_tokens to 1."),
        ([(0.02, 0.05)], "fewer-positions", "Run without speculation."),
        ([(0.92, 0.95), (0.95, 0.98)], "more-positions", "Measure with num_speculative_tokens 3"),
        ([(0.80, 0.85), (0.50, 0.55)], "positions-worth", None),
    ],
)
def test_the_value_of_each_position(
    rates: list[tuple[float, float]], name: str, text: str | None
) -> None:
    k = len(rates)
    found = named(report([*start(k), *served(k, rates, {1: 60.0})]))
    assert name in found
    assert len({"fewer-positions", "more-positions", "positions-worth"} & set(found)) == 1
    if text is None:
        assert not found[name].fixes
    else:
        assert found[name].fixes[0].text.startswith(text)


def test_speculation_that_does_nothing() -> None:
    found = named(report([*start(1), *served(1, [(0.0, 0.0)], {1: 20.0})]))
    assert found["speculation-does-nothing"].severity == "warning"
    assert "implied-speed-up" not in found


def test_speculation_that_never_drafts() -> None:
    assert "speculation-silent" in named(report([*start(1), *served(0, [], {1: 20.0})]))
    assert "speculation-silent" not in named(report([*start(0), *served(0, [], {1: 20.0})]))


def windows(rates: list[float]) -> list[str]:
    return [
        current(Window(400, 400, (round(400 * rate),)), 30 + 10 * i) for i, rate in enumerate(rates)
    ]


def test_drift_and_drops_are_told_apart_and_noise_is_neither() -> None:
    falling = named(report([*start(1), *windows([0.9 - 0.02 * i for i in range(18)])]))
    assert falling["acceptance-drifts"].captures["word"] == "fell"
    dropping = named(report([*start(1), *windows([0.9] * 10 + [0.2] + [0.9] * 10)]))
    assert dropping["acceptance-drops"].captures["count"] == "1"
    assert [e.line for e in dropping["acceptance-drops"].evidence] == [15]
    steady = named(report([*start(1), *windows([0.88, 0.9, 0.91, 0.89] * 5)]))
    assert not {"acceptance-drifts", "acceptance-drops"} & set(steady)


def test_every_cited_line_is_quoted_as_printed() -> None:
    lines = [*start(1), *windows([0.9] * 10 + [0.2] + [0.9] * 10)]
    for finding in report(lines).stats.findings:
        for one in finding.evidence:
            assert one.text == lines[one.line - 1]


def test_queue_and_full_cache() -> None:
    full = [
        engine(100.0, 8, 30 + 10 * i, waiting=5).replace("usage: 2.0%", "usage: 99.0%")
        for i in range(6)
    ]
    assert {"requests-queue", "kv-cache-full"} <= set(named(report([*start(0), *full])))
    assert not {"requests-queue", "kv-cache-full"} & set(named(report(ONE)))


def test_known_speeds_of_the_model_and_gpu() -> None:
    slow = [*start(1), *served(1, [(0.87, 0.98)], {1: 11.0})]
    below = [f for f in report(slow).stats.findings if f.rule == "statistics.below-baseline"]
    assert any("mtp-1" in f.captures["id"] for f in below)
    good = [f for f in report(ONE).stats.findings if f.rule == "statistics.below-baseline"]
    assert not good
    elsewhere = report(slow, Context(hardware=Hardware(gpu="NVIDIA H100")))
    assert "below-baseline" not in named(elsewhere)


def test_the_first_window_after_the_start_is_left_out_and_said() -> None:
    found = report(ONE)
    assert found.warmup == 1
    assert found.stats.throughput.windows == 15
    assert found.stats.speculative is not None
    assert found.stats.speculative.excluded_warmup == 1
    assert found.stats.speculative.windows == 16
    cut = report(ONE[len(start(1)) :])
    assert cut.warmup == 0
    assert any("does not begin where the server began" in limit for limit in cut.limits)


def test_times_of_a_wrapper_are_the_times() -> None:
    lines = [
        f"2026-05-02T07:00:{20 + i:02d}.000000000Z {line}"
        for i, line in enumerate([*start(1), *windows([0.9] * 5)])
    ]
    found = report(lines)
    assert found.stats.source.envelope == "docker-timestamps"
    totals = found.stats.speculative
    assert totals is not None
    assert totals.first_at == "2026-05-02T07:00:24.000000000Z"
    assert totals.last_at == "2026-05-02T07:00:28.000000000Z"
    assert found.frame["seconds"].to_list() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert not any("no year" in limit for limit in found.limits)


def test_secrets_in_a_quoted_line_are_masked() -> None:
    token = "hf_" + "a1B2" * 9  # no real token
    bad = current(Window(100, 200, (90, 60))).replace("rate: 75.0%", "rate: 79.0%")
    found = report([*start(2), bad.replace("(APIServer pid=1)", f"({token} pid=1)")] * 2)
    quoted = [e.text for f in found.stats.findings for e in f.evidence]
    assert quoted
    assert not any(token in text for text in quoted)


def test_engines_of_one_server_are_added_up() -> None:
    lines = []
    for i in range(4):
        for number, speed in ((0, 10.0), (1, 30.0)):
            lines.append(engine(speed, 2, 30 + 10 * i).replace("Engine 000", f"Engine 00{number}"))
            lines.append(current(Window(100, 100, (90 - 40 * number,)), 30 + 10 * i))
    found = report(lines)
    assert found.stats.throughput.generation_tokens_per_s.median == 40.0
    assert found.stats.throughput.running.median == 4.0
    assert found.stats.speculative is not None
    assert found.stats.speculative.accepted_tokens == 4 * (90 + 50)


def test_sglang_prints_no_counts_so_they_are_estimates() -> None:
    rest = "'speculative_num_draft_tokens': 4}"
    lines = [
        "[2026-03-04 05:00:00] server_args={'model_path': 'm', 'speculative_algorithm': 'NEXTN', "
        + rest,
        "[2026-03-04 05:06:00] The server is fired up and ready to roll!",
    ]
    lines += [
        f"[2026-03-04 05:06:1{i} TP0] Decode batch, #running-req: 2, #full token: 4, full token usage: "
        "0.01, accept len: 2.50, accept rate: 0.50, cuda graph: True, gen throughput (token/s): 40.00, "
        "#queue-req: 0"
        for i in range(5)
    ]
    found = report(lines, Context())
    totals = found.stats.speculative
    assert totals is not None
    # Forty decode batches of two requests between two lines; four draft tokens are three and one.
    assert (totals.drafts, totals.draft_tokens, totals.accepted_tokens) == (400, 1200, 600)
    assert (totals.method, totals.num_speculative_tokens) == ("NEXTN", 3)
    assert totals.mean_acceptance_length == 2.5
    assert "counts-estimated" in named(found)
    assert totals.first_at is None
