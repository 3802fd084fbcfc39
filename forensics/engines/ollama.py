"""How the lines of Ollama's server look, from 0.1 to 0.33.

Ollama prints (sources: `server/routes.go`, `server/sched.go`, `llm/server.go`, later
`llm/llama_server.go`, and `logutil/logutil.go`):

- until 0.1.20: lines of Go's `log` package, `2024/01/02 15:04:05 routes.go:12: text`;
- from 0.1.21 on: slog text, `time=… level=INFO source=server.go:1388 msg="…" key=value`;
- HTTP access lines of gin, `[GIN] 2026/05/05 - 01:52:05 | 200 | …`.

What its runner prints goes through without any prefix: lines of llama.cpp and ggml, up to 0.29
from a Go program that holds the library, from 0.30 on from llama.cpp's own `llama-server`.

The server waits for requests before it loads anything and loads one model after another; a runner
that dies takes only its model with it, and the next request starts another one.
"""

from __future__ import annotations

import re

from forensics.engines.dialect import Dialect, Signal, milestone, milestones_of
from forensics.engines.llama_cpp import LLAMA_CPP, LOADED, LOADING
from forensics.model import Record

_SLOG = re.compile(
    r"time=\d{4}-(?P<date>\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)\S{0,20} "
    r"level=(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) source=(?P<origin>[^\s:]{1,120}:\d+) (?=msg=)"
)
#: Go's `log` package says nothing of the program: only Ollama's own files are taken.
_GO_LOG = re.compile(
    r"\d{4}/(?P<month>\d\d)/(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d) "
    r"(?P<origin>(?:routes|images|llama|llm|gpu|sched|server|download|upload|auth|payload|payload_common|"
    r"dyn_ext_server|ext_server_common|ext_server_default|shim_ext_server|accelerator_\w{1,20})\.go:\d+): "
    r"(?:(?P<level>DEBUG|INFO|WARN|ERROR) )?"
)
_GIN = re.compile(
    r"\[GIN\] \d{4}/(?P<month>\d\d)/(?P<day>\d\d) - (?P<time>\d\d:\d\d:\d\d) \|\s*\d{3} \|"
)
_REQUEST = re.compile(r'msg="?(?:(?:llama-server )?completion|chat|generate|embedding) request"?')
_LEVELS = {"TRACE": "DEBUG", "WARN": "WARNING"}


def parse(text: str, line: int, at: str | None) -> Record | None:
    """Split one line of text into Ollama's prefix and the message.

    Args:
        text: The line without terminal codes.
        line: Its physical number.
        at: Its time from the envelope.

    Returns:
        A record whose message begins with `msg=` (slog) or with the text (before 0.1.21), or None
        where the line is not Ollama's own.
    """
    found = _SLOG.match(text)
    if found:
        message = text[found.end() :]
        return Record(
            line=line,
            text=text,
            message=message,
            level=_LEVELS.get(found["level"], found["level"]),
            clock=f"{found['date']} {found['time']}",
            origin=found["origin"],
            kind="request" if _REQUEST.match(message) else "log",
            at=at,
        )
    found = _GIN.match(text)
    if found:
        clock = f"{found['month']}-{found['day']} {found['time']}"
        return Record(line, text, text, clock=clock, kind="access", at=at)
    found = _GO_LOG.match(text)
    if found is None:
        return None
    return Record(
        line=line,
        text=text,
        message=text[found.end() :],
        level=_LEVELS.get(found["level"] or "", found["level"]),
        clock=f"{found['month']}-{found['day']} {found['time']}",
        origin=found["origin"],
        kind="log",
        at=at,
    )


_RUNNER = r"(?:llama runner|llama-server)"


SIGNALS: tuple[Signal, ...] = (
    # Identity, version, hardware, model.
    Signal("fact", "version", r"^(?:msg=\")?Listening on \S{1,80} \(version (?P<version>[^)\s]{1,60})\)", identity=True),
    Signal("fact", "gpu", r"^msg=\"inference compute\" .{0,300}?\bcompute=(?P<capability>[1-9]\d?\.\d) .{0,200}?(?:name|description)=\"(?P<gpu>[^\"]{2,80})\"", identity=True),
    Signal("fact", "architecture", r"^msg=\"\" architecture=(?P<architecture>\S{1,80}) file_type=", identity=True),
    Signal("fact", "routes", r"^\[GIN-debug\] \w{3,7} {1,8}/\S{1,80} .{0,80}github\.com/(?:jmorganca|ollama)/ollama/", identity=True),
    # Milestones, in order.
    milestone("launched", r"^(?:msg=\")?server config\"? env=|^Couldn't find '\S{1,300}id_ed25519'\. Generating new private key\."),
    milestone("server_starting", r"^(?:msg=\")?Listening on \S{1,80} \(version "),
    milestone("devices_found", r"^msg=\"inference compute\"|^msg=\"no compatible GPUs were discovered\""),
    milestone("engine_started", r"^msg=\"starting (?:llama server|runner|llama-server)\" cmd=.{0,400}? --model "),
    Signal("milestone", "loading_weights", rf"{LOADING}|^msg=load request=\"?\{{Operation:(?:fit|alloc|commit)"),
    Signal("milestone", "weights_loaded", LOADED),
    milestone("serving", rf"^msg=\"{_RUNNER} started in [\d.]+ seconds\""),
    # Figures of the start.
    Signal("statistics", "runner", rf"^msg=\"{_RUNNER} started in (?P<init_engine_s>[\d.]+) seconds\""),
    # What dies: the runner's own lines above say why. The next request starts another runner.
    Signal("death", "runner", rf"^msg=\"{_RUNNER} terminated\" error=\"(?P<how>[^\"]{{0,400}})\"", identity=True, gives_up="serving"),
    Signal("fatal", "system_memory", r"^msg=\"model request too large for system\"", identity=True, gives_up="always"),
    Signal("death", "load", r"^msg=\"(?:error loading llama server|Load failed|NewLlamaServer failed)\" .{0,600}?error=", identity=True, gives_up="always"),
    Signal("death", "load", rf"^(?:error loading llama server|{_RUNNER} process (?:has terminated|no longer running)|timed out waiting for {_RUNNER} to start)", identity=True, gives_up="always"),
)  # fmt: skip

MILESTONES = milestones_of(SIGNALS)

OLLAMA = Dialect(
    name="ollama",
    signals=SIGNALS,
    parse=parse,
    milestones=MILESTONES,
    ready="serving",
    waits="devices_found",
    passes_on=(LLAMA_CPP.name,),
    programs=("ollama",),
)
