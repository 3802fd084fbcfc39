"""SGLang's lines, from 0.2 to 0.5.23: prefix, ranks, and what its signals recognise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.engines import generic, vllm
from forensics.engines.sglang import MILESTONES, SIGNALS, depth, parse, process_of
from forensics.model import Frame
from forensics.patterns import confirm
from forensics.rootcause import judge
from tests.support import evidence, text

PREFIXES: dict[str, tuple[str, dict[str, Any]]] = {
    "0.2": ("[05:06:07 TP0] hello", {"process": "TP0", "clock": None}),
    "one GPU": ("[2026-03-04 05:06:07] hello", {"process": None, "clock": "03-04 05:06:07", "level": None}),
    "ranks": ("[2026-03-04 05:06:07 DP0 TP1] hello", {"process": "DP0 TP1"}),
    "more ranks": ("[2026-03-04 05:06:07 DP0 PP1 ATTN_CP0 MOE_DP1 TP3 EP3] hello", {"process": "DP0 PP1 ATTN_CP0 MOE_DP1 TP3 EP3"}),
    "milliseconds": ("[2026-03-04 05:06:07.123 TP0 EP0] hello", {"process": "TP0 EP0", "clock": "03-04 05:06:07"}),
    "uvicorn": ("[2026-03-04 05:06:07] INFO:     hello", {"level": "INFO", "kind": "log", "spills": False}),
    "uvicorn error": ("[2026-03-04 05:06:07] ERROR:    hello", {"level": "ERROR"}),
    "after a progress bar": (" 96%|█████████▌| 22/23 [00:13<00:00,  2.05it/s][2025-03-12 08:52:40 DP0 TP0] hello", {"process": "DP0 TP0", "clock": "03-12 08:52:40"}),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PREFIXES.values(), ids=list(PREFIXES))
def test_prefix_of_every_era_is_taken_apart(line: str, expected: dict[str, Any]) -> None:
    record = parse(line, 5, "2026-12-01T00:00:00.000000000Z")

    assert record is not None
    assert (record.message, record.text, record.line) == ("hello", line, 5)
    assert record.at == "2026-12-01T00:00:00.000000000Z"
    assert {key: getattr(record, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('[2026-03-04 05:06:07] INFO:     192.0.2.1:39110 - "GET /health HTTP/1.1" 503 Service Unavailable', "access"),
        ("[2026-03-04 05:06:07] Receive: obj=GenerateReqInput(text='CUDA error')", "request"),
        ("[2026-03-04 05:06:07] Finish: obj=GenerateReqInput(text='x'), out={}", "request"),
        ("[2026-03-04 05:06:07] Receive nothing", "log"),
    ],
)  # fmt: skip
def test_kind_tells_foreign_text_from_the_servers_own(line: str, kind: str) -> None:
    record = parse(line, 1, None)

    assert record is not None
    assert record.kind == kind


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Traceback (most recent call last):",
        "[rank0]: Traceback (most recent call last):",
        "[Gloo] Rank 0 is connected to 1 peer ranks.",
        "[2026-03-04 05:06:07,123] [INFO] [real_accelerator.py:203:get_accelerator] Setting ds_accelerator to cuda",
        "[2026-03-04 05:06:07 +0000] [7] [INFO] Booting worker with pid: 7",
        "[11/18/2025-09:33:30] [TRT-LLM] [I] hello",
        "Loading safetensors checkpoint shards: 100% Completed | 17/17 [01:27<00:00,  5.17s/it]",
        "(EngineCore pid=71) INFO 03-04 05:06:07 [core.py:77] hello",
    ],
)
def test_line_of_another_program_is_left_to_others(line: str) -> None:
    assert parse(line, 1, None) is None


@given(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=300))
def test_any_text_is_read_or_left(line: str) -> None:
    record = parse(line, 1, None)

    assert record is None or line.endswith(record.message)


@pytest.mark.parametrize(
    ("process", "expected"),
    [("TP0", 2), ("DP1 TP0 EP0", 2), ("Scheduler", 2), ("TokenizerManager", 1), ("Worker_TP0", 0), ("EngineCore", 0)],
)  # fmt: skip
def test_depth(process: str, expected: int) -> None:
    assert depth(process) == expected


def test_process_of_a_bare_traceback() -> None:
    scheduler = Frame("/x/sglang/srt/managers/scheduler.py", 1, "run_scheduler_process")
    server = Frame("/x/sglang/srt/entrypoints/engine.py", 1, "_launch_subprocesses")

    assert process_of((scheduler,)) == ("Scheduler", 2)
    assert process_of((server,)) == ("TokenizerManager", 1)
    assert process_of((Frame("/x/other.py", 1, "f"),)) == (None, 0)


# ----------------------------------------------------------------------------------------- signals


def seen(line: str) -> dict[tuple[str, str], dict[str, str]]:
    record = parse(line, 1, None) or vllm.parse(line, 1, None) or generic.parse(line, 1, None)
    found: dict[tuple[str, str], dict[str, str]] = {}
    for signal in SIGNALS:
        groups = confirm(signal.pattern, record.message)
        if groups is not None:
            assert signal.find is None or signal.find in line
            found[signal.kind, signal.name] = groups
    return found


PHASES = {
    "[2026-03-04 05:06:07] server_args=ServerArgs(model_path='m')": "arguments_parsed",
    "[2026-03-04 05:06:07] server_args={'model_path': 'm'}": "arguments_parsed",
    "[2026-03-04 05:06:07 TP0] Init torch distributed begin.": "engine_started",
    "[2026-03-04 05:06:07 TP0] Load weight begin. avail mem=22.46 GB": "loading_weights",
    "[2026-03-04 05:06:07] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=21.96 GB, mem usage=8.81 GB.": "weights_loaded",
    "[2026-03-04 05:06:07] KV Cache is allocated. #tokens: 132681, K size: 9.11 GB, V size: 9.11 GB": "profiled",
    "[2026-03-04 05:06:07] Memory pool end. avail mem=3.46 GB": "profiled",
    "[2026-03-04 05:06:07] Capture cuda graph begin. This can take up to several minutes. avail mem=2.85 GB": "capturing_graphs",
    "[2026-03-04 05:06:07] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=9.90 GB": "capturing_graphs",
    "[2026-03-04 05:06:07] Capture cuda graph end. Time elapsed: 12.96 s. mem usage=1.51 GB. avail mem=7.22 GB.": "graphs_captured",
    "[2026-03-04 05:06:07 TP0] max_total_num_tokens=935444, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4097, context_len=32768": "engine_ready",
    "[2026-03-04 05:06:07] INFO:     Started server process [1029]": "server_starting",
    "[2026-03-04 05:06:07] The server is fired up and ready to roll!": "serving",
}


@pytest.mark.parametrize(("line", "name"), PHASES.items())
def test_milestone(line: str, name: str) -> None:
    assert [n for kind, n in seen(line) if kind == "milestone"] == [name]
    assert name in MILESTONES


FIGURES: list[tuple[str, str, dict[str, str]]] = [
    ("[2026-03-04 05:06:07] Decode batch. #running-req: 1, #token: 120, token usage: 0.01, gen throughput (token/s): 55.10, #queue-req: 0", "decode",
     {"running": "1", "kv_cache_usage": "0.01", "generation_tokens_per_s": "55.10", "waiting": "0"}),
    ("[2026-03-04 05:06:07] Decode batch. #running-req: 1, #token: 120, token usage: 0.01, accept len: 2.10, cuda graph: True, gen throughput (token/s): 55.10, #queue-req: 0, ", "decode",
     {"running": "1", "kv_cache_usage": "0.01", "mean_acceptance_length": "2.10", "generation_tokens_per_s": "55.10", "waiting": "0"}),
    ("[2026-03-04 05:06:07] Decode batch [812], #running-req: 1, #token: 120, token usage: 0.01, accept len: 2.70, accept rate: 0.68, cuda graph: True, gen throughput (token/s): 55.10, #queue-req: 3, ", "decode",
     {"running": "1", "kv_cache_usage": "0.01", "mean_acceptance_length": "2.70", "accept_rate_as_printed": "0.68", "generation_tokens_per_s": "55.10", "waiting": "3"}),
    ("[2026-03-04 05:06:07 TP0] Decode batch, #running-req: 4, #full token: 4, full token usage: 0.00, mamba num: 4, mamba usage: 0.10, accept len: 1.00, accept rate: 0.00, cap len: 3.10, block accept len: 2.90, cuda graph: True, gen throughput (token/s): 55.10, #queue-req: 0", "decode",
     {"running": "4", "kv_cache_usage": "0.00", "mean_acceptance_length": "1.00", "accept_rate_as_printed": "0.00", "generation_tokens_per_s": "55.10", "waiting": "0"}),
    ("[2026-03-04 05:06:07] Prefill batch, #new-seq: 1, #new-token: 8, #cached-token: 0, full token usage: 0.00, mamba usage: 0.10, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 10.10", "prefill",
     {"prompt_tokens_per_s": "10.10"}),
    ("[2026-03-04 05:06:07] max_total_num_tokens=120000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=32768, available_gpu_mem=10.10 GB", "kv_size",
     {"kv_cache_tokens": "120000", "context_length": "32768", "available_gib": "10.10"}),
    ("[2026-03-04 05:06:07] Load weight end. elapsed=48.20 s, type=NemotronHForCausalLM, quant=modelopt_fp4, avail mem=17.90 GB, mem usage=75.02 GB.", "model_load",
     {"weights_s": "48.20", "model_load_gib": "75.02"}),
    ("[2026-03-04 05:06:07] Capture target verify CUDA graph end. bs=[1, 2, 4], elapsed=24.10 s, mem usage=1.10 GB, avail mem=4.80 GB.", "capture", {"capture_s": "24.10"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name", "expected"), FIGURES)
def test_figures(line: str, name: str, expected: dict[str, str]) -> None:
    groups = seen(line)["statistics", name]

    assert groups == expected


ENDS: dict[str, set[tuple[str, str]]] = {
    "[2026-03-04 05:06:07] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...": {("stop", "sigterm")},
    "[2026-03-04 05:06:07] Gracefully exiting... Remaining number of requests 2. Remaining requests remaining_rids=['a', 'b'].": {("stop", "draining")},
    "[2026-03-04 05:06:07] Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].": {("stop", "draining"), ("end", "drained")},
    "[2026-03-04 05:06:07] Received sigquit from a child process. It usually means the child failed.": {("crash", "sigquit")},
    "[2026-03-04 05:06:07] SIGQUIT received. signum=<Signals.SIGQUIT: 3>, frame=None. It usually means one child failed.": {("crash", "sigquit")},
    "[2026-03-04 05:06:07 TP0] Scheduler hit an exception: Traceback (most recent call last):": {("crash", "exception")},
    "[2026-03-04 05:06:07] Initialization failed. warmup error: Traceback (most recent call last):": {("crash", "warm_up")},
    "[2026-03-04 05:06:07] Rank 0 scheduler is dead. Please check if there are relevant logs.": {("death", "scheduler")},
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.": {("death", "init")},
    "[2026-03-04 05:06:07] Subprocess scheduler (pid=12) crashed with exit code -9. Triggering SIGQUIT for cleanup...": {("death", "subprocess")},
    "[2026-03-04 05:06:07 TP1] Watchdog timeout (self.watchdog_timeout=300)": {("fatal", "watchdog")},
    "[2026-03-04 05:06:07 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)": {("fatal", "watchdog")},
    "RuntimeError: Initialization failed. Please see the error messages above.": {("wrapper", "initialization")},
    # Healthy or handled.
    "[2026-03-04 05:06:07 TP1] Scheduler watchdog timeout (self.watchdog_timeout=60, self.soft=True)": set(),
    "[2026-03-04 05:06:07 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1": set(),
    "[2026-03-04 05:06:07] Scheduler hit an out-of-budget batch": set(),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), ENDS.items())
def test_ends(line: str, expected: set[tuple[str, str]]) -> None:
    assert {key for key in seen(line) if key[0] not in {"milestone", "statistics"}} == expected


# ------------------------------------------------------------------------------------ the analysis


def test_traceback_below_a_prefixed_head_belongs_to_the_rank_of_the_head() -> None:
    log = text(
        ["[2026-03-04 05:06:00] server_args={'model_path': 'm', 'speculative_algorithm': 'NEXTN'}"],
        ["[2026-03-04 05:06:07 TP1] Scheduler hit an exception: Traceback (most recent call last):"],
        ['  File "/x/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process'],
        ["    scheduler = Scheduler()"],
        ["KeyError: 'a'", ""],
        ["During handling of the above exception, another exception occurred:", ""],
        ["Traceback (most recent call last):"],
        ['  File "/x/sglang/srt/managers/scheduler.py", line 9, in load'],
        ["    raise ValueError"],
        ["ValueError: no such layer", ""],
        ["[2026-03-04 05:06:08] Received sigquit from a child process. It usually means the child failed."],
    )  # fmt: skip
    found = evidence(log)

    assert found.run.engine == "sglang"
    assert found.run.model == "m"
    assert (found.arguments or {})["speculative_algorithm"] == "NEXTN"
    assert [(e.type, e.process, e.header) for e in found.exceptions] == [
        ("KeyError", "TP1", 2),
        ("ValueError", "TP1", 9),
    ]
    assert found.exceptions[1].message == "no such layer"
    judged = judge(found)
    assert judged.outcome == "failed_startup"
    assert judged.failure is not None
    assert (judged.failure.line, judged.failure.process) == (12, "TP1")


def test_uvicorn_is_up_before_the_server_is_ready() -> None:
    """The warm-up request comes in between: a failure there is a failed start."""
    log = text(
        ["[2026-03-04 05:06:00] server_args={'model_path': 'm'}"],
        ["[2026-03-04 05:06:01] INFO:     Started server process [1]"],
        ["[2026-03-04 05:06:01] INFO:     Application startup complete."],
    )

    assert [m.milestone for m in evidence(log).milestones] == [
        "arguments_parsed",
        "server_starting",
    ]
