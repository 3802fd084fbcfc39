"""The root of a failure by structure alone: no rule is loaded in this file.

Each of the traps below stands in a real log; here it is as small as it can be.
"""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.model import Context, Diagnosis
from forensics.rootcause import mask
from tests.support import (
    CAUSE,
    CONTEXT,
    ENGINE_DEAD,
    ENGINE_FAILED,
    diagnose,
    failed_start,
    loaded,
    logged,
    raw,
    serving,
    started,
    stopped,
    text,
    traceback,
)


def found(*parts: list[str], context: Context | None = None) -> tuple[str, str | None]:
    """Outcome, and the text of the root line without its prefix."""
    diagnosis = diagnose(text(*parts), context=context)
    return diagnosis.outcome, root_of(diagnosis)


def root_of(diagnosis: Diagnosis) -> str | None:
    root = diagnosis.root_cause
    return None if root is None else re.sub(r"^.*\[[\w.]+:\d+\] |^\(\w+ pid=\d+\) ", "", root.text)


LIVE = Context(running=True)
CRASH = logged("EngineCore", "EngineCore encountered a fatal error.", "ERROR")
DEAD = [
    *logged("APIServer", "AsyncLLM output_handler failed.", "ERROR", pid=7),
    *logged(
        "APIServer", traceback(ENGINE_DEAD, [("vllm/v1/engine/async_llm.py", "f")]), "ERROR", pid=7
    ),
]
GOODBYE = [
    "INFO:     Shutting down",
    "INFO:     Waiting for application shutdown.",
    "INFO:     Application shutdown complete.",
    "INFO:     Finished server process [7]",
]


# ------------------------------------------------------------------------------------- healthy ends


def test_clean_end_is_no_failure() -> None:
    assert found(started(), loaded(), serving(), stopped()) == ("stopped", None)


def test_engine_dead_after_an_ordered_shutdown_is_no_failure() -> None:
    """SIGTERM stops the engine first; requests in flight then raise `EngineDeadError`."""
    order = logged("APIServer", "[shutdown] API server: shutdown triggered", pid=7)

    assert found(started(), serving(), order, DEAD, GOODBYE) == ("stopped", None)


def test_exceptions_of_tearing_down_are_no_failure() -> None:
    order = logged("APIServer", "[shutdown] API server: shutdown triggered", pid=7)
    late = traceback("asyncio.exceptions.CancelledError").split("\n")

    assert found(started(), serving(), order, late, GOODBYE) == ("stopped", None)


@pytest.mark.parametrize(
    "noise",
    [
        ["nanobind: leaked 4 instances!", ' - leaked type "triton._C.libtriton.ir.location"'],
        ["/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects"],
        ["[W1201 02:00:00.320095098 utils.cpp:68] Warning: NUMA binding"],
        logged("APIServer", "[shutdown] Process manager: force killing remaining processes count=1", "WARNING", pid=7),
    ],
    ids=["nanobind", "resource tracker", "c10", "force killing"],
)  # fmt: skip
def test_noise_at_the_end_is_no_failure(noise: list[str]) -> None:
    assert found(started(), serving(), stopped(), noise) == ("stopped", None)


def test_plugin_traceback_of_a_start_that_then_serves_is_no_failure() -> None:
    plugin = logged(
        "APIServer", "Failed to load plugin x\n" + traceback("ImportError: no x"), "ERROR", pid=7
    )

    assert found(plugin, started(), loaded(), serving(), stopped()) == ("stopped", None)
    assert found(started(), plugin, loaded(), serving(), context=LIVE) == ("served", None)


def test_handled_exception_is_no_failure() -> None:
    """What is logged as a warning was handled."""
    warning = logged("EngineCore", traceback("RuntimeError: no graph"), "WARNING")

    assert found(started(), warning, loaded(), serving(), context=LIVE) == ("served", None)
    assert found(started(), loaded(), serving(), warning, stopped()) == ("stopped", None)


