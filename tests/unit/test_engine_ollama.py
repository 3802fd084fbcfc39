"""Ollama's lines from 0.1 to 0.33: prefix, level, kind, its runner's lines among them, what dies."""

from __future__ import annotations

from typing import Any

import pytest

from forensics.engines.ollama import OLLAMA, parse
from forensics.model import Context
from forensics.patterns import confirm
from forensics.rootcause import Judgement, judge
from tests.support import evidence, text


def slog(rest: str, level: str = "INFO", source: str = "server.go:1388", second: int = 0) -> str:
    return f"time=2026-02-21T14:14:{second:02d}.128-06:00 level={level} source={source} {rest}"


PREFIXES: dict[str, tuple[str, dict[str, Any]]] = {
    "0.1.21 and later": (
        'time=2026-02-21T14:14:46.128-06:00 level=INFO source=server.go:1388 msg="llama runner started in 136.09 seconds"',
        {"level": "INFO", "clock": "02-21 14:14:46", "origin": "server.go:1388", "kind": "log", "message": 'msg="llama runner started in 136.09 seconds"'},
    ),
    "an error": (
        'time=2026-08-21T18:00:00.000Z level=ERROR source=llama_server.go:1023 msg="llama-server terminated" error="exit status 1" exit="exit status 1"',
        {"level": "ERROR", "origin": "llama_server.go:1023", "message": 'msg="llama-server terminated" error="exit status 1" exit="exit status 1"'},
    ),
    "a word without quotes": (
        'time=2026-08-21T18:00:00.000Z level=WARN source=runner.go:893 msg=load request="{Operation:commit}"',
        {"level": "WARNING", "message": 'msg=load request="{Operation:commit}"'},
    ),
    "trace": (
        "time=2026-05-13T16:59:45.551Z level=TRACE source=sched.go:186 msg=x",
        {"level": "DEBUG"},
    ),
    "a prompt": (
        'time=2026-05-13T16:59:45.551Z level=DEBUG source=routes.go:1500 msg="chat request" images=0 prompt="CUDA error: out of memory"',
        {"kind": "request"},
    ),
    "access": (
        '[GIN] 2026/05/05 - 01:52:05 | 200 | 16.510072691s |       192.0.2.1 | POST     "/api/chat"',
        {"kind": "access", "clock": "05-05 01:52:05", "level": None},
    ),
    "before 0.1.21": (
        "2024/01/02 15:04:05 routes.go:929: Listening on [::]:11434 (version 0.1.17)",
        {"level": None, "clock": "01-02 15:04:05", "origin": "routes.go:929", "message": "Listening on [::]:11434 (version 0.1.17)"},
    ),
    "first line of 0.1.33 to 0.9": (
        '2025/02/10 13:16:29 routes.go:1187: INFO server config env="map[CUDA_VISIBLE_DEVICES:]"',
        {"level": "INFO", "message": 'server config env="map[CUDA_VISIBLE_DEVICES:]"'},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PREFIXES.values(), ids=list(PREFIXES))
def test_prefix_of_every_era_is_taken_apart(line: str, expected: dict[str, Any]) -> None:
    record = parse(line, 5, None)

    assert record is not None
    assert (record.line, record.text) == (5, line)
    assert record.message in line
    assert {key: getattr(record, key) for key in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "llama_model_load: error loading model: unknown model architecture: 'x'",
        "srv  update_slots: all slots are idle",
        'time="2026-02-21T14:14:46Z" level=info msg="a Go program with logrus"',
        "time=2026-02-21T14:14:46Z level=INFO msg=hello",
        "2024/01/02 15:04:05 main.go:12: another Go program",
        "2024/01/02 15:04:05 http: panic serving 127.0.0.1:1: x",
        "(EngineCore pid=71) INFO 03-04 05:06:07 [core.py:77] hello",
        "goroutine 43 gp=0xc000002000 m=8 mp=0xc000500008 [syscall]:",
    ],
)
def test_line_of_another_program_is_left_to_others(line: str) -> None:
    assert parse(line, 1, None) is None


