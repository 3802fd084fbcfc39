"""Exceptions out of interleaved lines: frames, chains, groups, messages, and what is no part."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from forensics.model import ExceptionEvent, Frame
from forensics.records import understand
from forensics.tracebacks import Assembler, Raised, full_message, telling
from tests.support import (
    CAUSE,
    CONTEXT,
    ENGINE_DEAD,
    SITE,
    evidence,
    failed_start,
    logged,
    raw,
    serving,
    started,
    text,
    traceback,
)


def read(*parts: Iterable[str]) -> list[Raised]:
    """Feed lines to an assembler; the exceptions in the order of their lines."""
    assembler = Assembler()
    out: list[Raised] = []
    for number, line in enumerate((line for part in parts for line in part), 1):
        assembler.feed(understand(line.encode(), number))
        out += assembler.take()
    out += assembler.finish()
    return sorted(out, key=lambda r: r.record.line)


def names(found: Iterable[Raised]) -> list[tuple[str, str]]:
    return [(one.type, one.message) for one in found]


def bare(body: str) -> list[str]:
    return body.split("\n")


# ------------------------------------------------------------------------------------- one traceback


@pytest.mark.parametrize(
    "lines",
    [
        bare(traceback("ValueError: no")),
        raw("EngineCore_DP0", traceback("ValueError: no")),
        logged("EngineCore", traceback("ValueError: no"), "ERROR"),
        logged(None, traceback("ValueError: no"), "ERROR"),
        [f"ERROR 08-09 10:11:12 engine.py:366] {x}" for x in bare(traceback("ValueError: no"))],
        [f"[rank0]: {x}" for x in bare(traceback("ValueError: no"))],
    ],
    ids=["bare", "raw process", "logger", "logger without process", "0.6", "torchrun"],
)
def test_traceback_is_read_however_it_is_prefixed(lines: list[str]) -> None:
    (one,) = read(lines)

    assert (one.type, one.message) == ("ValueError", "no")
    assert (one.header, one.record.line) == (1, 4)
    assert one.frames == (Frame(f"{SITE}/vllm/v1/engine/core.py", 1, "run"),)
    assert (one.relation, one.cause, one.in_group) == (None, None, False)


def test_frames_stand_outermost_first() -> None:
    frames = [("a.py", "<module>"), ("vllm/b.py", "Engine.step"), ("torch/c.py", "<lambda>")]

    (one,) = read(bare(traceback("RuntimeError: x", frames)))

    assert [(f.file.removeprefix(f"{SITE}/"), f.line, f.function) for f in one.frames] == [
        ("a.py", 1, "<module>"),
        ("vllm/b.py", 2, "Engine.step"),
        ("torch/c.py", 3, "<lambda>"),
    ]


def test_markers_and_repeats_within_a_traceback_are_passed_over() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/app/a.py", line 3, in f',
        "    outputs = await engine.step()",
        "              ^^^^^^^^^^^^^^^^^^^",
        "  [Previous line repeated 962 more times]",
        "RecursionError: maximum recursion depth exceeded",
    ]

    (one,) = read(lines)

    assert one.type == "RecursionError"
    assert len(one.frames) == 1


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("ValueError: no", "ValueError", "no"),
        ("ValueError:", "ValueError", ""),
        ("AssertionError", "AssertionError", ""),
        ("torch.OutOfMemoryError: CUDA out of memory.", "torch.OutOfMemoryError", "CUDA out of memory."),
        ("torch._dynamo.exc.Unsupported: Data-dependent branching", "torch._dynamo.exc.Unsupported", "Data-dependent branching"),
        ("zmq.error.Again: Resource temporarily unavailable", "zmq.error.Again", "Resource temporarily unavailable"),
        ("KeyError: 'model.layers.0: weight'", "KeyError", "'model.layers.0: weight'"),
        ("SystemExit: 1", "SystemExit", "1"),
        ("KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("subprocess.CalledProcessError: Command '['ninja']' returned 1", "subprocess.CalledProcessError", "Command '['ninja']' returned 1"),
    ],
)  # fmt: skip
def test_last_line_of_a_traceback_names_the_exception(line: str, kind: str, message: str) -> None:
    assert names(read(bare(traceback(line)))) == [(kind, message)]


def test_traceback_that_is_cut_off_names_nothing() -> None:
    assert read(bare(traceback("ValueError: no"))[:-1]) == []


def test_header_after_other_text_on_its_line_counts() -> None:
    """0.7 wrote `EngineCore hit an exception: Traceback (most recent call last):`."""
    body = "EngineCore hit an exception: " + traceback("ValueError: no")

    (one,) = read(logged("EngineCore", body, "ERROR"))

    assert (one.header, one.type) == (1, "ValueError")


# ------------------------------------------------------------------------------------------ chains


@pytest.mark.parametrize(("words", "relation"), [(CAUSE, "cause"), (CONTEXT, "context")])
@pytest.mark.parametrize("process", [None, "EngineCore"])
def test_chain_keeps_its_order_and_relation(words: str, relation: str, process: str | None) -> None:
    chain = traceback("KeyError: 'a'") + words + traceback("RuntimeError: b")

    first, second = read(logged(process, chain, "ERROR") if process else bare(chain))

    assert (first.relation, first.cause) == (None, None)
    assert (second.relation, second.cause) == (relation, first.number)
    assert first.message == "'a'"


def test_chain_of_three() -> None:
    chain = CAUSE.join(traceback(f"ValueError: {i}") for i in range(3))

    found = read(bare(chain))

    assert [one.cause for one in found] == [None, 0, 1]


def test_two_tracebacks_one_after_the_other_are_no_chain() -> None:
    found = read(bare(traceback("ValueError: a")), bare(traceback("ValueError: b")))

    assert [(one.relation, one.cause) for one in found] == [(None, None)] * 2


def test_chain_words_without_an_exception_before_them_make_no_chain() -> None:
    """The head of the log may be missing."""
    (one,) = read(bare(CAUSE.strip("\n") + "\n\n" + traceback("ValueError: b")))

    assert (one.relation, one.cause) == (None, None)


# ------------------------------------------------------------------------------------------ groups

GROUP = f"""\
  + Exception Group Traceback (most recent call last):
  |   File "{SITE}/starlette/a.py", line 7, in collapse
  |     yield
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "{SITE}/vllm/b.py", line 8, in call
    |     raise ValueError(x)
    | ValueError: the first
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "{SITE}/vllm/c.py", line 9, in call
    |     raise TypeError(x)
    | TypeError: the second
    +------------------------------------"""


@pytest.mark.parametrize("process", [None, "APIServer"])
def test_group_gives_itself_and_its_parts(process: str | None) -> None:
    found = read(logged(process, GROUP, "ERROR") if process else bare(GROUP))

    assert names(found) == [
        ("ExceptionGroup", "unhandled errors in a TaskGroup (2 sub-exceptions)"),
        ("ValueError", "the first"),
        ("TypeError", "the second"),
    ]
    assert [one.frames[-1].line for one in found] == [7, 8, 9]
    assert all(one.in_group for one in found)
    assert [full_message(one) for one in found[1:]] == ["the first", "the second"]


# ----------------------------------------------------------------------------------- many processes


def interleave(streams: list[list[str]], seed: int) -> list[str]:
    """Mix streams; each keeps its own order."""
    order = [i for i, stream in enumerate(streams) for _ in stream]
    random.Random(seed).shuffle(order)  # noqa: S311 - reproducible noise
    queues = [iter(stream) for stream in streams]
    return [next(queues[i]) for i in order]


@pytest.mark.parametrize("seed", range(8))
def test_interleaved_processes_are_told_apart(seed: int) -> None:
    chain = traceback("KeyError: 'k'") + CAUSE + traceback("RuntimeError: engine")
    streams = [
        logged("EngineCore", chain, "ERROR", origin="core.py:9", pid=1),
        raw("Worker_TP0", traceback("ValueError: zero"), pid=2),
        raw("Worker_TP1", traceback("ValueError: one"), pid=3),
        logged("Worker_TP1", traceback("OSError: logged"), "ERROR", origin="w.py:1", pid=3),
    ]

    found = read(interleave(streams, seed))

    assert sorted((r.record.process, r.message, len(r.frames)) for r in found) == [
        ("EngineCore", "'k'", 1),
        ("EngineCore", "engine", 1),
        ("Worker_TP0", "zero", 1),
        ("Worker_TP1", "logged", 1),
        ("Worker_TP1", "one", 1),
    ]
    by_message = {r.message: r for r in found}
    assert by_message["engine"].cause == by_message["'k'"].number


# ---------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("process", [None, "EngineCore"])
def test_message_of_several_lines_is_whole(process: str | None) -> None:
    body = traceback("RuntimeError: Error(s) in loading state_dict:\n\tsize mismatch for a\n\tb")

    (one,) = read(logged(process, body, "ERROR") if process else bare(body))

    assert full_message(one) == "Error(s) in loading state_dict:\n\tsize mismatch for a\n\tb"
    assert one.message == "Error(s) in loading state_dict:"


def test_logged_message_goes_on_over_blank_lines() -> None:
    """Each line of a logger record carries the prefix, so its end is known."""
    body = traceback("RuntimeError: a\n\nb\n\nc")

    (one,) = read(
        logged("EngineCore", body, "ERROR"), logged("EngineCore", "next", origin="other.py:1")
    )

    assert full_message(one) == "a\n\nb\n\nc"


@pytest.mark.parametrize(
    "then", [{"clock": "12-01 02:00:01"}, {"level": "INFO"}, {"origin": "x.py:1"}, {"pid": 8}]
)
def test_next_logger_record_is_no_part_of_the_message(then: dict[str, Any]) -> None:
    """One record has one process, level, time and place."""
    record = {"level": "ERROR", **then}
    body = traceback("RuntimeError: a\nb")

    (one,) = read(logged("EngineCore", body, "ERROR"), logged("EngineCore", "next", **record))

    assert full_message(one) == "a\nb"


def test_raw_message_ends_at_unindented_text_after_a_blank_line() -> None:
    (one,) = read(bare(traceback("RuntimeError: a\nb\n\nsomething else")))

    assert full_message(one) == "a\nb"


@pytest.mark.parametrize(
    "line",
    [
        "nanobind: leaked 4 instances!",
        "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: leaked",
        "Process EngineCore_0:",
        "Loading safetensors checkpoint shards:   0% Completed | 0/1",
        "[rank0]:[W1201 02:00:00.000000000 ProcessGroupNCCL.cpp:1] Warning",
        "[W1201 02:00:00.320095098 utils.cpp:68] Warning: NUMA binding",
        "terminate called after throwing an instance of 'c10::Error'",
        "*** SIGABRT received at time=1 ***",
        "INFO:     Shutting down",
    ],
)
def test_foreign_line_is_no_part_of_a_message(line: str) -> None:
    (one,) = read(bare(traceback("RuntimeError: a")), [line, "  more"])

    assert full_message(one) == "a"


def test_line_of_another_process_is_no_part_of_a_message() -> None:
    lines = bare(traceback("RuntimeError: a"))
    other = logged("APIServer", "hello", pid=7)

    (one,) = read(lines, other)

    assert full_message(one) == "a"


def test_message_is_bounded() -> None:
    """A program that prints on and on after an exception costs no memory."""
    (one,) = read(bare(traceback("RuntimeError: a")), (f"  line {i}" for i in range(5_000)))

    assert len(one.extra) == 80


def test_frames_are_bounded() -> None:
    (one,) = read(bare(traceback("RecursionError: x", [("a.py", "f")] * 3_000)))

    assert len(one.frames) == 200


# ---------------------------------------------------------------------------------------- pydantic

PYDANTIC = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, Model architectures ['X'] are not supported. [type=value_error, input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]
    For further information visit https://errors.pydantic.dev/2.12/v/value_error"""