ASGI = [
    "ERROR:    Exception in ASGI application",
    *traceback("ValueError: bad request", [("vllm/entrypoints/openai/api_server.py", "f")]).split(
        "\n"
    ),
]


def test_exception_of_one_request_is_no_failure_of_the_server() -> None:
    access = ['INFO:     192.0.2.9:1 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error']
    later = ['INFO:     192.0.2.9:1 - "POST /v1/completions HTTP/1.1" 200 OK'] * 50

    assert found(started(), serving(), ASGI, access, later, context=LIVE) == ("served", None)
    assert found(started(), serving(), ASGI, access, later, stopped()) == ("stopped", None)


def test_interrupt_while_serving_is_a_stop() -> None:
    interrupt = traceback("KeyboardInterrupt").split("\n")

    assert found(started(), serving(), interrupt, GOODBYE) == ("stopped", None)


# ------------------------------------------------------------------------------------ failed starts


def test_root_of_a_failed_start_is_the_engines_own_exception() -> None:
    """Neither the raw copy nor the server's pointer to it."""
    diagnosis = diagnose(text(failed_start("ValueError: the root")))

    assert (diagnosis.outcome, diagnosis.verdict) == ("failed_startup", "suspected")
    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.line, diagnosis.root_cause.process) == (9, "EngineCore")
    assert root_of(diagnosis) == "ValueError: the root"
    assert diagnosis.root_cause.rule is None


def test_workers_exception_comes_before_what_the_engine_says_of_it() -> None:
    worker = logged("Worker_TP0", "WorkerProc failed to start.", "ERROR", origin="w.py:1", pid=9)
    worker += logged("Worker_TP0", traceback("ValueError: deep"), "ERROR", origin="w.py:1", pid=9)
    wrapper = (
        "Exception: WorkerProc initialization failed due to an exception in a background process. "
        "See stack trace for root cause."
    )
    engine = logged("EngineCore", "EngineCore failed to start.\n" + traceback(wrapper), "ERROR")

    assert found(started(), worker, engine) == ("failed_startup", "ValueError: deep")


@pytest.mark.parametrize("seed", range(6))
def test_interleaved_worker_and_engine_give_the_worker(seed: int) -> None:
    """The engine repeats the worker's message; lines of both mix."""
    worker = logged(
        "Worker", traceback("RuntimeError: no kernel image"), "ERROR", origin="w.py:1", pid=9
    )
    engine = logged(
        "EngineCore", traceback("RuntimeError: Worker failed with error 'no kernel image'"), "ERROR"
    )
    order = [0] * len(worker) + [1] * len(engine)
    random.Random(seed).shuffle(order)  # noqa: S311 - reproducible noise
    streams = (iter(worker), iter(engine))
    mixed = [next(streams[i]) for i in order]

    assert found(started(), mixed) == ("failed_startup", "RuntimeError: no kernel image")


def test_direct_cause_leads_back_to_the_first_exception() -> None:
    chain = traceback("OSError: the file is cut") + CAUSE + traceback("RuntimeError: cannot load")

    assert found(started(), logged("EngineCore", chain, "ERROR"))[1] == "OSError: the file is cut"


@pytest.mark.parametrize("level", ["WARNING", "INFO", "DEBUG"])
def test_handled_exception_is_not_the_root_of_a_later_failure(level: str) -> None:
    handled = logged("EngineCore", traceback("RuntimeError: optional"), level, origin="x.py:1")

    assert found(started(), handled, failed_start("ValueError: real")[4:])[1] == "ValueError: real"


def test_look_up_that_names_the_machine_is_still_only_a_look_up() -> None:
    chain = traceback("KeyError: 'CUDA_HOME'") + CONTEXT + traceback("ValueError: no compiler")

    assert found(started(), logged("EngineCore", chain, "ERROR"))[1] == "ValueError: no compiler"


def test_start_that_was_stopped_has_not_failed() -> None:
    """SIGTERM while loading: what is raised from then on is the end, not its cause."""
    order = logged("APIServer", "[shutdown] API server: shutdown triggered", pid=7)
    late = logged("APIServer", traceback("RuntimeError: cannot go on"), "ERROR", pid=7)

    assert found(started(), loaded(), order, late) == ("stopped", None)


