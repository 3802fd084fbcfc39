"""How vLLM's lines look, from 0.3 to 0.33.

Prefix forms by version (sources: `vllm/logger.py`, `vllm/logging_utils/formatter.py`):

- 0.3 .. 0.7: `INFO 08-09 10:11:12 api_server.py:529] message`
- 0.8 ..: `(EngineCore_DP0 pid=71) INFO 03-04 05:06:07 [core.py:77] message`
- 0.10.1 .. 0.30: raw output of child processes carries `(Name pid=N) ` on each line; since 0.31
  only logger records do.
- 0.32 ..: optional JSON lines.

Neither year nor zone is ever printed.
"""

from __future__ import annotations

import json
import re
from typing import Literal

from forensics.engines.dialect import (
    ACCESS,
    NUMBER,
    UVICORN,
    UVICORN_ENDED,
    UVICORN_STOPS,
    Dialect,
    Metrics,
    Signal,
    at_home,
    milestone,
    milestones_of,
)
from forensics.model import Record

_PROCS = r"(?P<procs>(?:\([^()]{1,80} pid=\d+[^()]{0,60}\) )*)"
_STAMP = r"(?P<clock>\d\d-\d\d \d\d:\d\d:\d\d)"
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
#: The logger line of 0.8 and later, and that of 0.3 to 0.7 (no opening bracket).
_LINE = re.compile(
    rf"{_PROCS}(?P<user>.{{0,80}}?){_LEVEL} {_STAMP} "
    r"(?:\[(?P<file>[^\]:]{1,120}):(?P<lineno>\d+)\]|(?P<file0>[\w./-]{1,120}):(?P<line0>\d+)\]) ?"
)
_HAS_LEVEL = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:")
_PROC = re.compile(r"\((?P<name>[^()]{1,80}?) pid=(?P<pid>\d+)(?:, ip=[^()\s]+)?\) ")
#: `request_logger.py` prints prompts, `dump_input.py` engine state: both quote foreign text.
_REQUEST = re.compile(
    r"(?:Received request|Generated response) \S{1,200}[: ]|Request \S{1,200} details: "
)
#: What of a logged request is left where the log begins or a terminal wraps in the middle of it.
_REQUEST_REST = re.compile(
    r", (?:params: (?:Sampling|Pooling|BeamSearch)Params\(|prompt_token_ids: (?:\[|None)"
    r"|lora_request: (?:None|LoRARequest))"
)


def parse(text: str, line: int, at: str | None) -> Record | None:
    """Split one line of text into vLLM's prefix and the message.

    Args:
        text: The line without terminal codes.
        line: Its physical number.
        at: Its time from the envelope.

    Returns:
        A record, or None where the line has neither logger nor process prefix.
    """
    if text.startswith("{") and '"levelname"' in text[:400]:
        return _json_line(text, line, at)
    if _HAS_LEVEL.search(text, 0, 400):
        match = _LINE.match(text)
        if match:
            # VLLM_LOGGING_PREFIX stands before the process since 0.31, after it until then.
            process, pid = _last_process(match["procs"] + match["user"])
            file = match["file"] or match["file0"]
            message = text[match.end() :]
            return Record(
                line=line,
                text=text,
                message=message,
                level=match["level"],
                process=process,
                pid=pid,
                clock=match["clock"],
                origin=f"{file}:{match['lineno'] or match['line0']}",
                kind=_kind(file, message),
                at=at,
            )
    process, pid, rest = None, None, text
    proc = _PROC.match(text)
    if proc:
        process, pid, rest = proc["name"], int(proc["pid"]), text[proc.end() :]
    uvicorn = UVICORN.match(rest)
    if uvicorn:
        message = rest[uvicorn.end() :]
        access = ACCESS.match(message) is not None
        return Record(
            line=line,
            text=text,
            message=message,
            level=uvicorn["level"],
            process=process,
            pid=pid,
            kind="access" if access else "log",
            at=at,
        )
    quoted = _REQUEST_REST.search(rest) is not None
    if proc or quoted:
        kind: Literal["request", "raw"] = "request" if quoted else "raw"
        return Record(
            line=line, text=text, message=rest, process=process, pid=pid, kind=kind, at=at
        )
    return None


