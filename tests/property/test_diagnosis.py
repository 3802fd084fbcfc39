"""What holds for every log: nothing raises, cuts do not show, both finders agree, healthy lines are mute."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from forensics import samples
from forensics.analysis import Engine, examine_bytes, examine_reader, prepare
from forensics.model import Context, Diagnosis, Source
from forensics.patterns import PlainFinder
from forensics.reporters import REPORTERS, View
from tests.support import (
    SAMPLES,
    failed_start,
    loaded,
    logged,
    runs,
    serving,
    shipped,
    started,
    stopped,
    text,
)

pytest.importorskip("hyperscan")

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module", autouse=True)
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compared is what the program compiles now, not what it compiled last week."""
    shipped.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORENSICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


@cache
def log_of(case: Path) -> bytes:
    """The log of a sample, plain."""
    return (case / samples.expected(case).log).read_bytes()


def context_of(case: Path) -> Context:
    return Context(exit_code=samples.expected(case).exit_code)


class Cut(Struct):
    """A source that hands its bytes on in runs of whole lines, each of about so many bytes."""

    data: bytes
    size: int

    @property
    def head(self) -> bytes:
        return self.data

    @property
    def source(self) -> Source:
        return Source("text", "test")

    @property
    def consumed(self) -> int:
        return len(self.data)

    def runs(self) -> Iterator[bytes]:
        yield from runs(self.data, self.size)


def diagnose(data: bytes, engine: Engine, context: Context | None = None) -> Diagnosis:
    return examine_bytes(data, engine, context or Context(), "test")[0]


# ------------------------------------------------------------------------------------ nothing raises

PIECES = [
    b"Traceback (most recent call last):\n",
    b'  File "/x/vllm/a.py", line 3, in f\n',
    b"ValueError: x\n",
    b"The above exception was the direct cause of the following exception:\n",
    b"  + Exception Group Traceback (most recent call last):\n",
    b"(EngineCore pid=71) ERROR 12-01 02:00:00 [core.py:1] ",
    b"2026-12-01T02:00:00.123456789Z ",
    b'{"levelname": "INFO", "message": "x"}\n',
    b"non-default args: {'a': ",
    b"Application startup complete.\n",
    b"Available KV cache memory: ",
    b"\x1b[31m",
    b"\r",
    b"\n",
    b"\xff\x00\xfe",
    b"9" * 400,
    b"vllm: error: unrecognized arguments: --",
]


@PATIENT
@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    assert diagnose(data, shipped()).schema == "forensics/diagnosis/1"


@PATIENT
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=30).map(b"".join))
def test_pieces_of_logs_in_any_order_never_raise(data: bytes) -> None:
    """And every report can be written, with lines that exist."""
    found = diagnose(data, shipped())

    lines = data.count(b"\n") + 1
    assert found.root_cause is None or 1 <= found.root_cause.line <= lines
    assert all(1 <= c.line <= lines for f in found.findings for c in f.evidence)
    for render in REPORTERS.values():
        assert render(found, View())


# ----------------------------------------------------------------------------------- cuts do not show


@pytest.mark.parametrize("case", SAMPLES, ids=name_of)
def test_sample_cut_anywhere_gives_the_same_diagnosis(case: Path) -> None:
    """Where a source is cut into runs is chance."""
    data, engine = log_of(case), shipped()
    whole = examine_reader(Cut(data, len(data) + 1), engine, context_of(case))

    for size in (1, 3_000) if len(data) < 60_000 else (3_000,):
        cut = examine_reader(Cut(data, size), engine, context_of(case))
        assert cut[0] == whole[0]
        assert cut[2].excerpts == whole[2].excerpts


@PATIENT
@given(st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join), st.integers(1, 400))
def test_any_log_cut_anywhere_gives_the_same_diagnosis(data: bytes, size: int) -> None:
    whole = examine_reader(Cut(data, len(data) + 1), shipped(), Context())

    assert examine_reader(Cut(data, size), shipped(), Context())[0] == whole[0]


# ------------------------------------------------------------------------------------ finders agree