UNEXPECTED = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig
draft_tokens
  Unexpected keyword argument [type=unexpected_keyword_argument, input_value=3, input_type=int]"""


def test_under_pydantics_header_the_line_below_tells() -> None:
    lines = bare(traceback(PYDANTIC))
    (one,) = read(lines)

    number, said = telling(one)

    assert said == lines[number - 1]
    assert said.startswith("  Value error, Model architectures")


def test_field_name_tells_where_pydantics_message_names_nothing() -> None:
    lines = bare(traceback(UNEXPECTED))
    (one,) = read(lines)

    assert telling(one) == (lines.index("draft_tokens") + 1, "draft_tokens")


def test_other_exceptions_tell_on_their_own_line() -> None:
    (one,) = read(bare(traceback("ValueError: a\n  b")))

    assert telling(one) == (4, "ValueError: a")


# ------------------------------------------------------------------------------------------- bare


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: no",
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "KeyboardInterrupt",
        "torch._dynamo.exc.Unsupported: x",
        "(EngineCore pid=71) ValueError: no",
        "(EngineCore pid=71) ERROR 12-01 02:00:00 [core.py:1] ValueError: no",
    ],
)
def test_bare_exception_line_counts(line: str) -> None:
    (one,) = read([line])

    assert one.header is None
    assert one.frames == ()


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=71) WARNING 12-01 02:00:00 [core.py:1] ValueError: no",
        "INFO 12-01 02:00:00 [core.py:1] KeyError: handled",
        "  ValueError: indented",
        "Note: this is no exception",
        "raise ValueError: x",
        "valueerror: x",
        "ERROR 12-01 02:00:00 [logger.py:39] Received request a: ValueError: x",
        'INFO:     192.0.2.9:1 - "GET /ValueError: HTTP/1.1" 500 Internal Server Error',
    ],
)
def test_other_line_is_no_exception(line: str) -> None:
    assert read([line]) == []


def test_traceback_in_a_dump_is_not_the_programs_own() -> None:
    """The engine dumps its state when it fails, and prompts quote tracebacks all the time."""
    quoted = logged(
        "EngineCore", traceback("ValueError: theirs"), "ERROR", origin="dump_input.py:72"
    )

    assert read(quoted) == []


def test_traceback_in_a_prompt_is_not_the_programs_own() -> None:
    body = (
        "Received request cmpl-1: prompt: 'why does it say " + "Traceback (most recent call last):"
    )
    quoted = logged("APIServer", body, origin="logger.py:39")
    own = logged("APIServer", "ValueError: mine", "INFO", origin="logger.py:39")

    assert read(quoted, own) == []


# ------------------------------------------------------------------------------------- the cascade


def find(log: str, kind: str) -> list[ExceptionEvent]:
    return [e for e in evidence(log).exceptions if e.type.endswith(kind)]


def test_thousands_of_repeats_hide_one_root_and_fold_to_one() -> None:
    """A dead engine answers every request in flight: 41,340 error lines in one public case."""
    frames = [("vllm/v1/engine/core.py", f"step_{i}") for i in range(148)]
    root = logged("EngineCore", traceback("RuntimeError: the only cause", frames), "ERROR")
    assert len(root) == 298
    repeat = logged("APIServer", ENGINE_DEAD, "ERROR", origin="serving.py:1", pid=7)
    lines = [
        *started(),
        *serving(),
        *logged("EngineCore", "EngineCore encountered a fatal error.", "ERROR"),
        *root,
        *repeat * 41_340,
    ]

    found = evidence(text(lines), size=65_536, fast=True).exceptions

    assert [(e.type.rpartition(".")[2], e.count) for e in found] == [
        ("RuntimeError", 1),
        ("EngineDeadError", 41_340),
    ]
    assert len(found[0].frames) == 148
    assert found[0].line == len(lines) - 41_340
    assert found[1].line == len(lines) - 41_340 + 1
    assert found[1].last_line == len(lines)


def test_logger_and_raw_copy_of_one_exception_fold() -> None:
    """The engine logs its exception, then Python prints it again as the process ends."""
    exception = traceback("ValueError: once", [("vllm/v1/engine/core.py", "run_engine_core")])
    lines = [*started(), *logged("EngineCore", exception, "ERROR"), *raw("EngineCore", exception)]

    (one,) = find(text(lines), "ValueError")

    assert one.count == 2
    assert one.line < one.last_line == len(lines)


def test_same_exception_in_two_processes_is_two() -> None:
    log = text(*(raw(f"Worker_TP{i}", traceback("ValueError: each"), pid=i) for i in range(2)))

    assert [(e.process, e.count) for e in find(log, "ValueError")] == [
        ("Worker_TP0", 1),
        ("Worker_TP1", 1),
    ]


def test_bare_traceback_belongs_to_the_process_that_its_frames_name() -> None:
    log = text(
        started(),
        traceback(
            "ValueError: x", [("vllm/v1/executor/multiproc_executor.py", "worker_main")]
        ).split("\n"),
    )

    (one,) = find(log, "ValueError")

    assert (one.process, one.depth) == ("Worker", 3)


def test_cascade_of_a_failed_start_is_read_in_order() -> None:
    found = evidence(text(failed_start("ValueError: root"))).exceptions

    assert [(e.type, e.process, e.depth) for e in found] == [
        ("ValueError", "EngineCore", 2),
        ("ValueError", None, 0),
        ("RuntimeError", "APIServer", 1),
    ]