def test_deeper_process_is_preferred_where_the_outer_one_repeats_it() -> None:
    """The outer process may be first on the page."""
    engine = logged(
        "EngineCore", traceback("RuntimeError: call failed: no kernel image is here"), "ERROR"
    )
    worker = logged(
        "Worker",
        traceback("RuntimeError: no kernel image is here"),
        "ERROR",
        origin="w.py:1",
        pid=9,
    )

    assert found(started(), engine, worker)[1] == "RuntimeError: no kernel image is here"


def test_failed_look_up_says_less_than_what_followed_it() -> None:
    chain = traceback("KeyError: 'foo'") + CONTEXT + traceback("ValueError: foo is no backend")

    assert (
        found(started(), logged("EngineCore", chain, "ERROR"))[1] == "ValueError: foo is no backend"
    )


def test_failure_of_the_machine_is_the_root_of_what_was_raised_meanwhile() -> None:
    chain = (
        traceback("torch.OutOfMemoryError: CUDA out of memory.")
        + CONTEXT
        + traceback("RuntimeError: could not clean up")
    )

    root = found(started(), logged("EngineCore", chain, "ERROR"))[1]

    assert root == "torch.OutOfMemoryError: CUDA out of memory."


def test_pydantics_telling_line_is_the_root() -> None:
    exception = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Model architectures ['X'] are not supported. [type=value_error]\n"
        "    For further information visit https://errors.pydantic.dev"
    )

    outcome, root = found(logged("APIServer", "vLLM API server version 0.32.0"),
                          raw("APIServer", traceback(exception)))  # fmt: skip

    assert outcome == "failed_startup"
    assert root == "  Value error, Model architectures ['X'] are not supported. [type=value_error]"


def test_group_gives_the_exception_inside_it() -> None:
    group = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/app/a.py", line 7, in f',
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "/app/b.py", line 8, in g',
        "    | ValueError: inside",
        "    +------------------------------------",
    ]

    diagnosis = diagnose(text(started(), group))

    assert diagnosis.root_cause is not None
    assert diagnosis.root_cause.exception is not None
    assert diagnosis.root_cause.exception.message == "inside"


def test_refused_argument_is_a_root_without_any_exception() -> None:
    line = "vllm: error: unrecognized arguments: --swap-spaec 4"

    assert found(["usage: vllm [-h]", line]) == ("failed_startup", line)


def test_first_failure_is_the_root_of_later_ones() -> None:
    first = logged("EngineCore", traceback("ValueError: first"), "ERROR")
    then = logged("APIServer", traceback("ValueError: then"), "ERROR", pid=7)

    assert found(started(), first, then)[1] == "ValueError: first"


def test_only_pointers_are_better_than_nothing() -> None:
    """The engine's own words may be missing from the log."""
    pointer = traceback(ENGINE_FAILED).split("\n")

    outcome, root = found(started(), pointer)

    assert outcome == "failed_startup"
    assert root is not None
    assert root.startswith("RuntimeError: Engine core initialization failed")


# -------------------------------------------------------------------------------- crashes while serving


def test_crash_while_serving_with_exit_code_0() -> None:
    """The server ends in order after its engine died, and the exit code is 0."""
    engine = logged("EngineCore", traceback("RuntimeError: CUDA error: x"), "ERROR")

    outcome, root = found(
        started(), loaded(), serving(), CRASH, engine, DEAD, GOODBYE, context=Context(exit_code=0)
    )

    assert (outcome, root) == ("crashed", "RuntimeError: CUDA error: x")


def test_request_that_failed_before_the_crash_is_not_its_root() -> None:
    access = ['INFO:     192.0.2.9:1 - "POST /v1/completions HTTP/1.1" 200 OK'] * 300
    engine = logged("EngineCore", traceback("RuntimeError: CUDA error: x"), "ERROR")

    assert found(started(), serving(), ASGI, access, CRASH, engine, DEAD, GOODBYE) == (
        "crashed",
        "RuntimeError: CUDA error: x",
    )


