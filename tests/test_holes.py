"""Lines that are missing or cut in the middle of a log are said, and nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import wraps
from tests.support import SAMPLES, diagnose, failed_start, log_of, logged, raw, started, text
from tests.support import traceback as printed
from tests.test_wrapped import examined, verdict

NAMES = [str(case.relative_to(case.parents[1])) for case in SAMPLES]
FRAMES = [(f"vllm/v1/engine/part{i}.py", f"step_{i}") for i in range(6)]


@pytest.mark.parametrize("case", SAMPLES, ids=NAMES)
def test_whole_log_has_no_hole(case: Path) -> None:
    for found, _, evidence in examined(log_of(case)):
        assert "middle" not in found.source.truncated
        assert "lines" not in found.source.truncated
        assert not evidence.mixed


def broken(drop: slice) -> str:
    """A started server whose worker raised; some lines of its traceback are gone."""
    lines = printed("ValueError: the block is not there", FRAMES).split("\n")
    del lines[drop]
    error = logged("EngineCore", "\n".join(lines), "ERROR")
    return text(started(), error, logged("APIServer", "Shutting down", pid=7))


def test_traceback_without_its_head_is_said_and_keeps_its_frames() -> None:
    found = diagnose(broken(slice(0, 5)))

    assert "middle" in found.source.truncated
    assert any("the head of a traceback" in one for one in found.limits)
    assert found.root_cause is not None
    assert found.root_cause.exception is not None
    assert found.root_cause.exception.type == "ValueError"


def test_traceback_without_its_end_is_said() -> None:
    lines = printed("ValueError: gone", FRAMES).split("\n")[:-1]
    log = text(
        started(),
        logged("EngineCore", "\n".join(lines), "ERROR"),
        logged("EngineCore", "Resolved architecture: LlamaForCausalLM"),
    )
    found = diagnose(log)

    assert "middle" in found.source.truncated
    assert any("the end of a traceback" in one for one in found.limits)


def test_whole_traceback_is_no_hole() -> None:
    assert "middle" not in diagnose(broken(slice(0, 0))).source.truncated


def test_printed_stack_is_no_traceback() -> None:
    stack = "\n".join(printed("x", FRAMES).split("\n")[1:-1])
    log = text(started(), raw("EngineCore", stack), logged("EngineCore", "all is well"))

    assert "middle" not in diagnose(log).source.truncated


@pytest.mark.parametrize(
    "note",
    [
        "[...]",
        "<snip>",
        "... 120 lines omitted ...",
        "[truncated]",
        "Suppressed 812 messages from vllm.service",
    ],
)
def test_note_of_left_out_lines_is_said(note: str) -> None:
    found = diagnose(text(started(), [note], failed_start()[-3:]))

    assert "middle" in found.source.truncated


@pytest.mark.parametrize(
    "line",
    [
        "  ...",
        "...",
        "usage: vllm serve [model_tag] [options] [...]",
        "the prompt of 9 lines truncated to 5 tokens",
    ],
)
def test_other_dots_are_no_note(line: str) -> None:
    assert "middle" not in diagnose(text(started(), [line])).source.truncated


def test_lines_cut_at_a_width_are_said() -> None:
    whole = text(
        started(),
        *(
            logged("EngineCore", "Resolved architecture: " + word * 40)
            for word in ("alpha", "bravo", "delta", "gamma", "kappa", "omega", "sigma", "theta")
        ),
    )
    cut = "".join(f"{line[:120]}\n" for line in whole.splitlines())

    assert "lines" not in diagnose(whole[: len(whole) // 3]).source.truncated
    found = diagnose(cut)
    assert "lines" in found.source.truncated
    assert any("cut at 120 bytes" in one for one in found.limits)


def test_two_servers_in_one_log_are_said() -> None:
    lines = [
        line
        for turn in range(8)
        for line in logged(
            "APIServer", f"Resolved architecture: X{turn}", pid=7 if turn % 2 else 900
        )
    ]
    found = diagnose(text(started(), lines))

    assert any("more than one server" in one for one in found.limits)


RECORDS: dict[str, Callable[[int, str], dict[str, object]]] = {
    "a line without a time": lambda _, line: {"source_type": "docker_logs", "message": line},
    "cloud logging": lambda i, line: {"textPayload": line, "timestamp": wraps.nanos(i)},
    "with its newline": lambda i, line: {"date": 1.5 + i, "log": line + "\n", "stream": "stderr"},
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_collectors_give_the_same_verdict(name: str) -> None:
    for case in SAMPLES[::4]:
        log = log_of(case)
        lines = [line.decode("utf-8", "replace") for line in wraps.lines_of(log)[0]]
        data = "".join(json.dumps(RECORDS[name](i, x)) + "\n" for i, x in enumerate(lines))
        want, got = examined(log), examined(data.encode())

        assert [verdict(b[0]) for b in got] == [verdict(a[0]) for a in want], case.name
