"""The lines of statistics that each server prints, of every era, and what their numbers are called.

Knowledge of form and meaning only. Sources: `v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`,
`engine/metrics.py` and `spec_decode/metrics.py` of vLLM 0.4 to 0.33, `metrics_reporter.py` of
SGLang, `server-context.cpp` of llama.cpp (whose lines Ollama passes on), `py_executor.py` of
TensorRT-LLM. To add one: put a `LineFormat` into `FORMATS`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal[
    "engine", "speculation", "prefix", "prefill", "request", "positions", "iteration", "diffusion"
]


class LineFormat(Struct, frozen=True):
    """One kind of line.

    Args:
        name: Its name in the tidy table.
        engine: The server that prints it.
        kind: What it speaks of: the whole `engine`, `speculation`, the `prefix` cache, a `prefill`
            batch, one `request`, the `positions` of the draft just reported, one `iteration`, the
            `diffusion` of text.
        find: A text that stands in every such line.
        pattern: Matches the message from its beginning. Groups are columns of the tidy table; one
            that ends in `_pct` is a percentage, one in `_list` a list of numbers, one in `_ms`
            milliseconds and one in `_go` a duration as Go writes it (kept as seconds, ending `_s`).
        cumulative: Whether the numbers count since the start instead of since the last line.
    """

    name: str
    engine: str
    kind: Kind
    find: str
    pattern: str
    cumulative: bool = False


#: What stands before the message, by server; `clock` and `ranks` are kept.
PREFIXES: dict[str, str] = {
    "vllm": (
        r"(?:\([^()]{1,80} pid=\d+[^()]{0,60}\) )*(?:DEBUG|INFO|WARNING) "
        r"(?P<clock>\d\d-\d\d \d\d:\d\d:\d\d) (?:\[[^\]:]{1,120}:\d+\]|[\w./-]{1,120}:\d+\]) ?"
    ),
    "sglang": (
        r"\[(?P<clock>(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d)(?:\.\d{3})?"
        r"(?P<ranks>(?: [A-Z_]{2,8}\d+)*)\] "
    ),
    "tensorrt-llm": (
        r"(?:\d+: )?\[(?P<clock>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] "
        r"\[TRT-LLM\](?: ?\[[^\]]{1,40}\])* "
    ),
    "ollama": r"\[GIN\] (?P<clock>\d{4}/\d\d/\d\d - \d\d:\d\d:\d\d) \| ",
    "llama-cpp": (
        r"(?:(?P<clock>\d+\.\d\d\.\d{3}\.\d{3}) [IWED] )?"
        r"(?:slot .{12}: id +\d+ \| task -?\d+ \| |[a-z_]{1,40}: +)?\s{0,24}"
    ),
}
#: `docker logs -t` and kubectl write this before everything.
ENVELOPE_TIME = r"(?:(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) )?"

_N = r"(?:nan|inf|-?[\d.]+)"

_V1 = (
    r"(?:Engine (?P<replica>\d{3}): |(?P<aggregated>\d+) Engines Aggregated: )?"
    r"Avg prompt throughput: (?P<prompt_tokens_per_s>[\d.]+) tokens/s, "
    r"Avg generation throughput: (?P<generation_tokens_per_s>[\d.]+) tokens/s, "
    r"Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs(?:, Deferred: \d+ reqs)?"
    r"(?:, KV fetch: \d+ waiting to start, \d+ in progress, \d+ completed waiting)?"
    r"(?:, Preemptions: \d+)?, [A-Z]+ KV cache usage: (?P<kv_cache_usage_pct>[\d.]+)%"
    r"(?:, Prefix cache hit rate: (?P<prefix_cache_hit_rate_pct>[\d.]+)%)?"
    r"(?:, Corrupted: \d+ reqs)?"
    r"(?:, External prefix cache hit rate: [\d.]+%)?(?:, MM cache hit rate: [\d.]+%)?\s*$"
)
_V0 = (
    r"Avg prompt throughput: (?P<prompt_tokens_per_s>[\d.]+) tokens/s, "
    r"Avg generation throughput: (?P<generation_tokens_per_s>[\d.]+) tokens/s, "
    r"Running: (?P<running>\d+) reqs, Swapped: \d+ reqs, Pending: (?P<waiting>\d+) reqs, "
    r"GPU KV cache usage: (?P<kv_cache_usage_pct>[\d.]+)%, CPU KV cache usage: [\d.]+%\.?\s*$"
)
_SPEC_C = (
    rf"SpecDecoding metrics: Mean acceptance length: (?P<printed_length>{_N}), "
    rf"Accepted throughput: (?P<accepted_throughput>{_N}) tokens/s, "
    rf"Drafted throughput: (?P<drafted_throughput>{_N}) tokens/s, "
    r"Accepted: (?P<accepted_tokens>\d+) tokens, Drafted: (?P<draft_tokens>\d+) tokens, "
    r"Per-position acceptance rate: (?P<per_position_list>[\d., naif]+), "
    rf"Avg Draft acceptance rate: (?P<printed_rate_pct>{_N})%\s*$"
)
_SPEC_AB = (
    rf"SpecDecoding metrics: Draft acceptance rate: (?P<printed_rate_pct>{_N})%, "
    rf"(?:Mean acceptance length: (?P<printed_length>{_N}), )?"
    r"Accepted: (?P<accepted_tokens>\d+) tokens, Drafted: (?P<draft_tokens>\d+) tokens"
    r"(?:, Per-position acceptance rate: (?P<per_position_list>[\d., naif]+))?\s*$"
)
_SPEC_V0 = (
    rf"Speculative metrics: Draft acceptance rate: (?P<printed_rate>{_N}), "
    rf"System efficiency: (?P<efficiency>{_N}), Number of speculative tokens: (?P<k>\d+), "
    r"Number of accepted tokens: (?P<accepted_tokens>\d+), "
    r"Number of draft tokens(?: tokens)?: (?P<draft_tokens>\d+), "
    r"Number of emitted tokens(?: tokens)?: (?P<emitted_tokens>\d+)\.?\s*$"
)
_DECODE = (
    r"Decode batch(?:\.| \[\d+\],|,) #running-req: (?P<running>\d+), "
    r"(?:.{0,120}?token usage: (?P<kv_cache_usage>[\d.]+), )?"
    rf"(?:.{{0,160}}?accept len: (?P<printed_length>{_N}), )?.{{0,240}}?"
    rf"gen throughput \(token/s\): (?P<generation_tokens_per_s>{_N}), #queue-req: (?P<waiting>\d+)"
)
_PREFILL = (
    r"Prefill batch(?:\.| \[\d+\],|,) #new-seq: \d+, #new-token: (?P<new_tokens>\d+), "
    r"#cached-token: (?P<cached_tokens>\d+), .{0,300}?#queue-req: (?P<waiting>\d+)"
    rf"(?:.{{0,200}}?input throughput \(token/s\): (?P<prompt_tokens_per_s>{_N}))?"
)
_TIMING = (
    r" eval time +=\s*(?P<span_ms>[\d.]+) ms / +(?P<tokens>\d+) (?:runs|tokens)\s*"
    rf"\( *{_N} ms per token, +"
)
_ITERATION = (
    r"(?:\[[^\]]{1,40}\])*\s?iter = \d+, global_rank = 0, rank = \d+, "
    r"(?:num_scheduled_requests = (?P<running>\d+), "
    r"kv_cache_util = (?:(?P<kv_cache_usage>[\d.]+)|N/A), )?"
    r"currank_total_requests = \d+/\d+, host_step_time = (?P<span_ms>[\d.]+)ms, "
    r"prev_device_step_time = (?:[\d.]+ms|N/A), timestamp = [\d: -]{19}, "
    r"(?:num_scheduled_requests: (?P<running_old>\d+), )?states = \{'num_ctx_requests': \d+, "
    r"'num_ctx_tokens': (?P<new_tokens>\d+), 'num_generation_tokens': (?P<tokens>\d+)"
)

_VLLM_ITERATION = (
    r"(?:Engine (?P<replica>\d{3}): )?Iteration\(\d+\): \d+ context requests, "
    r"(?P<new_tokens>\d+) context tokens, (?P<running>\d+) generation requests, "
    r"(?P<tokens>\d+) generation tokens, iteration elapsed time: (?P<span_ms>[\d.]+) ms"
    r"(?:, [A-Z]+ KV cache usage: (?P<kv_cache_usage_pct>[\d.]+)%)?\s*$"
)

_DIFFUSION = (
    rf"DiffusionDecoding metrics: Committed token throughput: (?P<committed_throughput>{_N}) "
    rf"tokens/s, Mean denoising steps per canvas: {_N}, "
    rf"Mean tokens committed per denoising step: (?P<printed_length>{_N}), "
    r"Committed: (?P<tokens>\d+) tokens, Denoising steps: (?P<denoising_steps>\d+), "
    r"Canvas positions evaluated: (?P<canvas_positions>\d+)\s*$"
)

FORMATS: tuple[LineFormat, ...] = (
    LineFormat("vllm.v1", "vllm", "engine", "Avg prompt throughput: ", _V1),
    LineFormat("vllm.v0", "vllm", "engine", "Avg prompt throughput: ", _V0),
    # The first V1 engines (0.6.5 to 0.7.0) told nothing else.
    LineFormat(
        "vllm.v1.early", "vllm", "engine", "Running: ",
        r"Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs\s*$",
    ),
    LineFormat("vllm.iteration", "vllm", "iteration", "Iteration(", _VLLM_ITERATION),
    LineFormat(
        "vllm.v0.prefix", "vllm", "prefix", "Prefix cache hit rate: GPU: ",
        r"Prefix cache hit rate: GPU: (?P<prefix_cache_hit_rate_pct>-?[\d.]+)%, CPU: -?[\d.]+%\s*$",
    ),
    LineFormat("vllm.spec", "vllm", "speculation", "SpecDecoding metrics: ", _SPEC_C),
    LineFormat("vllm.spec.early", "vllm", "speculation", "SpecDecoding metrics: ", _SPEC_AB),
    LineFormat(
        "vllm.spec.v0", "vllm", "speculation", "Speculative metrics: ", _SPEC_V0, cumulative=True
    ),
    LineFormat(
        "vllm.diffusion", "vllm", "diffusion", "DiffusionDecoding metrics: ", _DIFFUSION
    ),
    LineFormat("sglang.decode", "sglang", "engine", "Decode batch", _DECODE),
    LineFormat("sglang.prefill", "sglang", "prefill", "Prefill batch", _PREFILL),
    LineFormat(
        "llama-cpp.prompt", "llama-cpp", "prefill", " eval time ",
        rf"prompt{_TIMING}(?P<prompt_tokens_per_s>{_N}) tokens per second\)",
    ),
    LineFormat(
        "llama-cpp.generation", "llama-cpp", "request", " eval time ",
        rf"(?:generation)?{_TIMING.replace(' eval', ' ?eval', 1)}"
        rf"(?P<generation_tokens_per_s>{_N}) tokens per second\)",
    ),
    LineFormat(
        "llama-cpp.spec", "llama-cpp", "speculation", "draft acceptance ",
        rf"draft acceptance (?:rate )?= (?P<printed_rate>{_N}) "
        r"\( *(?P<accepted_tokens>\d+) accepted"
        rf" / +(?P<draft_tokens>\d+) generated\)(?:, mean len = +(?P<printed_length>{_N}))?",
    ),
    LineFormat(
        "llama-cpp.positions", "llama-cpp", "positions", "acc per pos = (",
        r"acc per pos = \((?P<per_position_list>[\d., ]{1,400})\)",
    ),
    LineFormat(
        "ollama.request", "ollama", "request", "[GIN] ",
        r"200 \| +(?P<request_go>[\dhmsµnu.]{2,24}) \| +\S+ \| POST +"
        r"\"/(?:api/(?:chat|generate)|v1/(?:chat/)?completions)\"",
    ),
    LineFormat(
        "tensorrt-llm.iteration", "tensorrt-llm", "iteration", "host_step_time = ", _ITERATION
    ),
)  # fmt: skip

FINDS: tuple[str, ...] = tuple(dict.fromkeys(form.find for form in FORMATS))
BY_NAME: dict[str, LineFormat] = {form.name: form for form in FORMATS}
