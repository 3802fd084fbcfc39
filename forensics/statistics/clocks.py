"""Printed times to seconds: each server writes its clock in another way, and few write the year."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from forensics.statistics.formats import BY_NAME

#: How often a separator stands in a clock of llama.cpp, and in one with a full date.
_RELATIVE, _DATED = 3, 2
_HALF_YEAR = 182 * 86_400
_YEAR = 366 * 86_400  # of the leap year that printed days are read in


def timed(parts: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Return rows by form with `seconds` since the first row of all, by wrapper or as printed.

    Printed clocks of different servers have nothing in common: each counts from its own first row.

    Args:
        parts: Rows by form.
    """
    wrapped = any("at" in part.columns and part["at"].count() for part in parts.values())
    seconds = {form: _wrapper_seconds(p) if wrapped else _printed(p) for form, p in parts.items()}
    firsts: dict[str, tuple[int, float]] = {}
    for form, values in seconds.items():
        place = values.is_not_null().arg_max() if values.count() else None
        if place is not None:
            key = "" if wrapped else BY_NAME[form].engine
            found = (int(parts[form]["line"][place]), float(values[place]))
            firsts[key] = min(found, firsts.get(key, found))
    return {
        form: part.drop("clock_s", strict=False).with_columns(
            _since(seconds[form], firsts.get("" if wrapped else BY_NAME[form].engine)).alias(
                "seconds"
            )
        )
        for form, part in parts.items()
    }


def _since(values: pl.Series, first: tuple[int, float] | None) -> pl.Series:
    if first is None or not values.count():
        return values.cast(pl.Float64)
    values = values - first[1]
    # A form whose first line comes after New Year only: its clock stands before the first one.
    begin = values.drop_nulls()[0]
    return values + float(_YEAR) if begin < -_HALF_YEAR else values


def _wrapper_seconds(part: pl.DataFrame) -> pl.Series:
    if "at" not in part.columns:
        return pl.Series([None] * part.height, dtype=pl.Float64)
    when = pl.col("at").str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
    return part.select(when.dt.epoch("us") / 1e6).to_series()


def _printed(part: pl.DataFrame) -> pl.Series:
    if "clock" not in part.columns or not part["clock"].count():
        return pl.Series([None] * part.height, dtype=pl.Float64)
    if "clock_s" not in part.columns:
        return _clock_seconds(part["clock"])
    known = part["clock_s"]
    gaps = known.is_null().arg_true()
    if len(gaps):
        known = known.scatter(gaps, yearless(part["clock"].gather(gaps)))
    return _turned(known)


def yearless(clock: pl.Series) -> pl.Series:
    """Return the seconds of clocks as vLLM prints them (`05-02 10:00:00`) into their year."""
    # 2000 is a leap year, so that every day exists.
    return _epoch(pl.Series(["2000-"]) + clock, "%Y-%m-%d %H:%M:%S")


def _turned(seconds: pl.Series) -> pl.Series:
    """Add the years that are not printed: a clock that falls by months passed New Year."""
    turned = (seconds.diff() < -_HALF_YEAR).fill_null(value=False)
    return seconds + turned.cum_sum() * float(_YEAR) if turned.any() else seconds


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
        return _turned(yearless(clock))
    return _epoch(pl.Series(["2000-01-01 "]) + clock, "%Y-%m-%d %H:%M:%S")


def _epoch(texts: pl.Series, form: str) -> pl.Series:
    return texts.str.to_datetime(form, time_unit="us", strict=False).dt.epoch("us") / 1e6
