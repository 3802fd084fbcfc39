"""How the lines of llama.cpp's `llama-server` look, from January 2024 to late 2026.

Eras (sources: `examples/server/utils.hpp`, later `tools/server/server-common.h`, `common/log.cpp`
and `src/llama*.cpp`, read at builds b1696 to b10400):

- until about February 2024: JSON lines with `message`, among bare text of the library;
- until September 2024: `INFO [ function] text | tid="…" timestamp=… key=value`, or JSON with `msg`;
- from then on: `slot function: id N | task N | text` and `srv  function: text`, without a time;
- 2026: the same after a time since the start and a level letter (`0.12.345.678 I text`).

ggml and the library print without a function prefix of the server in all of them; `GGML_ABORT`
and the argument parser write straight to stderr, without time and level even in 2026. Where a
router starts one process a model, each line of a child begins with its port in brackets.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from forensics.engines.dialect import NUMBER, Dialect, Signal, milestone, milestones_of
from forensics.model import Record

_CHILD = re.compile(r"\[ {0,3}(?P<port>\d{3,5})\] ")
#: Minutes, seconds, milliseconds and microseconds since the start, then the level.
_TIMED = re.compile(r"(?P<min>\d{1,6})\.(?P<sec>\d\d)\.\d{3}\.\d{3} (?P<level>[IWED]) ")
_SERVER = re.compile(r"(?:slot .{12}: id +\d+ \| task -?\d+ \| |srv  .{12}: )")
_ACCESS = re.compile(
    r"(?:srv  log_server_r: )?(?:done )?request: [A-Z]{3,7} /\S{0,2000} \S{1,60} \d{3}$"
)
_REQUEST = re.compile(r"srv  log_server_r: (?:request|response): |srv  update_chat_: |request: +\{")
_PAIRS = re.compile(
    r" {0,8}(?P<level>INFO|WARN|WARNING|ERR|ERROR|VERB) \[ *(?P<function>[\w:~ ]{1,40})\] "
    r"(?=.{0,20000}\| )"
)
_JSON = re.compile(
    r'\{.{0,200}"level":"(?P<level>INFO|WARN|WARNING|ERR|ERROR|VERB)","function":"(?P<function>[^"]{1,80})"'
    r',"line":\d+,"(?:message|msg)":"'
)
_UNIX = re.compile(r'\btimestamp"?[=:](?P<unix>\d{9,11})\b')
_LEVELS = {
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "D": "DEBUG",
    "WARN": "WARNING",
    "ERR": "ERROR",
    "VERB": "DEBUG",
}


def parse(text: str, line: int, at: str | None) -> Record | None:
    """Split one line of text into llama-server's prefix and the message.

    The clock of a 2026 line is the time since the start, written as day 00-00.

    Args:
        text: The line without terminal codes.
        line: Its physical number.
        at: Its time from the envelope.

    Returns:
        A record whose message is a piece of the line as printed, or None where the line has none
        of the prefixes.
    """
    child = _CHILD.match(text)
    process = f"child {child['port']}" if child else None
    rest = text[child.end() :] if child else text
    timed = _TIMED.match(rest)
    if timed:
        message = rest[timed.end() :]
        clock = _since_start(int(timed["min"]), int(timed["sec"]))
        level = _LEVELS[timed["level"]]
        return Record(line, text, message, level, process, clock=clock, kind=_kind(message), at=at)
    if _SERVER.match(rest) or _ACCESS.match(rest):
        return Record(line, text, rest, None, process, kind=_kind(rest), at=at)
    return _older(text, line, at) if child is None else None


def _older(text: str, line: int, at: str | None) -> Record | None:
    """Read a line of 2024: key=value pairs or JSON, both with the time in Unix seconds."""
    found = _JSON.match(text) if text.startswith("{") else _PAIRS.match(text)
    if found is None:
        return None
    unix = _UNIX.search(text)
    if unix is None and text.startswith("{"):
        return None
    stamp = datetime.fromtimestamp(int(unix["unix"]), UTC) if unix else None
    access = found["function"] == "log_server_request"
    return Record(
        line=line,
        text=text,
        message=text[found.end() :],
        level=_LEVELS.get(found["level"], found["level"]),
        clock=stamp.strftime("%m-%d %H:%M:%S") if stamp else None,
        kind="access" if access else "log",
        at=at,
    )


def _since_start(minutes: int, seconds: int) -> str:
    hours, minute = divmod(minutes, 60)
    return f"00-{min(hours // 24, 99):02d} {hours % 24:02d}:{minute:02d}:{seconds % 60:02d}"


def _kind(message: str) -> Literal["log", "access", "request"]:
    if _ACCESS.match(message):
        return "access"
    return "request" if _REQUEST.match(message) else "log"


def depth(process: str) -> int:
    """Return how far inside the program a process is: a router's child is an engine."""
    return 2 if process.startswith("child ") else 0