def test_killed_worker_is_the_root_although_all_workers_exited_gracefully() -> None:
    worker = logged(
        "EngineCore", "Worker proc VllmWorker-0 died unexpectedly, shutting down executor.", "ERROR"
    )
    graceful = logged("EngineCore", "[shutdown] Executor: all workers exited gracefully")

    outcome, root = found(started(), serving(), worker, graceful, CRASH, DEAD, GOODBYE)

    assert outcome == "crashed"
    assert root is not None
    assert root.startswith("Worker proc VllmWorker-0 died unexpectedly")


def test_killed_engine_is_seen_by_the_client_alone() -> None:
    """SIGKILL of the engine prints no line of the engine itself."""
    parent = logged("Worker", "Parent process exited, terminating worker queues", pid=9)
    client = "engine core exited unexpectedly; starting cleanup"
    gone = logged("APIServer", f"[shutdown] MPClient: {client}", "WARNING", pid=7)

    outcome, root = found(started(), serving(), parent, gone, DEAD, GOODBYE)

    assert outcome == "crashed"
    assert root is not None
    assert root.endswith(client)


def test_engine_dead_errors_alone_are_a_crash() -> None:
    outcome, root = found(started(), serving(), DEAD, GOODBYE)

    assert outcome == "crashed"
    assert root == ENGINE_DEAD


# ---------------------------------------------------------------------------------------- cut logs

PHASES = {
    "launched": started()[:1],
    "arguments_parsed": started()[:2],
    "model_resolved": started()[:3],
    "engine_started": started(),
    "loading_weights": [*started(), *loaded()[:1]],
    "weights_loaded": [*started(), *loaded()[:2]],
    "bytecode_transformed": [
        *started(),
        *loaded()[:2],
        *logged("EngineCore", "Dynamo bytecode transform time: 5.86 s"),
    ],
    "profiled": [*started(), *loaded()],
    "capturing_graphs": [
        *started(),
        *loaded(),
        "Capturing CUDA graphs (decode, FULL):  40%|████      | 4/10",
    ],
    "server_starting": [*started(), *loaded(), *serving()[:1]],
    "serving": [*started(), *loaded(), *serving()],
}


@pytest.mark.parametrize("phase", list(PHASES))
def test_cut_log_names_the_last_milestone(phase: str) -> None:
    """A log that just stops proves no failure: where it stopped is all that it tells."""
    diagnosis = diagnose(text(PHASES[phase]))

    assert diagnosis.last_milestone == phase
    assert diagnosis.outcome == ("served" if phase == "serving" else "starting")
    assert diagnosis.verdict == "inconclusive"
    assert any("simply stops" in limit for limit in diagnosis.limits)
    assert any("exit code is not known" in limit for limit in diagnosis.limits)


@pytest.mark.parametrize("phase", list(PHASES))
@pytest.mark.parametrize(
    ("context", "starting", "serving_"),
    [
        (Context(exit_code=137), "killed", "killed"),
        (Context(oom_killed=True), "killed", "killed"),
        (Context(exit_code=1), "failed_startup", "crashed"),
        (Context(exit_code=139), "failed_startup", "crashed"),
    ],
)
def test_exit_state_tells_what_a_cut_log_cannot(
    phase: str, context: Context, starting: str, serving_: str
) -> None:
    diagnosis = diagnose(text(PHASES[phase]), context=context)

    assert diagnosis.outcome == (serving_ if phase == "serving" else starting)
    assert diagnosis.root_cause is not None
    assert diagnosis.root_cause.line == diagnosis.timeline[-1].line
    assert diagnosis.verdict == "inconclusive"


@pytest.mark.parametrize("code", [0, 130, 143])
def test_log_without_farewell_of_a_server_that_was_asked_to_stop(code: int) -> None:
    diagnosis = diagnose(text(started(), loaded(), serving()), context=Context(exit_code=code))

    assert diagnosis.root_cause is None
    assert diagnosis.verdict == "healthy"


