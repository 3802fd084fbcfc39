"""How SGLang's lines look, from 0.2 to 0.5.23.

One prefix, `[2026-03-04 05:06:07 DP0 TP1] `, local time, the ranks in use and nothing else: no
level, no file. Only the first line of a message has it; a traceback stands bare below
`Scheduler hit an exception: Traceback (most recent call last):`. uvicorn's lines have the same
brackets and their own level. Sources: `srt/utils/common.py` (configure_logger), `managers/
scheduler.py`, `managers/scheduler_components/metrics_reporter.py`, `entrypoints/engine.py`,
`entrypoints/http_server.py`, `managers/tokenizer_manager.py`, `utils/watchdog.py` of 0.4.9, 0.5.6
and 0.5.23.

The version is never printed, the arguments always are. Meaning of the numbers: one line of
statistics covers the steps since the last one; `accept len` counts the token that the target adds
(as vLLM's mean acceptance length does). `accept rate` changed its meaning with 0.5.12 (before, it
counted that token too) and the log does not say which it is, so it keeps a name of its own.
"""

from __future__ import annotations

import re

from forensics.engines.dialect import (
    ACCESS,
    NUMBER,
    UVICORN,
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

_RANK = r"(?:DP|PP|TP|EP|CP|ATTN_CP|ATTN_TP|MOE_DP|MOE_EP|MOE_TP)\d+"
_LINE = re.compile(
    r"\[(?P<date>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d)(?:\.\d{3})?"
    rf"(?P<ranks>(?: {_RANK})*)\] "
)
#: 0.2 printed the time without the date; then only a rank says whose line it is.
_LINE_02 = re.compile(rf"\[(?P<time>\d\d:\d\d:\d\d)(?P<ranks>(?: {_RANK})+)\] ")
#: A progress bar leaves the line open: the next record begins in its middle.
_AFTER_BAR = re.compile(r"(?:it/s|s/it|B/s)[^\[\]]{0,40}\] {0,40}(?=\[\d{4}-\d\d-\d\d )")
#: `--log-requests` quotes what users wrote.
_REQUEST = re.compile(r"(?:Receive|Finish)(?: \w{1,40})?: obj=")
_RANKS = re.compile(rf"{_RANK}(?: {_RANK})*")


def parse(text: str, line: int, at: str | None) -> Record | None:
    """Split one line of text into SGLang's prefix and the message.

    Args:
        text: The line without terminal codes.
        line: Its physical number.
        at: Its time from the envelope.

    Returns:
        A record, or None where the line has no prefix of this kind.
    """
    start = 0
    if not text.startswith("["):
        bar = _AFTER_BAR.search(text) if "][20" in text or "] [20" in text else None
        if bar is None:
            return None
        start = bar.end()
    match = _LINE.match(text, start) or _LINE_02.match(text, start)
    if match is None:
        return None
    date = match.groupdict().get("date")
    message, level = text[match.end() :], None
    uvicorn = UVICORN.match(message)
    if uvicorn:
        message, level = message[uvicorn.end() :], uvicorn["level"]
    access = uvicorn is not None and ACCESS.match(message) is not None
    return Record(
        line=line,
        text=text,
        message=message,
        level=level,
        process=match["ranks"].strip() or None,
        clock=f"{date[5:]} {match['time']}" if date else None,
        kind="access" if access else "request" if _REQUEST.match(message) else "log",
        at=at,
        spills=uvicorn is None,
    )


def depth(process: str) -> int:
    """Return how far inside the program a process is: 2 scheduler (it runs the model), 1 server."""
    if process == "Scheduler" or _RANKS.fullmatch(process):
        return 2
    return 1 if process in {"Detokenizer", "TokenizerManager", "DataParallelController"} else 0


#: Frames that only one kind of process has, innermost program first.
_HOME = (
    ("sglang/srt/managers/scheduler.py", "run_scheduler_process", "Scheduler"),
    ("sglang/srt/managers/detokenizer_manager.py", "", "Detokenizer"),
    ("sglang/srt/managers/data_parallel_controller.py", "", "DataParallelController"),
    ("sglang/srt/managers/tokenizer_manager.py", "", "TokenizerManager"),
    ("sglang/srt/entrypoints/", "", "TokenizerManager"),
)

process_of = at_home(_HOME, depth)


#: 0.5.14 and later name what is captured (`target decode`), earlier ones say `cuda graph` alone.
_GRAPH = r"^Capture (?:[\w -]{1,40} )?(?:cuda|CUDA|cpu|CPU|npu|NPU|xpu|XPU) graph"


SIGNALS: tuple[Signal, ...] = (
    # Arguments and model.
    Signal("fact", "arguments", r"^server_args=(?P<arguments>\{.{0,60000}\})\s*$", identity=True),
    Signal("fact", "namespace", r"^server_args=ServerArgs\((?P<namespace>.{0,60000})\)\s*$", identity=True),
    Signal("fact", "architecture", r"^Load weight end\. (?:elapsed=[\d.]+ s, )?type=(?P<architecture>\w{1,120}), "),
    Signal("fact", "attention_backend", r"^(?:Attention backend not (?:set|explicitly specified)\. Use |Using )(?P<attention_backend>[a-z][\w-]{1,40}) (?:attention )?backend"),
    # Milestones, in order.
    milestone("arguments_parsed", r"^server_args=(?:ServerArgs\(|\{)"),
    milestone("engine_started", r"^Init torch distributed begin\."),
    milestone("loading_weights", r"^Load weight begin\. avail mem="),
    milestone("weights_loaded", r"^Load weight end\. "),
    milestone("profiled", r"^KV Cache is allocated\. |^Memory pool end\. avail mem="),
    milestone("capturing_graphs", rf"{_GRAPH} begin\."),
    milestone("graphs_captured", rf"{_GRAPH} end\."),
    milestone("engine_ready", r"^max_total_num_tokens=\d+, chunked_prefill_size="),
    UVICORN_STARTED,
    milestone("serving", r"^The server is fired up and ready to roll!"),
    # Figures of the start.
    Signal("statistics", "model_load", r"^Load weight end\. (?:elapsed=(?P<weights_s>[\d.]+) s, )?.{0,400}?mem usage=(?P<model_load_gib>[\d.]+) GB"),
    Signal("statistics", "kv_size", r"^max_total_num_tokens=(?P<kv_cache_tokens>\d+), .{0,200}?context_len=(?P<context_length>\d+)(?:, available_[cg]pu_mem=(?P<available_gib>[\d.]+) GB)?"),
    Signal("statistics", "capture", rf"{_GRAPH} end\. (?:bs=\[[\d, ]{{0,2000}}\], )?(?:Time elapsed: |elapsed=)(?P<capture_s>[\d.]+) s"),
    # Running figures.
    Signal("statistics", "decode", rf"^Decode batch(?:\.| \[\d+\],|,) #running-req: (?P<running>\d+), (?:.{{0,80}}?token usage: (?P<kv_cache_usage>{NUMBER}), )?(?:.{{0,200}}?accept len: (?P<mean_acceptance_length>{NUMBER}), (?:accept rate: (?P<accept_rate_as_printed>{NUMBER}), )?)?(?:.{{0,400}}?)gen throughput \(token/s\): (?P<generation_tokens_per_s>{NUMBER}), #queue-req: (?P<waiting>\d+)", identity=True, find="Decode batch"),
    Signal("statistics", "prefill", rf"^Prefill batch(?:\.| \[\d+\],|,) #new-seq: \d+, .{{0,400}}?input throughput \(token/s\): (?P<prompt_tokens_per_s>{NUMBER})", identity=True, find="Prefill batch"),
    # Ends.
    Signal("stop", "sigterm", r"^SIGTERM received\b"),
    Signal("stop", "draining", r"^Gracefully exiting\.\.\. Remaining number of requests \d"),
    UVICORN_STOPS,
    Signal("end", "drained", r"^Gracefully exiting\.\.\. Remaining number of requests 0\b"),
    UVICORN_ENDED,
    Signal("death", "init", r"^RuntimeError: Rank (?P<rank>\d+) scheduler died during initialization \(exit code: (?P<code>-?\d+|None)\)"),
    Signal("death", "scheduler", r"^Rank (?P<rank>\d+) scheduler is dead\. Please check if there are relevant logs\."),
    Signal("death", "subprocess", r"^Subprocess (?P<dead>\S{1,80}) \(pid=\d+\) crashed with exit code (?P<code>-?\d+)\."),
    Signal("fatal", "watchdog", r"^(?:[\w ]{1,60} w|W)atchdog timeout \(self\.watchdog_timeout=[\d.]+(?:, self\.soft=False)?\)"),
    Signal("fatal", "kernels", r"^\[sgl_kernel\] CRITICAL: Could not load any common_ops library!"),
    Signal("crash", "exception", r"^(?:Scheduler|TpModelWorkerClient|DetokenizerManager|TokenizerManager|DataParallelController|MultiTokenizerRouter|MultiDetokenizerRouter) hit an exception: ", identity=True),
    Signal("crash", "sigquit", r"^(?:Received sigquit from a child proces|SIGQUIT received\. signum=)", identity=True),
    Signal("crash", "warm_up", r"^Initialization failed\. warmup error: "),
    Signal("wrapper", "initialization", r"Initialization failed\. Please see the error messages above\."),
)  # fmt: skip

MILESTONES = milestones_of(SIGNALS)

SGLANG = Dialect(
    name="sglang",
    signals=SIGNALS,
    parse=parse,
    milestones=MILESTONES,
    ready="serving",
    depth=depth,
    process_of=process_of,
    teardown=("kill_process_tree", "shutdown", "close", "__del__", "__exit__"),
    programs=("sglang",),
)
