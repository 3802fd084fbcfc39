"""How the lines of TensorRT-LLM's `trtllm-serve` look, from 0.5 to 1.2.

Three writers share the output: the Python logger (`[11/18/2025-09:33:30] [TRT-LLM] [RANK 0] [E] `,
the rank only where there are several; since 1.2 a module tag such as `[executor]` or
`[_torch][RANK 0]` may follow the level), the C++ logger (`[TensorRT-LLM][ERROR] `, no time) and
uvicorn. MPI's launcher adds banners between lines of dashes and may put `0: ` before a line. Only
the first line of a message has the prefix. Sources: `tensorrt_llm/logger.py`,
`cpp/tensorrt_llm/common/logger.h`, `executor/worker.py`, `executor/proxy.py`,
`_torch/pyexecutor/py_executor_creator.py`, `_torch/pyexecutor/py_executor.py`, `commands/serve.py`.

No acceptance of drafts is printed, and `iter =` lines only with `print_iter_log`: the drafted
tokens are counted there with the generated ones, so no throughput is made of them.
"""

from __future__ import annotations

import re

from forensics.engines.dialect import (
    UVICORN_ENDED,
    UVICORN_STARTED,
    UVICORN_STOPS,
    Dialect,
    Signal,
    at_home,
    milestone,
    milestones_of,
)
from forensics.model import Record

_LEVELS = {"F": "CRITICAL", "E": "ERROR", "W": "WARNING", "I": "INFO", "V": "DEBUG", "D": "DEBUG"}
_PYTHON = re.compile(
    r"(?:\d{1,4}: )?\[(?P<month>\d\d)/(?P<day>\d\d)/\d{4}-(?P<time>\d\d:\d\d:\d\d)\] \[TRT-LLM\]"
    r"(?: \[(?:MPI_Rank|RANK) (?P<rank>\d{1,5})\])? \[(?P<level>[FEWIVD])\] "
    r"(?:\[[a-z_]{2,20} {0,12}\](?:\[RANK (?P<rank2>\d{1,5})\])? )?"
)
_CPP = re.compile(
    r"(?:\d{1,4}: )?\[TensorRT-LLM\]\[(?P<level>TRACE|DEBUG|INFO|WARNING|ERROR)\]"
    r"(?:\[(?P<rank>\d{1,5})\])? ?"
)
_BANNER = re.compile(r"\[TensorRT-LLM\] (?=TensorRT[- ]LLM version: )")


def parse(text: str, line: int, at: str | None) -> Record | None:
    """Split one line of text into TensorRT-LLM's prefix and the message.

    Args:
        text: The line without terminal codes.
        line: Its physical number.
        at: Its time from the envelope.

    Returns:
        A record, or None where the line has no prefix of this kind.
    """
    if "T-LLM]" not in text[:80]:
        return None
    python = _PYTHON.match(text)
    if python:
        rank = python["rank"] or python["rank2"]
        return Record(
            line=line,
            text=text,
            message=text[python.end() :],
            level=_LEVELS[python["level"]],
            process=f"Rank {rank}" if rank else None,
            clock=f"{python['month']}-{python['day']} {python['time']}",
            kind="log",
            at=at,
            spills=True,
        )
    cpp = _CPP.match(text)
    if cpp:
        return Record(
            line=line,
            text=text,
            message=text[cpp.end() :],
            level="DEBUG" if cpp["level"] == "TRACE" else cpp["level"],
            process=f"Rank {cpp['rank']}" if cpp["rank"] else None,
            kind="log",
            at=at,
            spills=True,
        )
    banner = _BANNER.match(text)
    if banner:
        return Record(line=line, text=text, message=text[banner.end() :], kind="log", at=at)
    return None


def depth(process: str) -> int:
    """Return how far inside the program a process is: 2 executor worker, 1 server."""
    return 2 if process.startswith("Rank ") or process == "Executor" else int(process == "Server")


#: Frames that only one kind of process has, innermost program first.
_HOME = (
    ("tensorrt_llm/executor/worker.py", "worker_main", "Executor"),
    ("tensorrt_llm/executor/rpc_worker.py", "", "Executor"),
    ("tensorrt_llm/executor/ray_gpu_worker.py", "", "Executor"),
    ("tensorrt_llm/_torch/pyexecutor/py_executor.py", "_event_loop_wrapper", "Executor"),
    ("tensorrt_llm/commands/serve.py", "", "Server"),
    ("tensorrt_llm/executor/proxy.py", "", "Server"),
)