SIGNALS = {
    "fact version": [
        slog('msg="Listening on [::]:11434 (version 0.14.2)"'),
        "2024/01/02 15:04:05 routes.go:929: Listening on [::]:11434 (version 0.1.17)",
    ],
    "fact gpu": [
        slog('msg="inference compute" id=GPU-4effbf41 library=cuda compute=6.1 driver=12.2 name="NVIDIA GeForce GTX 1070" total="7.9 GiB" available="7.8 GiB"'),
        slog('msg="inference compute" id=GPU-2b3a9c55 filter_id="" library=CUDA compute=12.1 name=CUDA0 description="NVIDIA GB10" libdirs=ollama,cuda_v13 driver=13.0'),
    ],
    "fact architecture": [
        slog('msg="" architecture=qwen35moe file_type=Q4_K_M name="" description="" num_tensors=1131', source="ggml.go:136"),
    ],
    "milestone launched": [
        slog('msg="server config" env="map[CUDA_VISIBLE_DEVICES: ]"'),
        '2025/02/10 13:16:29 routes.go:1187: INFO server config env="map[CUDA_VISIBLE_DEVICES:]"',
        "Couldn't find '/root/.ollama/id_ed25519'. Generating new private key.",
    ],
    "milestone server_starting": [slog('msg="Listening on [::]:11434 (version 0.14.2)"')],
    "milestone devices_found": [
        slog('msg="inference compute" id=0 library=cpu variant="" compute="" driver=0.0 name=""'),
        slog('msg="no compatible GPUs were discovered"'),
    ],
    "milestone engine_started": [
        slog('msg="starting llama server" cmd="/usr/bin/ollama runner --model /root/.ollama/models/blobs/sha256-8c62 --ctx-size 8192"'),
        slog('msg="starting runner" cmd="/usr/bin/ollama runner --ollama-engine --model /root/.ollama/models/blobs/sha256-8c62 --port 1"'),
        slog('msg="starting llama-server" cmd="/usr/lib/ollama/llama-server --model /root/.ollama/models/blobs/sha256-8c62 --port 1"'),
    ],
    "milestone loading_weights": [
        "llama_model_loader: loaded meta data with 36 key-value pairs and 579 tensors from x (version GGUF V3 (latest))",
        slog('msg=load request="{Operation:commit LoraPath:[] Parallel:1}"', source="runner.go:893"),
    ],
    "milestone weights_loaded": ["llama_context: constructing llama_context"],
    "milestone serving": [
        slog('msg="llama runner started in 136.09 seconds"'),
        slog('msg="llama-server started in 10.20 seconds"'),
    ],
    "fatal system_memory": [
        slog('msg="model request too large for system" requested="5.5 GiB" available="3.4 GiB"', level="WARN"),
    ],
    "death runner": [
        slog('msg="llama runner terminated" error="exit status 2"', level="ERROR"),
        slog('msg="llama-server terminated" error="exit status 1" exit="exit status 1"', level="ERROR"),
    ],
    "death load": [
        slog('msg="error loading llama server" error="llama runner process has terminated: exit status 2"', level="ERROR", source="sched.go:455"),
        slog('msg="Load failed" model=/root/x error="timed out waiting for llama-server to start - "', source="sched.go:612"),
        slog('msg="NewLlamaServer failed" model=/root/x error="model requires more system memory (5.5 GiB) than is available (3.4 GiB)"', source="sched.go:429"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("signal", "line"), [(name, line) for name, lines in SIGNALS.items() for line in lines]
)
def test_line_is_recognised(signal: str, line: str) -> None:
    record = parse(line, 1, None)
    message = record.message if record else line
    found = [
        f"{s.kind} {s.name}" for s in OLLAMA.signals if confirm(s.pattern, message) is not None
    ]

    assert signal in found


@pytest.mark.parametrize(
    "line",
    [
        slog('msg="starting runner" cmd="/usr/bin/ollama runner --ollama-engine --port 37417"'),
        slog('msg="starting go runner"', source="runner.go:965"),
        slog('msg="waiting for server to become available" status="llm server error"'),
        slog('msg="llama-server load failed; reducing automatic context and retrying once"', level="WARN"),
        slog('msg="gpu VRAM usage didn\'t recover within timeout" seconds=5.2', level="WARN"),
    ],
)  # fmt: skip
def test_line_of_every_start_means_nothing(line: str) -> None:
    record = parse(line, 1, None)

    assert record is not None
    assert not [s for s in OLLAMA.signals if confirm(s.pattern, record.message) is not None]


LAUNCHED = [
    slog('msg="server config" env="map[CUDA_VISIBLE_DEVICES: ]"', source="routes.go:1614"),
    slog('msg="Listening on [::]:11434 (version 0.14.2)"', source="routes.go:1667"),
    slog('msg="inference compute" id=GPU-2b3a9c55 filter_id="" library=CUDA compute=12.1 name=CUDA0 description="NVIDIA GB10"'),
]  # fmt: skip
RUNNER = [
    "ggml_cuda_init: found 1 CUDA devices:",
    "  Device 0: NVIDIA GB10, compute capability 12.1, VMM: yes",
    "build: 1 (5921b8f) with gcc for aarch64-linux-gnu",
    "llama_model_loader: loaded meta data with 36 key-value pairs and 579 tensors from x (version GGUF V3 (latest))",
    "llama_model_loader: - kv   0:                       general.architecture str              = qwen3moe",
    "llama_model_loader: - kv   2:                               general.name str              = Qwen3 Coder",
    "llama_context: constructing llama_context",
    "srv  update_slots: all slots are idle",
]
STARTED = slog('msg="llama runner started in 9.31 seconds"')
NO_ROOM = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.00 MiB on device 0: cudaMalloc failed: out of memory"
TERMINATED = slog('msg="llama runner terminated" error="exit status 2"', level="ERROR")
LOAD_FAILED = slog('msg="error loading llama server" error="llama runner process has terminated: exit status 2"', level="ERROR")  # fmt: skip


def judged(*lines: str, context: Context | None = None) -> Judgement:
    return judge(evidence(text(LAUNCHED, lines), context=context))


def root(judgement: Judgement) -> str | None:
    return judgement.failure.text if judgement.failure else None


def test_log_is_ollamas_however_much_its_runner_prints() -> None:
    found = evidence(text(LAUNCHED, RUNNER * 20, [STARTED]))

    assert (found.run.engine, found.run.engine_version) == ("ollama", "0.14.2")
    assert found.run.model == "Qwen3 Coder"
    assert found.architecture == ("qwen3moe",)
    assert found.run.hardware.gpu == "NVIDIA GB10"


def test_log_of_the_runner_alone_is_llama_cpps() -> None:
    assert evidence(text(RUNNER)).run.engine == "llama-cpp"


def test_milestones_are_those_of_ollama() -> None:
    found = evidence(text(LAUNCHED, RUNNER, [STARTED]))

    assert [m.milestone for m in found.milestones] == [
        "launched",
        "server_starting",
        "devices_found",
        "loading_weights",
        "weights_loaded",
        "serving",
    ]


def test_line_of_the_runner_is_the_root_and_not_the_report_of_its_death() -> None:
    result = judged(*RUNNER[:4], NO_ROOM, TERMINATED, LOAD_FAILED)

    assert (root(result), result.outcome) == (NO_ROOM, "failed_startup")


def test_runner_that_dies_without_a_word_is_reported_by_ollama() -> None:
    assert root(judged(*RUNNER[:4], TERMINATED, LOAD_FAILED)) == TERMINATED


def test_load_that_is_tried_again_and_works_is_no_failure() -> None:
    exited = Context(exit_code=0)

    assert judged(NO_ROOM, TERMINATED, *RUNNER, STARTED, context=exited).failure is None


def test_load_that_was_given_up_is_a_failure_though_another_model_loads() -> None:
    result = judged(*RUNNER[:4], NO_ROOM, TERMINATED, LOAD_FAILED, *RUNNER, STARTED)

    assert root(result) == NO_ROOM


def test_runner_that_dies_while_serving_has_crashed_though_it_is_replaced() -> None:
    result = judged(*RUNNER, STARTED, "CUDA error: out of memory", TERMINATED, *RUNNER, STARTED)

    assert (root(result), result.outcome) == ("CUDA error: out of memory", "crashed")


def test_second_model_that_needs_another_try_is_no_failure() -> None:
    exited = Context(exit_code=0)

    assert judged(*RUNNER, STARTED, NO_ROOM, *RUNNER, STARTED, context=exited).failure is None


@pytest.mark.parametrize("line", ["panic: unable to load model: /root/x", "SIGABRT: abort"])
def test_end_of_a_go_program_is_fatal(line: str) -> None:
    assert root(judged(*RUNNER[:4], line, TERMINATED, LOAD_FAILED)) == line


def test_server_that_nobody_asks_is_well() -> None:
    result = judged(context=Context(exit_code=0))

    assert (result.failure, result.outcome) == (None, "served")


def test_server_that_loads_when_the_log_stops_is_not_waiting() -> None:
    result = judged(*RUNNER[:4], context=Context(exit_code=0))

    assert result.failure is not None
    assert result.ready_line is None


def test_end_of_the_runner_is_not_the_end_of_ollama() -> None:
    found = evidence(
        text(LAUNCHED, ["srv    operator(): operator(): cleaning up before exit..."], [STARTED])
    )

    assert found.ending == "cut"
