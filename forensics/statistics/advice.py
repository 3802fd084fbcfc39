"""What the figures say that should be done, each with its numbers.

Decisions stand here, words in `rules/tables/statistics.yaml`: each finding fills one entry of it.
All evidence is lines of the log that can be re-read, or none where a figure comes from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import sqrt
from typing import Any

import polars as pl

from forensics.model import DEFAULT_SAFETY, Citation, Finding, FixAdvice
from forensics.statistics import baselines, benchadvice, figures
from forensics.statistics.baselines import MIN_WINDOWS, enough
from forensics.statistics.model import Position, Report
from forensics.statistics.table import Rows, completed
from forensics.statistics.words import Captures, number, percent

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_CITED = 3
#: A mean length below this is no acceptance at all.
IDLE_LENGTH = 1.02
#: A further pass is advised against below this gain, and one more advised for above the other.
LITTLE_GAIN = 0.10
LARGE_GAIN = 0.25
_LIKELY = 0.6
_FULL_CACHE = 0.95
_DRIFT = 0.05
_SIGMAS = 3.0
#: Accepted tokens under load below this share of those at few requests are worth a word.
_LOAD_FACTOR = 0.9
#: Columns of drafting windows that are looked at here.
_USED = ("line", "accepted_tokens", "draft_tokens", "drafts", "problem")

Found = tuple[str, Captures, list[int]]


def findings(report: Report, tables: Mapping[str, Any]) -> list[Finding]:
    """Return the findings of a report, warnings first.

    Args:
        report: The figures.
        tables: Tables of the rule packs: `statistics` (words) and `baselines`.
    """
    entries: Mapping[str, Any] = (tables.get("statistics") or {}).get("advice") or {}
    made = [
        filled(name, entries[name], captures, _cite(report.rows, lines))
        for name, captures, lines in _all(report, tables)
        if name in entries
    ]
    order = {"fatal": 0, "error": 1, "warning": 2, "info": 3}
    return sorted(made, key=lambda f: (order[f.severity], f.rule))


def _all(report: Report, tables: Mapping[str, Any]) -> Iterator[Found]:
    checks: tuple[Callable[[Report], Iterator[Found]], ...] = (
        _broken,
        _estimated,
        _silent,
        _idle,
        _implied,
        _drift,
        _drops,
        _by_load,
        _queueing,
        _cache,
        _agreement,
    )
    for check in checks:
        yield from check(report)
    free = (tables.get("statistics") or {}).get("drafts_without_model") or []
    yield from _position_value(report, free)
    for name, captures in baselines.found(report, tables):
        yield name, captures, []
    for name, captures in benchadvice.found(report.benches, report.arguments):
        yield name, captures, []


def filled(
    name: str, entry: Mapping[str, Any], captures: Captures, evidence: list[Citation]
) -> Finding:
    """Return the finding that an entry of the table becomes with these captures."""

    def fill(text: object) -> str:
        return " ".join(_PLACEHOLDER.sub(lambda m: captures.get(m[1], m[0]), str(text)).split())

    fixes = []
    for fix in entry.get("fixes") or []:
        if any(captures.get(key) != value for key, value in (fix.get("when") or {}).items()):
            continue
        value = fill(fix["value"]) if fix.get("value") is not None else None
        fixes.append(
            FixAdvice(
                action=fix["action"],
                target=fill(fix["target"]),
                value=value,
                text=fill(fix["text"]),
                why=fill(fix["why"]),
                confidence=float(fix["confidence"]),
                safety=fix.get("safety") or DEFAULT_SAFETY.get(fix["action"], "safe"),
                reference=None,
            )
        )
    return Finding(
        rule=f"statistics.{name}",
        title=fill(entry["title"]),
        severity=entry["severity"],
        role="advice",
        confidence=float(entry["confidence"]),
        caused_by=None,
        cause=fill(entry["cause"]),
        evidence=evidence,
        captures=captures,
        fixes=fixes,
        references=list(entry.get("references") or []),
    )


def _cite(rows: Rows, lines: Iterable[int]) -> list[Citation]:
    wanted = sorted(set(lines))[:_CITED]
    found: list[Citation] = []
    for part in rows.parts.values():
        if not wanted or "text" not in part.columns:
            continue
        cited = (
            completed(part)
            .select("line", "text", "at")
            .filter(pl.col("line").is_in(wanted) & pl.col("text").is_not_null())
        )
        found += [Citation(line, text, at=at) for line, text, at in cited.iter_rows()]
    return sorted(found, key=lambda c: c.line)


def _drafting(report: Report) -> pl.DataFrame:
    rows = figures.drafting_rows(report.rows)
    return rows.select(_USED).filter((pl.col("drafts") > 0) & pl.col("problem").is_null())


def _ends(frame: pl.DataFrame) -> list[int]:
    """Return the first and last line of some rows."""
    return [int(frame["line"][0]), int(frame["line"][-1])] if frame.height else []


# --- is the log sound? ----------------------------------------------------------------------------


def _broken(report: Report) -> Iterator[Found]:
    rows = report.rows.having("problem").select("line", "problem")
    broken = rows.filter(pl.col("problem").is_not_null())
    if broken.height:
        captures = {"count": str(broken.height), "problem": str(broken["problem"][0])}
        yield "lines-inconsistent", captures, list(broken["line"].head(_CITED))


def _estimated(report: Report) -> Iterator[Found]:
    if report.speculation and report.speculation.estimated:
        yield "counts-estimated", {}, _ends(_drafting(report))


def _agreement(report: Report) -> Iterator[Found]:
    if not report.agreement:
        return
    apart = [a for a in report.agreement if not a.agrees]
    main = next((a for a in report.agreement if a.name == "draft_tokens"), report.agreement[0])
    share = main.log / main.counter if main.counter else 1.0
    captures = {
        "names": ", ".join(a.name for a in (apart or report.agreement)).replace("_", " "),
        "share": percent(min(1.0, share)),
        "name": main.name.replace("_", " "),
        "log": number(main.log, 0),
        "counter": number(main.counter, 0),
    }
    yield ("counters-differ" if apart else "counters-agree"), captures, []


# --- is speculation worth it? ---------------------------------------------------------------------


def _silent(report: Report) -> Iterator[Found]:
    config = report.arguments.get("speculative_config")
    windows = report.stats.throughput.windows
    if config and report.speculation is None and windows >= MIN_WINDOWS and report.counters is None:
        yield (
            "speculation-silent",
            {"windows": str(windows)},
            _ends(report.rows.having("running").select("line")),
        )


def _idle(report: Report) -> Iterator[Found]:
    found = report.speculation
    if found is None or found.length is None or not enough(found):
        return
    if found.length.value <= IDLE_LENGTH:
        captures = {
            "length": number(found.length.value),
            "drafts": number(found.totals.drafts, 0),
            "accepted": number(found.totals.accepted_tokens, 0),
        }
        yield "speculation-does-nothing", captures, _ends(_drafting(report))


def gain(positions: tuple[Position, ...], place: int) -> float:
    """Return what a position adds to the tokens of a step without it, as a share.

    It is also the break-even: the position pays while one more draft pass costs less than this
    share of a step without it.
    """
    before = 1 + sum(p.rate.value for p in positions[: place - 1])
    return positions[place - 1].rate.value / before


def _position_value(report: Report, free: Collection[str]) -> Iterator[Found]:
    found = report.speculation
    if found is None or not found.positions or not enough(found) or found.length is None:
        return
    if found.length.value <= IDLE_LENGTH:
        return
    positions = found.positions
    k = len(positions)
    last = gain(positions, k)
    useful = next((i for i in range(k, 0, -1) if gain(positions, i) >= LITTLE_GAIN), 0)
    if found.totals.method in free:
        return  # drafts that cost no pass of a model need no break-even
    conditional = positions[-1].conditional
    following = positions[-1].rate.value * (conditional.value if conditional else 0.0)
    captures = {
        "k": str(k),
        "added": number(positions[-1].rate.value),
        "gain": percent(last),
        "length": number(found.length.value),
        "before": number(found.length.value - positions[-1].rate.value),
        "table": "; ".join(
            f"position {i} adds {number(p.rate.value)} tokens a step "
            f"(pays below {percent(gain(positions, i))})"
            for i, p in enumerate(positions, 1)
        ),
        "useful": str(useful),
        "next": str(k + 1),
        "expected": number(following),
        "next_gain": percent(following / found.length.value),
    }
    lines = _ends(_drafting(report))
    if useful < k:
        captures["none"] = "yes" if useful == 0 else "no"
        yield "fewer-positions", captures, lines
    elif following / found.length.value >= LARGE_GAIN:
        yield "more-positions", captures, lines
    else:
        yield "positions-worth", captures, lines


def _implied(report: Report) -> Iterator[Found]:
    found = report.speculation
    if (
        found is None
        or found.length is None
        or found.length.value <= IDLE_LENGTH
        or not enough(found)
    ):
        return
    length, k = found.length.value, found.totals.num_speculative_tokens or 1
    single = next((load for load in report.loads if load.running == 1), None)
    captures = {
        "length": number(length),
        "low": number(found.length.low),
        "high": number(found.length.high),
        "most": str(k + 1),
        "break_even": percent((length - 1) / k),
        "measured": "",
    }
    if single is not None and single.generation:
        plain = single.generation / length
        captures["measured"] = (
            f"At one request at a time the log shows {number(single.generation, 1)} tokens/s, "
            f"{number(plain, 1)} steps a second."
        )
    yield "implied-speed-up", captures, _ends(_drafting(report))


def _thirds(report: Report) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    rows = _drafting(report).filter(pl.col("draft_tokens") > 0)
    if rows.height < 2 * MIN_WINDOWS:
        return None
    size = rows.height // 3
    return rows.head(size), rows.tail(size)


def _shares(rows: pl.DataFrame) -> tuple[float, float]:
    return float(rows["accepted_tokens"].sum()), float(rows["draft_tokens"].sum())


def _drift(report: Report) -> Iterator[Found]:
    thirds = _thirds(report)
    if thirds is None:
        return
    (a1, d1), (a2, d2) = (_shares(part) for part in thirds)
    first, last = a1 / d1, a2 / d2
    pooled = (a1 + a2) / (d1 + d2)
    # The tokens of one draft depend on each other: as if there were only as many as drafts.
    drafts = [float(part["drafts"].sum()) for part in thirds]
    error = sqrt(pooled * (1 - pooled) * (1 / drafts[0] + 1 / drafts[1]))
    if abs(last - first) < max(_DRIFT, _SIGMAS * error):
        return
    captures = {
        "first": percent(first),
        "last": percent(last),
        "word": "fell" if last < first else "rose",
    }
    yield "acceptance-drifts", captures, [*_ends(thirds[0])[:1], *_ends(thirds[1])[1:]]


def _drops(report: Report) -> Iterator[Found]:
    rows = _drafting(report).filter(pl.col("draft_tokens") > 0)
    if rows.height < 2 * MIN_WINDOWS:
        return
    accepted, drafted = _shares(rows)
    overall = accepted / drafted
    share = pl.col("accepted_tokens") / pl.col("draft_tokens")
    error = (overall * (1 - overall) / pl.col("drafts")).sqrt() * _SIGMAS
    low = rows.filter((share < overall / 2) & (overall - share > error))
    if not low.height or low.height * 5 > rows.height:
        return
    worst = low.sort(share).head(1)
    captures = {
        "count": str(low.height),
        "windows": str(rows.height),
        "worst": percent(float(worst.select(share).item())),
        "overall": percent(overall),
        "line": str(worst["line"][0]),
    }
    yield "acceptance-drops", captures, list(low["line"].head(_CITED))


def _by_load(report: Report) -> Iterator[Found]:
    known = [
        load for load in report.loads if load.length is not None and load.windows >= MIN_WINDOWS
    ]
    if len(known) < 2:  # noqa: PLR2004 - nothing to compare
        return
    first, worst = known[0], min(known[1:], key=lambda load: load.length or 0.0)
    if first.length and worst.length and (worst.length - 1) < (first.length - 1) * _LOAD_FACTOR:
        captures = {
            "few": str(first.running),
            "many": str(worst.running),
            "few_length": number(first.length),
            "many_length": number(worst.length),
        }
        yield "acceptance-by-load", captures, []


# --- the server -----------------------------------------------------------------------------------


def _queueing(report: Report) -> Iterator[Found]:
    shown = report.stats.throughput
    if shown.windows >= MIN_WINDOWS and shown.waiting.median:
        captures = {
            "median": number(shown.waiting.median, 0),
            "p90": number(shown.waiting.p90, 0),
            "running": number(shown.running.median, 0),
        }
        waiting = report.rows.having("waiting").select("line", "waiting")
        waiting = waiting.filter(pl.col("waiting") > 0)
        yield "requests-queue", captures, list(waiting["line"].head(_CITED))


def _cache(report: Report) -> Iterator[Found]:
    usage = report.stats.throughput.kv_cache_usage
    if report.stats.throughput.windows >= MIN_WINDOWS and (usage.p90 or 0.0) >= _FULL_CACHE:
        captures = {"p90": percent(usage.p90 or 0.0), "median": percent(usage.median or 0.0)}
        full = report.rows.having("kv_cache_usage").select("line", "kv_cache_usage")
        full = full.filter(pl.col("kv_cache_usage") >= _FULL_CACHE)
        yield "kv-cache-full", captures, list(full["line"].head(_CITED))