def around(case: Path, each: int = 20) -> list[bytes]:
    """Beginning, root and end of a sample."""
    lines = log_of(case).splitlines(keepends=True)
    root = (samples.expected(case).line or 1) - 1
    chosen = {
        *range(each),
        *range(root - each // 2, root + each // 2),
        *range(len(lines) - each, len(lines)),
    }
    return [line for number, line in enumerate(lines) if number in chosen]


def assert_finders_agree(data: bytes) -> None:
    """The plain finder is the definition of right."""
    assert diagnose(data, shipped()) == diagnose(data, shipped(plain=True))


@pytest.mark.parametrize("case", SAMPLES[::3], ids=name_of)
def test_finders_agree_on_samples(case: Path) -> None:
    assert_finders_agree(b"".join(around(case)))


@settings(PATIENT, max_examples=15)
@given(st.data())
def test_finders_agree_on_mutated_samples(data: st.DataObject) -> None:
    """Lines are dropped, doubled, and shuffled within small windows."""
    lines = around(data.draw(st.sampled_from(SAMPLES)), 12)
    out: list[bytes] = []
    for start in range(0, len(lines), 5):
        window = data.draw(st.permutations(lines[start : start + 5]))
        for line in window:
            out += [line] * data.draw(st.sampled_from([0, 1, 1, 1, 1, 2]))

    assert_finders_agree(b"".join(out))


@cache
def shapes() -> list[bytes]:
    """Lines of all samples, one of each shape."""
    found = {line[:60]: line for case in SAMPLES for line in log_of(case).splitlines(keepends=True)}
    return sorted(found.values())


@settings(PATIENT, max_examples=15)
@given(st.data())
def test_finders_agree_on_random_logs(data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from(shapes()), max_size=30))

    assert_finders_agree(b"".join(lines))


def test_plain_path_is_the_plain_path() -> None:
    """Else the tests above would compare a finder with itself."""
    assert isinstance(shipped(plain=True).finder, PlainFinder)
    assert not isinstance(shipped().finder, PlainFinder)


# ------------------------------------------------------------------------------ healthy lines are mute

HEALTHY = [
    *logged("APIServer", "Route: /health, Methods: GET", origin="launcher.py:46", pid=7),
    *logged("EngineCore", "Using max model len 512", origin="model.py:2152"),
    *logged("EngineCore", "reserved_cpus=[]", origin="ompmultiprocessing.py:185"),
    *logged("APIServer", "Supported tasks: ['generate']", origin="entry.py:136", pid=7),
    'INFO:     192.0.2.9:50001 - "GET /health HTTP/1.1" 200 OK',
]


def essence(diagnosis: Diagnosis) -> tuple[str, str, str | None, str | None]:
    root = diagnosis.root_cause
    return (
        diagnosis.verdict,
        diagnosis.outcome,
        root.text if root else None,
        root.rule if root else None,
    )


VLLM = [case for case in SAMPLES if case.parent.name == "vllm"]


@settings(PATIENT, max_examples=150)
@given(
    st.sampled_from(VLLM),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(HEALTHY)), max_size=5),
)
def test_healthy_lines_change_no_verdict(case: Path, inserted: list[tuple[float, str]]) -> None:
    lines = log_of(case).splitlines(keepends=True)
    before = diagnose(b"".join(lines), shipped(), context_of(case))
    for place, line in inserted:
        lines.insert(int(place * (len(lines) - 1)), f"{line}\n".encode())

    assert essence(diagnose(b"".join(lines), shipped(), context_of(case))) == essence(before)


# ------------------------------------------------------------------------------- knowing less, saying less


@settings(PATIENT, max_examples=80)
@given(st.sampled_from(VLLM), st.floats(0, 1))
def test_cut_tail_never_invents_a_line(case: Path, share: float) -> None:
    """What is cited stands in what is left."""
    lines = log_of(case).splitlines(keepends=True)
    lines = lines[: max(1, int(len(lines) * share))]

    found = diagnose(b"".join(lines), shipped())

    cited = [c.line for f in found.findings for c in f.evidence]
    cited += [m.line for m in found.timeline]
    cited += [found.root_cause.line] if found.root_cause else []
    assert all(1 <= number <= len(lines) for number in cited)


@pytest.mark.parametrize(
    "log",
    [
        text(failed_start()),
        text(started(), loaded(), serving(), stopped()),
        text(started(), loaded()),
    ],
    ids=["failed", "healthy", "cut"],
)
def test_same_bytes_and_rules_give_the_same_answer(log: str) -> None:
    rules = shipped().rules

    first, again = (diagnose(log.encode(), prepare(rules)) for _ in range(2))

    assert first == again
