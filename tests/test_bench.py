"""The benchmark's own parts: the logs that it makes, the fixed strings that rivals search for."""

import hashlib
import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bench import __main__ as bench_main
from bench import machine, measure, tables
from bench.generate import Kind, Made, chunks, generate, size_of
from bench.literals import longest_literal
from bench.shapes import clock

HEALTHY_MB = "b1fc0fb0c55acfa62908f001b46de36d6a2b209513dcd47bcd7a4894f66dd32e"

PROCESS = r"\((?P<process>[A-Za-z_]+(?:-\d+)?) pid=\d+\) "
LOGGED = re.compile(
    rf"^{PROCESS}(?P<level>DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d "
    r"\[[\w./]+:\d+\] ?(?P<message>.*)$"
)
ACCESS = re.compile(
    r'^INFO:     (?:\d+\.){3}\d+:\d+ - "(?:GET|POST) /\S* HTTP/1\.1" (?P<status>\d{3}) [A-Z][\w ]+$'
)
UVICORN = re.compile(r"^INFO:     [A-Z][\w ]+(?:\[\d+\]|\.)?$")
BAR = re.compile(
    r"^\r(?:Loading safetensors checkpoint shards: +\d+% Completed \| \d+/\d+ \["
    r"|Capturing CUDA graphs \([^)]+\): +\d+%\|[^|]*\| *\d+/\d+ \[)"
)
# What a process writes past the logger, above all when it ends.
RAW = re.compile(
    r"^$|^Triton is installed|^nanobind: |^ - (?:leaked|\.\.\.) |^See https://|^\[W\d{4} "
    r"|^/usr/local/lib/python|^  (?:warnings\.warn|if hasattr|wrapper = )"
)
STATISTICS = re.compile(
    r"Engine 000: Avg prompt throughput: [\d.]+ tokens/s, "
    r"Avg generation throughput: (?P<generated>[\d.]+) tokens/s, Running: \d+ reqs, "
    r"Waiting: \d+ reqs, (?:GPU|CPU) KV cache usage: [\d.]+%, Prefix cache hit rate: [\d.]+%$"
)
SPECULATIVE = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: (?P<length>[\d.]+), "
    r"Accepted throughput: (?P<accepted_rate>[\d.]+) tokens/s, "
    r"Drafted throughput: [\d.]+ tokens/s, Accepted: (?P<accepted>\d+) tokens, "
    r"Drafted: (?P<drafted>\d+) tokens, "
    r"Per-position acceptance rate: (?P<positions>[\d., ]+), "
    r"Avg Draft acceptance rate: (?P<share>[\d.]+)%$"
)


def text_of(kind: Kind, size: int, seed: int = 1) -> str:
    return b"".join(chunks(kind, size, seed)).decode()


# -------------------------------------------------------------------------------- generated logs


def test_healthy_megabyte_has_the_same_bytes_everywhere() -> None:
    digest = hashlib.sha256(b"".join(chunks(Kind.HEALTHY, 1_000_000))).hexdigest()

    assert digest == HEALTHY_MB


@pytest.mark.parametrize("kind", list(Kind))
def test_seed_alone_decides_the_bytes(kind: Kind) -> None:
    assert text_of(kind, 200_000) == text_of(kind, 200_000)
    assert text_of(kind, 200_000) != text_of(kind, 200_000, seed=2)


@pytest.mark.parametrize("kind", [Kind.HEALTHY, Kind.FAILED_END, Kind.FAILED_START])
@pytest.mark.parametrize("size", [100_000, 1_000_000, 9_000_000])
def test_size_is_met_within_one_percent(kind: Kind, size: int) -> None:
    assert sum(map(len, chunks(kind, size))) == pytest.approx(size, rel=0.01)


def test_small_log_has_two_thousand_lines(tmp_path: Path) -> None:
    made = generate(Kind.SMALL, 0, tmp_path / "log")

    assert made.lines == (tmp_path / "log").read_bytes().count(b"\n") == 2_000


