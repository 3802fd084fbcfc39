"""Traps that a real log sets: what looks like the end and is not, and the other way round.

Each case was a wrong verdict once; here stands the right one.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from forensics.analysis import Engine, examine_bytes, prepare
from forensics.model import Context, Diagnosis

SAMPLES = Path(__file__).parent.parent / "samples" / "vllm"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return prepare()


def lines_of(case: str) -> list[str]:
    return (SAMPLES / case / "log.txt").read_text(errors="surrogateescape").splitlines(True)


def judge(engine: Engine, lines: list[str], **facts: object) -> Diagnosis:
    raw = "".join(lines).encode(errors="surrogateescape")
    return examine_bytes(raw, engine, Context(**facts))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "keep"),
    [
        ("v032-kv-too-small", 70),
        ("v027-device-side-assert-serving", 79),
        ("v019-tp2-nccl-shared-memory", 41),
    ],
)
def test_log_that_ends_inside_the_crash_is_no_healthy_one(
    engine: Engine, case: str, keep: int
) -> None:
    found = judge(engine, lines_of(case)[:keep], exit_code=1)

    assert found.verdict in {"diagnosed", "suspected", "inconclusive"}
    assert found.root_cause is not None


ONE_BAD_REQUEST = [
    "(APIServer pid=7) ERROR 12-01 02:30:00 [serving_chat.py:99] Error in preprocessing prompt\n",
    "(APIServer pid=7) ERROR 12-01 02:30:00 [serving_chat.py:99] Traceback (most recent call last):\n",
    '(APIServer pid=7) ERROR 12-01 02:30:00 [serving_chat.py:99]   File "/x.py", line 9, in create\n',
    (
        "(APIServer pid=7) ERROR 12-01 02:30:00 [serving_chat.py:99] ValueError: The decoder prompt "
        "(length 9000) is longer than the maximum model length of 512.\n"
    ),
    'INFO:     127.0.0.1:48880 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n',
    'INFO:     127.0.0.1:48881 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n',
]


@pytest.mark.parametrize("running", [True, False])
def test_bad_request_near_the_end_is_no_crash(engine: Engine, running: bool) -> None:
    """The next request was answered: the server lives."""
    start = [line for line in lines_of("v032-run-kill-all") if "shutdown" not in line]

    found = judge(engine, start + ONE_BAD_REQUEST, running=running)

    assert found.outcome == "served"
    assert found.verdict == ("healthy" if running else "inconclusive")
    assert found.root_cause is None or found.root_cause.exception is None


PEER = [
    "(Worker_TP0 pid=11) ERROR 12-01 02:30:00 [multiproc_executor.py:1] WorkerProc hit an exception.\n",
    "(Worker_TP0 pid=11) ERROR 12-01 02:30:00 [multiproc_executor.py:1] Traceback (most recent call last):\n",
    '(Worker_TP0 pid=11) ERROR 12-01 02:30:00 [multiproc_executor.py:1]   File "/y.py", line 1, in g\n',
    (
        "(Worker_TP0 pid=11) ERROR 12-01 02:30:00 [multiproc_executor.py:1] RuntimeError: "
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
        "[172.17.0.2]:30211\n"
    ),
    "(Worker_TP1 pid=12) ERROR 12-01 02:30:00 [multiproc_executor.py:1] WorkerProc hit an exception.\n",
    "(Worker_TP1 pid=12) ERROR 12-01 02:30:00 [multiproc_executor.py:1] Traceback (most recent call last):\n",
    '(Worker_TP1 pid=12) ERROR 12-01 02:30:00 [multiproc_executor.py:1]   File "/y.py", line 2, in h\n',
    (
        "(Worker_TP1 pid=12) ERROR 12-01 02:30:00 [multiproc_executor.py:1] torch.OutOfMemoryError: "
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 44.40 GiB of "
        "which 1.11 GiB is free.\n"
    ),
]


def test_rank_that_lost_its_peer_is_not_the_root(engine: Engine) -> None:
    """The observer prints first; the rank that ran out of memory is what to read."""
    start = lines_of("v032-kv-too-small")[:45]

    found = judge(engine, start + PEER)

    assert found.root_cause is not None
    assert found.root_cause.rule == "torch.cuda-out-of-memory"
    assert found.root_cause.process == "Worker_TP1"
    assert found.root_cause.exception is not None
    assert found.root_cause.exception.type == "torch.OutOfMemoryError"


@pytest.mark.parametrize(
    "bar",
    [
        "config.json: 0.00B [00:00, ?B/s]\n",
        "tokenizer.json: 100%|██████████| 11.4M/11.4M [00:01<00:00, 9.87MB/s]\n",
        "Loading: 10%|#         | 1/10 [00:01<00:09,  1.00it/s]\n",
    ],
)
def test_progress_bar_inside_a_traceback_is_no_exception(engine: Engine, bar: str) -> None:
    lines = lines_of("v032-model-path-missing")
    lines.insert(30, bar)

    found = judge(engine, lines)

    assert found.root_cause is not None
    assert (found.root_cause.line, found.root_cause.rule) == (53, "huggingface.model-path-missing")


def test_plugin_that_failed_before_the_server_served_explains_no_cut(engine: Engine) -> None:
    lines = lines_of("v032-happy-eager")
    end = next(i for i, line in enumerate(lines) if "Application startup complete" in line)
    head = "(APIServer pid=7) ERROR 12-01 01:00:00 [__init__.py:88] "
    plugin = [
        f"{head}Traceback (most recent call last):\n",
        f'{head}  File "/usr/lib/python3.12/importlib/__init__.py", line 90, in import_module\n',
        f"{head}ModuleNotFoundError: No module named 'foo_plugin'\n",
    ]

    found = judge(engine, lines[:6] + plugin + lines[6 : end + 1])

    assert found.root_cause is not None
    assert found.root_cause.rule == "vllm.log-ends-serving"


def test_innermost_of_nested_exception_groups_is_the_root(engine: Engine) -> None:
    log = """\
  + Exception Group Traceback (most recent call last):
  |   File "/a.py", line 1, in f
  | ExceptionGroup: outer (1 sub-exception)
  +-+---------------- 1 ----------------
    | Exception Group Traceback (most recent call last):
    |   File "/a.py", line 2, in g
    | ExceptionGroup: inner (1 sub-exception)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "/a.py", line 3, in h
      | ValueError: the true reason
      +------------------------------------
