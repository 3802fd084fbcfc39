"""Years for clocks that have none, and spans between times of any kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forensics.analysis import examine
from forensics.model import Context
from forensics.times import between, with_year
from tests.support import diagnose, engine, logged, started, text


@pytest.mark.parametrize(
    ("clock", "written", "at"),
    [
        ("12-01 02:00:00", "2026-12-01T03:00:00+00:00", "2026-12-01T02:00:00"),
        ("12-31 23:59:58", "2027-01-01T00:10:00+00:00", "2026-12-31T23:59:58"),
        ("01-01 00:00:01", "2027-01-01T00:10:00+00:00", "2027-01-01T00:00:01"),
        ("12-01 12:00:00", "2026-12-01T03:00:00+00:00", "2026-12-01T12:00:00"),
        ("12-03 12:00:00", "2026-12-01T03:00:00+00:00", "2025-12-03T12:00:00"),
        ("02-29 12:00:00", "2026-12-01T03:00:00+00:00", "2024-02-29T12:00:00"),
        ("13-01 12:00:00", "2026-12-01T03:00:00+00:00", None),
        ("noon", "2026-12-01T03:00:00+00:00", None),
        ("12-01 02:00:00", "yesterday", None),
    ],
    ids=["same day", "New Year's Eve", "New Year", "other zone", "year before", "leap day",
         "no month", "no clock", "no date"],
)  # fmt: skip
def test_clock_gets_the_year_in_which_it_was_last(clock: str, written: str, at: str | None) -> None:
    assert with_year(clock, written) == at


@pytest.mark.parametrize(
    ("first", "then", "seconds"),
    [
        ("2026-12-31T23:59:59Z", "2027-01-01T00:00:01.5Z", 2.5),
        ("2026-12-01T02:00:00.123456789Z", "2026-12-01T03:00:00.123456789+01:00", 0.0),
        ("2026-12-01T02:00:00", "2026-12-01T02:00:07", 7.0),
        ("2026-12-01T02:00:00", "2026-12-01T02:00:07Z", None),
        ("2026-12-01T02:00:00Z", "soon", None),
    ],
)
def test_span_between_times(first: str, then: str, seconds: float | None) -> None:
    assert between(first, then) == seconds


def test_timeline_has_the_year_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        text(
            [line.replace("12-01 02", "12-31 23") for line in started()],
            logged("EngineCore", "Loading weights took 0.08 seconds", clock="01-01 00:00:30"),
        )
    )
    os.utime(path, (1_798_765_200, 1_798_765_200))  # 2027-01-01T01:00:00Z

    timeline = examine(str(path), engine(), Context())[0].timeline

    assert (timeline[0].at, timeline[-1].at) == ("2026-12-31T23:00:00", "2027-01-01T00:00:30")
    assert timeline[-1].seconds == 3630.0


def test_standard_input_has_no_year() -> None:
    assert {m.at for m in diagnose(text(started())).timeline} == {None}
