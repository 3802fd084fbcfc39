"""Benchmark results beside a log: what clients saw, by prompt length.

Reads what `vllm bench serve --save-result [--save-detailed]`, `sglang.bench_serving` (JSON or JSON
lines), llama-bench (JSON, JSON lines, CSV, Markdown) and llama-benchy (JSON, CSV, Markdown) write.
Each becomes `BenchRow`s: one request, or one group of equal requests.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from forensics.errors import SourceError
from forensics.statistics.model import Bench, BenchRow

_LIMIT = 1024 * 1024 * 1024
_TEST = re.compile(
    r"(?:ctx_)?(?P<kind>pp|tg)(?P<tokens>\d*)(?:\+tg(?P<more>\d+))?"
    r"(?: @ d(?P<depth>\d+))?(?: \(c(?P<concurrency>\d+)\))?$"
)
#: Titles in the Markdown table of llama-benchy, and the same columns in its CSV.
_BENCHY_COLUMNS = {
    "test": "test_name",
    "t/s": "t_s_mean",
    "t/s (req)": "t_s_req_mean",
    "ttfr (ms)": "ttfr_mean",
    "e2e_ttft (ms)": "e2e_ttft_mean",
}
_VALUE = re.compile(r"(?P<value>\d+(?:\.\d+)?)")


def read(path: Path) -> Bench:
    """Return the rows of a benchmark file.

    Raises:
        SourceError: It cannot be read, or no known tool wrote it.
    """
    try:
        if path.stat().st_size > _LIMIT:
            raise SourceError(
                f"{path} is too large for a benchmark result", "give the saved result"
            )
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(f"{path} cannot be read", error.strerror or str(error)) from None
    for kind, rows, totals in _attempts(text):
        if rows or totals:
            return Bench(str(path), kind, tuple(rows), totals)
    raise SourceError(
        f"{path} is no benchmark result that is known",
        "vllm bench serve, sglang.bench_serving, llama-bench and llama-benchy write such",
    )


def _attempts(text: str) -> Iterator[tuple[str, list[BenchRow], dict[str, float]]]:
    documents = list(_documents(text))
    if documents:
        yield from _of_documents(documents)
    else:
        yield "llama-bench table", list(_markdown(text)), {}
        kind = "llama-benchy" if "test_name" in text.partition("\n")[0] else "llama-bench"
        yield f"{kind} CSV", list(_csv(text)), {}


def _documents(text: str) -> Iterator[Any]:
    """Yield the JSON values of a file: one, or one a line."""
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return
    for line in text.splitlines():
        if line.startswith(("{", "[")):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue


def _of_documents(documents: list[Any]) -> Iterator[tuple[str, list[BenchRow], dict[str, float]]]:
    flat = [d for doc in documents for d in (doc if isinstance(doc, list) else [doc])]
    items = [d for d in flat if isinstance(d, dict)]
    if any("n_prompt" in d and "avg_ts" in d for d in items):
        yield "llama-bench", [row for d in items for row in _llama_bench(d)], {}
    elif any("benchmarks" in d for d in items):
        runs = [r for d in items for r in d.get("benchmarks") or [] if isinstance(r, dict)]
        yield "llama-benchy", [row for r in runs for row in _llama_benchy(r)], {}
    elif any("ttfts" in d or "mean_ttft_ms" in d for d in items):
        kind = "sglang" if any("total_output_tokens_retokenized" in d for d in items) else "vllm"
        served = [d for d in items if "ttfts" in d or "mean_ttft_ms" in d]
        rows = [row for d in served for row in _serving(d)]
        yield f"{kind} serving benchmark", rows, _totals(served[-1])


# --- vLLM and SGLang ------------------------------------------------------------------------------


def _serving(run: Mapping[str, Any]) -> Iterator[BenchRow]:
    """Yield the requests of one run, or its means where details were not saved."""
    concurrency = _whole(run.get("max_concurrency"))
    prompts, outputs = _numbers(run.get("input_lens")), _numbers(run.get("output_lens"))
    waits, starts = _numbers(run.get("ttfts")), _numbers(run.get("start_times"))
    gaps = run.get("itls")
    gaps = gaps if isinstance(gaps, list) else []
    if not prompts or not waits:
        yield from _means(run, concurrency)
        return
    errors = run.get("errors")
    failed = errors if isinstance(errors, list) else []
    for order, (prompt, output, wait, gap, error, start) in enumerate(
        zip_longest(prompts, outputs, waits, gaps, failed, starts)
    ):
        if prompt is None or not wait or error:
            continue
        between = [g for g in _numbers(gap) if g is not None]
        speed = (output - 1) / sum(between) if output and output > 1 and sum(between) > 0 else None
        yield BenchRow(
            prompt_tokens=int(prompt),
            output_tokens=None if output is None else int(output),
            ttft_s=wait,
            decode_tokens_per_s=speed,
            order=order,
            concurrency=concurrency,
            start_s=start,
        )


def _means(run: Mapping[str, Any], concurrency: int | None) -> Iterator[BenchRow]:
    count = _whole(run.get("completed")) or 0
    wait, gap = _number(run.get("median_ttft_ms")), _number(run.get("median_tpot_ms"))
    prompt, output = _whole(run.get("total_input_tokens")), _whole(run.get("total_output_tokens"))
    if count and prompt is not None and wait is not None:
        yield BenchRow(
            prompt_tokens=round(prompt / count),
            output_tokens=None if output is None else round(output / count),
            ttft_s=wait / 1000,
            decode_tokens_per_s=1000 / gap if gap else None,
            count=count,
            concurrency=concurrency,
        )


def _totals(run: Mapping[str, Any]) -> dict[str, float]:
    """Return what the tool itself summed up; what it says of speculation too."""
    names = {
        "duration": "duration_s",
        "completed": "requests",
        "failed": "failed_requests",
        "output_throughput": "generation_tokens_per_s",
        "request_throughput": "requests_per_s",
        "median_ttft_ms": "median_ttft_ms",
        "p99_ttft_ms": "p99_ttft_ms",
        "median_tpot_ms": "median_tpot_ms",
        "accept_length": "mean_acceptance_length",
        "spec_decode_acceptance_length": "mean_acceptance_length",
        "spec_decode_acceptance_rate": "acceptance_rate_pct",
    }
    found = {new: _number(run.get(old)) for old, new in names.items() if old in run}
    return {name: value for name, value in found.items() if value is not None}


# --- llama-bench and llama-benchy -----------------------------------------------------------------


def _llama_bench(test: Mapping[str, Any]) -> Iterator[BenchRow]:
    prompt, made = _whole(test.get("n_prompt")) or 0, _whole(test.get("n_gen")) or 0
    speed, depth = _number(test.get("avg_ts")), _whole(test.get("n_depth")) or 0
    if speed and bool(prompt) != bool(made):
        yield _group(prompt, made, depth, speed, None)


def _group(prompt: int, made: int, depth: int, speed: float, concurrency: int | None) -> BenchRow:
    """Return the row of a group that either reads a prompt or makes tokens."""
    return BenchRow(
        prompt_tokens=depth + prompt,
        output_tokens=made or None,
        ttft_s=prompt / speed if prompt else None,
        decode_tokens_per_s=speed if made else None,
        concurrency=concurrency,
    )


def _llama_benchy(run: Mapping[str, Any]) -> Iterator[BenchRow]:
    def mean(name: str) -> float | None:
        metric = run.get(name)
        return _number(metric.get("mean")) if isinstance(metric, dict) else None

    depth, prompt = _whole(run.get("context_size")) or 0, _whole(run.get("prompt_size")) or 0
    read_now = depth if run.get("is_context_prefill_phase") else depth + prompt
    wait = mean("e2e_ttft") or mean("ttfr")
    yield BenchRow(
        prompt_tokens=read_now,
        output_tokens=_whole(run.get("response_size")),
        ttft_s=None if wait is None else wait / 1000,
        decode_tokens_per_s=mean("tg_req_throughput") or mean("tg_throughput"),
        concurrency=_whole(run.get("concurrency")),
    )


def _markdown(text: str) -> Iterator[BenchRow]:
    """Yield the rows of a table of llama-bench or llama-benchy."""
    header: list[str] = []
    for line in text.splitlines():
        if not line.lstrip().startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "test" in cells:
            header = cells
        elif header and len(cells) == len(header):
            yield from _tabled(dict(zip(header, cells, strict=True)))


def _csv(text: str) -> Iterator[BenchRow]:
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error:
        return
    for row in rows:
        if "n_prompt" in row and "avg_ts" in row:
            yield from _llama_bench(row)
        elif "test_name" in row and "t_s_mean" in row:
            names = _BENCHY_COLUMNS.items()
            yield from _tabled({title: row.get(name) or "" for title, name in names})


def _tabled(row: Mapping[str, str]) -> Iterator[BenchRow]:
    test = _TEST.match(row.get("test", ""))
    speed = next((_first(v) for k, v in row.items() if k.startswith("t/s") and _first(v)), None)
    if test is None or not speed or test["more"]:
        return
    depth = int(test["depth"] or 0)
    tokens = int(test["tokens"] or 0)
    concurrency = int(test["concurrency"]) if test["concurrency"] else None
    if test["kind"] == "tg":
        per_request = _first(row.get("t/s (req)", "")) or speed
        yield _group(0, tokens or 1, depth, per_request, concurrency)
        return
    # `ctx_pp @ d4096` reads the context itself.
    prompt = tokens or depth
    depth = depth if tokens else 0
    wait = _first(row.get("e2e_ttft (ms)", "")) or _first(row.get("ttfr (ms)", ""))
    found = _group(prompt, 0, depth, speed, concurrency)
    yield BenchRow(
        prompt_tokens=found.prompt_tokens,
        ttft_s=wait / 1000 if wait else found.ttft_s,
        concurrency=concurrency,
    )


def _first(cell: str) -> float | None:
    found = _VALUE.search(cell)
    return float(found["value"]) if found else None


# --- untrusted numbers ----------------------------------------------------------------------------


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if number == number and abs(number) < 1e15 else None  # noqa: PLR0124, PLR2004


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _numbers(values: object) -> list[float | None]:
    return [_number(value) for value in values] if isinstance(values, list) else []


def by_length(rows: Iterable[BenchRow]) -> list[BenchRow]:
    """Return medians by prompt length, shortest first; lengths within 2 % are one group."""
    groups: list[list[BenchRow]] = []
    for row in sorted(rows, key=lambda r: r.prompt_tokens):
        if groups and row.prompt_tokens <= groups[-1][0].prompt_tokens * 1.02 + 8:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [
        BenchRow(
            prompt_tokens=round(median([r.prompt_tokens for r in group]) or 0),
            ttft_s=median([r.ttft_s for r in group if r.ttft_s]),
            decode_tokens_per_s=median(
                [r.decode_tokens_per_s for r in group if r.decode_tokens_per_s]
            ),
            count=sum(r.count for r in group),
        )
        for group in groups
    ]


def median(values: Sequence[float]) -> float | None:
    """Return the median, None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
