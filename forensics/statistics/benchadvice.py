"""What a benchmark shows that its averages hide: the cold start, the chunk step, the long context.

In: rows of benchmark files and the server's arguments. Out: names of entries of the table of
advice with their captures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forensics.statistics.benchfiles import by_length, median
from forensics.statistics.model import Bench, BenchRow

_COLD_FACTOR = 3.0
_COLD_SECONDS = 1.0
_ALIKE = 0.5
_STEP = 0.9
_FALL = 0.75
_LONG = 16_384

Named = tuple[str, dict[str, str]]


def found(benches: Iterable[Bench], arguments: Mapping[str, Any]) -> Iterator[Named]:
    """Yield the advice of each benchmark.

    Args:
        benches: What was read.
        arguments: Of the server; `max_num_batched_tokens` is the size of a prefill chunk.
    """
    budget = arguments.get("max_num_batched_tokens") or arguments.get("chunked_prefill_size")
    for bench in benches:
        rows = [row for row in bench.rows if row.prompt_tokens > 0]
        cold = _cold(rows)
        yield from _as_named("cold-first-request", cold)
        warm = [row for row in rows if cold is None or row.order != 0]
        if isinstance(budget, int) and budget > 0:
            yield from _as_named("chunked-prefill-step", _chunk_step(warm, budget))
        yield from _as_named("long-context-fall", _long_fall(warm))


def _as_named(name: str, captures: dict[str, str] | None) -> Iterator[Named]:
    if captures is not None:
        yield name, captures


def _cold(rows: list[BenchRow]) -> dict[str, str] | None:
    """Return the first request against those of like length that came later."""
    ordered = [row for row in rows if row.order is not None and row.ttft_s]
    if all(row.start_s is not None for row in ordered):
        ordered.sort(key=lambda row: row.start_s or 0.0)
    first = next((row for row in ordered if row.order == 0), None)
    if first is None or not first.ttft_s or (ordered and ordered[0] is not first):
        return None
    later = [
        row.ttft_s
        for row in ordered[1:]
        if row.ttft_s
        and abs(row.prompt_tokens - first.prompt_tokens) <= first.prompt_tokens * _ALIKE
    ]
    warm = median(later)
    if warm is None or first.ttft_s < warm * _COLD_FACTOR or first.ttft_s - warm < _COLD_SECONDS:
        return None
    return {
        "cold": f"{first.ttft_s:.1f}",
        "warm": f"{warm:.1f}",
        "factor": f"{first.ttft_s / warm:.0f}",
        "tokens": f"{first.prompt_tokens:,}",
        "compared": str(len(later)),
    }


def _chunk_step(rows: list[BenchRow], budget: int) -> dict[str, str] | None:
    """Return the prompt that needs one chunk more and is read slower than its neighbours."""
    lengths = [row for row in by_length(rows) if row.ttft_s]
    best: tuple[float, dict[str, str]] | None = None
    for left, row, right in zip(lengths, lengths[1:], lengths[2:], strict=False):
        chunks = -(-row.prompt_tokens // budget)
        if chunks < 2 or chunks == -(-left.prompt_tokens // budget):  # noqa: PLR2004
            continue
        speeds = [r.prompt_tokens / r.ttft_s for r in (left, row, right) if r.ttft_s]
        slower = speeds[1] / min(speeds[0], speeds[2])
        if slower < _STEP and (best is None or slower < best[0]):
            best = (
                slower,
                {
                    "tokens": f"{row.prompt_tokens:,}",
                    "chunks": str(chunks),
                    "budget": f"{budget:,}",
                    "last_chunk": f"{row.prompt_tokens - (chunks - 1) * budget:,}",
                    "speed": f"{speeds[1]:,.0f}",
                    "left_tokens": f"{left.prompt_tokens:,}",
                    "left_speed": f"{speeds[0]:,.0f}",
                    "right_tokens": f"{right.prompt_tokens:,}",
                    "right_speed": f"{speeds[2]:,.0f}",
                    "value": str(-(-row.prompt_tokens // 1024) * 1024),
                },
            )
    return best[1] if best else None


def _long_fall(rows: list[BenchRow]) -> dict[str, str] | None:
    """Return the length from which on decoding is clearly slower than at every shorter one."""
    lengths = [row for row in by_length(rows) if row.decode_tokens_per_s]
    best: tuple[float, dict[str, str]] | None = None
    for i in range(1, len(lengths)):
        before = [row.decode_tokens_per_s or 0.0 for row in lengths[:i]]
        after = [row.decode_tokens_per_s or 0.0 for row in lengths[i:]]
        if lengths[i].prompt_tokens < _LONG or max(after) > min(before):
            continue
        ratio = (median(after) or 0.0) / (median(before) or 1.0)
        # The sharpest step between neighbours is where the fall begins.
        step = after[0] / before[-1]
        if ratio <= _FALL and (best is None or step < best[0]):
            best = (
                step,
                {
                    "from": f"{lengths[i].prompt_tokens:,}",
                    "until": f"{lengths[i - 1].prompt_tokens:,}",
                    "after": f"{median(after) or 0.0:.1f}",
                    "before_low": f"{min(before):.1f}",
                    "before_high": f"{max(before):.1f}",
                    "share": f"{(1 - ratio) * 100:.0f} %",
                },
            )
    return best[1] if best else None
