"""Printed times to seconds: each server writes its clock in another way, and few write the year."""

from __future__ import annotations

import polars as pl

#: How often a separator stands in a clock of llama.cpp, and in one with a full date.
_RELATIVE, _DATED = 3, 2
_HALF_YEAR = 182 * 86_400
_YEAR = 366 * 86_400  # of the leap year that printed days are read in


def seconds_of(table: pl.DataFrame) -> pl.Series:
    """Return seconds since the first row that has a time, by wrapper or else as printed."""
    frame = table.select("at", "clock")
    if frame["at"].null_count() < frame.height:
        when = pl.col("at").str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
        seconds = frame.select(when.dt.epoch("us") / 1e6).to_series()
    else:
        seconds = _clock_seconds(frame["clock"])
    first = seconds.drop_nulls()
    return seconds - first[0] if len(first) else seconds.cast(pl.Float64)


def _clock_seconds(clock: pl.Series) -> pl.Series:
    """Return the seconds of printed clocks; a year that is not printed is added at New Year."""
    sample = next((text for text in clock.head(100) if text), "")
    if (
        sample.count(".") == _RELATIVE
    ):  # llama.cpp: minutes.seconds.milliseconds.microseconds since start
        parts = clock.str.split_exact(".", 3).struct.unnest()
        scale = (60.0, 1.0, 1e-3, 1e-6)
        return sum(
            (parts[f"field_{i}"].cast(pl.Float64, strict=False) * s for i, s in enumerate(scale)),
            start=pl.Series([0.0]),
        )
    if " - " in sample:
        return _epoch(clock, "%Y/%m/%d - %H:%M:%S")
    if "/" in sample:
        return _epoch(clock, "%m/%d/%Y-%H:%M:%S")
    if sample.count("-") == _DATED:
        return _epoch(clock, "%Y-%m-%d %H:%M:%S")
    if sample.count("-") == 1:
        # 2000 is a leap year, so that every day exists.
        found = _epoch(pl.Series(["2000-"]) + clock, "%Y-%m-%d %H:%M:%S")
        turned = (found.diff() < -_HALF_YEAR).fill_null(value=False).cum_sum()
        return found + turned * float(_YEAR)
    return _epoch(pl.Series(["2000-01-01 "]) + clock, "%Y-%m-%d %H:%M:%S")


def _epoch(texts: pl.Series, form: str) -> pl.Series:
    return texts.str.to_datetime(form, time_unit="us", strict=False).dt.epoch("us") / 1e6