_BY = r"(?:main|llama_server|srv {1,12}\w{1,16})"
#: Milestones of a load that the library itself prints, whoever runs it.
LOADING = r"^llama_model_loader: loaded meta data with \d+ key-value pairs"
LOADED = (
    r"^(?:llama_context: (?:constructing llama_context|n_ctx_seq \()"
    r"|llama_(?:new_context_with|init_from)_model: n_ctx)"
)


_FACTS: tuple[Signal, ...] = (
    Signal("fact", "version", r"^build: (?P<version>\d{1,6}) \(\w{4,40}\) with ", identity=True),
    Signal("fact", "version", r"^build_info: b(?P<version>\d{1,6})-\w{4,40}", identity=True),
    Signal("fact", "version", r"^build info(?: \| |\",\")build\"?[=:](?P<version>\d{1,6})\b", identity=True),
    Signal("fact", "model", r"load_model: loading model '(?:[^']{0,400}/)?(?P<model>[^'/]{1,200}\.gguf)'", identity=True),
    Signal("fact", "model", r"^llama_model_loader: - kv +\d+: +general\.name +str += (?P<model>\S.{0,200})$", identity=True),
    Signal("fact", "architecture", r"^llama_model_loader: - kv +\d+: +general\.architecture +str += (?P<architecture>\S{1,80})$", identity=True),
    Signal("fact", "gpu", r"^ {2}Device \d{1,2}: (?P<gpu>[^,]{2,80}), compute capability (?P<capability>\d{1,2}\.\d), VMM: ", identity=True),
    Signal("fact", "gpu", r"^ {2}- CUDA\d{1,2} {2,}: (?P<gpu>[^(]{2,80}) \(\d+ MiB, \d+ MiB free\)", identity=True),
    Signal("fact", "request", r"^slot launch_slot_: id +\d+ \| task -?\d+ \| processing task", identity=True),
)  # fmt: skip

_MILESTONES: tuple[Signal, ...] = (
    milestone("launched", rf"^build: \d{{1,6}} \(\w{{4,40}}\) with |^build_info: b\d{{1,6}}-|^build info(?: \| |\",\")build|^system[_ ]info: n_threads = |^(?:cmn  \S{{1,16}}: )?\w{{1,40}}: verbosity = \d \(adjust with the |^{_BY}: loading model$"),
    milestone("loading_weights", rf"load_model: loading model '|{LOADING}"),
    milestone("weights_loaded", LOADED),
    milestone("cache_allocated", r"^llama_kv_cache(?:_init|_unified|_iswa|_unified_iswa)?: +(?:size = |\S{1,20} KV buffer size = )|^llama_memory_recurrent: +size = |^llama_new_context_with_model: KV self size"),
    milestone("warming_up", r"warming up the model with an empty run"),
    milestone("serving", rf"^{_BY}: (?:router )?(?:server is )?listening on http|^{_BY}: model loaded$|^model loaded(?: \| |\"|$)|^(?:srv  update_slots: )?all slots are idle"),
)  # fmt: skip