process_of = at_home(_HOME, depth)


SIGNALS: tuple[Signal, ...] = (
    # Version and model (the latter in the block after `LLM Args:`).
    Signal("fact", "version", r"^TensorRT[- ]LLM version: (?P<version>[\w.+-]{1,80})\s*$", identity=True),
    Signal("fact", "version", r"^Engine version (?P<version>\d[\w.+-]{1,80}) found in the config file", identity=True),
    Signal("fact", "model", r"^model=(?:PosixPath\()?'(?P<model>[^']{1,500})'\)? (?:speculative_model|tokenizer)="),
    # Milestones, in order.
    milestone("launched", r"^TensorRT[- ]LLM version: [\w.+-]{1,80}\s*$"),
    milestone("arguments_parsed", r"^Using LLM with \w{2,40} backend"),
    milestone("engine_started", r"^rank \d+ using \w{2,40} to spawn MPI processes|^Start MpiSession with \d+ workers|^Engine version \d[\w.+-]{1,80} found in the config file"),
    milestone("loading_weights", r"^Prefetching [\d.]+ ?GB checkpoint files\.|^Loading safetensors weights in parallel: |^Loaded engine size: "),
    milestone("weights_loaded", r"^Model init total -- [\d.]+s"),
    milestone("profiled", r"^\[MemUsageChange\] Allocated [\d.]+ GiB for max tokens in paged KV cache "),
    milestone("autotuning", r"^\[Autotuner\]:? Autotuning process starts"),
    milestone("capturing_graphs", r"^Creating CUDA graph instances for \d+ batch sizes|^Run generation.only CUDA graph warmup for batch size"),
    UVICORN_STARTED,
    Signal("milestone", "serving", r"^Application startup complete\.|^Server is ready to accept requests$"),
    # Figures of the start.
    Signal("statistics", "model_load", r"^Model init total -- (?P<weights_s>[\d.]+)s"),
    Signal("statistics", "kv_size", r"^\[MemUsageChange\] Allocated (?P<available_kv_cache_gib>[\d.]+) GiB for max tokens in paged KV cache \((?P<kv_cache_tokens>\d+)\)"),
    # Running figures (`print_iter_log`).
    Signal("statistics", "iteration", r"^iter = \d+, global_rank = 0, rank = \d+, (?:num_scheduled_requests = (?P<running>\d+), kv_cache_util = (?P<kv_cache_usage>[\d.]+|N/A), )?currank_total_requests = \d+/\d+, host_step_time = (?P<host_step_ms>[\d.]+)ms, prev_device_step_time = (?:(?P<device_step_ms>[\d.]+)ms|N/A), ", identity=True, find="host_step_time = "),
    # Ends.
    UVICORN_STOPS,
    Signal("stop", "signal", r"^Received shutdown signal$"),
    UVICORN_ENDED,
    Signal("end", "grpc", r"^Shutting down TensorRT-LLM gRPC server"),
    Signal("death", "worker", r"^Executor worker died during initialization\.", identity=True),
    Signal("death", "mpi", r"^(?:mpirun|prterun) noticed that process rank \d+ with PID \d+ on node \S{1,200} exited on signal (?P<code>\d+)"),
    Signal("fatal", "assertion", r"^Assertion failed: "),
    Signal("fatal", "cuda", r"^CUDA (?:runtime|driver) error in "),
    Signal("fatal", "hang", r"^Hang detected on rank \d+ in PyExecutor", identity=True),
    Signal("fatal", "plan", r"IRuntime::deserializeCudaEngine: Error Code \d"),
    Signal("crash", "executor", r"^Failed to initialize executor on rank \d+: ", identity=True),
    Signal("crash", "event_loop", r"^Error in event loop: ", identity=True),
    Signal("crash", "mpi_abort", r"^MPI_ABORT was invoked on rank \d+ in communicator "),
    Signal("wrapper", "worker_error", r"Executor worker returned error"),
    Signal("wrapper", "worker_died", r"^RuntimeError: Executor worker died during initialization"),
)  # fmt: skip

MILESTONES = milestones_of(SIGNALS)

TENSORRT_LLM = Dialect(
    name="tensorrt-llm",
    signals=SIGNALS,
    parse=parse,
    milestones=MILESTONES,
    ready="serving",
    depth=depth,
    process_of=process_of,
    teardown=("shutdown", "shutdown_abort", "__del__", "__exit__", "cleanup"),
    programs=("trtllm", "tensorrt_llm"),
)
