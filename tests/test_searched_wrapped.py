"""Docker's json-file logs are searched before they are unwrapped: nothing may be missed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.analysis import examine_runs
from forensics.envelopes import Block
from forensics.envelopes.quiet import Quiet, even_lines
from forensics.escaped import escaped
from forensics.hyperscan_finder import HyperscanFinder, WrappedFinder
from forensics.model import Context, Source
from forensics.patterns import compiled, relax
from forensics.scanning import Scan
from tests import wraps
from tests.support import SAMPLES, log_of, shipped

pytest.importorskip("hyperscan")

QUIET = (
    b'(APIServer pid=13) INFO:     10.0.0.1:52 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    b'(APIServer pid=13) INFO:     10.0.0.7:99 - "GET /metrics HTTP/1.1" 200 OK\n'
)


class Pieces(msgspec.Struct):
    """A source in pieces of whole lines, as files are read."""

    data: bytes
    size: int
    source: Source = Source("text", "x")

    @property
    def head(self) -> bytes:
        return self.data[:65_536]

    @property
    def consumed(self) -> int:
        return len(self.data)

    def runs(self) -> Iterator[bytes]:
        place = 0
        while place < len(self.data):
            end = self.data.find(b"\n", place + self.size) + 1 or len(self.data)
            yield self.data[place:end]
            place = end


def wrapped_finder() -> WrappedFinder:
    found = shipped().finder
    assert isinstance(found, HyperscanFinder)
    return found.wrapped()


def told(data: bytes, size: int) -> list[dict[str, Any]]:
    """All that is said of a log, but for what speaks of the wrapping."""
    found = []
    for diagnosis, _, _ in examine_runs(Pieces(data, size), shipped(), Context()):
        one = msgspec.to_builtins(diagnosis)
        one["source"] = {k: one["source"][k] for k in ("lines", "truncated")}
        for milestone in one["timeline"]:
            del milestone["at"], milestone["seconds"]
        for finding in one["findings"]:
            for evidence in finding["evidence"]:
                del evidence["at"]
        found.append(one)
    return found


def test_lines_with_candidates_are_found_in_their_wrapping() -> None:
    """What is found in clean lines of any sample is found in the same lines wrapped."""
    wrapped, clean = wrapped_finder(), shipped().finder
    for case in SAMPLES:
        log = log_of(case)
        for line in {*log.splitlines()}:
            hits = clean.candidates(line.replace(b"\x1b", b"") + b"\n", statistics=False)
            raw, _ = wraps.docker_json(line.replace(b"\x1b", b"").replace(b"\r", b"") + b"\n")
            if hits:
                assert wrapped.places(raw) != [], line


def test_tests_of_rules_are_found_in_their_wrapping() -> None:
    wrapped, clean = wrapped_finder(), shipped().finder
    from forensics import ruleset  # noqa: PLC0415 - only here the tests of rules are read

    rules, _ = ruleset.merge([ruleset.parse(ruleset.read_folder(ruleset.builtin_folder()))])
    lines = {
        line.encode()
        for rule in rules.rules
        for one in rule.tests.match
        for line in (one.log or "").splitlines()
    }
    assert lines
    for line in lines:
        raw, _ = wraps.docker_json(line + b"\n")
        if clean.candidates(line + b"\n", statistics=False):
            assert wrapped.places(raw) != [], line


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ('msg="', 'msg="x'),
        (r"key '<(?P<name>\w+)>' & more$", "key '<a>' & more"),
        (r"path C:\\dir", "path C:\\dir"),
        (r"a\sb", "a\tb"),
        (r"say [^x]{2} end", 'say "\\ end'),
        (r"\bword\b", "\tword\t"),
        (r"^(?:tab\tinside|.)$", "\u2028"),
        ("├ 1", "├ 1"),
        ("\\[[\"'<]x", '["x'),
    ],
)
def test_escapes_are_part_of_the_pattern(pattern: str, text: str) -> None:
    assert compiled(pattern).search(text)
    for ascii_only in (True, False):
        body = json.dumps(text, ensure_ascii=ascii_only)
        for char in "<>&":
            body = body.replace(char, f"\\u{ord(char):04x}")

        assert compiled(escaped(relax(pattern))).search(body), body


@settings(deadline=None)
@given(st.text(st.sampled_from('ab"\\<>&\t./[]{}^$ ├\u2028'), min_size=1, max_size=12))
def test_any_text_is_found_escaped(text: str) -> None:
    import regex  # noqa: PLC0415 - as the code under test does

    raw, _ = wraps.docker_json(text.encode() + b"\n")

    assert compiled(escaped(regex.escape(text, special_only=True))).search(raw.decode())


@pytest.mark.parametrize("size", [40_000, 300_000])
@pytest.mark.parametrize("ends", [b"", b"trouble"])
def test_same_verdict_far_into_a_wrapped_log(size: int, ends: bytes) -> None:
    """Failures after megabytes of lines that are never unwrapped."""
    start = log_of(next(c for c in SAMPLES if c.name == "v032-happy-eager"))
    start = start[: start.index(b"Application startup complete")]
    start += b"Application startup complete.\n"
    crash = log_of(next(c for c in SAMPLES if c.name == "v020-ngram-rejection-sampler-crash"))
    log = start + QUIET * 20_000 + (crash[-20_000:] if ends else b"") + QUIET * 3_000
    log += b"tail \\n \xe2\x96\x88" + b"x" * 40_000 + b"\n" + QUIET * 2_000
    wrapped, places = wraps.docker_json(log)
    want = told(log, size)

    got = told(wrapped, size)

    assert [one["verdict"] for one in got] == [one["verdict"] for one in want]
    assert [one["outcome"] for one in got] == [one["outcome"] for one in want]
    for a, b in zip(want, got, strict=True):
        assert [m["milestone"] for m in a["timeline"]] == [m["milestone"] for m in b["timeline"]]
        assert [f["rule"] for f in a["findings"]] == [f["rule"] for f in b["findings"]]
        cited = [[places[e["line"] - 1] for e in f["evidence"]] for f in a["findings"]]
        assert cited == [[e["line"] for e in f["evidence"]] for f in b["findings"]]
        assert b["source"]["lines"] == wrapped.count(b"\n")


def test_most_of_a_healthy_log_is_never_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped, _ = wraps.docker_json(QUIET * 40_000)
    opened: list[int] = []
    real = Quiet.block

    def block(self: Quiet) -> Block:
        opened.append(self.size)
        return real(self)

    monkeypatch.setattr(Quiet, "block", block)
    scan = Scan(Pieces(wrapped, 500_000), shipped().wants, shipped().finder)
    assert len(list(scan.runs())) == 1

    assert scan.pipeline.lines == 80_000
    assert sum(opened) < 5_000_000 < len(wrapped)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=5))
def test_parts_and_torn_records_are_told(lines: list[bytes]) -> None:
    whole, _ = wraps.docker_json(b"".join(line + b"\n" for line in [b"a", *lines]))
    part, _ = wraps.docker_json(b"\n".join([b"a", *lines]) + b"x")

    assert even_lines(whole) == len(lines) + 1
    assert even_lines(whole + part) is None
    assert even_lines(whole[:-3]) is None


def test_part_that_ends_like_a_line_is_told() -> None:
    raw = b'{"log":"a\\\\n","stream":"stdout","time":"2026-12-01T02:00:00Z"}\n'

    assert even_lines(raw) == 1
    assert wrapped_finder().places(raw) is None
