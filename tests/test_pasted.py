"""Bug reports: the log in them is diagnosed, their environment is read, their prose is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.envelopes import detect
from tests import wraps
from tests.support import SAMPLES, diagnose, failed_start, log_of, rule, text
from tests.test_wrapped import examined, verdict

ENVIRONMENT = """\
Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
Architecture:                    x86_64

PyTorch version              : 2.9.0+cu128
CUDA runtime version         : 12.8.93
GPU models and configuration : GPU 0: NVIDIA H100 80GB HBM3
Nvidia driver version        : 570.133.20
vLLM Version                 : 0.11.0
"""


def fenced(log: bytes) -> wraps.Wrapped:
    head = (
        b"### Describe the bug\n\nIt says CUDA out of memory, I think. RuntimeError: help!\n\n"
        b"```bash\nvllm serve x\n```\n\n```text\n"
    )
    count = len(wraps.lines_of(log)[0])
    end = b"" if log.endswith(b"\n") else b"\n"
    first = head.count(b"\n") + 1
    tail = b"```\n\nThanks! ValueError: is this known?\n"
    return head + log + end + tail, list(range(first, first + count))


def quoted(log: bytes) -> wraps.Wrapped:
    return _set_off(log, b"> ")


def indented(log: bytes) -> wraps.Wrapped:
    return _set_off(log, b"    ")


def _set_off(log: bytes, mark: bytes) -> wraps.Wrapped:
    lines = wraps.lines_of(log)[0]
    head = b"# Crash\n\nmy server dies with RuntimeError: help:\n\n"
    body = b"".join(mark + line + b"\n" for line in lines)
    return head + body + b"\nAny idea?\n", list(range(5, 5 + len(lines)))


@pytest.mark.parametrize("case", SAMPLES, ids=[str(c.relative_to(c.parents[1])) for c in SAMPLES])
def test_pasted_log_gives_the_same_verdict(case: Path) -> None:
    log = log_of(case)
    want = examined(log)
    ways: tuple[Callable[[bytes], wraps.Wrapped], ...] = (fenced, quoted, indented)
    for way in ways:
        data, places = way(log)
        got = examined(data)

        assert got[0][0].source.envelope is not None, way.__name__
        assert [verdict(b[0]) for b in got] == [verdict(a[0], places) for a in want], way.__name__


def test_environment_of_a_report_is_read_for_facts() -> None:
    report = (
        "### Your current environment\n\n<details>\n\n```text\n"
        f"{ENVIRONMENT}```\n\n</details>\n\n```\n{text(failed_start())}```\n"
    )

    found = diagnose(report)

    assert found.source.envelope == "report"
    assert found.run.engine_version == "0.11.0"
    assert found.run.hardware.gpu == "NVIDIA H100 80GB HBM3"
    assert found.run.hardware.arch == "x86_64"


def test_prose_and_code_are_no_evidence() -> None:
    """A rule that any of the prose would match finds nothing."""
    report = (
        "## Help\n\nI get ValueError: broken, see below.\n\n"
        "```python\nraise ValueError('broken: ValueError: broken')\n```\n\n"
        "```\nINFO 12-01 02:00:00 [core.py:1] fine\n```\n"
    )

    found = diagnose(report, rule("a.broken", {"line": "ValueError: broken"}))

    assert found.root_cause is None
    assert found.findings == []


def test_lines_that_a_terminal_broke_are_joined() -> None:
    log = text(failed_start("ValueError: " + "the head size is not one of those it knows " * 4))
    broken = "".join(
        f"{line[i : i + 80]}\n" for line in log.splitlines() for i in range(0, len(line) or 1, 80)
    )

    plain, found = diagnose(log), diagnose(f"# Bug\n\n```\n{broken}```\n")

    assert plain.root_cause is not None
    assert found.root_cause is not None
    assert found.root_cause.text == plain.root_cause.text
    assert found.root_cause.fingerprint == plain.root_cause.fingerprint


@pytest.mark.parametrize(
    "log",
    [
        "INFO 12-01 02:00:00 [core.py:1] prompt:\n```text\nINFO 12-01 x\n```\n",
        "plain text\nof no kind\n",
        "# a comment\nkey = value\n",
    ],
    ids=["a server's own log", "text", "configuration"],
)
def test_what_is_no_report_is_read_as_it_is(log: str) -> None:
    assert detect(log.encode()) == ()