def test_log_is_not_one_block_over_and_over() -> None:
    log = b"".join(chunks(Kind.HEALTHY, 9_000_000))
    blocks = [log[at : at + 4_096] for at in range(0, len(log), 4_096)]

    assert len(set(blocks)) == len(blocks)
    # Neither is it noise: a compressor finds the words of a log, and different numbers.
    assert all(log.count(block) == 1 for block in blocks[::500])


@pytest.mark.parametrize("kind", [Kind.HEALTHY, Kind.FAILED_END])
def test_lines_look_as_the_server_prints_them(kind: Kind) -> None:
    forms = (LOGGED, ACCESS, UVICORN, BAR, RAW)
    lines = text_of(kind, 400_000).split("\n")

    assert [line for line in lines if not any(form.match(line) for form in forms)] == []


@pytest.mark.parametrize("kind", list(Kind))
def test_no_placeholder_is_left(kind: Kind) -> None:
    text = text_of(kind, 100_000)

    assert re.findall(r"@\w+@|@\+\d+@|␍", text) == []


def test_healthy_log_has_no_error_and_some_refused_requests() -> None:
    text = text_of(Kind.HEALTHY, 400_000)

    statuses = {found["status"] for line in text.split("\n") if (found := ACCESS.match(line))}
    assert statuses == {"200", "400", "404"}
    assert " ERROR " not in text
    assert "Traceback" not in text


def test_statistics_agree_with_each_other() -> None:
    lines = text_of(Kind.HEALTHY, 400_000).split("\n")
    pairs = pairwise(lines)
    windows = [
        (first, second)
        for one, other in pairs
        if (first := STATISTICS.search(one)) and (second := SPECULATIVE.search(other))
    ]

    assert len(windows) > 20
    assert sum("SpecDecoding" in line for line in lines) == len(windows)
    for statistics, speculative in windows:
        positions = [float(rate) for rate in speculative["positions"].split(", ")]
        accepted, drafted = int(speculative["accepted"]), int(speculative["drafted"])
        drafts = drafted / len(positions)
        assert positions == sorted(positions, reverse=True)
        assert sum(positions) == pytest.approx(float(speculative["length"]) - 1, abs=0.01)
        assert accepted == pytest.approx(sum(positions) * drafts, rel=0.01)
        assert float(speculative["share"]) == pytest.approx(100 * accepted / drafted, abs=0.06)
        assert float(statistics["generated"]) == pytest.approx((accepted + drafts) / 10, abs=0.06)


def test_time_runs_forward() -> None:
    stamp = re.compile(r"^\([^)]+\) [A-Z]+ (\d\d-\d\d \d\d:\d\d:\d\d) ", re.MULTILINE)
    times = stamp.findall(text_of(Kind.HEALTHY, 400_000))

    assert times == sorted(times)


def test_clock_counts_days_and_months() -> None:
    assert clock(0) == "01-01 00:00:00"
    assert clock(59 * 86_400 - 1) == "02-28 23:59:59"
    assert clock(59 * 86_400) == "03-01 00:00:00"
    assert clock(365 * 86_400) == "01-01 00:00:00"


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Kind.FAILED_END, "TypeError: 'function' object is not subscriptable"),
        (Kind.FAILED_START, "RuntimeError: start (0) + length (320) exceeds dimension size (256)."),
        (Kind.SMALL, "RuntimeError: start (0) + length (320) exceeds dimension size (256)."),
    ],
)
def test_known_root_stands_in_the_line_named(kind: Kind, cause: str, tmp_path: Path) -> None:
    path = tmp_path / "log"

    made = generate(kind, 9_000_000, path)

    lines = path.read_bytes().split(b"\n")
    assert made.root_line is not None
    assert made.root_text == cause
    assert lines[made.root_line - 1].rstrip(b"\r").decode().endswith(f"] {cause}")
    assert made.bytes == path.stat().st_size
    assert made.lines == len(lines) - 1


