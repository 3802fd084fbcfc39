"""Each era's lines give the numbers that they print, whatever stands before them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.analysis import load_rules
from forensics.envelopes import pipeline
from forensics.model import Context, Source
from forensics.scanning import Memory
from forensics.statistics import summary, table, windows
from forensics.statistics.formats import FORMATS
from tests.stat_lines import Window, current, engine, log

_VLLM = "(APIServer pid=7) INFO 03-04 05:06:07 [loggers.py:273] "
_V0 = "INFO 08-09 10:11:12 metrics.py:396] "
_SGLANG = "[2026-03-04 05:06:07 DP0 TP0] "
_SLOT = "0.12.345.678 I slot print_timing: id  0 | task 12 | "
_TRT = "[08/04/2026-19:08:13] [TRT-LLM] [I] [_torch][RANK 0] "

CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "vllm.v1",
        _VLLM + "Engine 001: Avg prompt throughput: 512.0 tokens/s, Avg generation throughput: 23.4 "
        "tokens/s, Running: 1 reqs, Waiting: 2 reqs, Deferred: 1 reqs, GPU KV cache usage: 3.1%, "
        "Prefix cache hit rate: 40.0%, External prefix cache hit rate: 1.0%, MM cache hit rate: 0.0%",
        {"replica": "001", "generation_tokens_per_s": 23.4, "waiting": 2, "prefix_cache_hit_rate": 0.4},
    ),
    (
        "vllm.v1",
        _VLLM + "2 Engines Aggregated: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: "
        "2.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, CPU KV cache usage: 0.1%",
        {"replica": "all 2", "running": 3, "prefix_cache_hit_rate": None},
    ),
    (
        "vllm.v0",
        _V0 + "Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 20.5 tokens/s, "
        "Running: 1 reqs, Swapped: 0 reqs, Pending: 4 reqs, GPU KV cache usage: 0.4%, "
        "CPU KV cache usage: 0.0%.",
        {"prompt_tokens_per_s": 10.0, "waiting": 4, "kv_cache_usage": 0.004},
    ),
    (
        "vllm.v0.prefix",
        _V0 + "Prefix cache hit rate: GPU: 12.50%, CPU: 0.00%",
        {"prefix_cache_hit_rate": 0.125},
    ),
    (
        "vllm.spec.v0",
        _V0 + "Speculative metrics: Draft acceptance rate: nan, System efficiency: nan, Number of "
        "speculative tokens: 3, Number of accepted tokens: 0, Number of draft tokens tokens: 0, "
        "Number of emitted tokens tokens: 0.",
        {"k": 3, "draft_tokens": 0},
    ),
    (
        "sglang.decode",
        _SGLANG + "Decode batch [812], #running-req: 4, #full token: 4, full token usage: 0.25, mamba "
        "num: 4, mamba usage: 0.10, accept len: 2.70, accept rate: 0.68, cuda graph: True, gen "
        "throughput (token/s): 55.10, #queue-req: 3",
        {"printed_length": 2.7, "kv_cache_usage": 0.25, "waiting": 3, "replica": "DP0 TP0"},
    ),
    (
        "vllm.iteration",
        _VLLM + "Engine 000: Iteration(17): 2 context requests, 90 context tokens, 1 generation "
        "requests, 2 generation tokens, iteration elapsed time: 41.20 ms, GPU KV cache usage: 0.2%",
        {"new_tokens": 90, "tokens": 2, "running": 1, "span_s": 0.0412, "kv_cache_usage": 0.002},
    ),
    (
        "vllm.iteration",
        _VLLM + "Iteration(3): 0 context requests, 0 context tokens, 4 generation requests, 8 "
        "generation tokens, iteration elapsed time: 20.00 ms",
        {"tokens": 8, "running": 4, "span_s": 0.02},
    ),
    (
        "vllm.diffusion",
        _VLLM + "DiffusionDecoding metrics: Committed token throughput: 10.00 tokens/s, Mean "
        "denoising steps per canvas: 2.00, Mean tokens committed per denoising step: 3.00, "
        "Committed: 30 tokens, Denoising steps: 10, Canvas positions evaluated: 60",
        {"tokens": 30, "denoising_steps": 10, "canvas_positions": 60, "printed_length": 3.0},
    ),
    (
        "vllm.v1.early",
        _VLLM + "Running: 2 reqs, Waiting: 1 reqs ",
        {"running": 2, "waiting": 1, "generation_tokens_per_s": None},
    ),
    (
        "sglang.decode",
        (
            "[2026-03-04 05:06:07] Decode batch. #running-req: 1, #token: 120, token usage: 0.01, gen "
            "throughput (token/s): 55.10, #queue-req: 0"
        ),
        {"printed_length": None, "generation_tokens_per_s": 55.1, "kv_cache_usage": 0.01},
    ),
    (
        "sglang.prefill",
        _SGLANG + "Prefill batch, #new-seq: 1, #new-token: 8, #cached-token: 3, full token usage: 0.00, "
        "#running-req: 0, #queue-req: 2, #pending-token: 0, cuda graph: False, input throughput "
        "(token/s): 10.10",
        {"new_tokens": 8, "cached_tokens": 3, "waiting": 2, "prompt_tokens_per_s": 10.1},
    ),
    (
        "llama-cpp.prompt",
        _SLOT + "prompt eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 "
        "tokens per second)",
        {"tokens": 10, "span_s": 0.1, "prompt_tokens_per_s": 100.0, "generation_tokens_per_s": None},
    ),
    (
        "llama-cpp.generation",
        "       eval time =     500.00 ms /    50 tokens (   10.00 ms per token,   100.00 tokens per second)",
        {"tokens": 50, "span_s": 0.5, "generation_tokens_per_s": 100.0, "prompt_tokens_per_s": None},
    ),
    (
        "llama-cpp.generation",
        (
            "generation eval time =     500.00 ms /    50 runs   (   10.00 ms per token,   100.00 tokens "
            "per second)"
        ),
        {"tokens": 50, "generation_tokens_per_s": 100.0},
    ),
    (
        "llama-cpp.spec",
        _SLOT + "draft acceptance = 0.57576 (   19 accepted /    33 generated), mean len =  2.73",
        {"accepted_tokens": 19, "draft_tokens": 33, "printed_length": 2.73},
    ),
    (
        "llama-cpp.spec",
        (
            "slot print_timing: id  0 | task 12 | draft acceptance rate = 0.57576 (   19 accepted /    33 "
            "generated)"
        ),
        {"accepted_tokens": 19, "printed_length": None},
    ),
    ("llama-cpp.positions", "     acc per pos = (0.812, 0.611)", {"per_position": [0.812, 0.611]}),
    *(
        (
            "ollama.request",
            f'[GIN] 2026/05/05 - 01:52:05 | 200 | {text:>13} |       192.0.2.1 | POST     "/api/chat"',
            {"request_s": pytest.approx(seconds)},
        )
        for text, seconds in (
            ("16.510072691s", 16.510072691),
            ("1m2.5s", 62.5),
            ("1h0m3s", 3603.0),
            ("350.2ms", 0.3502),
            ("912.5µs", 912.5e-6),
        )
    ),
    (
        "tensorrt-llm.iteration",
        _TRT + "iter = 7, global_rank = 0, rank = 0, currank_total_requests = 1/1, host_step_time = "
        "12.5ms, prev_device_step_time = N/A, timestamp = 2026-01-02 03:04:05, num_scheduled_requests: "
        "1, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 2}",
        {"running": 1, "tokens": 2, "span_s": 0.0125},
    ),
    (
        "tensorrt-llm.iteration",
        _TRT + "iter = 8, global_rank = 0, rank = 0, num_scheduled_requests = 3, kv_cache_util = 0.125, "
        "currank_total_requests = 1/8, host_step_time = 12.5ms, prev_device_step_time = 12.1ms, "
        "timestamp = 2026-01-02 03:04:05, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 90, "
        "'num_generation_tokens': 2}",
        {"running": 3, "kv_cache_usage": 0.125, "new_tokens": 90},
    ),
)  # fmt: skip


def parsed(raw: bytes) -> table.Rows:
    """Parse lines that nothing wraps."""
    return table.gathered(table.parse(raw).frames)


@pytest.mark.parametrize(("form", "line", "expected"), CASES)
def test_a_line_gives_its_numbers(form: str, line: str, expected: dict[str, Any]) -> None:
    rows = parsed(log(["something else", line])).whole()
    assert rows["form"].to_list() == [form]
    assert rows["line"].to_list() == [2]
    row = rows.row(0, named=True)
    assert {name: row[name] for name in expected} == expected


def test_every_form_is_tried() -> None:
    tried = {form for form, _, _ in CASES} | {"vllm.spec", "vllm.spec.early"}
    assert tried == {form.name for form in FORMATS}


@given(
    st.floats(0, 9999).map(lambda v: round(v, 1)),
    st.integers(0, 999),
    st.integers(0, 999),
    st.sampled_from(["plain", "color", "docker", "json", "prefixed"]),
)
@settings(max_examples=60, deadline=None)
def test_the_wrapping_changes_nothing(speed: float, running: int, waiting: int, way: str) -> None:
    line = engine(speed, running, 40, waiting=waiting)
    message = line.partition("] ")[2]
    wrapped = {
        "plain": line,
        "color": f"\x1b[0;36m(APIServer pid=1)\x1b[0;0m INFO 05-02 00:00:40 [loggers.py:1] {message}\r",
        "docker": f"2026-05-02T00:00:40.123456789Z {line}",
        "json": '{"asctime": "05-02 00:00:40", "levelname": "INFO", "name": "x", "message": "'
        + message
        + '", "processName": "APIServer"}',
        "prefixed": f"node7 {line.removeprefix('(APIServer pid=1) ')}",
    }[way]
    raw = log([wrapped])
    unwrap = pipeline(raw)
    blocks = [block for _, block in (*unwrap.feed(raw), *unwrap.finish())]
    rows = table.gathered([f for block in blocks for f in table.parse_block(block)]).whole()
    names = ("generation_tokens_per_s", "running", "waiting", "clock", "line")
    assert rows.select(names).rows() == [(speed, running, waiting, "05-02 00:00:40", 1)]


@given(st.lists(st.sampled_from(["stat", "text", "bar", "blank", "crlf"]), max_size=40))
@settings(max_examples=80, deadline=None)
def test_line_numbers_are_physical_lines(kinds: list[str]) -> None:
    """A carriage return inside a line begins no line; blank lines count."""
    parts = {
        "stat": engine(1.0) + "\n",
        "text": "text\n",
        "bar": "10%\r20%\r30%\n",
        "blank": "\n",
        "crlf": "text\r\n",
    }
    raw = "".join(parts[kind] for kind in kinds).encode()
    assert table.parse(raw).lines == len(kinds)
    assert parsed(raw).whole()["line"].to_list() == [
        i for i, k in enumerate(kinds, 1) if k == "stat"
    ]


def test_a_request_that_quotes_a_line_is_no_line() -> None:
    quoted = engine(50.0).partition("] ")[2]
    prompt = f"INFO 03-04 05:06:07 [request_logger.py:1] Received request a: prompt: '{quoted}"
    assert parsed(log([prompt, f"hello {quoted} world"])).height == 0


def test_hostile_numbers_are_no_error() -> None:
    line = current(Window(100, 200, (90, 60)))
    for old, new in (
        ("Accepted: 150", "Accepted: " + "9" * 40),
        ("1.00", "1.0.0"),
        ("0.900", "0..9"),
    ):
        rows = parsed(log([line.replace(old, new)]))
        windows.recovered(rows, k=None, bonus=None, started=False, interval=40)


def _memory(lines: list[str]) -> Memory:
    return Memory("\n".join(lines).encode(), Source(kind="text", name="text"))


@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 500_000)),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_counts_of_diffusion_come_back(counts: list[tuple[int, int, int]]) -> None:
    def ratio(above: int, below: int) -> str:
        return f"{above / below if below else float('nan'):.2f}"

    lines = [
        f"(APIServer pid=1) INFO 12-01 02:00:{n:02} [metrics.py:1] DiffusionDecoding metrics: "
        f"Committed token throughput: {tokens / 10:.2f} tokens/s, "
        f"Mean denoising steps per canvas: {ratio(positions, tokens)}, "
        f"Mean tokens committed per denoising step: {ratio(tokens, steps)}, "
        f"Committed: {tokens} tokens, Denoising steps: {steps}, "
        f"Canvas positions evaluated: {positions}"
        for n, (tokens, steps, positions) in enumerate(counts)
    ]
    report = summary.gather(_memory(lines), Context()).report(load_rules().tables)
    found = report.diffusion
    assert found is not None
    had = [one for one in counts if one[1]]
    assert found.broken == ()
    assert found.windows == len(had)
    assert found.committed_tokens == sum(tokens for tokens, _, _ in had)
    assert found.denoising_steps == sum(steps for _, steps, _ in had)
    assert found.canvas_positions == sum(positions for _, _, positions in had)
    assert report.stats.speculative is None


def test_a_line_of_diffusion_that_contradicts_itself_is_in_no_total() -> None:
    good = (
        "INFO 12-01 02:00:01 [metrics.py:1] DiffusionDecoding metrics: Committed token throughput: "
        "10.00 tokens/s, Mean denoising steps per canvas: 2.00, Mean tokens committed per denoising "
        "step: 3.00, Committed: 30 tokens, Denoising steps: 10, Canvas positions evaluated: 60"
    )
    lines = [good, good.replace("step: 3.00", "step: 4.00")]
    report = summary.gather(_memory(lines), Context()).report(load_rules().tables)
    found = report.diffusion
    assert found is not None
    named = [f for f in report.stats.findings if f.rule == "statistics.lines-inconsistent"]
    assert [cited.line for f in named for cited in f.evidence] == [2]
    assert (found.committed_tokens, [line for line, _ in found.broken]) == (30, [2])


def test_iterations_count_only_where_no_window_has_counted_them() -> None:
    iteration = "Engine 000: Iteration({}): 0 context requests, 0 context tokens, 2 generation "
    iteration += "requests, 4 generation tokens, iteration elapsed time: 50.00 ms"
    prefix = "INFO 12-01 02:00:{:02} [loggers.py:1] "
    lines = [prefix.format(n) + iteration.format(n) for n in range(10)]
    alone = summary.gather(_memory(lines), Context()).report({})
    speed = alone.stats.throughput.generation_tokens_per_s
    assert speed is not None
    assert speed.median == pytest.approx(80.0)
    window = prefix.format(11) + (
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 33.0 "
        "tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%, Prefix cache hit "
        "rate: 0.0%"
    )
    both = summary.gather(_memory([*lines, window]), Context()).report({})
    assert both.stats.throughput.generation_tokens_per_s is not None
    assert both.stats.throughput.generation_tokens_per_s.max == pytest.approx(33.0)
