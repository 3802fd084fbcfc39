"""The same verdict on the same bytes, however they were wrapped, packed or cut."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.analysis import Examined, examine_all, examine_runs
from forensics.envelopes import ENVELOPES, Envelope, pipeline
from forensics.envelopes.batch import plain
from forensics.model import Context, Diagnosis, Source
from forensics.scanning import Memory
from forensics.sources import opened_stream
from forensics.unpacking import text_of
from tests import wraps
from tests.support import SAMPLES, log_of, shipped

NAMES = [str(case.relative_to(case.parents[1])) for case in SAMPLES]
NOT_FAILED = {"served", "starting", "stopped", "unknown"}


def examined(log: bytes) -> list[Examined]:
    return examine_runs(Memory(log, Source("text", "x")), shipped(), Context())


def verdict(diagnosis: Diagnosis, places: list[int] | None = None) -> tuple[object, ...]:
    """What must not depend on the wrapping; lines are looked up where the log was wrapped."""

    def place(line: int) -> int:
        return places[line - 1] if places else line

    root = diagnosis.root_cause
    return (
        diagnosis.verdict,
        diagnosis.outcome,
        diagnosis.run.engine,
        diagnosis.run.engine_version,
        diagnosis.run.arguments,
        (place(root.line), root.rule, root.fingerprint, root.text) if root else None,
        [(m.milestone, place(m.line)) for m in diagnosis.timeline],
        [
            (f.rule, f.role, [(place(c.line), c.text) for c in f.evidence])
            for f in diagnosis.findings
        ],
    )


@pytest.mark.parametrize("case", SAMPLES, ids=NAMES)
def test_every_envelope_gives_the_same_verdict(case: Path) -> None:
    log = log_of(case)
    want = examined(log)
    for name, wrap in wraps.ENVELOPES.items():
        data, places = wrap(log)
        if name == "utf-16":
            data = text_of(io.BytesIO(data)).read(len(data) * 2)
        got = examined(data)

        assert len(got) == len(want), name
        for a, b in zip(want, got, strict=True):
            assert verdict(b[0]) == verdict(a[0], places), name


@pytest.mark.parametrize("case", SAMPLES, ids=NAMES)
def test_every_packing_gives_the_same_verdict(case: Path, tmp_path: Path) -> None:
    log = log_of(case)
    want = [verdict(one[0]) for one in examined(log)]
    for name, pack in wraps.PACKED.items():
        path = tmp_path / "log"  # known by content, not by name
        path.write_bytes(pack(log))
        inside = "server.log.gz" if name == "zip of gzip" else "logs/server.log"
        entry = f"{path}!/{inside}" if name.startswith(("tar", "zip")) else str(path)

        assert [verdict(one[0]) for one in examine_all(entry, shipped(), Context())] == want, name


@pytest.mark.parametrize("case", SAMPLES, ids=NAMES)
def test_cut_log_never_becomes_a_failed_one(case: Path) -> None:
    """At every 5 percent, from either end: no crash, and what was healthy does not fail."""
    log = log_of(case)
    whole, _, evidence = examined(log)[-1]
    # What a later attempt made good is a failure where the log ends before that attempt.
    retried = any(s.kind == "fatal" for s in evidence.signals)
    healthy = whole.root_cause is None and whole.verdict == "healthy" and not retried
    for percent in range(5, 100, 5):
        place = len(log) * percent // 100
        for part in (log[:place], log[place:]):
            for diagnosis, _, _ in examined(part):
                if healthy:
                    assert diagnosis.outcome in NOT_FAILED, (percent, diagnosis.root_cause)
                    assert diagnosis.verdict not in {"diagnosed", "suspected"}, percent


# ------------------------------------------------------------------------------- wrap and unwrap

#: The envelopes that keep every byte, and those that keep text.
EXACT = {
    "cri": "cri",
    "compose": "compose",
    "docker-local": "docker-local",
    "docker-frames": "docker-frames",
    "docker-timestamps": "docker-timestamps",
    "journal-export": "journal-export",
    "journal-json": "journal-json",
    "journal-short": "syslog",
    "syslog 5424": "syslog-rfc5424",
}
TEXT = {"docker-json": "docker-json", "loki": "json-lines", "vector": "json-lines"}
BINARY = {"docker-local", "docker-frames"}

LINES = st.lists(
    st.one_of(
        st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"")),
        st.sampled_from(
            [b"", b"INFO x", b"\xff\xfe", b"\x1b[1mred\x1b[0m", b"a\rb", b'\\n"}', b"\\"]
        ),
        st.integers(wraps.PART - 2, wraps.PART + 2).map(
            lambda n: b"\xe2\x96\x88" * (n // 3) + b"x" * (n % 3)
        ),
        st.integers(1, 3).map(lambda n: b"y" * (n * wraps.PART)),
    ),
    min_size=1,
    max_size=8,
)


def named(name: str) -> Envelope:
    return next(e for e in ENVELOPES if e.name == name)


def unwrapped(envelope: Envelope, data: bytes, cuts: list[int], *, anywhere: bool) -> bytes:
    """Take one envelope off, fed in pieces."""
    layer = envelope.layer(data)
    places = [0]
    for cut in sorted(c % (len(data) + 1) for c in cuts):
        end = cut if anywhere else data.rfind(b"\n", 0, cut) + 1
        if end > places[-1]:
            places.append(end)
    out, line = b"", 1
    for begin, end in zip(places, [*places[1:], len(data)], strict=True):
        piece = data[begin:end]
        out += layer.feed(plain(piece, line)).text
        line += piece.count(b"\n")
    return out + layer.finish().text


@pytest.mark.parametrize("name", EXACT)
@given(LINES, st.booleans(), st.lists(st.integers(0, 10**6), max_size=4))
def test_bytes_come_out_as_they_went_in(
    name: str,
    lines: list[bytes],
    ended: bool,
    cuts: list[int],
) -> None:
    log = b"\n".join(lines) + (b"\n" if ended else b"")
    wrapped, _ = wraps.ENVELOPES[name](log)

    got = unwrapped(named(EXACT[name]), wrapped, cuts, anywhere=name in BINARY)

    assert got.removesuffix(b"\n") == log.removesuffix(b"\n")


@pytest.mark.parametrize("name", TEXT)
@given(LINES, st.booleans(), st.lists(st.integers(0, 10**6), max_size=4))
def test_text_comes_out_as_it_went_in(
    name: str,
    lines: list[bytes],
    ended: bool,
    cuts: list[int],
) -> None:
    """JSON cannot hold bytes that are no UTF-8: each part of a line has them replaced."""
    log = b"\n".join(lines) + (b"\n" if ended else b"")
    wrapped, _ = wraps.ENVELOPES[name](log)
    pieces = wraps.parts if name == "docker-json" else lambda line: [line]
    want = "\n".join("".join(p.decode("utf-8", "replace") for p in pieces(x)) for x in lines)

    got = unwrapped(named(TEXT[name]), wrapped, cuts, anywhere=False).decode()

    assert got.removesuffix("\n") == (want + "\n" * ended).removesuffix("\n")


@given(st.binary(max_size=400), st.sampled_from(sorted(wraps.ENVELOPES)), st.integers(0, 400))
def test_damaged_wrapping_never_fails(noise: bytes, name: str, at: int) -> None:
    """Whatever stands in a wrapped log, it is read to its end."""
    wrapped, _ = wraps.ENVELOPES[name](b"INFO one\nINFO two\n" * 8)
    data = wrapped[:at] + noise + wrapped[at:]
    unwrap = pipeline(data)
    for _, block in (*unwrap.feed(data), *unwrap.finish()):
        for count in range(block.newlines):
            assert block.line_at(count, 0) >= 1


def test_compressed_stream_is_known_by_its_content() -> None:
    data = gzip.compress(b"one\ntwo\n")
    opened = opened_stream("stdin", "-", io.BytesIO(data))

    assert b"".join(opened.runs()) == b"one\ntwo\n"