def test_cascade_follows_a_long_time_of_service() -> None:
    text = text_of(Kind.FAILED_END, 1_000_000)
    order = [
        "Application startup complete.",
        "WorkerProc hit an exception.",
        "EngineCore encountered a fatal error.",
        "AsyncLLM output_handler failed.",
        "EngineDeadError",
        "500 Internal Server Error",
        "Finished server process",
    ]

    places = [text.index(mark) for mark in order]
    assert places == sorted(places)
    assert places[1] - places[0] > 900_000
    # The server ends each line of a record but its last with a carriage return, too.
    assert "WorkerProc hit an exception.\r\n" in text


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("20 MiB", 20 << 20), ("1.5kB", 1_500), ("7", 7), ("1GB", 10**9)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "5 TB", "five"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        size_of(text)


# --------------------------------------------------------------------------------------- literals


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("error: unrecognized arguments: (?P<a>--.+)$", "error: unrecognized arguments: --"),
        (r"^(?:foo|bar) is not (?:a )?known key", "known key"),
        (r"took \d+ seconds", " seconds"),
        (r"CUDA out of memory\. Tried", "CUDA out of memory. Tried"),
        ("(abcd)+efgh", "abcd"),
        ("(?:ab){3}cd", "abababcd"),
        ("x(?=y+z)yzzz", "xyzzz"),
        ("one(?i:CASELESS)three", "three"),
        ("(?i)caseless 1234", " 1234"),
        ("line\nlonger line", "longer line"),
        ("(?x) spaced  out # comment", "spacedout"),
        ("optional(?: words)?", "optional"),
        ("(?>atomic)ally", "atomically"),
        ("abcd?", None),
        ("foo|longer words", None),
        ("[a-z]{10}", None),
        ("abc", None),
        ("(unbalanced", None),
        (r"\p{L}elementary", None),
    ],
)
def test_longest_mandatory_text_is_found(pattern: str, literal: str | None) -> None:
    assert longest_literal(pattern) == literal