_STATISTICS: tuple[Signal, ...] = (
    Signal("statistics", "prompt", rf"prompt eval time +=\s*[\d.]+ ms / +\d+ tokens \( *{NUMBER} ms per token, +(?P<prompt_tokens_per_s>{NUMBER}) tokens per second\)", find="prompt eval time"),
    Signal("statistics", "generation", rf"(?:^|[|:] |generation )\s{{0,24}}eval time +=\s*[\d.]+ ms / +\d+ (?:runs|tokens)\s*\( *{NUMBER} ms per token, +(?P<generation_tokens_per_s>{NUMBER}) tokens per second\)", find=" eval time"),
    Signal("statistics", "speculation", rf"draft acceptance (?:rate )?= (?P<acceptance_rate>{NUMBER}) \( *(?P<accepted_tokens>\d+) accepted / +(?P<draft_tokens>\d+) generated\)(?:, mean len = +(?P<mean_acceptance_length>{NUMBER}))?", find="draft acceptance "),
    Signal("statistics", "positions", r"acc per pos = \((?P<acceptance_rate_position_list>[\d., ]{1,400})\)", find="acc per pos = "),
    Signal("statistics", "cache", r"^llama_kv_cache(?:_unified)?: +size = +[\d.]+ MiB \( *(?P<kv_cache_tokens>\d+) cells, "),
)  # fmt: skip

#: Lines by which ggml, the library or the server gives up. The first one says most.
_FATAL: tuple[Signal, ...] = (
    Signal("fatal", "arguments", r"^error: (?:invalid argument: -|the following arguments|--\w)|^error while handling (?:argument|environment variable) \""),
    Signal("fatal", "bind", r"couldn't bind HTTP server socket"),
    Signal("fatal", "gguf", r"^gguf_init_from_\w{1,20}: (?:invalid magic|failed to |bad |tensor '|encountered )"),
    Signal("fatal", "device_allocation", r"^ggml_backend_\w{1,60}_alloc_buffer: (?:allocating [\d.]+ MiB on device \d+: \w{3,20} failed: |failed to allocate )|^ggml_vulkan: Device memory allocation of size \d+ failed"),
    Signal("fatal", "allocation", r"^(?:alloc_tensor_range|ggml_gallocr_reserve_n\w{0,10}): failed to allocate "),
    Signal("fatal", "load", r"^(?:llama_model_load(?:_from_file)?(?:_impl)?: )?error loading model(?: [a-z]{4,20})?: "),
    Signal("fatal", "context", r"^llama_(?:init_from|new_context_with)_model: (?:failed to |quantized V cache |V cache quantization |context type |flash_attn )"),
    Signal("fatal", "device_error", r"^(?:CUDA|ROCm|HIP|MUSA) error(?:: | \d+ at )|^ggml_vulkan: (?:Failed|Error|vk::)"),
    Signal("fatal", "assertion", r"^(?:\S{1,400}:\d+: )?GGML_(?:ASSERT|ABORT)[(:]"),
    Signal("fatal", "abort", r"^\S{0,400}(?:ggml|llama)[\w./-]{0,200}\.(?:c|cc|cpp|cu|cuh|h|hpp|m):\d{1,5}: \S"),
    Signal("fatal", "load_failed", r"failed to (?:load|create context with) model,? ?'|^llama_(?:model_load_from_file_impl|load_model_from_file): failed to load model"),
    Signal("fatal", "exit", r"exiting due to (?:model loading|HTTP server) error"),
)  # fmt: skip

_ENDS: tuple[Signal, ...] = (
    Signal("stop", "interrupt", r"^Received second interrupt, terminating immediately\."),
    Signal("end", "clean_up", r"cleaning up before exit\.\.\."),
    Signal("end", "memory", r"^(?:common|llama)_memory_breakdown_print: "),
)  # fmt: skip

MILESTONES = milestones_of(_MILESTONES)

LLAMA_CPP = Dialect(
    name="llama-cpp",
    signals=(*_FACTS, *_MILESTONES, *_STATISTICS, *_FATAL, *_ENDS),
    parse=parse,
    milestones=MILESTONES,
    ready="serving",
    depth=depth,
    programs=("llama-", "llama_"),
)
