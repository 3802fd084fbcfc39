"""vLLM's lines, from 0.3 to 0.33: prefix, process, level, kind, and what its signals recognise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.engines.vllm import MILESTONES, SIGNALS, depth, normalise, parse, process_of
from forensics.model import Frame, Record
from forensics.patterns import confirm
from tests.support import SITE, evidence, text

PREFIXES = {
    "0.3": (
        "INFO 08-09 10:11:12 llm_engine.py:161] hello",
        {"level": "INFO", "clock": "08-09 10:11:12", "origin": "llm_engine.py:161"},
    ),
    "0.5 worker": (
        "(VllmWorkerProcess pid=44) INFO 08-09 10:11:12 model_runner.py:900] hello",
        {"level": "INFO", "process": "VllmWorkerProcess", "pid": 44, "origin": "model_runner.py:900"},
    ),
    "0.8": (
        "WARNING 03-04 05:06:07 [core.py:77] hello",
        {"level": "WARNING", "clock": "03-04 05:06:07", "origin": "core.py:77"},
    ),
    "0.9 worker": (
        "(VllmWorker rank=1 pid=12) ERROR 03-04 05:06:07 [multiproc_executor.py:435] hello",
        {"level": "ERROR", "process": "VllmWorker rank=1", "pid": 12},
    ),
    "0.10.1 worker": (
        "(VllmWorker TP1 pid=12) INFO 03-04 05:06:07 [gpu_worker.py:1] hello",
        {"process": "VllmWorker TP1", "pid": 12},
    ),
    "0.10.2": (
        "(EngineCore_DP0 pid=71) DEBUG 03-04 05:06:07 [v1/worker/.../mla/common.py:12] hello",
        {"level": "DEBUG", "process": "EngineCore_DP0", "origin": "v1/worker/.../mla/common.py:12"},
    ),
    "0.11 worker": (
        "(Worker_PP0_TP1_EP1 pid=9) INFO 03-04 05:06:07 [monitor.py:91] hello",
        {"process": "Worker_PP0_TP1_EP1", "pid": 9},
    ),
    "ray": (
        "(EngineCore pid=71) (RayWorkerWrapper pid=88, ip=192.0.2.7) ERROR 03-04 05:06:07 [x.py:1] hello",
        {"process": "RayWorkerWrapper", "pid": 88, "level": "ERROR"},
    ),
    "0.18": (
        "(EngineCore pid=71) CRITICAL 03-04 05:06:07 [core_client.py:269] hello",
        {"level": "CRITICAL", "process": "EngineCore", "pid": 71},
    ),
    "0.33 unnamed": (
        "(MainProcess pid=7) INFO 03-04 05:06:07 [api_utils.py:347] hello",
        {"process": "MainProcess", "pid": 7},
    ),
    "VLLM_LOGGING_PREFIX up to 0.30": (
        "(EngineCore pid=71) [node-3] INFO 03-04 05:06:07 [core.py:77] hello",
        {"process": "EngineCore", "level": "INFO", "origin": "core.py:77"},
    ),
    "VLLM_LOGGING_PREFIX alone": (
        "prod/a1: INFO 03-04 05:06:07 [core.py:77] hello",
        {"process": None, "level": "INFO", "origin": "core.py:77"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PREFIXES.values(), ids=list(PREFIXES))
def test_prefix_of_every_era_is_taken_apart(line: str, expected: dict[str, Any]) -> None:
    record = parse(line, 5, "2026-12-01T00:00:00.000000000Z")

    assert record is not None
    assert record.message == "hello"
    assert record.text == line
    assert (record.line, record.at, record.kind) == (5, "2026-12-01T00:00:00.000000000Z", "log")
    assert {key: getattr(record, key) for key in expected} == expected


def test_logging_prefix_before_the_process_name() -> None:
    """Since 0.31 the free text of VLLM_LOGGING_PREFIX stands first; the message is found still."""
    record = parse("[node-3] (EngineCore pid=71) INFO 03-04 05:06:07 [core.py:77] hello", 1, None)

    assert record is not None
    assert (record.message, record.level, record.origin) == ("hello", "INFO", "core.py:77")
    assert (record.process, record.pid) == ("EngineCore", 71)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("INFO 03-04 05:06:07 [core.py:77]     raise x", "    raise x"),
        ("INFO 03-04 05:06:07 [core.py:77] ", ""),
        ("INFO 03-04 05:06:07 [core.py:77]", ""),
        ("INFO 08-09 10:11:12 llm_engine.py:161]   File", "  File"),
    ],
)
def test_indentation_of_a_message_is_kept(line: str, message: str) -> None:
    record = parse(line, 1, None)

    assert record is not None
    assert record.message == message


@pytest.mark.parametrize(
    ("line", "process", "message"),
    [
        ("(EngineCore_DP0 pid=71) Traceback (most recent call last):", "EngineCore_DP0", "Traceback (most recent call last):"),
        ('(Worker_TP0 pid=9)   File "x.py", line 1, in f', "Worker_TP0", '  File "x.py", line 1, in f'),
        ("(VllmWorkerProcess pid=4) ", "VllmWorkerProcess", ""),
    ],
)  # fmt: skip
def test_raw_output_of_a_named_process_has_no_level(line: str, process: str, message: str) -> None:
    record = parse(line, 1, None)

    assert record is not None
    assert (record.kind, record.level, record.clock, record.origin) == ("raw", None, None, None)
    assert (record.process, record.message) == (process, message)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Traceback (most recent call last):",
        "ValueError: x",
        '  File "x.py", line 1, in f',
        "Loading safetensors checkpoint shards:  82% Completed | 14/17",
        "INFO without a time",
        "(no process) hello",
        "{not json}",
    ],
)
def test_line_without_a_prefix_is_left_to_others(line: str) -> None:
    assert parse(line, 1, None) is None


@pytest.mark.parametrize(
    ("line", "kind", "level", "process"),
    [
        ('INFO:     192.0.2.9:50001 - "GET /health HTTP/1.1" 200 OK', "access", "INFO", None),
        ('(APIServer pid=7) INFO:     192.0.2.9:50001 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error', "access", "INFO", "APIServer"),
        ("(APIServer pid=7) INFO:     Application startup complete.", "log", "INFO", "APIServer"),
        ("ERROR:    Exception in ASGI application", "log", "ERROR", None),
        ("(APIServer pid=7) INFO 12-01 02:00:00 [logger.py:39] Received request cmpl-1: prompt: 'CUDA error'", "request", "INFO", "APIServer"),
        ("INFO 12-01 02:00:00 [request_logger.py:60] Generated response cmpl-1: output: 'x'", "request", "INFO", None),
        ("INFO 12-01 02:00:00 [logger.py:39] Something else", "log", "INFO", None),
        ("INFO 12-01 02:00:00 [core.py:39] Received request x: y", "log", "INFO", None),
        ("(EngineCore pid=71) ERROR 12-01 02:00:00 [dump_input.py:72] Dumping input data for V1 LLM engine (v0.32.0)", "dump", "ERROR", "EngineCore"),
        ("ERROR 12-01 02:00:00 [logging_utils/dump_input.py:79] Dumping scheduler output", "dump", "ERROR", None),
    ],
)  # fmt: skip
def test_kind_tells_foreign_text_from_the_servers_own(
    line: str, kind: str, level: str, process: str | None
) -> None:
    """What users wrote, and what the engine dumps, is no statement of the server."""
    record = parse(line, 1, None)

    assert record is not None
    assert (record.kind, record.level, record.process) == (kind, level, process)


# -------------------------------------------------------------------------------------- JSON lines


def json_line(**fields: object) -> str:
    body = {
        "asctime": "03-04 05:06:07",
        "levelname": "ERROR",
        "name": "vllm.v1.engine.core",
        "processName": "EngineCore",
        "process": 71,
        "message": "hello",
    }
    return json.dumps({**body, **fields})


def test_json_line_is_read() -> None:
    record = parse(json_line(), 3, None)

    assert record is not None
    assert record.message == "hello"
    assert (record.level, record.process, record.pid) == ("ERROR", "EngineCore", 71)
    assert (record.clock, record.origin, record.kind) == (
        "03-04 05:06:07",
        "vllm.v1.engine.core",
        "log",
    )


def test_json_line_with_a_year_and_vllms_own_process_name() -> None:
    record = parse(
        json_line(asctime="2026-03-04 05:06:07,123", vllm_process_name="Worker_TP1"), 1, None
    )

    assert record is not None
    assert (record.clock, record.process) == ("03-04 05:06:07", "Worker_TP1")


def test_json_line_of_the_request_logger_is_a_request() -> None:
    record = parse(json_line(name="vllm.entrypoints.serve.request_logger"), 1, None)

    assert record is not None
    assert record.kind == "request"


@pytest.mark.parametrize(
    "line",
    [
        '{"levelname": "INFO", "message": ',
        '{"levelname": "INFO", "message": 3}',
        '{"levelname": "INFO"}',
        '{"levelname": ' + "[" * 100_000,
    ],
    ids=["cut", "no text", "no message", "deep"],
)
def test_broken_json_is_no_record(line: str) -> None:
    assert parse(line, 1, None) is None


@given(st.text(max_size=200))
def test_any_text_parses_or_not_but_never_raises(line: str) -> None:
    record = parse(line, 1, None)

    assert record is None or isinstance(record, Record)


@given(st.sampled_from([line for line, _ in PREFIXES.values()]), st.text(max_size=60))
def test_message_is_a_suffix_of_the_line(prefix: str, message: str) -> None:
    """Nothing is made up: a message is what stands at the end of its line."""
    line = prefix.removesuffix("hello") + message
    record = parse(line, 1, None)

    assert record is not None
    assert record.message == message


# ---------------------------------------------------------------------------------------- processes


@pytest.mark.parametrize(
    ("process", "inside"),
    [
        ("Worker_TP0", 3), ("VllmWorkerProcess", 3), ("VllmWorker rank=1", 3), ("RayWorkerWrapper", 3),
        ("EngineCore", 2), ("EngineCore_DP0", 2), ("DPEngineCoreActor_DP1", 2),
        ("APIServer", 1), ("ApiServer_1", 1), ("MainProcess", 1),
        ("Frontend", 0), ("", 0),
    ],
)  # fmt: skip
def test_depth_of_a_process(process: str, inside: int) -> None:
    """A worker is deeper inside the program than the engine, and that than the server."""
    assert depth(process) == inside


@pytest.mark.parametrize(
    ("file", "function", "process"),
    [
        ("vllm/v1/executor/multiproc_executor.py", "WorkerProc.worker_main", "Worker"),
        ("vllm/v1/engine/core.py", "EngineCoreProc.run_engine_core", "EngineCore"),
        ("vllm/entrypoints/openai/api_server.py", "run_server", "APIServer"),
        ("torch/nn/modules/module.py", "forward", None),
    ],
)
def test_frames_tell_whose_bare_traceback_it_is(
    file: str, function: str, process: str | None
) -> None:
    """Since 0.31 raw tracebacks carry no prefix."""
    frames = (
        Frame(f"{SITE}/multiprocessing/process.py", 1, "run"),
        Frame(f"{SITE}/{file}", 2, function),
    )

    assert process_of(frames)[0] == process


# ----------------------------------------------------------------------------------------- signals


def found(message: str, kind: str) -> dict[str, dict[str, str]]:
    """Name and groups of the signals of one kind that a message has."""
    hits = ((s.name, confirm(s.pattern, message)) for s in SIGNALS if s.kind == kind)
    return {name: groups for name, groups in hits if groups is not None}


@pytest.mark.parametrize(
    ("message", "milestone"),
    [
        ("vLLM API server version 0.6.3", "launched"),
        (" ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", "launched"),
        ("args: Namespace(model='x')", "arguments_parsed"),
        ("non-default args: {'model': 'x'}", "arguments_parsed"),
        ("Resolved architecture: NemotronHForCausalLM", "model_resolved"),
        ("Initializing an LLM engine (v0.6.3) with config: model='x'", "engine_started"),
        ("Initializing a V1 LLM engine (v0.32.0) with config: model='x'", "engine_started"),
        ("Starting to load model /models/tiny...", "loading_weights"),
        ("Loading drafter model...", "loading_drafter"),
        ("Loading weights took 285.12 seconds", "weights_loaded"),
        ("Loading model weights took 15.9077 GB", "weights_loaded"),
        ("Model loading took 69.5 GiB memory and 301.123456 seconds", "weights_loaded"),
        ("Using cache directory: /root/.cache/vllm/x for vLLM's torch.compile", "compiling"),
        ("Dynamo bytecode transform time: 5.86 s", "bytecode_transformed"),
        ("[backbone] Dynamo bytecode transform time: 5.86 s", "bytecode_transformed"),
        ("torch.compile takes 40.12 s in total", "compiled"),
        ("[backbone] torch.compile took 40.12 s in total", "compiled"),
        ("Available KV cache memory: 31.05 GiB", "profiled"),
        ("GPU KV cache size: 1,234,560 tokens", "profiled"),
        ("# GPU blocks: 27000, # CPU blocks: 2048", "profiled"),
        ("Capturing CUDA graphs (decode, FULL):  40%|████      | 4/10", "capturing_graphs"),
        ("Graph capturing finished in 21 secs, took 0.84 GiB", "graphs_captured"),
        ("init engine (profile, create kv cache, warmup model) took 92.29 seconds", "engine_ready"),
        ("Starting vLLM API server 0 on http://0.0.0.0:8000", "server_starting"),
        ("Starting vLLM server on http://0.0.0.0:8000", "server_starting"),
        ("Application startup complete.", "serving"),
    ],
)
def test_milestone_is_recognised_in_every_wording(message: str, milestone: str) -> None:
    assert list(found(message, "milestone")) == [milestone]


def test_every_milestone_has_its_place_in_the_order() -> None:
    # The names are part of the JSON contract, and rules refer to them.
    assert MILESTONES == (
        "launched",
        "arguments_parsed",
        "model_resolved",
        "engine_started",
        "loading_weights",
        "loading_drafter",
        "weights_loaded",
        "compiling",
        "bytecode_transformed",
        "compiled",
        "profiled",
        "capturing_graphs",
        "graphs_captured",
        "engine_ready",
        "server_starting",
        "serving",
    )


@pytest.mark.parametrize(
    ("message", "version"),
    [
        ("vLLM API server version 0.8.5.post1", "0.8.5.post1"),
        ("Initializing a V1 LLM engine (v0.19.2rc1.dev134+gfe9c3d6c5) with config: m", "0.19.2rc1.dev134+gfe9c3d6c5"),
        (" ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", "0.32.0"),
        ("vLLM server version 0.33.0, serving model /models/tiny", "0.33.0"),
    ],
)  # fmt: skip
def test_version_is_read(message: str, version: str) -> None:
    assert found(message, "fact")["version"]["version"] == version


@pytest.mark.parametrize(
    ("message", "kind", "name"),
    [
        ("[shutdown] API server: shutdown triggered, signal 15", "stop", "shutdown_triggered"),
        ("Shutting down", "stop", "uvicorn"),
        ("Finished server process [7]", "end", "uvicorn"),
        ("Worker proc VllmWorker-0 died unexpectedly, shutting down executor.", "death", "worker"),
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down", "death", "worker"),
        ("Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "death", "engine"),
        ("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "death", "engine"),
        ("WorkerProc hit an exception.", "crash", "worker"),
        ("EngineCore encountered a fatal error.", "crash", "engine"),
        ("EngineCore hit an exception: Traceback (most recent call last):", "crash", "engine"),
        ("Engine core initialization failed. See root cause above. Failed core proc(s): {}", "wrapper", "engine_init"),
        ("RuntimeError: cancelled", "wrapper", "cancelled"),
    ],
)  # fmt: skip
def test_end_of_a_run_is_recognised(message: str, kind: str, name: str) -> None:
    assert name in found(message, kind)


@pytest.mark.parametrize(
    "message",
    [
        "[shutdown] Process manager: all workers exited gracefully",
        "resource_tracker: There appear to be 1 leaked shared_memory objects",
        "Shutting down the office at noon",
        "Route: /invocations, Methods: POST",
        "nanobind: leaked 4 instances!",
    ],
)
def test_healthy_line_is_neither_death_nor_crash(message: str) -> None:
    assert not [
        k for k in ("stop", "end", "death", "crash", "fatal", "wrapper") if found(message, k)
    ]


def test_death_of_a_worker_names_it_and_its_code() -> None:
    groups = found("Worker proc VllmWorker-0 died unexpectedly (exit code: -9), x", "death")[
        "worker"
    ]

    assert groups == {"dead": "VllmWorker-0", "code": "-9"}


# ----------------------------------------------------------------------------------------- numbers

STATISTICS = (
    "Engine 000: Avg prompt throughput: 16.6 tokens/s, Avg generation throughput: 223.1 tokens/s, "
    "Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 50.0%"
)
V0_STATISTICS = (
    "Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.5 tokens/s, Running: 3 reqs, "
    "Swapped: 0 reqs, Pending: 4 reqs, GPU KV cache usage: 25.0%, CPU KV cache usage: 0.0%."
)
SPECULATION = (
    "SpecDecoding metrics: Mean acceptance length: 2.10, Accepted throughput: 5.00 tokens/s, "
    "Drafted throughput: 9.00 tokens/s, Accepted: 110 tokens, Drafted: 200 tokens, "
    "Per-position acceptance rate: 0.700, 0.400, Avg Draft acceptance rate: 55.0%"
)


def metrics(message: str, version: str = "0.32.0") -> dict[str, float]:
    log = text(
        [f"INFO 12-01 02:00:00 [x.py:1] vLLM API server version {version}"],
        [f"INFO 12-01 02:00:00 [x.py:1] {message}"],
    )
    return {name: values[0][1] for name, values in evidence(log).metrics.items()}


def test_numbers_of_a_window_are_read() -> None:
    """Percentages become fractions."""
    assert metrics(STATISTICS) == {
        "prompt_tokens_per_s": 16.6,
        "generation_tokens_per_s": 223.1,
        "running": 2,
        "waiting": 1,
        "kv_cache_usage": 0.125,
        "prefix_cache_hit_rate": 0.5,
    }


def test_numbers_of_the_first_engine_have_the_same_names() -> None:
    found_ = metrics(V0_STATISTICS, "0.6.3")

    assert (found_["waiting"], found_["running"], found_["kv_cache_usage"]) == (4, 3, 0.25)


def test_numbers_of_speculation_are_read() -> None:
    assert metrics(SPECULATION) == {
        "mean_acceptance_length": 2.1,
        "accepted_tokens": 110,
        "draft_tokens": 200,
        "acceptance_rate_position_1": 0.7,
        "acceptance_rate_position_2": 0.4,
        "acceptance_rate": 0.55,
    }


@pytest.mark.parametrize(("version", "length"), [("0.8.5", 2.1), ("0.9.0", 1.1), ("0.32.0", 1.1)])
def test_mean_acceptance_length_always_counts_the_bonus_token(version: str, length: float) -> None:
    """0.8.5 printed it without the bonus token."""
    found_ = normalise({"mean_acceptance_length": [(1, 1.1)]}, version)

    assert found_["mean_acceptance_length"][0][1] == pytest.approx(length)


def test_number_that_is_none_is_left_out() -> None:
    assert "acceptance_rate" not in metrics(SPECULATION.replace("55.0%", "nan%"))