WORDS = st.text("abKß.*( -\n", min_size=1, max_size=6).map(re.escape)
PATTERNS = st.recursive(
    WORDS | st.sampled_from([".", r"\d", "[a-c]", "[^x]"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds("(?i:{})".format, inner),
        st.builds(
            "(?:{}){}".format, inner, st.sampled_from(["?", "*", "+", "{2}", "{1,3}", "+?", "*?"])
        ),
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(PATTERNS, st.data())
def test_every_match_holds_the_literal(pattern: str, data: st.DataObject) -> None:
    literal = longest_literal(pattern)
    assume(literal is not None)

    assert literal is not None
    assert literal in data.draw(st.from_regex(pattern, fullmatch=True))


@given(st.data())
def test_matches_made_from_a_pattern_hold_the_literal(data: st.DataObject) -> None:
    pattern = data.draw(
        st.sampled_from(
            [
                r"took (?P<s>\d+(?:\.\d+)?) s in total",
                r"(?:No|Not enough) available memory for the (?:cache )?blocks",
                r"(?:ab){2,4}(?:cdef){3}g*hijk",
                r"Failed core proc\(s\): \{(?P<who>[^}]*)\}",
                r"(?i:Error): bad value [a-f]{2} (?:in|at) place",
            ]
        )
    )
    literal = longest_literal(pattern)

    assert literal is not None
    assert literal in data.draw(st.from_regex(pattern, fullmatch=True))


# -------------------------------------------------------------------------------------- measuring


def python(name: str, code: str, *accepted: int, discard: bool = False) -> measure.Command:
    return measure.Command(
        name, [sys.executable, "-c", code], frozenset(accepted or (0,)), discard=discard
    )


def test_commands_run_in_turns_and_are_measured() -> None:
    loop, sleep, nothing = measure.measure(
        [
            python("loop", "x = b'x' * 80_000_000\nfor _ in range(2_000_000): pass\nprint(1)"),
            python("sleep", "import time; time.sleep(0.2)"),
            python("nothing", "print(1)", discard=True),
        ],
        rounds=2,
    )

    assert [len(result.runs) for result in (loop, sleep, nothing)] == [2, 2, 2]
    assert loop.output.strip() == b"1"
    assert nothing.output == b""
    assert sleep.best >= 0.2 > sleep.cpu
    assert 0 < loop.best <= loop.median
    assert loop.cpu > 0
    assert loop.peak > 80_000_000


def test_command_that_fails_is_named_and_not_measured() -> None:
    failed, accepted, missing = measure.measure(
        [
            python("failed", "import sys; sys.exit('no such rule')"),
            python("accepted", "import sys; sys.exit(1)", 0, 1),
            measure.Command("missing", ["no-such-program"]),
        ],
        rounds=2,
    )

    assert failed.problem == "exit code 1: no such rule"
    assert failed.runs == missing.runs == ()
    assert accepted.problem is None
    assert missing.problem is not None
    assert "no-such-program" in missing.problem


def test_fresh_values_are_made_for_each_run() -> None:
    values = iter(["one", "two"])
    command = measure.Command(
        "fresh",
        [sys.executable, "-c", "import os; print(os.environ['FORENSICS_CACHE'])"],
        fresh=lambda: {"FORENSICS_CACHE": next(values)},
    )

    (result,) = measure.measure([command], rounds=2)

    assert result.output.strip() == b"two"


def test_machine_kind_fits_a_file_name() -> None:
    facts = machine.facts({"python": [sys.executable, "--version"], "none": ["no-such-program"]})

    assert facts["none"] is None
    assert re.fullmatch(r"[a-z0-9-]+-\d+c", machine.kind(facts))
    assert machine.kind({"cpu": "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "cores": 28}) == (
        "intel-xeon-e5-2690-v4-28c"
    )


@pytest.mark.parametrize(
    ("root_line", "diagnosis", "answer"),
    [
        (None, {"verdict": "healthy", "root_cause": None}, "right"),
        (7, {"verdict": "diagnosed", "root_cause": {"line": 7}}, "right"),
        (7, {"verdict": "healthy", "root_cause": None}, "wrong: healthy"),
        (7, {"verdict": "diagnosed", "root_cause": {"line": 8}}, "wrong: diagnosed"),
        (None, {"verdict": "inconclusive", "root_cause": None}, "wrong: inconclusive"),
        (None, {}, "unreadable"),
        (None, [], "unreadable"),
    ],
)
def test_answer_is_held_against_what_was_generated(
    root_line: int | None, diagnosis: object, answer: str
) -> None:
    truth = {"root_line": root_line}

    assert bench_main.answer(json.dumps(diagnosis).encode(), truth).startswith(answer)


def test_tables_fit_eighty_columns() -> None:
    entry = {
        "command": "rg -c -F -f LITERALS",
        "problem": None,
        "best_s": 123.4567,
        "median_s": 1234.5,
        "cpu_s": 1234.5,
        "peak_bytes": 12_345_000_000,
        "bytes_per_s": 12_345_678_901,
        "ratio": 1234.5,
        "scaled_by": 25.0,
        "answer": "right",
    }
    made = Made(Kind.FAILED_END, 500_000_000, 6_543_210, 6_543_100, "TypeError")
    report = {
        "machine": {
            "cpu": "AMD EPYC 7B13 64-Core Processor with a name that goes on and on and on",
            "cores": 128,
            "memory_bytes": 1_024_000_000_000,
            "kernel": "Linux 6.18.44-amd64",
            "python": "3.11.7",
            "ripgrep": "ripgrep 15.2.0 (rev e89fff89ac)",
            "grep": "grep (GNU grep) 3.8",
            "forensics": "forensics 0.1.0",
        },
        "quick": True,
        "inputs": {
            "rules": {"rules": 449, "patterns": 584, "literals": 500},
            Kind.FAILED_END: {"bytes": made.bytes, "lines": made.lines},
        },
        "floor_bytes": 19_000_000,
        "groups": [
            {
                "title": "failed-end log",
                "rounds": 3,
                "base": "rg -c -F -f LITERALS",
                "input": Kind.FAILED_END,
                "entries": [entry, {"command": "missing", "problem": "no such file " * 9}],
            }
        ],
        "targets": [{"text": "x" * 52, "limit": 1.0, "value": 1.234, "met": False}],
    }

    text = tables.text(report)

    assert max(map(len, text.splitlines())) <= 80
    assert "not met" in text
    assert "answer right" in text
