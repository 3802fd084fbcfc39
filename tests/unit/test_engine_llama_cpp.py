"""llama-server's lines from 2024 to 2026: prefix, level, kind, and what its signals recognise."""

from __future__ import annotations

from typing import Any

import pytest

from forensics.engines.llama_cpp import LLAMA_CPP, MILESTONES, depth, parse
from forensics.model import SignalEvent
from forensics.patterns import confirm
from forensics.rootcause import judge
from tests.support import evidence, text

SLOT = "slot print_timing: id  0 | task 12 | "

PREFIXES: dict[str, tuple[str, dict[str, Any]]] = {
    "2026, time since the start": (
        f"0.12.345.678 I {SLOT}stop processing: n_tokens = 9, truncated = 0",
        {"level": "INFO", "clock": "00-00 00:00:12", "message": f"{SLOT}stop processing: n_tokens = 9, truncated = 0"},
    ),
    "2026, an error": (
        "46.03.732.695 E srv    load_model: failed to load model, 'x.gguf'",
        {"level": "ERROR", "clock": "00-00 00:46:03", "message": "srv    load_model: failed to load model, 'x.gguf'"},
    ),
    "2026, after more than a day": (
        "1505.03.000.001 W srv  llama_server: x",
        {"level": "WARNING", "clock": "00-01 01:05:03", "message": "srv  llama_server: x"},
    ),
    "2026, child of a router": (
        "[38957] 0.01.226.334 D srv    load_model: loading model 'x.gguf'",
        {"level": "DEBUG", "process": "child 38957", "message": "srv    load_model: loading model 'x.gguf'"},
    ),
    "2025, slot": (
        "slot      release: id  0 | task 3 | stop processing: n_past = 9, truncated = 0",
        {"level": None, "clock": None, "kind": "log"},
    ),
    "2025, slot without a task": (
        "slot         init: id  0 | task -1 | new slot n_ctx_slot = 32768",
        {"kind": "log"},
    ),
    "2025, server": ("srv  update_slots: all slots are idle", {"level": None, "kind": "log"}),
    "2025, request": (
        "srv  log_server_r: request: GET /health 127.0.0.1 200",
        {"kind": "access"},
    ),
    "2025, request done": (
        "srv  log_server_r: done request: POST /v1/chat/completions 192.0.2.1 200",
        {"kind": "access"},
    ),
    "early 2025, bare request": ("request: GET / 192.0.2.107 200", {"kind": "access"}),
    "2025, body of a request at -v": (
        'srv  log_server_r: request:  {"messages":[{"role":"user","content":"error loading model"}]}',
        {"kind": "request"},
    ),
    "2024, pairs": (
        'INFO [                    main] HTTP server is listening | tid="1" timestamp=1724900000 hostname="127.0.0.1"',
        {"level": "INFO", "clock": "08-29 02:53:20", "kind": "log", "message": 'HTTP server is listening | tid="1" timestamp=1724900000 hostname="127.0.0.1"'},
    ),
    "2024, pairs, request": (
        '      INFO [      log_server_request] request | tid="0x16c11f000" timestamp=1720645907 remote_addr="127.0.0.1" status=200 method="GET" path="/health" params={}',
        {"level": "INFO", "kind": "access"},
    ),
    "2024, pairs, short function": (
        'INFO [main] build info | build=1 commit="5921b8f" tid="139712474826624" timestamp=1719079949',
        {"level": "INFO", "message": 'build info | build=1 commit="5921b8f" tid="139712474826624" timestamp=1719079949'},
    ),
    "January 2024, JSON": (
        '{"timestamp":1706600000,"level":"INFO","function":"main","line":2534,"message":"HTTP server listening"}',
        {"level": "INFO", "clock": "01-30 07:33:20", "kind": "log", "message": 'HTTP server listening"}'},
    ),
    "2024, JSON with a thread": (
        '{"tid":"1","timestamp":1724900000,"level":"ERR","function":"load_model","line":403,"msg":"unable to load model"}',
        {"level": "ERROR", "message": 'unable to load model"}'},
    ),
    "January 2024, JSON, request": (
        '{"timestamp":1706462782,"level":"INFO","function":"log_server_request","line":2811,"message":"request","remote_addr":"127.0.0.1","status":200}',
        {"kind": "access"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PREFIXES.values(), ids=list(PREFIXES))
def test_prefix_of_every_era_is_taken_apart(line: str, expected: dict[str, Any]) -> None:
    record = parse(line, 5, "2026-12-01T00:00:00Z")

    assert record is not None
    assert (record.line, record.text, record.at) == (5, line, "2026-12-01T00:00:00Z")
    assert record.message in line
    assert {key: getattr(record, key) for key in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "llama_model_load: error loading model: unknown model architecture: 'x'",
        "CUDA error: out of memory",
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
        "(EngineCore pid=71) INFO 03-04 05:06:07 [core.py:77] hello",
        "INFO 03-04 05:06:07 [core.py:77] hello",
        "[2026-03-04 05:06:07 TP0] Scheduler hit an exception: Traceback",
        "[38957] cmd_child_to_router:ready",
        "1.2.3 is a version",
        '{"levelname": "INFO", "message": "hello"}',
        '{"timestamp":"2026-03-04T05:06:07Z","level":"INFO","message":"hello","target":"text_generation_router"}',
        'time=2026-02-21T14:14:46.128-06:00 level=INFO source=server.go:1388 msg="llama runner started in 136.09 seconds"',
    ],
)
def test_line_of_another_program_is_left_to_others(line: str) -> None:
    assert parse(line, 1, None) is None


def test_child_of_a_router_is_inside_it() -> None:
    assert (depth("child 38957"), depth("EngineCore")) == (2, 0)


def message_of(line: str) -> str:
    record = parse(line, 1, None)
    return record.message if record else line


SIGNALS = {
    "fact version": [
        "build: 6510 (703f9e32) with cc (Ubuntu 11.4.0-1ubuntu1~22.04.2) 11.4.0 for x86_64-linux-gnu",
        "build_info: b6510-703f9e32",
        '{"timestamp":1706720633,"level":"INFO","function":"main","line":2427,"message":"build info","build":6510,"commit":"d3bac7d5"}',
        'INFO [main] build info | build=6510 commit="5921b8f" tid="139712474826624" timestamp=1719079949',
    ],
    "fact model": [
        "srv    load_model: loading model '/models/tiny-Q4_K_M.gguf'",
        "0.00.229.749 I srv    load_model: loading model 'tiny-Q4_K_M.gguf'",
    ],
    "fact architecture": [
        "llama_model_loader: - kv   0:                       general.architecture str              = qwen3moe",
    ],
    "fact gpu": [
        "  Device 0: NVIDIA GB10, compute capability 12.1, VMM: yes",
        "  Device 0: NVIDIA GB10, compute capability 12.1, VMM: yes, VRAM: 122570 MiB",
        "0.00.228.419 I   - CUDA0   : NVIDIA GB10 (122570 MiB, 117402 MiB free)",
    ],
    "milestone launched": [
        "build: 6510 (703f9e32) with cc (Ubuntu 11.4.0-1ubuntu1~22.04.2) 11.4.0 for x86_64-linux-gnu",
        "0.00.654.438 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)",
        "0.00.129.365 I log_info: verbosity = 3 (adjust with the `-lv N` CLI arg)",
        "system info: n_threads = 20, n_threads_batch = 20, total_threads = 20",
        "main: loading model",
    ],
    "milestone loading_weights": [
        "srv    load_model: loading model 'tiny'",
        "llama_model_loader: loaded meta data with 46 key-value pairs and 363 tensors from x.gguf (version GGUF V3 (latest))",
    ],
    "milestone weights_loaded": [
        "llama_context: constructing llama_context",
        "llama_new_context_with_model: n_ctx      = 4096",
        "0.13.127.894 W llama_context: n_ctx_seq (131072) < n_ctx_train (262144) -- the full capacity of the model will not be utilized",
    ],
    "milestone cache_allocated": [
        "llama_kv_cache:      CUDA0 KV buffer size =  3072.00 MiB",
        "llama_kv_cache_init:      CUDA0 KV buffer size =   160.00 MiB",
        "llama_kv_cache_unified: size = 3072.00 MiB ( 32768 cells,  48 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB",
        "llama_new_context_with_model: KV self size  =  160.00 MiB, K (f16):   80.00 MiB, V (f16):   80.00 MiB",
    ],
    "milestone warming_up": [
        "0.13.230.736 W common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)",
    ],
    "milestone serving": [
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
        "srv          main: listening on http://127.0.0.1:8080",
        "3.50.294.953 I srv  llama_server: listening on http://0.0.0.0:8080",
        "3.50.294.945 I srv  llama_server: model loaded",
        "srv  llama_server: router server is listening on http://0.0.0.0:8080",
        '{"timestamp":1706462747,"level":"INFO","function":"main","line":2998,"message":"model loaded"}',
        'INFO [                    main] model loaded | tid="1" timestamp=1724900000',
        "all slots are idle and system prompt is empty, clear the KV cache",
        '      INFO [            update_slots] all slots are idle | tid="0x1e89e4c00" timestamp=1720645907',
        "srv  update_slots: all slots are idle",
    ],
    "fatal arguments": [
        "error: invalid argument: --swap-space",
        'error while handling argument "--ctx-size": stoi',
        'error while handling environment variable "LLAMA_ARG_CTX_SIZE": stoi',
    ],
    "fatal bind": ["0.00.228.901 E srv         start: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8000"],
    "fatal gguf": [
        "gguf_init_from_file_ptr: invalid magic characters: '<!DO', expected 'GGUF'",
        "0.00.230.590 E gguf_init_from_reader: failed to read magic",
    ],
    "fatal device_allocation": [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 100.00 MiB on device 0: cudaMalloc failed: out of memory",
    ],
    "fatal allocation": ["alloc_tensor_range: failed to allocate CUDA0 buffer of size 47668756480"],
    "fatal load": [
        "llama_model_load: error loading model: vocab",
        "llama_model_load: error loading model hyperparameters: key not found in model: x",
        "error loading model: llama_model_loader: failed to load model from x.gguf",
    ],
    "fatal context": [
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        "llama_init_from_model: V cache quantization requires flash_attn",
    ],
    "fatal device_error": [
        "CUDA error: an illegal memory access was encountered",
        "0.14.870.020 E CUDA error: no kernel image is available for execution on the device",
        "CUDA error 2 at /app/ggml-cuda.cu:8500: out of memory",
        "ROCm error: invalid device function",
    ],
    "fatal assertion": [
        "/src/ggml.c:10: GGML_ASSERT(x) failed",
        'GGML_ASSERT: /go/src/ggml-cuda.cu:100: !"CUDA error"',
    ],
    "fatal abort": ["/app/ggml/src/ggml-cuda/ggml-cuda.cu:97: CUDA error"],
    "fatal load_failed": [
        "common_init_from_params: failed to load model 'x.gguf'",
        "srv    load_model: failed to load model, 'x.gguf'",
        "common_init_from_params: failed to create context with model 'x.gguf'",
        "llama_model_load_from_file_impl: failed to load model",
    ],
    "fatal exit": [
        "main: exiting due to model loading error",
        "0.00.229.011 E srv  llama_server: exiting due to HTTP server error",
    ],
    "end clean_up": ["46.03.732.695 I srv    operator(): operator(): cleaning up before exit..."],
}  # fmt: skip


@pytest.mark.parametrize(
    ("signal", "line"), [(name, line) for name, lines in SIGNALS.items() for line in lines]
)
def test_line_is_recognised(signal: str, line: str) -> None:
    found = [
        f"{s.kind} {s.name}"
        for s in LLAMA_CPP.signals
        if confirm(s.pattern, message_of(line)) is not None
    ]

    assert signal in found


@pytest.mark.parametrize(
    "line",
    [
        "main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 19",
        "llama server listening at http://127.0.0.1:8080",
        '{"timestamp":1706720633,"level":"INFO","function":"main","line":2534,"message":"HTTP server listening","port":"8080"}',
    ],
)
def test_server_that_listens_before_it_loads_is_not_ready(line: str) -> None:
    found = evidence(text(["system info: n_threads = 20, n_threads_batch = 20", line]))

    assert [m.milestone for m in found.milestones] == ["launched"]


@pytest.mark.parametrize(
    "line",
    [
        "CUDA pool[0]: alloc of 12.00 MiB failed, flushing 3.00 MiB of cached buffers and retrying",
        "llama_context: n_ctx_seq (32768) < n_ctx_train (262144) -- the full capacity of the model will not be utilized",
        "common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user to 99",
        "load_tensors: tensor 'token_embd.weight' (q4_K) (and 2 others) cannot be used with preferred buffer type CUDA_Host, using CPU instead",
        "srv    send_error: task id = 3, error: request (70000 tokens) exceeds the available context size (32768 tokens), try increasing it",
        "RuntimeError: CUDA error: out of memory",
        "  what():  CUDA error: out of memory",
        "srv  update_slots: decoding batch, n_tokens = 512",
    ],
)
def test_alarming_line_is_not_fatal(line: str) -> None:
    assert not [s.name for s in LLAMA_CPP.signals if s.kind in {"fatal", "death"} and confirm(s.pattern, message_of(line)) is not None]  # fmt: skip


NUMBERS = {
    "2025": (
        [
            "slot print_timing: id  0 | task 12 | ",
            "prompt eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 tokens per second)",
            "       eval time =     500.00 ms /    25 tokens (   20.00 ms per token,    50.00 tokens per second)",
            "      total time =     600.00 ms /    35 tokens",
            "draft acceptance rate = 0.57576 (   19 accepted /    33 generated)",
        ],
        {"prompt_tokens_per_s": 100, "generation_tokens_per_s": 50, "acceptance_rate": 0.57576, "accepted_tokens": 19, "draft_tokens": 33},
    ),
    "2026": (
        [
            f"0.12.345.678 I {SLOT}prompt eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 tokens per second)",
            f"0.12.345.679 I {SLOT}       eval time =     500.00 ms /    25 tokens (   20.00 ms per token,    50.00 tokens per second)",
            f"0.12.345.680 I {SLOT}draft acceptance = 0.57576 (   19 accepted /    33 generated), mean len =  2.73",
            "     acc per pos = (0.812, 0.611)",
        ],
        {"prompt_tokens_per_s": 100, "generation_tokens_per_s": 50, "acceptance_rate": 0.57576, "mean_acceptance_length": 2.73, "acceptance_rate_position_1": 0.812, "acceptance_rate_position_2": 0.611},
    ),
    "2024": (
        [
            'INFO [           print_timings] prompt eval time     =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 tokens per second) | tid="1" timestamp=1720645909 id_slot=0',
            'INFO [           print_timings] generation eval time =     500.00 ms /    50 runs   (   10.00 ms per token,   100.00 tokens per second) | tid="1" timestamp=1720645909 id_slot=0',
        ],
        {"prompt_tokens_per_s": 100, "generation_tokens_per_s": 100},
    ),
    "January 2024": (
        [
            "print_timings: prompt eval time =     232.47 ms /   492 tokens (    0.47 ms per token,  2116.38 tokens per second)",
            "print_timings:        eval time =     500.00 ms /    50 runs   (   10.00 ms per token,   100.00 tokens per second)",
        ],
        {"prompt_tokens_per_s": 2116.38, "generation_tokens_per_s": 100},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), NUMBERS.values(), ids=list(NUMBERS))
def test_numbers_of_a_request_are_read_once(lines: list[str], expected: dict[str, float]) -> None:
    found = evidence(text(lines)).metrics

    assert {key: [value for _, value in found[key]] for key in expected} == {
        key: [value] for key, value in expected.items()
    }


def test_number_that_is_none_is_left_out() -> None:
    line = "       eval time =       0.00 ms /     0 tokens (     nan ms per token,      nan tokens per second)"

    assert evidence(text([line])).metrics == {}


def test_identity_version_and_milestones_of_a_start() -> None:
    found = evidence(
        text(
            [
                "ggml_cuda_init: found 1 CUDA devices:",
                "  Device 0: NVIDIA GB10, compute capability 12.1, VMM: yes",
                "build: 6510 (703f9e32) with cc (Ubuntu 11.4.0) 11.4.0 for aarch64-linux-gnu",
                "main: loading model",
                "srv    load_model: loading model '/models/tiny-Q4_K_M.gguf'",
                "llama_context: constructing llama_context",
                "llama_kv_cache:      CUDA0 KV buffer size =  3072.00 MiB",
                "common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)",
                "main: model loaded",
                "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
            ]
        )
    )

    assert (found.run.engine, found.run.engine_version) == ("llama-cpp", "6510")
    assert found.run.model == "tiny-Q4_K_M.gguf"
    assert found.run.hardware.gpu == "NVIDIA GB10"
    assert found.run.hardware.compute_capability == "12.1"
    assert tuple(m.milestone for m in found.milestones) == MILESTONES


def test_time_since_the_start_makes_a_timeline() -> None:
    found = evidence(
        text(
            [
                "0.00.129.365 I log_info: verbosity = 3 (adjust with the `-lv N` CLI arg)",
                "0.00.229.749 I srv    load_model: loading model 'tiny.gguf'",
                "3.50.294.953 I srv  llama_server: listening on http://0.0.0.0:8080",
            ]
        )
    )

    assert [m.seconds for m in found.milestones] == [0, 0, 230]


def failed(lines: list[str]) -> str | None:
    failure = judge(evidence(text(["main: loading model", *lines]))).failure
    return failure.text if failure else None


CASCADE = [
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 100.00 MiB on device 0: cudaMalloc failed: out of memory",
    "alloc_tensor_range: failed to allocate CUDA0 buffer of size 104857600",
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    "llama_model_load_from_file_impl: failed to load model",
    "srv    load_model: failed to load model, 'x.gguf'",
    "srv    operator(): operator(): cleaning up before exit...",
    "main: exiting due to model loading error",
]


@pytest.mark.parametrize("start", range(len(CASCADE) - 2))
def test_first_line_of_a_cascade_is_its_root(start: int) -> None:
    assert failed(CASCADE[start:]) == CASCADE[start]


def test_server_that_only_says_that_it_exits_has_failed() -> None:
    assert failed(CASCADE[-2:]) == CASCADE[-1]


def test_allocation_that_was_refused_and_done_again_is_no_failure() -> None:
    assert failed([CASCADE[0], "main: model loaded", "srv  update_slots: all slots are idle"]) != CASCADE[0]  # fmt: skip


def test_end_after_a_signal_is_orderly() -> None:
    found = evidence(
        text(
            [
                "main: loading model",
                "main: model loaded",
                "srv    operator(): operator(): cleaning up before exit...",
            ]
        )
    )
    judged = judge(found)

    assert (found.ending, judged.failure, judged.outcome) == ("orderly", None, "stopped")


def names(signals: tuple[SignalEvent, ...]) -> list[str]:
    return [s.name for s in signals]


def test_body_of_a_request_says_nothing() -> None:
    found = evidence(
        text(
            [
                "main: model loaded",
                'srv  log_server_r: request:  {"content":"main: exiting due to model loading error"}',
            ]
        )
    )

    assert "exit" not in names(found.signals)