@pytest.mark.parametrize("phase", list(PHASES))
def test_server_known_to_run_has_not_failed(phase: str) -> None:
    diagnosis = diagnose(text(PHASES[phase]), context=Context(running=True))

    assert (diagnosis.verdict, diagnosis.root_cause) == ("healthy", None)


@pytest.mark.parametrize("cut", range(5, 15))
def test_cut_cascade_never_names_another_root(cut: int) -> None:
    """Dropping the tail may lose the root; what is named is in the log and never a symptom."""
    whole = failed_start("ValueError: the root")
    root = root_of(diagnose(text(whole[:cut])))

    assert root in {"ValueError: the root", root_of(diagnose(text(started())))} or cut < 9


@pytest.mark.parametrize("log", ["", "\n", "hello\n", "x\n" * 100])
def test_text_of_nobody_is_no_evidence(log: str) -> None:
    diagnosis = diagnose(log)

    assert (diagnosis.verdict, diagnosis.outcome) == ("no_evidence", "unknown")
    assert diagnosis.root_cause is None


# ------------------------------------------------------------------------------------- fingerprints


def fingerprint(*parts: list[str]) -> str:
    root = diagnose(text(*parts)).root_cause
    assert root is not None
    return root.fingerprint


def elsewhere(line: str) -> str:
    """The same line on another host, at another time, with other numbers and paths."""
    changes = {
        "pid=71": "pid=90210",
        "12-01 02:00:00": "03-17 19:44:51",
        "/usr/local/lib/python3.12/site-packages": "/opt/venv/lib/python3.11/site-packages",
        "/models/tiny": "/mnt/nfs/big/model-v2",
        "0x7f2b8d264c08": "0x55d0c0ffee00",
        "line 1,": "line 4711,",
        "42": "1024",
        "10.0.0.1:5000": "192.168.7.44:29500",
    }
    for old, new in changes.items():
        line = line.replace(old, new)
    return line


@pytest.mark.parametrize(
    "exception",
    [
        "ValueError: head size 42 is not supported",
        "OSError: /models/tiny/config.json: no such file",
        "RuntimeError: cannot reach 10.0.0.1:5000 after 42 s",
        "TypeError: <object at 0x7f2b8d264c08> is not callable",
    ],
)
def test_fingerprint_is_the_same_elsewhere(exception: str) -> None:
    here = failed_start(exception)
    there = [elsewhere(line) for line in here]

    assert there != here
    assert fingerprint(here) == fingerprint(there)


def test_fingerprint_of_a_line_without_an_exception_is_the_same_elsewhere() -> None:
    line = "Worker proc VllmWorker-0 died unexpectedly (exit code: -9)"
    here = [*started(), *logged("EngineCore", line, "ERROR")]

    assert fingerprint(here) == fingerprint([elsewhere(x) for x in here])


def test_fingerprint_differs_where_the_failure_differs() -> None:
    other_frame = traceback("ValueError: a", [("vllm/other.py", "g")])
    keys = [
        fingerprint(failed_start("ValueError: a")),
        fingerprint(failed_start("TypeError: a")),
        fingerprint(failed_start("ValueError: b")),
        fingerprint(started(), logged("EngineCore", other_frame, "ERROR")),
        fingerprint(started(), loaded(), failed_start("ValueError: a")[4:]),
    ]

    assert len(set(keys)) == len(keys)
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in keys)


def test_frames_of_plumbing_do_not_count() -> None:
    frames = [("vllm/a.py", "f"), ("asyncio/runners.py", "run")]
    others = [("uvloop/loop.py", "go"), ("vllm/a.py", "f")]

    assert fingerprint(
        started(), logged("E", traceback("ValueError: a", frames), "ERROR")
    ) == fingerprint(started(), logged("E", traceback("ValueError: a", others), "ERROR"))


@given(st.text(max_size=400))
def test_masked_text_is_short_and_masks_to_itself(value: str) -> None:
    once = mask(value)

    assert len(once) <= 300
    assert not any(char.isascii() and char.isdigit() for char in once)