"""
    found = judge(engine, [log])

    assert found.root_cause is not None
    assert found.root_cause.exception is not None
    assert found.root_cause.exception.type == "ValueError"


def test_interrupt_by_hand_is_no_failure(engine: Engine) -> None:
    lines = lines_of("v032-kv-too-small")[:45]
    lines += [
        "Traceback (most recent call last):\n",
        '  File "/usr/local/bin/vllm", line 10, in <module>\n',
        "KeyboardInterrupt\n",
    ]
    found = judge(engine, lines, exit_code=130)

    assert (found.outcome, found.root_cause) == ("stopped", None)


def test_exit_code_that_contradicts_an_orderly_end_is_said(engine: Engine) -> None:
    found = judge(engine, lines_of("v020-happy-eager"), exit_code=139)

    assert any("exit code is 139" in text for text in found.limits)


SECRET = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"


@pytest.mark.parametrize("format_", ["terminal", "text", "json", "markdown"])
def test_quoted_neighbours_hold_no_secret(tmp_path: Path, format_: str) -> None:
    log = tmp_path / "x.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n'
        f'    login(token="{SECRET}", api_key="my-super-secret-key-42")\n'
        "RuntimeError: refused\n"
    )
    shown = forensics("diagnose", str(log), "--format", format_).stdout

    assert "refused" in shown
    assert SECRET[:12] not in shown
    assert "super-secret" not in shown


def forensics(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forensics", *words], capture_output=True, text=True, check=False
    )


def test_report_never_replaces_the_log_a_device_or_a_link(tmp_path: Path) -> None:
    log, pipe, link, real = (tmp_path / n for n in ("a.log", "pipe", "link", "real.txt"))
    log.write_text("Traceback (most recent call last):\nValueError: x\n")
    real.write_text("old")
    link.symlink_to(real)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    refused = forensics("diagnose", str(log), "-o", str(log))
    through = forensics("diagnose", str(log), "-o", str(pipe))
    followed = forensics("diagnose", str(log), "-o", str(link))
    os.close(reader)

    assert (refused.returncode, log.read_text()[:9]) == (2, "Traceback")
    assert refused.stderr.startswith("forensics: ")
    assert through.returncode == 1
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert followed.returncode == 1
    assert link.is_symlink()
    assert "ValueError" in real.read_text()


def test_one_empty_log_in_a_folder_costs_one_line(tmp_path: Path) -> None:
    for name in ("a.log", "c.log"):
        (tmp_path / name).write_text("Traceback (most recent call last):\nValueError: x\n")
    (tmp_path / "b.log").touch()

    done = forensics("diagnose", str(tmp_path), "--format", "json")

    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 2
    assert "b.log is empty" in done.stderr


def test_help_without_words_is_readable() -> None:
    done = forensics()

    assert done.returncode == 0
    assert "diagnose" in done.stdout.splitlines()[-1] or len(done.stdout.splitlines()) > 5
