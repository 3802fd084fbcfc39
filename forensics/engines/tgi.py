"""How the lines of Text Generation Inference look, from 1.0 to 3.3.

The launcher (Rust) starts one Python server a GPU ("shard") and then the router (Rust), and prints
everything with Rust's `tracing`: `2025-04-16T17:58:47.006993Z  INFO shard-manager:
text_generation_launcher: Starting shard rank=0`: time in UTC, level, spans, the program, in the
router file and line, the message, and the fields of the spans at the end. With `--json-output`
each record is a JSON object. What a dead shard wrote to its standard error is printed at once, bare, after
`Shard complete standard error output:`, the fields after its last line. The launcher's own result
is Rust's `Error: ShardCannotStart`, without prefix. Sources: `launcher/src/main.rs`,
`router/src/main.rs`, `router/src/server.rs`, `backends/v3/src/lib.rs`.
"""

from __future__ import annotations

import json
import re

from forensics.engines.dialect import Dialect, Signal, milestone, milestones_of
from forensics.model import Frame, Record

_LEVELS = {"WARN": "WARNING", "TRACE": "DEBUG"}
_LINE = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)\.\d{3,9}Z +"
    r"(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) "
    r"(?P<spans>(?:[\w.-]{1,60}(?: [\w.-]{1,30})?(?:\{[^{}]{0,4000}(?:\{[^{}]{0,4000}\}[^{}]{0,4000}){0,40}\})?:){0,8} ?)"
    r"(?P<target>text_generation_\w{1,40}(?:::\w{1,60}){0,6}): "
    r"(?:(?P<file>[\w./-]{1,120}\.rs):(?P<row>\d+): )?"
)
_FIELDS = re.compile(r"(?: |^)rank=(?P<rank>\d{1,4})$")
#: Spans of one request; their fields quote its parameters.
_REQUEST = re.compile(
    r"\b(?:generate|generate_stream|chat_completions|completions|compat_generate|HTTP request|sagemaker_compatibility|vertex_compatibility)\b"
)


def parse(text: str, line: int, at: str | None) -> Record | None:
    """Split one line of text into the launcher's or router's prefix and the message.

    Args:
        text: The line without terminal codes.
        line: Its physical number.
        at: Its time from the envelope.

    Returns:
        A record, or None where the line has no prefix of this kind.
    """
    if "text_generation_" not in text[:20_000]:
        return None
    if text.startswith('{"timestamp":"'):
        return _json_line(text, line, at)
    match = _LINE.match(text)
    if match is None:
        return None
    message = text[match.end() :]
    fields = _FIELDS.search(message)
    if fields:
        message = message[: fields.start()]
    request = _REQUEST.search(match["spans"]) is not None
    return Record(
        line=line,
        text=text,
        message=message,
        level=_LEVELS.get(match["level"], match["level"]),
        process=f"Shard {fields['rank']}" if fields else None,
        clock=f"{match['date'][5:]} {match['time']}",
        kind="request" if request and match["level"] != "ERROR" else "log",
        at=at,
        spills=True,
    )


def _json_line(text: str, line: int, at: str | None) -> Record | None:
    """Read a line of `--json-output`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fields, span = (data.get(k) for k in ("fields", "span")) if isinstance(data, dict) else (0, 0)
    if not isinstance(fields, dict) or not isinstance(fields.get("message"), str):
        return None
    if not str(data.get("target")).startswith("text_generation_"):
        return None
    stamp = re.match(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d:\d\d)", str(data.get("timestamp")))
    rank = span.get("rank") if isinstance(span, dict) else None
    level = str(data.get("level"))
    name = str(span.get("name")) if isinstance(span, dict) else ""
    return Record(
        line=line,
        text=text,
        message=fields["message"],
        level=_LEVELS.get(level, level),
        process=f"Shard {rank}" if isinstance(rank, int) else None,
        clock=f"{stamp[1]} {stamp[2]}" if stamp else None,
        kind="request" if _REQUEST.search(name) and level != "ERROR" else "log",
        at=at,
        spills=True,
    )


def depth(process: str) -> int:
    """Return how far inside the program a process is: 2 shard, 1 launcher and router."""
    return 2 if process.startswith("Shard") else 0


def process_of(frames: tuple[Frame, ...]) -> tuple[str | None, int]:
    """Tell from the frames of a bare traceback which process printed it: only shards run Python."""
    inside = any("text_generation_server/" in frame.file for frame in frames)
    return ("Shard", 2) if inside else (None, 0)


SIGNALS: tuple[Signal, ...] = (
    # Model (the block of arguments is Rust's pretty print, one line each, or all in one line).
    Signal("fact", "model", r'^ {4}model_id: "(?P<model>[^"]{1,500})",$'),
    Signal("fact", "model", r'^Args \{ model_id: "(?P<model>[^"]{1,500})", ', identity=True),
    # Milestones, in order.
    milestone("arguments_parsed", r"^Args \{"),
    milestone("downloading", r"^Starting (?:check and )?download process"),
    milestone("downloaded", r"^Successfully downloaded weights"),
    milestone("loading_weights", r"^Starting shard$"),
    milestone("weights_loaded", r"^Shard ready in [\d.]+"),
    milestone("server_starting", r"^Starting Webserver$"),
    milestone("warming_up", r"^Warming up model$"),
    milestone("capturing_graphs", r"^Cuda Graphs are enabled for sizes "),
    milestone("profiled", r"^Setting max batch total tokens to \d+"),
    milestone("serving", r"^Connected$"),
    # Figures of the start.
    Signal("statistics", "model_load", r"^Shard ready in (?P<weights_s>[\d.]+)s"),
    Signal("statistics", "kv_size", r"^Setting max batch total tokens to (?P<kv_cache_tokens>\d+)"),
    # Ends.
    Signal("stop", "terminating", r"^Terminating webserver$", after_failure=True),
    Signal("stop", "signal", r"^signal received, starting graceful shutdown$", after_failure=True),
    Signal("end", "webserver", r"^webserver terminated$"),
    Signal("death", "shard", r"^Shard process was signaled to shutdown with signal (?P<code>\d+)", identity=True),
    Signal("death", "download", r"^Download process was signaled to shutdown with signal (?P<code>\d+)", identity=True),
    Signal("fatal", "bind", r"^Failed to bind to \S{1,120}: .{1,200} \(os error \d+\)"),
    Signal("crash", "shard_output", r"^Shard complete standard error output:", identity=True),
    Signal("crash", "shard", r"^Shard \d+ (?:failed to start|crashed)$", identity=True),
    Signal("crash", "method", r"^(?:Method \w{1,40} encountered an error\.|Error when initializing model)", identity=True),
    Signal("crash", "webserver", r"^Webserver Crashed$", identity=True),
    Signal("crash", "download", r"^Download encountered an error: ", identity=True),
    Signal("wrapper", "launcher", r"^Error: (?:ShardCannotStart|ShardDisconnected|ShardFailed|WebserverFailed|WebserverCannotStart|DownloadError)$"),
)  # fmt: skip

MILESTONES = milestones_of(SIGNALS)

TGI = Dialect(
    name="tgi",
    signals=SIGNALS,
    parse=parse,
    milestones=MILESTONES,
    ready="serving",
    depth=depth,
    process_of=process_of,
    teardown=("shutdown", "stop", "close", "__del__", "__exit__"),
    programs=("text-generation",),
)
