"""TensorRT-LLM's lines, from 0.5 to 1.2: three writers, ranks, and what its signals recognise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.engines import generic, vllm
from forensics.engines.tensorrt_llm import MILESTONES, SIGNALS, depth, parse, process_of
from forensics.model import Frame
from forensics.patterns import confirm
from forensics.rootcause import judge
from tests.support import evidence, text

PREFIXES: dict[str, tuple[str, dict[str, Any]]] = {
    "one rank": ("[04/17/2026-08:21:45] [TRT-LLM] [I] hello", {"level": "INFO", "process": None, "clock": "04-17 08:21:45"}),
    "MPI_Rank": ("[01/02/2024-03:04:05] [TRT-LLM] [MPI_Rank 1] [W] hello", {"level": "WARNING", "process": "Rank 1"}),
    "RANK": ("[11/18/2025-09:33:30] [TRT-LLM] [RANK 0] [E] hello", {"level": "ERROR", "process": "Rank 0"}),
    "module tag": ("[07/07/2026-03:31:36] [TRT-LLM] [E] [executor] hello", {"level": "ERROR", "process": None}),
    "padded tag": ("[07/07/2026-03:31:36] [TRT-LLM] [I] [serve   ] hello", {"level": "INFO"}),
    "tag with rank": ("0: [08/04/2026-19:08:13] [TRT-LLM] [I] [_torch][RANK 3] hello", {"process": "Rank 3"}),
    "fatal": ("[01/02/2024-03:04:05] [TRT-LLM] [F] hello", {"level": "CRITICAL"}),
    "verbose": ("[01/02/2024-03:04:05] [TRT-LLM] [V] hello", {"level": "DEBUG"}),
    "C++": ("[TensorRT-LLM][INFO] hello", {"level": "INFO", "clock": None, "process": None}),
    "C++ with rank": ("[TensorRT-LLM][ERROR][2] hello", {"level": "ERROR", "process": "Rank 2"}),
    "C++ under mpirun": ("1: [TensorRT-LLM][WARNING] hello", {"level": "WARNING"}),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PREFIXES.values(), ids=list(PREFIXES))
def test_prefix_of_every_writer_is_taken_apart(line: str, expected: dict[str, Any]) -> None:
    record = parse(line, 5, "2026-12-01T00:00:00.000000000Z")

    assert record is not None
    assert (record.message, record.text, record.line, record.kind) == ("hello", line, 5, "log")
    assert record.spills
    assert {key: getattr(record, key) for key in expected} == expected


def test_autotuners_name_is_no_module_tag() -> None:
    record = parse(
        "[11/07/2025-07:21:09] [TRT-LLM] [I] [Autotuner] Autotuning process starts ...", 1, None
    )

    assert record is not None
    assert record.message == "[Autotuner] Autotuning process starts ..."


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Traceback (most recent call last):",
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: x",
        "  what():  [TensorRT-LLM][ERROR] Assertion failed: x",
        "[TRT] [E] IRuntime::deserializeCudaEngine: Error Code 1",
        "INFO:     Application startup complete.",
        "[2026-03-04 05:06:07 TP0] hello",
        "[TRT-LLM] [W] no time",
    ],
)
def test_line_of_another_program_is_left_to_others(line: str) -> None:
    assert parse(line, 1, None) is None


@given(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=300))
def test_any_text_is_read_or_left(line: str) -> None:
    for head in ("", "[04/17/2026-08:21:45] [TRT-LLM] [I] ", "[TensorRT-LLM][INFO] "):
        record = parse(head + line, 1, None)

        assert record is None or line.endswith(record.message)


def test_process_and_depth() -> None:
    worker = Frame("/x/tensorrt_llm/executor/worker.py", 1, "worker_main")
    server = Frame("/x/tensorrt_llm/commands/serve.py", 1, "launch_server")

    assert process_of((server, worker)) == ("Executor", 2)
    assert process_of((server,)) == ("Server", 1)
    assert process_of((Frame("/x/other.py", 1, "f"),)) == (None, 0)
    assert (depth("Rank 3"), depth("Server"), depth("EngineCore"), depth("TP0")) == (2, 1, 0, 0)


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
    "[TensorRT-LLM] TensorRT-LLM version: 0.20.0rc0": "launched",
    "[TensorRT-LLM] TensorRT LLM version: 1.1.0": "launched",
    "[11/07/2025-07:20:11] [TRT-LLM] [I] Using LLM with PyTorch backend": "arguments_parsed",
    "rank 0 using MpiPoolSession to spawn MPI processes": "engine_started",
    "[11/07/2025-07:20:11] [TRT-LLM] [I] Start MpiSession with 4 workers": "engine_started",
    "[TensorRT-LLM][INFO] Engine version 0.10.0 found in the config file, assuming engine(s) built by new builder API.": "engine_started",
    "[11/07/2025-07:20:25] [TRT-LLM] [I] Prefetching 15.26GB checkpoint files.": "loading_weights",
    "Loading safetensors weights in parallel: 100%|██████████| 5/5 [00:00<00:00, 182.11it/s]": "loading_weights",
    "[TensorRT-LLM][INFO] Loaded engine size: 3812 MiB": "loading_weights",
    "Model init total -- 29.31s": "weights_loaded",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 78.30 GiB for max tokens in paged KV cache (3731744).": "profiled",
    "[11/07/2025-07:21:09] [TRT-LLM] [I] [Autotuner]: Autotuning process starts ...": "autotuning",
    "[11/07/2025-07:21:09] [TRT-LLM] [I] [Autotuner] Autotuning process starts ...": "autotuning",
    "[11/07/2025-07:21:13] [TRT-LLM] [I] Creating CUDA graph instances for 6 batch sizes.": "capturing_graphs",
    "[11/07/2025-07:21:13] [TRT-LLM] [I] Run generation only CUDA graph warmup for batch size=32": "capturing_graphs",
    "INFO:     Started server process [1]": "server_starting",
    "INFO:     Application startup complete.": "serving",
}


@pytest.mark.parametrize(("line", "name"), PHASES.items())
def test_milestone(line: str, name: str) -> None:
    assert [n for kind, n in seen(line) if kind == "milestone"] == [name]
    assert name in MILESTONES


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[TensorRT-LLM] TensorRT LLM version: 1.2.0rc1", "1.2.0rc1"),
        ("[TensorRT-LLM] TensorRT-LLM version: 0.10.0.dev2024050700", "0.10.0.dev2024050700"),
        ("[TensorRT-LLM][INFO] Engine version 0.9.0 found in the config file, assuming", "0.9.0"),
    ],
)
def test_version(line: str, expected: str) -> None:
    assert seen(line)["fact", "version"]["version"] == expected


def test_iterations() -> None:
    old = seen(
        "[01/02/2026-03:04:05] [TRT-LLM] [I] iter = 7, global_rank = 0, rank = 0, currank_total_requests = 1/1, host_step_time = 12.5ms, prev_device_step_time = N/A, timestamp = 2026-01-02 03:04:05, num_scheduled_requests: 1, states = {'num_ctx_requests': 0}"
    )
    new = seen(
        "0: [01/02/2026-03:04:05] [TRT-LLM] [I] [_torch][RANK 0] iter = 8, global_rank = 0, rank = 0, num_scheduled_requests = 1, kv_cache_util = 0.125, currank_total_requests = 1/8, host_step_time = 12.5ms, prev_device_step_time = 12.1ms, timestamp = 2026-01-02 03:04:05, states = {'num_ctx_requests': 0}"
    )

    assert old["statistics", "iteration"]["host_step_ms"] == "12.5"
    assert new["statistics", "iteration"] == {
        "running": "1",
        "kv_cache_usage": "0.125",
        "host_step_ms": "12.5",
        "device_step_ms": "12.1",
    }


ENDS: dict[str, set[tuple[str, str]]] = {
    "[11/18/2025-09:33:30] [TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: CUDA out of memory. Tried to allocate": {("crash", "executor")},
    "[07/07/2026-03:31:36] [TRT-LLM] [E] Executor worker died during initialization.": {("death", "worker")},
    "RuntimeError: Executor worker died during initialization": {("wrapper", "worker_died")},
    "RuntimeError: Executor worker returned error": {("wrapper", "worker_error")},
    "[07/07/2026-03:31:36] [TRT-LLM] [E] Hang detected on rank 0 in PyExecutor.": {("fatal", "hang")},
    "[07/07/2026-03:31:36] [TRT-LLM] [E] Error in event loop: x": {("crash", "event_loop")},
    "[TensorRT-LLM][ERROR] Assertion failed: Failed: MPI error x": {("fatal", "assertion")},
    "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMalloc(ptr, n): out of memory (/x/tllmBuffers.h:112)": {("fatal", "cuda")},
    "[TRT] [E] IRuntime::deserializeCudaEngine: Error Code 1: Serialization (x)": {("fatal", "plan")},
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD": {("crash", "mpi_abort")},
    "mpirun noticed that process rank 0 with PID 0 on node ubuntu exited on signal 11 (Segmentation fault).": {("death", "mpi")},
    "INFO:     Shutting down": {("stop", "uvicorn")},
    "INFO:     Finished server process [1]": {("end", "uvicorn")},
    # Healthy.
    "[TensorRT-LLM][WARNING] [kv cache manager] storeContextBlocks: Can not find sequence for request 2049": set(),
    "[TensorRT-LLM][WARNING] Attention workspace size is not enough, increase the size from 0 bytes to 67462144 bytes": set(),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), ENDS.items())
def test_ends(line: str, expected: set[tuple[str, str]]) -> None:
    assert {key for key in seen(line) if key[0] not in {"milestone", "statistics"}} == expected


# ------------------------------------------------------------------------------------ the analysis


def test_cause_is_the_workers_and_not_the_front_ends() -> None:
    log = text(
        ["[TensorRT-LLM] TensorRT LLM version: 1.1.0"],
        ["[07/07/2026-03:31:36] [TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: no such kernel"],
        ["[07/07/2026-03:31:36] [TRT-LLM] [RANK 1] [E] Traceback (most recent call last):"],
        ['  File "/x/tensorrt_llm/executor/worker.py", line 9, in worker_main'],
        ["    worker = worker_cls()"],
        ["ValueError: no such kernel", ""],
        ["Traceback (most recent call last):"],
        ['  File "/x/tensorrt_llm/commands/serve.py", line 9, in launch_server'],
        ["    llm = PyTorchLLM()"],
        ["RuntimeError: Executor worker returned error"],
    )  # fmt: skip
    found = evidence(log)
    judged = judge(found)

    assert (found.run.engine, found.run.engine_version) == ("tensorrt-llm", "1.1.0")
    assert judged.failure is not None
    assert (judged.failure.line, judged.failure.process) == (6, "Rank 1")
    assert found.exceptions[0].level == "ERROR"
    assert found.exceptions[1].process == "Server"


def test_warned_exception_is_handled() -> None:
    log = text(
        ["[TensorRT-LLM] TensorRT LLM version: 1.1.0"],
        ["[07/07/2026-03:31:36] [TRT-LLM] [W] Traceback (most recent call last):"],
        ['  File "/x/tensorrt_llm/llmapi/utils.py", line 9, in probe'],
        ["    import x"],
        ["ImportError: no x", ""],
        ["INFO:     Application startup complete."],
        ["INFO:     Finished server process [1]"],
    )

    assert judge(evidence(log)).failure is None
