"""Text Generation Inference's lines, from 1.0 to 3.3, and what its signals recognise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.engines import generic
from forensics.engines.tgi import MILESTONES, SIGNALS, depth, parse, process_of
from forensics.model import Frame
from forensics.patterns import confirm
from forensics.rootcause import judge
from tests.support import evidence, text

T = "2025-03-01T10:00:31.149443Z"
PREFIXES: dict[str, tuple[str, dict[str, Any]]] = {
    "launcher": (f"{T}  INFO text_generation_launcher: hello", {"level": "INFO", "process": None, "clock": "03-01 10:00:31"}),
    "shard": (f"{T} ERROR shard-manager: text_generation_launcher: hello rank=2", {"level": "ERROR", "process": "Shard 2"}),
    "download": (f"{T}  WARN download: text_generation_launcher: hello", {"level": "WARNING"}),
    "router": (f"{T}  INFO text_generation_router: router/src/main.rs:317: hello", {"kind": "log"}),
    "router module": (f"{T}  INFO text_generation_router::server: router/src/server.rs:2298: hello", {"kind": "log"}),
    "spans": (f"{T} ERROR warmup{{max_input_length=1024 max_prefill_tokens=4096}}:warmup: text_generation_client: router/client/src/lib.rs:33: hello", {"level": "ERROR", "kind": "log"}),
    "request": (f'{T}  INFO chat_completions{{parameters="GenerateParameters {{ best_of: None, stop: [] }}" total_time="1.3s"}}: text_generation_router::server: router/src/server.rs:422: hello', {"kind": "request"}),
    "request of 1.x": (f"{T}  INFO HTTP request{{otel.name=POST /generate http.method=POST}}:generate{{parameters=GenerateParameters {{ seed: None }}}}: text_generation_router::server: router/src/server.rs:289: hello", {"kind": "request"}),
    "error of a request": (f"{T} ERROR generate{{parameters=GenerateParameters {{ seed: None }}}}: text_generation_router::infer: router/src/infer.rs:53: hello", {"kind": "log", "level": "ERROR"}),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PREFIXES.values(), ids=list(PREFIXES))
def test_prefix_is_taken_apart(line: str, expected: dict[str, Any]) -> None:
    record = parse(line, 5, "2026-12-01T00:00:00.000000000Z")

    assert record is not None
    assert (record.message, record.text, record.line) == ("hello", line, 5)
    assert {key: getattr(record, key) for key in expected} == expected


def test_json_output_is_read() -> None:
    line = json.dumps(
        {
            "timestamp": T,
            "level": "WARN",
            "fields": {"message": "hello"},
            "target": "text_generation_launcher",
            "span": {"rank": 1, "name": "shard-manager"},
        },
        separators=(",", ":"),
    )
    record = parse(line, 5, None)

    assert record is not None
    assert (record.message, record.level, record.process) == ("hello", "WARNING", "Shard 1")
    assert record.clock == "03-01 10:00:31"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Error: ShardCannotStart",
        "Traceback (most recent call last):",
        f"{T}  INFO text_embeddings_router: router/src/main.rs:175: Args",
        f"{T}  INFO dynamo_llm::discovery: added model",
        '{"timestamp":"2025-03-01T10:00:31Z","level":"INFO","fields":{},"target":"text_generation_launcher"}',
        '{"timestamp":"2025-03-01T10:00:31Z","level":"INFO","fields":{"message":"text_generation_"},"target":"other"}',
        '{"timestamp":"text_generation_',
        "2025-03-01T10:00:31.149443123Z hello text_generation_launcher",
    ],
)
def test_line_of_another_program_is_left_to_others(line: str) -> None:
    assert parse(line, 1, None) is None


@given(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=300))
def test_any_text_is_read_or_left(line: str) -> None:
    for head in ("", f"{T}  INFO text_generation_launcher: ", '{"timestamp":"text_generation_'):
        record = parse(head + line, 1, None)

        assert record is None or record.message in line


def test_process_and_depth() -> None:
    shard = Frame("/usr/src/server/text_generation_server/server.py", 1, "serve_inner")

    assert process_of((shard,)) == ("Shard", 2)
    assert process_of((Frame("/x/other.py", 1, "f"),)) == (None, 0)
    assert (depth("Shard 3"), depth("Worker"), depth("Rank 1")) == (2, 0, 0)


# ----------------------------------------------------------------------------------------- signals


def seen(line: str) -> set[tuple[str, str]]:
    record = parse(line, 1, None) or generic.parse(line, 1, None)
    return {
        (s.kind, s.name) for s in SIGNALS if confirm(s.pattern, record.message) is not None
    }  # fmt: skip


PHASES = {
    f"{T}  INFO text_generation_launcher: Args {{": "arguments_parsed",
    f'{T}  INFO text_generation_launcher: Args {{ model_id: "m", revision: None }}': "arguments_parsed",
    f"{T}  INFO download: text_generation_launcher: Starting check and download process for m": "downloading",
    f"{T}  INFO download: text_generation_launcher: Starting download process.": "downloading",
    f"{T}  INFO download: text_generation_launcher: Successfully downloaded weights for m": "downloaded",
    f"{T}  INFO shard-manager: text_generation_launcher: Starting shard rank=0": "loading_weights",
    f"{T}  INFO shard-manager: text_generation_launcher: Shard ready in 18.016616627s rank=0": "weights_loaded",
    f"{T}  INFO text_generation_launcher: Starting Webserver": "server_starting",
    f"{T}  INFO text_generation_router_v3: backends/v3/src/lib.rs:125: Warming up model": "warming_up",
    f"{T}  INFO text_generation_launcher: Cuda Graphs are enabled for sizes [32, 16, 8]": "capturing_graphs",
    f"{T}  INFO text_generation_router: router/src/main.rs:250: Setting max batch total tokens to 93104": "profiled",
    f"{T}  INFO text_generation_router::server: router/src/server.rs:2298: Connected": "serving",
}


@pytest.mark.parametrize(("line", "name"), PHASES.items())
def test_milestone(line: str, name: str) -> None:
    assert [n for kind, n in seen(line) if kind == "milestone"] == [name]
    assert name in MILESTONES


ENDS: dict[str, set[tuple[str, str]]] = {
    f"{T} ERROR shard-manager: text_generation_launcher: Shard complete standard error output:": {("crash", "shard_output")},
    f"{T} ERROR shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 4 rank=0": {("death", "shard")},
    f"{T} ERROR text_generation_launcher: Shard 0 failed to start": {("crash", "shard")},
    f"{T} ERROR text_generation_launcher: Shard 1 crashed": {("crash", "shard")},
    f"{T} ERROR text_generation_launcher: Webserver Crashed": {("crash", "webserver")},
    f"{T} ERROR text_generation_launcher: Method Warmup encountered an error.": {("crash", "method")},
    f"{T} ERROR download: text_generation_launcher: Download encountered an error: ": {("crash", "download")},
    f"{T} ERROR text_generation_router::server: Failed to bind to 0.0.0.0:80: Address already in use (os error 98)": {("fatal", "bind")},
    "Error: ShardCannotStart": {("wrapper", "launcher")},
    "Error: WebserverFailed": {("wrapper", "launcher")},
    f"{T}  INFO text_generation_launcher: Terminating webserver": {("stop", "terminating")},
    f"{T}  INFO text_generation_launcher: webserver terminated": {("end", "webserver")},
    # Healthy.
    f"{T}  INFO shard-manager: text_generation_launcher: Waiting for shard to be ready... rank=0": set(),
    f"{T}  INFO text_generation_launcher: Files are already present on the host. Skipping download.": set(),
    f"{T}  WARN text_generation_router: router/src/main.rs:252: Invalid hostname, defaulting to 0.0.0.0.": set(),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), ENDS.items())
def test_ends(line: str, expected: set[tuple[str, str]]) -> None:
    assert {key for key in seen(line) if key[0] not in {"milestone", "statistics"}} == expected


# ------------------------------------------------------------------------------------ the analysis

START = [
    f"{T}  INFO text_generation_launcher: Args {{",
    '    model_id: "meta/llama",',
    "}",
    f"{T}  INFO shard-manager: text_generation_launcher: Starting shard rank=0",
]


def test_cause_stands_in_the_standard_error_of_the_shard() -> None:
    log = text(
        START,
        [f"{T} ERROR shard-manager: text_generation_launcher: Shard complete standard error output:", ""],
        ["Traceback (most recent call last):", ""],
        ['  File "/usr/src/server/text_generation_server/cli.py", line 9, in serve'],
        ["    server.serve(", ""],
        ["KeyError: 'model.layers.0' rank=0"],
        [f"{T} ERROR text_generation_launcher: Shard 0 failed to start"],
        [f"{T}  INFO text_generation_launcher: Shutting down shards"],
        ["Error: ShardCannotStart"],
    )  # fmt: skip
    found = evidence(log)
    judged = judge(found)

    assert (found.run.engine, found.run.model) == ("tgi", "meta/llama")
    assert judged.failure is not None
    assert (judged.failure.line, judged.failure.process) == (12, "Shard")
    assert judged.outcome == "failed_startup"


def test_signal_is_the_cause_where_nothing_was_written() -> None:
    log = text(
        START,
        [f"{T} ERROR shard-manager: text_generation_launcher: Shard complete standard error output:"],
        [" rank=0"],
        [f"{T} ERROR shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 9 rank=0"],
        ["Error: ShardCannotStart"],
        [f"{T} ERROR text_generation_launcher: Shard 0 failed to start"],
    )  # fmt: skip
    judged = judge(evidence(log))

    assert judged.failure is not None
    assert (judged.failure.line, judged.failure.kind) == (7, "death")


def test_termination_after_a_crash_is_no_orderly_stop() -> None:
    log = text(
        START,
        [f"{T}  INFO text_generation_router::server: router/src/server.rs:2298: Connected"],
        [f"{T} ERROR shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 11 rank=0"],
        [f"{T} ERROR text_generation_launcher: Shard 0 crashed"],
        [f"{T}  INFO text_generation_launcher: Terminating webserver"],
        [f"{T}  INFO text_generation_launcher: webserver terminated"],
        ["Error: ShardFailed"],
    )  # fmt: skip
    judged = judge(evidence(log))

    assert judged.outcome == "crashed"
    assert judged.failure is not None
    assert judged.failure.line == 6
