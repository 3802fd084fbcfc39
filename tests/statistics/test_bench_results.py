"""Benchmark files of each tool, and what they show beside their averages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.errors import SourceError
from forensics.statistics import benchadvice, benchfiles
from forensics.statistics.model import Bench, BenchRow


def serving(requests: list[tuple[int, float, float]], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """What `vllm bench serve --save-result --save-detailed` writes: prompt, first token, tokens/s."""
    return {
        "date": "20261201-040000",
        "backend": "openai-chat",
        "model_id": "m",
        "num_prompts": len(requests),
        "max_concurrency": 1,
        "duration": 100.0,
        "completed": len(requests),
        "total_input_tokens": sum(p for p, _, _ in requests),
        "total_output_tokens": 65 * len(requests),
        "input_lens": [p for p, _, _ in requests],
        "output_lens": [65] * len(requests),
        "ttfts": [t for _, t, _ in requests],
        "itls": [[1 / s] * 64 for _, _, s in requests],
        "errors": [""] * len(requests),
        "median_ttft_ms": 1900.0,
        "median_tpot_ms": 43.0,
        "mean_ttft_ms": 2000.0,
        **more,
    }


# A cold start, a step at 26,634 tokens and a fall past 200,000.
SHOWN = [
    (1024, 24.8, 23.5),
    (1024, 1.9, 23.4),
    (1030, 1.9, 23.6),
    (1020, 1.8, 23.5),
    (8192, 6.0, 23.8),
    (16_000, 10.0, 23.0),
    (26_634, 22.0, 23.1),
    (32_000, 20.5, 22.9),
    (131_072, 120.0, 22.2),
    (210_000, 260.0, 13.1),
    (250_000, 330.0, 12.8),
]


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def advice(bench: Bench, budget: int | None = 16_384) -> dict[str, dict[str, str]]:
    arguments = {} if budget is None else {"max_num_batched_tokens": budget}
    return dict(benchadvice.found([bench], arguments))


def test_a_detailed_result_shows_all_three(tmp_path: Path) -> None:
    bench = benchfiles.read(write(tmp_path, "r.json", json.dumps(serving(SHOWN))))
    assert bench.kind == "vllm serving benchmark"
    found = advice(bench)
    assert found["cold-first-request"]["cold"] == "24.8"
    assert found["cold-first-request"]["warm"] == "1.9"
    step = found["chunked-prefill-step"]
    assert (step["tokens"], step["chunks"], step["last_chunk"]) == ("26,634", "2", "10,250")
    assert step["value"] == "27648"
    fall = found["long-context-fall"]
    assert (fall["from"], fall["until"]) == ("210,000", "131,072")
    assert fall["before_low"] == "22.2"
    assert fall["after"] in {"12.9", "13.0"}


def test_an_even_result_shows_nothing(tmp_path: Path) -> None:
    even = [
        (n, n / 1600, 23.0 - n / 50_000) for n in (1000, 1010, 4000, 16_000, 20_000, 40_000, 90_000)
    ]
    bench = benchfiles.read(write(tmp_path, "r.json", json.dumps(serving(even))))
    assert advice(bench) == {}


def test_without_the_size_of_a_chunk_no_step_is_claimed(tmp_path: Path) -> None:
    bench = benchfiles.read(write(tmp_path, "r.json", json.dumps(serving(SHOWN))))
    assert "chunked-prefill-step" not in advice(bench, None)


def test_decode_speed_leaves_the_first_token_out(tmp_path: Path) -> None:
    bench = benchfiles.read(write(tmp_path, "r.json", json.dumps(serving([(100, 1.0, 20.0)]))))
    row = bench.rows[0]
    assert row.decode_tokens_per_s == pytest.approx(20.0)
    assert (row.prompt_tokens, row.output_tokens, row.ttft_s, row.order) == (100, 65, 1.0, 0)


def test_failed_requests_are_no_rows(tmp_path: Path) -> None:
    result = serving(
        [(100, 1.0, 20.0), (100, 0.0, 20.0), (100, 1.0, 20.0)], errors=["", "", "timeout"]
    )
    assert len(benchfiles.read(write(tmp_path, "r.json", json.dumps(result))).rows) == 1


def test_a_result_without_details_gives_its_medians(tmp_path: Path) -> None:
    result = serving(SHOWN)
    for name in ("input_lens", "output_lens", "ttfts", "itls", "errors"):
        del result[name]
    bench = benchfiles.read(write(tmp_path, "r.json", json.dumps(result)))
    assert [(r.count, r.ttft_s, round(r.decode_tokens_per_s or 0, 1)) for r in bench.rows] == [
        (11, 1.9, 23.3)
    ]
    assert advice(bench) == {}


def test_sglang_writes_one_run_a_line(tmp_path: Path) -> None:
    runs = [
        serving([(n, 1.0, 20.0)] * 2, total_output_tokens_retokenized=130, accept_length=2.7)
        for n in (512, 4096)
    ]
    text = "".join(json.dumps(run) + "\n" for run in runs)
    bench = benchfiles.read(write(tmp_path, "r.jsonl", text))
    assert bench.kind == "sglang serving benchmark"
    assert [r.prompt_tokens for r in benchfiles.by_length(bench.rows)] == [512, 4096]
    assert bench.totals["mean_acceptance_length"] == 2.7


LLAMA_BENCH = """
| model               |       size |     params | backend    | ngl |          test |                  t/s |
| ------------------- | ---------: | ---------: | ---------- | --: | ------------: | -------------------: |
| some model Q4_0     | 885.97 MiB |     1.54 B | CUDA       |  99 |         pp512 |       1024.00 ± 2.00 |
| some model Q4_0     | 885.97 MiB |     1.54 B | CUDA       |  99 |         tg128 |         50.00 ± 0.10 |
| some model Q4_0     | 885.97 MiB |     1.54 B | CUDA       |  99 | pp512 @ d4096 |        512.00 ± 1.00 |
| some model Q4_0     | 885.97 MiB |     1.54 B | CUDA       |  99 | tg128 @ d4096 |         40.00 ± 0.10 |
"""
LLAMA_BENCHY = """
| model  |             test |             t/s |        ttfr (ms) |     est_ppt (ms) |    e2e_ttft (ms) |
|:-------|-----------------:|----------------:|-----------------:|-----------------:|-----------------:|
| a/b    |           pp2048 | 2048.00 ± 10.00 |   1000.00 ± 5.00 |    990.00 ± 5.00 |   1100.00 ± 5.00 |
| a/b    |             tg32 |    23.00 ± 0.10 |                  |                  |                  |
| a/b    |  pp2048 @ d32768 | 1000.00 ± 10.00 |  30000.00 ± 5.00 |  29900.00 ± 5.00 |  30100.00 ± 5.00 |
| a/b    | tg32 @ d262144 (c1) |  13.00 ± 0.10 |                  |                  |                  |
"""


def rows(bench: Bench) -> list[tuple[int, float | None, float | None]]:
    return [(r.prompt_tokens, r.ttft_s, r.decode_tokens_per_s) for r in bench.rows]


def test_tables_of_llama_bench(tmp_path: Path) -> None:
    bench = benchfiles.read(write(tmp_path, "r.md", LLAMA_BENCH))
    assert rows(bench) == [(512, 0.5, None), (0, None, 50.0), (4608, 1.0, None), (4096, None, 40.0)]


def test_json_and_csv_of_llama_bench(tmp_path: Path) -> None:
    tests = [
        {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 1024.0},
        {"n_prompt": 0, "n_gen": 128, "n_depth": 4096, "avg_ts": 40.0},
    ]
    expected = [(512, 0.5, None), (4096, None, 40.0)]
    assert rows(benchfiles.read(write(tmp_path, "r.json", json.dumps(tests)))) == expected
    lines = "".join(json.dumps(test) + "\n" for test in tests)
    assert rows(benchfiles.read(write(tmp_path, "r.jsonl", lines))) == expected
    text = "n_prompt,n_gen,n_depth,avg_ts\n512,0,0,1024.0\n0,128,4096,40.0\n"
    assert rows(benchfiles.read(write(tmp_path, "r.csv", text))) == expected


def test_tables_and_reports_of_llama_benchy(tmp_path: Path) -> None:
    bench = benchfiles.read(write(tmp_path, "r.md", LLAMA_BENCHY))
    assert rows(bench) == [
        (2048, 1.1, None),
        (0, None, 23.0),
        (34_816, 30.1, None),
        (262_144, None, 13.0),
    ]
    metric = {"mean": 0.0, "std": 0.0, "values": []}
    run = {
        "concurrency": 1,
        "context_size": 4096,
        "prompt_size": 2048,
        "response_size": 32,
        "is_context_prefill_phase": False,
        "tg_req_throughput": metric | {"mean": 23.0},
        "e2e_ttft": metric | {"mean": 1100.0},
    }
    text = json.dumps({"version": "1", "model": "a/b", "benchmarks": [run]})
    assert rows(benchfiles.read(write(tmp_path, "r.json", text))) == [(6144, 1.1, 23.0)]


def test_csv_of_llama_benchy(tmp_path: Path) -> None:
    text = (
        "model,test_name,t_s_mean,t_s_std,t_s_req_mean,t_s_req_std,ttfr_mean,ttfr_std,"
        "e2e_ttft_mean,e2e_ttft_std\n"
        "a/b,pp2048 @ d4096 (c2),1800.0,1.0,900.0,1.0,1000.0,1.0,1100.0,1.0\n"
        "a/b,tg32 @ d4096 (c2),40.0,1.0,20.5,1.0,,,,\n"
        "a/b,strange,1.0,,,,,,,\n"
    )
    bench = benchfiles.read(write(tmp_path, "r.csv", text))
    assert bench.kind == "llama-benchy CSV"
    assert rows(bench) == [(6144, 1.1, None), (4096, None, 20.5)]
    assert {row.concurrency for row in bench.rows} == {2}


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "no table", '{"ttfts": "x"', "| test |\n| pp |\n"]
)
def test_what_is_no_result_is_one_clear_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError, match="no benchmark result that is known"):
        benchfiles.read(write(tmp_path, "r.json", text))


def test_hostile_values_are_left_out(tmp_path: Path) -> None:
    result = serving([(100, 1.0, 20.0)] * 2)
    result |= {"ttfts": [None, "x"], "itls": "no list", "max_concurrency": {}, "errors": 3}
    assert benchfiles.read(write(tmp_path, "r.json", json.dumps(result))).rows == ()


def test_lengths_close_to_each_other_are_one_group() -> None:
    made = [BenchRow(n, ttft_s=t) for n, t in ((1000, 1.0), (1010, 3.0), (1015, 2.0), (2000, 4.0))]
    assert [(r.prompt_tokens, r.ttft_s, r.count) for r in benchfiles.by_length(made)] == [
        (1010, 2.0, 3),
        (2000, 4.0, 1),
    ]