def _kind(file: str, message: str) -> Literal["log", "request", "dump"]:
    name = file.rpartition("/")[2]
    if name == "dump_input.py":
        return "dump"
    if name == "request_logger.py" or (name == "logger.py" and _REQUEST.match(message)):
        return "request"
    return "log"


def _last_process(procs: str) -> tuple[str | None, int | None]:
    found = _PROC.findall(procs) if procs else []
    return (found[-1][0], int(found[-1][1])) if found else (None, None)


def _json_line(text: str, line: int, at: str | None) -> Record | None:
    """Read a line of the JSON formatter (0.32 and later, opt-in)."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("message"), str):
        return None
    name = data.get("vllm_process_name") or data.get("processName")
    stamp = re.match(r"(?:\d{4}-)?(\d\d-\d\d \d\d:\d\d:\d\d)", str(data.get("asctime", "")))
    pid = data.get("process")
    return Record(
        line=line,
        text=text,
        message=data["message"],
        level=str(data.get("levelname")) if data.get("levelname") else None,
        process=name if isinstance(name, str) else None,
        pid=pid if isinstance(pid, int) else None,
        clock=stamp[1] if stamp else None,
        origin=str(data["name"]) if data.get("name") else None,
        kind="request" if "request_logger" in str(data.get("name")) else "log",
        at=at,
    )


def depth(process: str) -> int:
    """Return how far inside the program a process is: 3 worker, 2 engine core, 1 server."""
    name = process.lower()
    if "worker" in name:
        return 3
    if "enginecore" in name or name.startswith(("dpengine", "mqllmengine")):
        return 2
    if "apiserver" in name or name == "mainprocess":
        return 1
    return 0


#: Frames that only one kind of process has, innermost program first.
_HOME = (
    ("vllm/v1/executor/multiproc_executor.py", "worker_main", "Worker"),
    ("vllm/v1/executor/multiproc_executor.py", "worker_busy_loop", "Worker"),
    ("vllm/executor/multiproc_worker_utils.py", "_run_worker_process", "VllmWorkerProcess"),
    ("vllm/v1/engine/core.py", "run_engine_core", "EngineCore"),
    ("vllm/engine/multiprocessing/engine.py", "", "MQLLMEngine"),
    ("vllm/worker/", "", "Worker"),
    ("vllm/entrypoints/", "", "APIServer"),
)

process_of = at_home(_HOME, depth)


SIGNALS: tuple[Signal, ...] = (
    # Identity, version, arguments.
    Signal("fact", "version", r"LLM engine \(v(?P<version>[^)]{1,80})\) with config: (?P<config>.{0,20000})$", identity=True),
    Signal("fact", "version", r"^vLLM API server version (?P<version>\S{1,80})$", identity=True),
    Signal("fact", "version", r"█.{0,40} version (?P<version>[\w.+-]{1,80})\s*$", identity=True),
    Signal("fact", "version", r"^vLLM server version (?P<version>[^\s,]{1,80}), serving model (?P<model>.{1,500})$", identity=True),
    Signal("fact", "program", r"^(?:vllm(?: [a-z-]{1,20})?|api_server\.py): error: ", identity=True),
    Signal("fact", "model", r"█.{0,40} model   (?P<model>\S.{0,500}?)\s*$", identity=True),
    Signal("fact", "arguments", r"non-default args: (?P<arguments>\{.{0,60000}\})\s*$", identity=True),
    Signal("fact", "namespace", r"^args: Namespace\((?P<namespace>.{0,60000})\)\s*$", identity=True),
    Signal("fact", "architecture", r"^Resolved architecture: (?P<architecture>\S{1,200})$", identity=True),
    Signal("fact", "attention_backend", r"^Using (?:AttentionBackendEnum\.)?(?P<attention_backend>[A-Z][A-Z0-9_]+) (?:attention )?backend"),
    Signal("fact", "mamba_cache_mode", r"^Mamba cache mode is set to '(?P<mamba_cache_mode>\w+)'"),
    # Milestones, in order.
    milestone("launched", r"^vLLM API server version |^\s*(?:[▀▄█]{1,12}\s{1,8}){2,12}version [\w.+-]{1,80}\s*$|^vLLM server version "),
    milestone("arguments_parsed", r"non-default args: \{|^args: Namespace\("),
    milestone("model_resolved", r"^Resolved architecture: "),
    milestone("engine_started", r"^Initializing an? (?:V1 )?LLM engine \(v"),
    milestone("loading_weights", r"^Starting to load model |^Loading model weights with "),
    milestone("loading_drafter", r"^Loading drafter model\.\.\."),
    milestone("weights_loaded", r"^Loading weights took [\d.]+ seconds|^Loading model weights took [\d.]+ G|^Model loading took [\d.]+ G"),
    milestone("compiling", r"^Using cache directory: \S{1,500} for vLLM's torch\.compile|^Warming up model for the compilation|^(?:\[[^\]]{1,60}\] )?Start compiling function "),
    milestone("bytecode_transformed", r"Dynamo bytecode transform time: [\d.]+ s"),
    milestone("compiled", r"torch\.compile (?:takes|took) [\d.]+ s in total|^Warming up done\.|Directly load AOT compilation from path |saved AOT compiled function to "),
    milestone("profiled", r"^Available KV cache memory: |[A-Z][A-Za-z +]* KV cache size: [\d,]+ tokens|^# (?:GPU|CPU|cuda) blocks: \d+"),
    milestone("capturing_graphs", r"^\s*Capturing (?:the model for CUDA graphs|CUDA graph)"),
    milestone("graphs_captured", r"^Graph capturing finished in \d+ secs"),
    milestone("engine_ready", r"^init engine \(profile, create kv cache, warmup model\) took "),
    milestone("server_starting", r"^Starting vLLM (?:API )?server(?: \d+)? on "),
    Signal("milestone", "serving", r"^Application startup complete\."),
    # Figures of the start.
    Signal("statistics", "model_load", r"^(?:Loading model weights|Model loading) took (?P<model_load_gib>[\d.]+) (?:GB|GiB)(?: memory)?(?: and (?P<weights_s>[\d.]+) seconds)?"),
    Signal("statistics", "kv_available", r"^Available KV cache memory: (?P<available_kv_cache_gib>-?[\d.]+) GiB"),
    Signal("statistics", "kv_size", r"KV cache size: (?P<kv_cache_tokens>[\d,]+) tokens"),
    Signal("statistics", "concurrency", r"Maximum concurrency for [\d,]+ tokens per request: (?P<max_concurrency>[\d.]+)x"),
    Signal("statistics", "capture", r"^Graph capturing finished in (?P<capture_s>\d+) secs"),
    Signal("statistics", "compile", r"torch\.compile (?:takes|took) (?P<compile_s>[\d.]+) s in total"),
    Signal("statistics", "init_engine", r"^init engine \(profile, create kv cache, warmup model\) took (?P<init_engine_s>[\d.]+) s"),
    # Running figures.
    Signal("statistics", "engine", r"Avg prompt throughput: (?P<prompt_tokens_per_s>[\d.]+) tokens/s, Avg generation throughput: (?P<generation_tokens_per_s>[\d.]+) tokens/s, Running: (?P<running>\d+) reqs, (?:Swapped: \d+ reqs, Pending|Waiting): (?P<waiting>\d+) reqs(?:.{0,160}? KV cache usage: (?P<kv_cache_usage_pct>[\d.]+)%)?(?:.{0,60}?Prefix cache hit rate: (?P<prefix_cache_hit_rate_pct>[\d.]+)%)?", identity=True, find="Avg prompt throughput: "),
    Signal("statistics", "speculation", rf"SpecDecoding metrics: (?:Draft acceptance rate: (?P<acceptance_rate_pct>{NUMBER})%, )?(?:Mean acceptance length: (?P<mean_acceptance_length>{NUMBER}), )?.{{0,160}}?Accepted: (?P<accepted_tokens>\d+) tokens, Drafted: (?P<draft_tokens>\d+) tokens(?:, Per-position acceptance rate: (?P<acceptance_rate_position_list>[\d., naif]+?))?(?:, Avg Draft acceptance rate: (?P<acceptance_rate_avg_pct>{NUMBER})%)?\s*$", identity=True, find="SpecDecoding metrics: "),
    Signal("statistics", "speculation_v0", rf"Speculative metrics: Draft acceptance rate: (?P<acceptance_rate_v0>{NUMBER}), System efficiency", identity=True, find="Speculative metrics: "),
    # Ends.
    Signal("stop", "shutdown_triggered", r"^\[shutdown\] API server: shutdown triggered"),
    Signal("stop", "shutdown_initiated", r"^Shutdown initiated \(timeout=", after_failure=True),
    UVICORN_STOPS,
    Signal("stop", "fastapi", r"^Shutting down FastAPI HTTP server\.", after_failure=True),
    Signal("stop", "signal", r"^(?:Received signal \d+|Received SIG(?:TERM|INT)|Got signal SIG)"),
    UVICORN_ENDED,
    Signal("death", "worker", r"^Worker proc (?P<dead>\S{1,80}) died unexpectedly(?: \(exit code: (?P<code>-?\d+|None)\))?"),
    Signal("death", "engine", r"^\[shutdown\] MPClient: engine core exited unexpectedly|^Engine core proc(?:ess)? (?P<dead>\S{1,80}) died unexpectedly"),
    Signal("death", "server", r"^Process (?P<dead>\S{1,80}) \(PID: \d+\) died with exit code (?P<code>-?\d+)"),
    Signal("crash", "worker", r"^WorkerProc (?:failed to start|hit an exception)"),
    Signal("crash", "engine", r"^EngineCore (?:failed to start|encountered a fatal error|hit an exception)"),
    Signal("crash", "handler", r"^AsyncLLM output_handler failed\."),
    Signal("wrapper", "engine_init", r"Engine core initialization failed\. See root cause above\."),
    Signal("wrapper", "frontend_init", r"Frontend process failed during engine core initialization\."),
    Signal("wrapper", "engine_dead", r"EngineCore encountered an issue\. See stack trace"),
    Signal("wrapper", "worker_init", r"WorkerProc initialization failed due to an exception in a background process\."),
    Signal("wrapper", "worker_failed", r"Worker failed with error "),
    Signal("wrapper", "v0_engine", r"(?:AsyncEngineDeadError|MQEngineDeadError|Engine loop is not running|Engine process failed to start|Background loop (?:has errored already|is stopped)|Engine loop has died)"),
    Signal("wrapper", "signal", r"Got fatal signal from worker processes, shutting down\."),
    Signal("wrapper", "executor_failed", r"^(?:RuntimeError: )?Executor failed\.$"),
    Signal("wrapper", "cancelled", r"^(?:RuntimeError: )?cancelled$"),
)  # fmt: skip


def normalise(metrics: Metrics, version: str | None) -> Metrics:
    """Give every number one meaning across versions.

    The acceptance rate stands under one name (0.9 prints it last, earlier ones first). 0.8.5 left
    the bonus token out of the mean acceptance length, all later versions count it.
    """
    found = dict(metrics)
    rate = found.pop("acceptance_rate_avg", None) or found.pop("acceptance_rate_v0", None)
    if rate and "acceptance_rate" not in found:
        found["acceptance_rate"] = rate
    if version and version.startswith("0.8.5") and "mean_acceptance_length" in found:
        found["mean_acceptance_length"] = [(n, v + 1) for n, v in found["mean_acceptance_length"]]
    return found


MILESTONES = milestones_of(SIGNALS)

VLLM = Dialect(
    name="vllm",
    signals=SIGNALS,
    parse=parse,
    milestones=MILESTONES,
    ready="serving",
    depth=depth,
    process_of=process_of,
    normalise=normalise,
    teardown=("shutdown", "cleanup", "close", "__del__", "__exit__", "destroy", "_cleanup", "terminate"),
    programs=("VLLM", "vllm"),
)  # fmt: skip
