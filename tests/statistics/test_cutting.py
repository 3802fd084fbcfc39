"""The fast way gives what the patterns give, line by line, and what is odd goes to the patterns."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from forensics.statistics import cutting, table, windows
from tests.stat_lines import Window, current, engine, log

WINDOW = Window(100, 300, (90, 60, 30))
#: How a line of either form may differ, so that the fast way sees it or does not.
CHANGES = (
    ("Engine 000", "Engine 001"),
    ("GPU KV cache usage", "CPU KV cache usage"),
    (", Prefix cache hit rate: 0.0%", ""),
    ("Waiting: 0 reqs", "Waiting: 0 reqs, Deferred: 2 reqs"),
    ("(APIServer pid=1) ", ""),
    ("(APIServer pid=1) ", "(APIServer pid=23456) "),
    ("loggers.py:273", "loggers.py:1"),
    ("0.900, 0.600, 0.300", "nan, nan, nan"),
    ("Mean acceptance length: 2.80", "Mean acceptance length: nan"),
    ("0.900, 0.600", "0.900, x"),
    (", Avg Draft acceptance rate: 60.0%", ""),
    ("INFO 05-02", "INFO 02-29"),
    ("INFO 05-02", "INFO 99-99"),
)


@st.composite
def line(draw: st.DrawFn) -> str:
    second = draw(st.integers(0, 80_000))
    text = draw(st.sampled_from([engine(12.5, 3, second), current(WINDOW, second), "hello: you"]))
    for old, new in draw(st.lists(st.sampled_from(CHANGES), max_size=2)):
        text = text.replace(old, new)
    return text


def rows(raw: bytes) -> pl.DataFrame:
    found = table.gathered(table.parse(raw).frames)
    return windows.recovered(found, k=3, bonus=None, started=True, interval=40).whole()


@given(st.lists(line(), min_size=1, max_size=12))
@settings(max_examples=80, deadline=None)
def test_cut_or_matched_is_the_same(lines: list[str]) -> None:
    fast = rows(log(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "cut", lambda found: ([], found))
        plain = rows(log(lines))
    assert_frame_equal(fast, plain)


def test_the_usual_lines_are_cut() -> None:
    """Else the equality above would compare the patterns with themselves."""
    lines = [engine(12.5, 3, 10), current(WINDOW, 10), "hello: you", engine(1.0, 1, 20)]
    found = pl.DataFrame({"line": [1, 2, 3, 4], "text": lines})
    done, rest = cutting.cut(found)
    assert sorted(frame["form"][0] for frame in done) == ["vllm.spec", "vllm.v1"]
    assert rest["line"].to_list() == [3]


@given(st.lists(line(), min_size=1, max_size=12), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_batches_change_nothing(lines: list[str], size: int) -> None:
    frames: list[pl.DataFrame] = []
    for start in range(0, len(lines), size):
        parsed = table.parse(log(lines[start : start + size]))
        frames += [f.with_columns(pl.col("line") + start) for f in parsed.frames]
    found = windows.recovered(
        table.gathered(frames), k=3, bonus=None, started=True, interval=40
    ).whole()
    assert_frame_equal(found, rows(log(lines)))


def test_both_forms_count_from_one_moment_also_past_new_year() -> None:
    """The second form's first line comes after New Year: its clock alone would be a year off."""
    lines = [
        engine(10.0).replace("05-02 00:00:00", "12-31 23:59:50"),
        current(WINDOW).replace("05-02 00:00:00", "01-01 00:00:00"),
        engine(10.0).replace("05-02 00:00:00", "01-01 00:00:00"),
    ]
    assert rows(log(lines))["seconds"].to_list() == [0.0, 10.0, 10.0]


def test_a_form_holds_its_own_columns_only() -> None:
    """What makes a log of days fit into memory."""
    found = windows.recovered(
        table.gathered(table.parse(log([engine(10.0), current(WINDOW)]), texts=False).frames),
        k=3, bonus=None, started=True, interval=40,
    )  # fmt: skip
    assert "accepted_tokens" not in found.parts["vllm.v1"].columns
    assert not {"running", "text", "clock_s"} & set(found.parts["vllm.spec"].columns)
    assert found.having("accepted_tokens")["line"].to_list() == [2]
    assert set(found.whole().columns) == set(found.having("nothing").columns)
